/** The application as it was: two tables, and Prisma. Nothing here knows of the store. */
import { PrismaPg } from '@prisma/adapter-pg'
import pg from 'pg'
// `npx prisma generate` has made it from schema.prisma. It is committed, so that the example runs without that command.
import { PrismaClient } from './generated/client.ts'

export const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL })
export const prisma = new PrismaClient({ adapter: new PrismaPg(pool) })

/** Its tables, and what is in them when the store is added. The example begins anew each time. */
export async function beginApplication(): Promise<void> {
  await prisma.$executeRaw`drop schema if exists rillflow cascade`
  await prisma.$executeRaw`drop table if exists products, orders`
  await prisma.$executeRaw`create table products (id text primary key, cents integer not null, stock integer not null)`
  await prisma.$executeRaw`
    create table orders (id text primary key, email text not null, cents integer not null, status text not null)`
  await prisma.product.create({ data: { id: 'teapot', cents: 2900, stock: 2 } })
  await prisma.order.create({ data: { id: 'old-1', email: 'ada@shop', cents: 2900, status: 'placed' } })
}
