/** The application as it was: two tables, and Drizzle. Nothing here knows of the store. */
import { sql } from 'drizzle-orm'
import { drizzle } from 'drizzle-orm/node-postgres'
import { integer, pgTable, text } from 'drizzle-orm/pg-core'
import pg from 'pg'

export const products = pgTable('products', {
  id: text().primaryKey(),
  cents: integer().notNull(),
  stock: integer().notNull(),
})

export const orders = pgTable('orders', {
  id: text().primaryKey(),
  email: text().notNull(),
  cents: integer().notNull(),
  status: text().notNull(),
})

export const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL })
export const db = drizzle(pool)

/** Its tables, and what is in them when the store is added. The example begins anew each time. */
export async function beginApplication(): Promise<void> {
  await db.execute(sql`drop schema if exists rillflow cascade`)
  await db.execute(sql`drop table if exists products, orders`)
  await db.execute(sql`create table products (id text primary key, cents integer not null, stock integer not null)`)
  await db.execute(sql`
    create table orders (id text primary key, email text not null, cents integer not null, status text not null)`)
  await db.insert(products).values({ id: 'teapot', cents: 2900, stock: 2 })
  await db.insert(orders).values({ id: 'old-1', email: 'ada@shop', cents: 2900, status: 'placed' })
}
