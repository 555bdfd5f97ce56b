/**
 * What must compile and what must not, of subscriptions. Nothing here runs: the type check of the project is the test, and
 * a `@ts-expect-error` that expects in vain fails it.
 */

import { defineEvents } from '../../src/events/definition.ts'
import { openStore } from '../../src/store.ts'
import type { Delivery } from '../../src/subscriptions/delivery.ts'
import type { SubscriptionIteration } from '../../src/subscriptions/iterate.ts'
import { defineSubscription } from '../../src/subscriptions/subscription.ts'

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false
const same = <A, B>(_: Equal<A, B>): void => {}

type ShopEvent =
  | { type: 'OrderPlaced'; data: { total: number } }
  | { type: 'OrderPaid'; data: { method: 'card' | 'cash' } }

const events = defineEvents<ShopEvent>()
const shop = await openStore({ events })
const untyped = await openStore()

// ── The types of a filter are those of the events ───────────────────────────────────────────────────────────────────

const placed = shop.subscribe('mailer', { types: ['OrderPlaced'], group: 'workers', ack: 'manual' })
for await (const event of placed) {
  same<typeof event.type, 'OrderPlaced'>(true)
  same<typeof event.data, { total: number }>(true)
  same<typeof event.deliveries, number>(true)
  await event.ack()
  await shop.transaction(tx => event.ack(tx))
  await event.nack({ delayMs: 10, reason: new Error('no such address') })
}

for await (const event of shop.subscribe('all')) {
  same<typeof event.type, 'OrderPlaced' | 'OrderPaid'>(true)
  if (event.type === 'OrderPaid') same<typeof event.data.method, 'card' | 'cash'>(true)
}

for await (const event of untyped.subscribe('all')) same<typeof event.data, unknown>(true)

// @ts-expect-error: there is no such type of event
shop.subscribe('mailer', { types: ['OrderLost'] })

// ── Two forms ───────────────────────────────────────────────────────────────────────────────────────────────────────

const mailer = defineSubscription('mailer', { events, types: ['OrderPlaced'], run: event => void event.data.total })
await shop.register(mailer)
await shop.start({ only: ['subscriptions', mailer] })
for await (const event of shop.subscribe(mailer)) same<typeof event.data, { total: number }>(true)
const iterated = shop.subscribe('mailer')
same<
  typeof iterated,
  SubscriptionIteration<
    Delivery<{ readonly OrderPlaced: { total: number }; readonly OrderPaid: { method: 'card' | 'cash' } }>
  >
>(true)

defineSubscription('mailer', {
  events,
  types: ['OrderPlaced'],
  where: event => event.data.total > 10,
  partitionBy: event => `${event.data.total}`,
  run: async event => void event.data.total.toFixed(),
})

// @ts-expect-error: calls at the same time are for definitions with `run`
shop.subscribe('mailer', { concurrency: 4 })
// @ts-expect-error: a key is text
shop.subscribe('mailer', { partitionBy: event => event.position })
// @ts-expect-error: a position is a number
shop.subscribe('mailer', { from: 5n })

// ── Operators ───────────────────────────────────────────────────────────────────────────────────────────────────────

const { lag } = await shop.consumers.status(mailer, { group: 'workers' })
const [{ partitions } = { partitions: [] }] = (await shop.subscriptions.groups(mailer)).items
same<typeof lag, number>(true)
same<(typeof partitions)[number]['owner'], string | undefined>(true)
await shop.subscriptions.create('mailer', { types: ['OrderPaid'], partitions: 4 })
await shop.consumers.reset('mailer', 0, { group: 'workers' })
// @ts-expect-error: a group is made without code
await shop.subscriptions.create('mailer', { run: () => {} })
// @ts-expect-error: there is no such kind
await shop.start({ only: ['projection'] })
