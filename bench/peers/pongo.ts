/** Pongo, through its public API. The table is as it makes it, with the two indexes that its SQL filters can use. */
import { type SQL, sql } from '@event-driven-io/dumbo'
import { pongoClient } from '@event-driven-io/pongo'
import { openPool } from '../harness/pool.ts'
import type { Customer, CustomerStore } from '../workloads/customers.ts'

export const pongoTable = 'pongo_customers'

export interface Pongo extends CustomerStore, AsyncDisposable {
  /** With its own filters, which look into arrays, too, and are never answered from an index. */
  readonly filtered: Pick<CustomerStore, 'byEmail' | 'byCity'>
}

export async function openPongo(url: string, poolSize: number): Promise<Pongo> {
  const pool = openPool(url, poolSize)
  const client = pongoClient(url, { connectionOptions: { pool } })
  const collection = client.db().collection<Customer & { _id?: string }>(pongoTable)
  await collection.createCollection()
  await pool.query(`
    create index if not exists ${pongoTable}_email on ${pongoTable} ((data ->> 'email'));
    create index if not exists ${pongoTable}_city on ${pongoTable} ((data -> 'address' ->> 'city'))`)
  const where = (filter: SQL): Promise<unknown[]> => collection.find(filter)
  return {
    get: id => collection.findOne({ _id: id }),
    put: async (id, data) => succeed(await collection.replaceOne({ _id: id }, data)),
    patch: async (id, tier) =>
      succeed(await collection.updateOne({ _id: id }, { $set: { tier }, $inc: { visits: 1 } })),
    putMany: async items => succeed(await collection.insertMany(items.map(({ id, data }) => ({ ...data, _id: id })))),
    byEmail: email => where(sql(`data ->> 'email' = %L`, email)),
    byCity: city => where(sql(`data -> 'address' ->> 'city' = %L`, city)),
    filtered: {
      byEmail: email => collection.find({ email }),
      byCity: city => collection.find({ 'address.city': city } as object),
    },
    async [Symbol.asyncDispose]() {
      await client.close()
      if (!pool.ended) await pool.end()
    },
  }
}

function succeed(result: { readonly successful: boolean }): void {
  if (!result.successful) throw new Error('Pongo did not do it')
}
