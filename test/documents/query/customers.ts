/** Customers of the toy shop with different fields. */
import type { Database } from '../../../src/database/database.ts'
import type { Statement } from '../../../src/database/sql.ts'
import type { CollectionOptions } from '../../../src/documents/collection.ts'
import type { Documents } from '../../../src/documents/documents.ts'
import type { Condition } from '../../../src/documents/query/condition.ts'
import type { Field, MetaFields } from '../../../src/documents/query/field.ts'
import { openDatabase } from '../../support/engines.ts'
import { openShop, type Shop } from '../../support/shop.ts'

export interface Customer {
  name: string
  email?: string | null
  age?: number
  active?: boolean
  tier?: 'free' | 'pro'
  joined?: string
  tags?: string[]
  address?: { city?: string; street?: { name: string; number: number } }
  orders?: { sku: string; quantity: number; gift?: boolean }[]
  friend?: string
  notes?: string
}

export interface Customers extends Shop {
  readonly customers: Documents<Customer>
  /** What the collection has sent since it was filled. */
  readonly sent: Statement[]
  /** The ids of the customers that meet a condition, sorted. */
  ids(condition: Condition | ((c: Field<Customer>, meta: MetaFields) => Condition)): Promise<string[]>
}

export async function openCustomers(
  documents: Readonly<Record<string, object>>,
  options: CollectionOptions<Customer> = {},
): Promise<Customers> {
  const sent: Statement[] = []
  const shop = await openShop({ database: recording(await openDatabase(), sent) })
  const customers = shop.store.documents<Customer>('customers', options)
  await customers.putMany(Object.entries(documents).map(([id, data]) => ({ id, data: data as Customer })))
  const ids: Customers['ids'] = async condition => {
    const found = await customers.query().where(condition).toArray()
    return found.map(each => each.id).sort()
  }
  sent.length = 0
  return { ...shop, customers, ids, sent }
}

function recording(database: Database, sent: Statement[]): Database {
  return {
    ...database,
    runArrays: statement => {
      sent.push(statement)
      return database.runArrays(statement)
    },
  }
}

/** Numbers as text, text as numbers, nulls, lists and missing fields, where others have proper values. */
export const strangers: Readonly<Record<string, object>> = {
  numberForName: { name: 42, age: 'forty', active: 'yes', joined: 20, tags: 'vip', address: 'Rome' },
  nullForAll: { name: null, email: null, age: null, active: null, tags: null, address: null, orders: null },
  listForName: { name: ['Ada'], age: [36], active: [true], address: [{ city: 'London' }], orders: 'none' },
  objectForAge: { name: { first: 'Ada' }, age: { years: 36 }, address: { city: { name: 'London' } }, tags: {} },
  nothing: {},
}
