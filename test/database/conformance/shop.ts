/** The test data of the exercises: a table of orders in its own schema, made for each test. */
import { afterEach, beforeAll, beforeEach } from 'vitest'
import type { Database, Executor } from '../../../src/database/database.ts'
import { type Identifier, identifier, sql } from '../../../src/database/sql.ts'
import { freshSchema } from '../../support/engines.ts'

export interface Shop {
  readonly database: Database
  readonly schema: string
  /** `(id bigint primary key, note text)` */
  readonly orders: Identifier
  place(by: Executor, id: number, note?: string): Promise<unknown>
  /** The ids of all orders, in order. */
  placed(): Promise<number[]>
}

/** The shop of the test that is running. */
export function useShop(open: () => Promise<Database>): () => Shop {
  let database: Database
  let shop: Shop
  beforeAll(async () => {
    database = await open()
  })
  beforeEach(async () => {
    shop = openShop(database)
    await database.run(sql`create schema ${identifier(shop.schema)}`)
    await database.run(sql`create table ${shop.orders} (id bigint primary key, note text)`)
  })
  afterEach(async () => {
    await database.run(sql`drop schema ${identifier(shop.schema)} cascade`)
  })
  return () => shop
}

function openShop(database: Database): Shop {
  const schema = freshSchema()
  const orders = identifier(schema, 'orders')
  return {
    database,
    schema,
    orders,
    place: (by, id, note = 'new') =>
      by.run(sql`/* shop.place */ insert into ${orders} (id, note) values (${id}::bigint, ${note}::text)`),
    async placed() {
      const rows = await database.run<{ id: number }>(sql`/* shop.placed */ select id from ${orders} order by id`)
      return rows.map(row => Number(row.id))
    },
  }
}
