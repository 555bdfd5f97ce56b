/**
 * An application that exists already, and a store that is added to it in three steps: an outbox, a read model, and one
 * entity whose changes are events. It needs a PostgreSQL server:
 *
 *     DATABASE_URL=postgres://… npx tsx examples/drizzle-application/drizzle-application.ts
 */
import { eq, sql } from 'drizzle-orm'
import { isRillflowError, openStore } from 'rillflow'
import { fromDrizzle } from 'rillflow/transactions'
import { beginApplication, db, orders, pool, products } from './application.ts'
import { events, mails, Order, orderStatus, receipt, revenue } from './events.ts'

await beginApplication()

// The pool of the application serves both. The store's tables are in a schema of their own.
const store = await openStore({
  ...{ pool, schema: 'rillflow', migrate: true },
  ...{ events, handlers: [receipt], projections: [revenue, orderStatus], aggregates: [Order] },
})
await store.start()

/** Its last lines were added: the event is committed with the rows, or not at all. */
async function placeOrder(id: string, email: string, product: string) {
  return db.transaction(async tx => {
    const [taken] = await tx
      .update(products)
      .set({ stock: sql`${products.stock} - 1` })
      .where(eq(products.id, product))
      .returning()
    if (taken === undefined || taken.stock < 0) throw new Error(`the ${product} is out of stock`)
    await tx.insert(orders).values({ id, email, cents: taken.cents, status: 'placed' })
    const options = { tx: fromDrizzle(tx), stream: `order-${id}` }
    return store.workflows.publish('OrderPlaced', { email, cents: taken.cents }, options)
  })
}

// 1. The outbox: a receipt is sent for each order that was committed, and for no other.
const placed = [await placeOrder('1', 'ada@shop', 'teapot'), await placeOrder('2', 'bo@shop', 'teapot')]
await placeOrder('3', 'cleo@shop', 'teapot').catch((error: Error) => console.log(`Order 3: ${error.message}`))
for (const workflow of placed) await workflow.waitUntilSettled()
console.log(`Mails: ${mails.sort().join(' · ')}`)

// 3. Orders from before get an event that says what they were. Run again, it appends nothing twice, and mails nothing.
for (const { id, email, cents, status } of await db.select().from(orders)) {
  const stream = `order-${id}`
  const imported = { type: 'OrderImported', data: { email, cents, status } } as const
  await store.events.append(stream, imported, { expected: 'empty' }).catch(error => {
    if (!isRillflowError(error, 'version_conflict')) throw error
  })
}

// From now on a decision changes an order, and its row follows in the same transaction.
await db.transaction(tx =>
  store.handle(Order, 'order-old-1', { type: 'Ship', carrier: 'Swift' }, { tx: fromDrizzle(tx) }),
)
await store
  .handle(Order, 'order-old-1', { type: 'Ship', carrier: 'Swift' })
  .catch((error: Error) => console.log(`Again: ${error.message}`))
const [old] = await db.select().from(orders).where(eq(orders.id, 'old-1'))
console.log(`The row of the old order: ${old?.status}`)

// 2. The read model has all of them.
await store.consumers.waitFor(revenue, await store.events.head())
for (const { email, orders: count, cents } of await store
  .rows(revenue)
  .orderBy(row => row.email)
  .toArray())
  console.log(`${email}: ${count} orders, ${cents} cents`)

await store.close()
await pool.end()
