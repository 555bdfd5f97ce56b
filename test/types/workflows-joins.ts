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

const events = defineEvents<ShopEvent>()
const store = await openStore({ events })
const { workflows: flows } = store
const run = (): void => {}

// ── The events of a join are those of its types ─────────────────────────────────────────────────────────────────────

const clear = defineJoin('clear', {
  events,
  on: 'OrderChecked',
  joinTimeoutMs: 60_000,
  policy: 'all',
  run: async (checked, ctx) => {
    same<(typeof checked)[number]['type'], 'OrderChecked'>(true)
    same<(typeof checked)[number]['data'], { item: string }>(true)
    same<typeof ctx.join, JoinInfo>(true)
    same<typeof ctx.join.failed, readonly number[]>(true)
    same<typeof ctx.attempt, number>(true)
    return ctx.emit('OrderCleared', { count: checked.length })
  },
})

defineJoin('answered', {
  events,
  on: ['OrderChecked', 'OrderRefused'],
  policy: { quorum: 2 },
  run(answers) {
    for (const event of answers) if (event.type === 'OrderRefused') same<typeof event.data, { why: string }>(true)
  },
})

const untyped = defineJoin('clear', {
  on: 'OrderChecked',
  run(checked) {
    same<(typeof checked)[number]['data'], unknown>(true)
    same<(typeof checked)[number]['type'], string>(true)
  },
})

// @ts-expect-error: there is no such type of event
defineJoin('lost', { events, on: 'OrderLost', run })

// @ts-expect-error: a join names the types it waits for
defineJoin('all', { events, on: '*', run })

// ── What it may emit is checked, too ────────────────────────────────────────────────────────────────────────────────

defineJoin('again', {
  events,
  on: 'OrderChecked',
  emits: ['OrderCleared'],
  run: (_, { emit }) => [
    emit('OrderCleared', { count: 1 }),
    batch([emit('OrderCleared', { count: 2 })], { join: clear }),
  ],
})

const refusal = emit('OrderRefused', { why: 'no' })

// @ts-expect-error: it emits a type that it does not declare
defineJoin('refuse', { events, on: 'OrderChecked', emits: ['OrderCleared'], run: () => refusal })

// @ts-expect-error: nor may any other handler
defineHandler('place', { events, on: 'OrderPlaced', emits: ['OrderCleared'], run: () => refusal })

// @ts-expect-error: a type that it does not declare, at the word
defineHandler('place', { events, on: 'OrderPlaced', emits: ['OrderCleared'], run: (_, { emit }) => emit('OrderRefused', { why: '' }) }) // biome-ignore format: one line

// @ts-expect-error: OrderCleared has other data
defineJoin('count', { events, on: 'OrderChecked', run: (_, { emit }) => emit('OrderCleared', { count: 'many' }) })

// ── Options ─────────────────────────────────────────────────────────────────────────────────────────────────────────

const policies: JoinPolicy[] = ['all', 'allSettled', 'first', { quorum: 3 }]
for (const policy of policies)
  defineJoin('p', { events, on: 'OrderChecked', policy, onJoinTimeout: 'partial', timeoutMs: 1000, run })

// @ts-expect-error: a join has types
defineJoin('clear', { events, run })

// @ts-expect-error: no such policy
defineJoin('clear', { events, on: 'OrderChecked', policy: 'most', run })

// @ts-expect-error: a join is not ordered: there is one of it in a batch
defineJoin('clear', { events, on: 'OrderChecked', ordered: true, run })

// @ts-expect-error: its limit is a number
defineJoin('clear', { events, on: 'OrderChecked', concurrency: { perKey: 1, key: () => 'a' }, run })

// @ts-expect-error: a misspelt option
defineHandler('place', { events, on: 'OrderPlaced', retrys: 1, run })

// @ts-expect-error: a misspelt type of event
defineHandler('place', { events, on: 'OrderPlacd', run })

// ── A handler decides about its failures ────────────────────────────────────────────────────────────────────────────

defineHandler('place', {
  events,
  on: 'OrderPlaced',
  ordered: event => event.data.items[0] ?? '',
  onFailure: ({ event, attempt }) => (attempt < 3 && event?.data.items.length === 1 ? 'retry' : 'park'),
  onDeadLetter: ({ reason, event }, ctx) => ctx.emit('OrderRefused', { why: `${reason} of ${event.data.items}` }),
  run,
})

// @ts-expect-error: no such end
defineHandler('place', { events, on: 'OrderPlaced', onFailure: 'ignore', run })

// ── A store takes the definitions whose events it has ───────────────────────────────────────────────────────────────

await store.register(clear, untyped)
flows.register(clear)

const others = await openStore({ events: defineEvents<{ type: 'ParcelSent'; data: null }>() })
// @ts-expect-error: a store of other events
await others.register(clear)

// ── A place in a batch for what is published ────────────────────────────────────────────────────────────────────────

const id = '0190b0c0-0000-7000-8000-000000000000'
await flows.publish('OrderChecked', { item: 'pen' }, { correlationId: 'order-1', batch: { id, index: 0, size: 2 } })

// @ts-expect-error: the size is part of it
await flows.publish('OrderChecked', { item: 'pen' }, { correlationId: 'order-1', batch: { id, index: 0 } })
