/**
 * An application that exists already, with Prisma, and a store that is added to it in three steps: an outbox, a read model,
 * and one entity whose changes are events. It needs a PostgreSQL server:
 *
 *     DATABASE_URL=postgres://… npx tsx examples/prisma-application/prisma-application.ts
 *
 * The events and what they cause are those of the same application with Drizzle.
 */
import { isRillflowError, openStore } from 'rillflow'
import { fromPrisma } from 'rillflow/transactions'
import { events, mails, Order, orderStatus, receipt, revenue } from '../drizzle-application/events.ts'
import { beginApplication, pool, prisma } from './application.ts'

await beginApplication()

// The pool of the application serves both. The store's tables are in a schema of their own.
const store = await openStore({
  ...{ pool, schema: 'rillflow', migrate: true },
  ...{ events, handlers: [receipt], projections: [revenue, orderStatus], aggregates: [Order] },
})
await store.start()

/** Its last lines were added: the event is committed with the rows, or not at all. */
async function placeOrder(id: string, email: string, product: string) {
  return prisma.$transaction(async tx => {
    const taken = await tx.product.update({ where: { id: product }, data: { stock: { decrement: 1 } } })
    if (taken.stock < 0) throw new Error(`the ${product} is out of stock`)
    await tx.order.create({ data: { id, email, cents: taken.cents, status: 'placed' } })
    const options = { tx: fromPrisma(tx), stream: `order-${id}` }
    return store.workflows.publish('OrderPlaced', { email, cents: taken.cents }, options)
  })
}

// 1. The outbox: a receipt is sent for each order that was committed, and for no other.
const placed = [await placeOrder('1', 'ada@shop', 'teapot'), await placeOrder('2', 'bo@shop', 'teapot')]
await placeOrder('3', 'cleo@shop', 'teapot').catch((error: Error) => console.log(`Order 3: ${error.message}`))
for (const workflow of placed) await workflow.waitUntilSettled()
console.log(`Mails: ${mails.sort().join(' · ')}`)

// 3. Orders from before get an event that says what they were. Run again, it appends nothing twice, and mails nothing.
for (const { id, email, cents, status } of await prisma.order.findMany()) {
  const imported = { type: 'OrderImported', data: { email, cents, status } } as const
  await store.events.append(`order-${id}`, imported, { expected: 'empty' }).catch(error => {
    if (!isRillflowError(error, 'version_conflict')) throw error
  })
}

// From now on a decision changes an order, and its row follows in the same transaction.
const ship = { type: 'Ship', carrier: 'Swift' } as const
await prisma.$transaction(tx => store.handle(Order, 'order-old-1', ship, { tx: fromPrisma(tx) }))
await store.handle(Order, 'order-old-1', ship).catch((error: Error) => console.log(`Again: ${error.message}`))
const old = await prisma.order.findUnique({ where: { id: 'old-1' } })
console.log(`The row of the old order: ${old?.status}`)

// 2. The read model has all of them.
await store.consumers.waitFor(revenue, await store.events.head())
for (const { email, orders: count, cents } of await store
  .rows(revenue)
  .orderBy(row => row.email)
  .toArray())
  console.log(`${email}: ${count} orders, ${cents} cents`)

await store.close()
await prisma.$disconnect()
await pool.end()
