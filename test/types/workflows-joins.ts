/**
 * What must compile and what must not, of joins. Nothing here runs: the type check of the project is the test, and a
 * `@ts-expect-error` that expects in vain fails it.
 */
import { defineEvents } from '../../src/events/definition.ts'
import { openStore } from '../../src/store.ts'
import { batch, emit } from '../../src/workflows/emit.ts'
import type { JoinInfo, JoinPolicy } from '../../src/workflows/joins/join.ts'

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false
const same = <A, B>(_: Equal<A, B>): void => {}

type ShopEvent =
  | { type: 'OrderPlaced'; data: { items: string[] } }
  | { type: 'OrderChecked'; data: { item: string } }
  | { type: 'OrderRefused'; data: { why: string } }
  | { type: 'OrderCleared'; data: { count: number } }

const { workflows: flows } = await openStore({ events: defineEvents<ShopEvent>() })
const { workflows: untyped } = await openStore()

// ── The events of a join are those of its types ─────────────────────────────────────────────────────────────────────

flows.join('OrderChecked', { name: 'clear', of: 'batch', timeoutMs: 60_000, policy: 'all' }, async (events, ctx) => {
  same<(typeof events)[number]['type'], 'OrderChecked'>(true)
  same<(typeof events)[number]['data'], { item: string }>(true)
  same<typeof ctx.join, JoinInfo>(true)
  same<typeof ctx.join.failed, readonly number[]>(true)
  same<typeof ctx.attempt, number>(true)
  return emit('OrderCleared', { count: events.length })
})

flows.join(['OrderChecked', 'OrderRefused'], { name: 'answered', of: 'batch', policy: { quorum: 2 } }, events => {
  for (const event of events) if (event.type === 'OrderRefused') same<typeof event.data, { why: string }>(true)
})

untyped.join('OrderChecked', { name: 'clear', of: 'batch' }, events => {
  same<(typeof events)[number]['data'], unknown>(true)
})

// @ts-expect-error: there is no such type of event
flows.join('OrderLost', { name: 'lost', of: 'batch' }, () => {})

// ── What it may emit is checked, too ────────────────────────────────────────────────────────────────────────────────

flows.join('OrderChecked', { name: 'again', of: 'batch', emits: ['OrderCleared'] }, () => [
  emit('OrderCleared', { count: 1 }),
  batch([emit('OrderCleared', { count: 2 })], { join: 'clear' }),
])

const refusal = emit('OrderRefused', { why: 'no' })

// @ts-expect-error: it emits what it does not declare
flows.join('OrderChecked', { name: 'refuse', of: 'batch', emits: ['OrderCleared'] }, () => refusal)

// @ts-expect-error: nor may any other handler
flows.on('OrderPlaced', { name: 'place', emits: ['OrderCleared'] }, () => refusal)

// @ts-expect-error: that is no data of OrderCleared
flows.join('OrderChecked', { name: 'count', of: 'batch' }, () => emit('OrderCleared', { count: 'many' }))

// ── Options ─────────────────────────────────────────────────────────────────────────────────────────────────────────

const policies: JoinPolicy[] = ['all', 'all-settled', 'first', { quorum: 3 }]
for (const policy of policies)
  flows.join('OrderChecked', { name: 'p', of: 'batch', policy, onTimeout: 'partial', attemptTimeoutMs: 1000 }, () => {})

// @ts-expect-error: a join says what it joins
flows.join('OrderChecked', { name: 'clear' }, () => {})

// @ts-expect-error: no such policy
flows.join('OrderChecked', { name: 'clear', of: 'batch', policy: 'most' }, () => {})

// @ts-expect-error: a join is not ordered: there is one of it in a batch
flows.join('OrderChecked', { name: 'clear', of: 'batch', ordered: true }, () => {})

// @ts-expect-error: its limit is a number
flows.join('OrderChecked', { name: 'clear', of: 'batch', concurrency: { perKey: 1, key: () => 'a' } }, () => {})

// ── A place in a batch for what is published ────────────────────────────────────────────────────────────────────────

const id = '0190b0c0-0000-7000-8000-000000000000'
await flows.publish('OrderChecked', { item: 'pen' }, { correlationId: 'order-1', batch: { id, index: 0, size: 2 } })

// @ts-expect-error: the size is part of it
await flows.publish('OrderChecked', { item: 'pen' }, { correlationId: 'order-1', batch: { id, index: 0 } })
