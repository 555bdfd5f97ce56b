/**
 * A small shop. Three customers order; handlers charge, pack and ship; read models follow. Then two clerks get in each
 * other's way, and a customer presses a button twice. The data is stored in ./.rillflow, so the next run continues.
 *
 *     npx tsx examples/shop/main.ts
 */
import { gt, increment, openStore, VersionConflict } from 'rillflow'
import { customers } from './customers.ts'
import { Order } from './order.ts'
import { printEvent, say } from './print.ts'
import { orders, sales } from './read-models.ts'
import shop from './rillflow.config.ts'

say('Opening the embedded store in ./.rillflow (the first time takes a few seconds) …')
const store = await openStore(shop)
const before = await store.events.head()
say(before === 0 ? 'The log is new and empty.\n' : `Welcome back: the log is at position ${before}.\n`)
await store.start() // projections, subscriptions, handlers and schedules, in this process

const stop = new AbortController()
const printed = follow(stop.signal)
await Promise.all([
  order('Ada', ['teapot', 'cup'], 4200),
  order('Bo', ['lamp'], 2900),
  order('Cleo', ['globe', 'umbrella', 'notebook'], 8900),
])
const counter = store.newId('order')
await showConflict()
await showRepeat()
await showReadModels()
await store.consumers.waitFor('mailer', await store.events.head())
stop.abort()
say(`\n${await printed} events, each printed once and in order. Run it again: nothing is lost.`)
await store.close()

/** A published event starts a workflow: everything that happens because of it. */
async function order(customer: string, items: string[], cents: number): Promise<void> {
  const id = store.newId('order') // the id is time-ordered, so indexes stay local
  const data = { customer, items, cents }
  const workflow = await store.workflows.publish('OrderPlaced', data, { stream: id, idempotencyKey: id })
  await workflow.waitForEvent('OrderShipped')
  const { state } = await workflow.waitUntilSettled({ timeoutMs: 10_000 })
  const document = await store.documents(orders).get(id)
  say(`          ${customer}'s workflow is ${state}, the order is ${document?.data.status}`)
}

/** Prints every event. Nothing is skipped, however the orders overlap. */
async function follow(signal: AbortSignal): Promise<number> {
  let count = 0
  for await (const event of store.events.tail({ from: before, signal })) {
    printEvent(event)
    count++
  }
  return count
}

async function showConflict(): Promise<void> {
  say('\nAn order is paid at the counter, and two clerks ship it at once. Both expect version 1:')
  await store.events.append(counter, { type: 'OrderPaid', data: { receipt: 'cash' } }, { expected: 'empty' })
  const append = (carrier: string) =>
    store.events.append(counter, { type: 'OrderShipped', data: { carrier } }, { expected: 1 }).then(
      () => `${carrier}: shipped`,
      error => {
        if (error instanceof VersionConflict)
          return `${carrier}: ${error.code}, the stream is at version ${error.actual}`
        throw error
      },
    )
  for (const line of await Promise.all([append('Swift'), append('Turtle')])) say(`  ${line}`)

  say('An aggregate decides on the state of its stream:')
  const refused = await store.handle(Order, counter, { type: 'Ship', carrier: 'Turtle' }).catch((error: Error) => error)
  say(`  refused: ${(refused as Error).message}`)
  const { state } = await store.decide(Order, counter, order =>
    order.status === 'shipped' ? [] : { type: 'OrderShipped', data: { carrier: 'Turtle' } },
  )
  say(`  decided on the spot: it is ${state.status} already`)
}

async function showRepeat(): Promise<void> {
  say('\nA customer presses the button twice. The idempotency key makes it one payment:')
  const press = () =>
    store.events.append(
      counter,
      { type: 'OrderPaid', data: { receipt: 'a tip' } },
      { idempotencyKey: `tip-${counter}` },
    )
  for (const { version, repeated } of await Promise.all([press(), press()]))
    say(`  version ${version}${repeated ? ' (repeated: the first outcome)' : ''}`)
}

async function showReadModels(): Promise<void> {
  await store.consumers.waitFor(sales, await store.events.head())
  say('\nThe best customers of all runs (rows of a projection):')
  const best = await store
    .rows(sales)
    .where(row => gt(row.cents, 3000))
    .orderBy(row => row.cents, 'desc')
    .limit(5)
    .toArray()
  for (const { customer, orders, cents } of best) say(`  ${customer.padEnd(6)} ${orders} orders, ${cents} cents`)

  const ada = { name: 'Ada', email: 'ada@example.com', visits: 0, address: { city: 'London' } }
  if ((await store.documents(customers).get('ada')) === undefined) await store.documents(customers).put('ada', ada)
  await store.documents(customers).patch('ada', { visits: increment(1) })
  say(`Ada has visited ${(await store.documents(customers).get('ada'))?.data.visits} times (a document).`)
}
