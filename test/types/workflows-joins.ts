/**
 * What must compile and what must not, of joins. Nothing here runs: the type check of the project is the test, and a
 * `@ts-expect-error` that expects in vain fails it.
 */
import { defineEvents } from '../../src/events/definition.ts'
import { openStore } from '../../src/store.ts'
import { batch, emit } from '../../src/workflows/emit.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import type { JoinInfo, JoinPolicy } from '../../src/workflows/joins/join.ts'
import { defineJoin } from '../../src/workflows/joins/join.ts'

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

flows.register(
  defineJoin('clear', {
    on: 'OrderChecked',
    joinTimeoutMs: 60_000,
    policy: 'all',
    retries: 0,
    run: async (events, ctx) => {
      same<(typeof events)[number]['type'], 'OrderChecked'>(true)
      same<(typeof events)[number]['data'], { item: string }>(true)
      same<typeof ctx.join, JoinInfo>(true)
      same<typeof ctx.join.failed, readonly number[]>(true)
      same<typeof ctx.attempt, number>(true)
      return ctx.emit('OrderCleared', { count: events.length })
    },
  }),
)

flows.register(
  defineJoin('answered', {
    on: ['OrderChecked', 'OrderRefused'],
    policy: { quorum: 2 },
    run: events => {
      for (const event of events) if (event.type === 'OrderRefused') same<typeof event.data, { why: string }>(true)
    },
  }),
)

untyped.register(
  defineJoin('clear', {
    on: 'OrderChecked',
    run: events => {
      same<(typeof events)[number]['data'], unknown>(true)
    },
  }),
)

// @ts-expect-error: there is no such type of event
flows.register(defineJoin('lost', { on: 'OrderLost', run: () => {} }))

// ── What it may emit is checked, too ────────────────────────────────────────────────────────────────────────────────

flows.register(
  defineJoin('again', {
    on: 'OrderChecked',
    emits: ['OrderCleared'],
    run: (_, { emit }) => [
      emit('OrderCleared', { count: 1 }),
      batch([emit('OrderCleared', { count: 2 })], { join: 'clear' }),
    ],
  }),
)

const refusal = emit('OrderRefused', { why: 'no' })

// @ts-expect-error: it emits what it does not declare
flows.register(defineJoin('refuse', { on: 'OrderChecked', emits: ['OrderCleared'], run: () => refusal }))

// @ts-expect-error: nor may any other handler
flows.register(defineHandler('place', { on: 'OrderPlaced', emits: ['OrderCleared'], run: () => refusal }))

// @ts-expect-error: that is no data of OrderCleared
flows.register(
  defineJoin('count', { on: 'OrderChecked', run: (_, { emit }) => emit('OrderCleared', { count: 'many' }) }),
)

// ── Options ─────────────────────────────────────────────────────────────────────────────────────────────────────────

const policies: JoinPolicy[] = ['all', 'all-settled', 'first', { quorum: 3 }]
for (const policy of policies)
  flows.register(
    defineJoin('p', { on: 'OrderChecked', policy, onJoinTimeout: 'partial', timeoutMs: 1000, run: () => {} }),
  )

// @ts-expect-error: a join says what it joins
flows.register(defineJoin('clear', { on: 'OrderChecked', run: () => {} }))

// @ts-expect-error: no such policy
flows.register(defineJoin('clear', { on: 'OrderChecked', policy: 'most', run: () => {} }))

// @ts-expect-error: a join is not ordered: there is one of it in a batch
flows.register(defineJoin('clear', { on: 'OrderChecked', ordered: true, run: () => {} }))

// @ts-expect-error: its limit is a number
flows.register(defineJoin('clear', { on: 'OrderChecked', concurrency: { perKey: 1, key: () => 'a' }, run: () => {} }))

// ── A place in a batch for what is published ────────────────────────────────────────────────────────────────────────

const id = '0190b0c0-0000-7000-8000-000000000000'
await flows.publish('OrderChecked', { item: 'pen' }, { correlationId: 'order-1', batch: { id, index: 0, size: 2 } })

// @ts-expect-error: the size is part of it
await flows.publish('OrderChecked', { item: 'pen' }, { correlationId: 'order-1', batch: { id, index: 0 } })
