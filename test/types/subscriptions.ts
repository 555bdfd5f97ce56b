/**
 * What must compile and what must not, of subscriptions. Nothing here runs: the type check of the project is the test, and
 * a `@ts-expect-error` that expects in vain fails it.
 */
import { defineEvents } from '../../src/events/definition.ts'
import { openStore } from '../../src/store.ts'
import type { RunningSubscription, Subscription } from '../../src/subscriptions/consume.ts'
import type { Delivery } from '../../src/subscriptions/delivery.ts'

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false
const same = <A, B>(_: Equal<A, B>): void => {}

type ShopEvent =
  | { type: 'OrderPlaced'; data: { total: number } }
  | { type: 'OrderPaid'; data: { method: 'card' | 'cash' } }

const shop = await openStore({ events: defineEvents<ShopEvent>() })
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

const running = shop.subscribe('mailer', { onEvent: event => void event.position })
same<typeof running, RunningSubscription>(true)
const iterated = shop.subscribe('mailer')
same<
  typeof iterated,
  Subscription<Delivery<{ readonly OrderPlaced: { total: number }; readonly OrderPaid: { method: 'card' | 'cash' } }>>
>(true)

shop.subscribe('mailer', {
  types: ['OrderPlaced'],
  where: event => event.data.total > 10,
  partitionBy: event => `${event.data.total}`,
  onEvent: async event => void event.data.total.toFixed(),
})

// @ts-expect-error: calls at once are for callbacks
shop.subscribe('mailer', { concurrency: 4 })
// @ts-expect-error: a key is text
shop.subscribe('mailer', { partitionBy: event => event.position })
// @ts-expect-error: a position is a number
shop.subscribe('mailer', { startFrom: 5n })

// ── Operators ───────────────────────────────────────────────────────────────────────────────────────────────────────

const { lag, partitions } = await shop.subscriptions.status('mailer', 'workers')
same<typeof lag, number>(true)
same<(typeof partitions)[number]['owner'], string | undefined>(true)
await shop.subscriptions.create('mailer', { types: ['OrderPaid'], partitions: 4 })
await shop.subscriptions.reset('mailer', 0, 'workers')
// @ts-expect-error: running is for subscribe
await shop.subscriptions.create('mailer', { onEvent: () => {} })
