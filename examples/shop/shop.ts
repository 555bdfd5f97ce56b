/**
 * A small shop, alive for a few seconds: customers place orders, the till and the warehouse answer, and a follower
 * prints what happens as it happens. Everything is kept in ./.rillflow, so a second run goes on where this one stopped.
 *
 *     npx tsx examples/shop/shop.ts
 */

import { setTimeout as pause } from 'node:timers/promises'
import { openStore, VersionConflict } from 'rillflow'
import { runSubscription } from '../../test/support/run-subscription.ts'
import { shopEvents } from './events.ts'
import { printEvent, say } from './print.ts'
import { sales, salesTable } from './sales.ts'

const customers = ['Ada', 'Bo', 'Cleo', 'Dev', 'Eve']
const products = ['teapot', 'lamp', 'notebook', 'umbrella', 'globe']
const orders = 12

say('Opening the embedded store in ./.rillflow (the first time takes a few seconds) …')
await using store = await openStore({ events: shopEvents })

const before = await store.events.head()
say(before === 0 ? 'A new, empty log.\n' : `Welcome back: the log is at position ${before}.\n`)

await store.projections.register(sales)
await using _runner = await store.start()
const mailer = runSubscription(store, 'mailer', {
  types: ['OrderShipped'],
  run: event => say(`          a mail: your ${event.stream} is on its way`),
})

const stop = new AbortController()
const shown = follow()
const placed = await Promise.all(Array.from({ length: orders }, (_, at) => runOrder(at)))
const last = placed.reduce((a, b) => (a > b ? a : b))
await store.events.waitFor(last)
await pause(100)
stop.abort()
const count = await shown

await showConflict()
await showRepeat()
await showHistory()
await showSales()
await mailer.stop()
say(`\n${count} events of ${orders} orders, each shown once and in order. Run it again: nothing is lost.`)
say('Next: read examples/shop/shop.ts (it is short), then README.md.')

/** Prints every event until it is stopped. Nothing is skipped, however the orders overlap. */
async function follow(): Promise<number> {
  let count = 0
  try {
    for await (const event of store.events.tail({ from: before, signal: stop.signal })) {
      printEvent(event)
      count++
    }
  } catch (error) {
    if (!stop.signal.aborted) throw error
  }
  return count
}

/** One customer's order, from basket to door. */
async function runOrder(at: number): Promise<number> {
  const stream = orderName(at)
  const items = pick(products, 1 + (at % 3)).map(product => ({
    product,
    cents: 500 + Math.floor(Math.random() * 9500),
  }))
  const cents = items.reduce((sum, item) => sum + item.cents, 0)
  await pause(Math.random() * 1500)
  const context = { headers: { channel: at % 2 === 0 ? 'web' : 'app' }, userId: customers[at % customers.length]! }
  await store.events.append(
    stream,
    { type: 'OrderPlaced', data: { customer: context.userId, items } },
    { ...context, expected: 'empty' },
  )
  await pause(300 + Math.random() * 1500)
  if (Math.random() < 0.15) {
    const cancelled = await store.events.append(stream, { type: 'OrderCancelled', data: { reason: 'changed my mind' } })
    return cancelled.position
  }
  const method = Math.random() < 0.7 ? 'card' : 'invoice'
  await store.events.append(stream, { type: 'OrderPaid', data: { cents, method } }, { expected: 1 })
  await pause(300 + Math.random() * 1500)
  const shipped = await store.events.append(
    stream,
    { type: 'OrderShipped', data: { carrier: 'Parcel Post' } },
    { expected: 2 },
  )
  return shipped.position
}

async function showConflict(): Promise<void> {
  const stream = orderName(0)
  say('\nTwo clerks ship the same order at once; both expect it to be at its present version:')
  const { version } = (await store.streams.describe(stream))!
  const ship = (carrier: string) =>
    store.events.append(stream, { type: 'OrderShipped', data: { carrier } }, { expected: version }).then(
      () => `${carrier}: shipped`,
      error => {
        if (error instanceof VersionConflict) return `${carrier}: ${error.code} – ${error.message}`
        throw error
      },
    )
  for (const line of await Promise.all([ship('Swift'), ship('Turtle')])) say(`  ${line}`)
}

async function showRepeat(): Promise<void> {
  const stream = orderName(1)
  say('\nA nervous customer presses the button twice; the idempotency key makes one payment of it:')
  const press = () =>
    store.events.append(
      stream,
      { type: 'OrderPaid', data: { cents: 100, method: 'card' } },
      { idempotencyKey: `tip-${stream}` },
    )
  for (const result of await Promise.all([press(), press()]))
    say(
      `  version ${result.version}, position ${result.position}${result.repeated ? ' (repeated: the first outcome)' : ''}`,
    )
}

async function showHistory(): Promise<void> {
  const stream = orderName(0)
  say(`\nThe whole story of ${stream}:`)
  for await (const event of store.events.read(stream)) printEvent(event)
}

/** The read model is a table that a projection keeps up to date, here in the same process. */
async function showSales(): Promise<void> {
  await store.consumers.waitFor('sales', await store.events.head())
  say('\nWho has bought most, over all runs (a read model, kept by a projection):')
  const rows = await store.transaction(tx =>
    tx.query<{ customer: string; orders: number; cents: number }>(
      `select customer, orders, cents from ${salesTable} order by cents desc limit 5`,
    ),
  )
  for (const { customer, orders, cents } of rows)
    say(`  ${customer.padEnd(6)} ${String(orders).padStart(4)} orders ${(Number(cents) / 100).toFixed(2).padStart(10)}`)
}

/** Positions only rise, so no run uses a name of another. */
function orderName(at: number): string {
  return `order-${before + Number(at) + 1}`
}

function pick<T>(from: readonly T[], count: number): T[] {
  return [...from].sort(() => Math.random() - 0.5).slice(0, count)
}
