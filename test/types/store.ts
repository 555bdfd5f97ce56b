/**
 * What must compile and what must not, of a store opened with a definition of events. Nothing here runs: the type check
 * of the project is the test, and a `@ts-expect-error` that expects in vain fails it.
 */
import { z } from 'zod'
import type { Transaction } from '../../src/database/database.ts'
import type { AppendResult } from '../../src/events/append/send.ts'
import { defineEvents, type RecordedEvent } from '../../src/events/definition.ts'
import { openStore, type Store } from '../../src/store.ts'

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false
type IsAny<T> = 0 extends 1 & T ? true : false
const same = <A, B>(_: Equal<A, B>): void => {}
const isAny = <T>(_: IsAny<T>): void => {}

type ShopEvent =
  | { type: 'OrderPlaced'; data: { total: number } }
  | { type: 'OrderPaid'; data: { method: 'card' | 'cash' } }
type ShopMap = { readonly OrderPlaced: { total: number }; readonly OrderPaid: { method: 'card' | 'cash' } }

// ── The definition given to openStore types the store ───────────────────────────────────────────────────────────────

const shop = await openStore({ events: defineEvents<ShopEvent>() })
const checked = await openStore({
  events: defineEvents({ OrderPlaced: z.object({ total: z.number() }) }),
  memory: true,
})
const untyped = await openStore()

same<typeof shop, Store<ShopMap>>(true)
isAny<typeof shop>(false)
isAny<typeof shop.events>(false)
isAny<typeof untyped.events>(false)

// ── Append ──────────────────────────────────────────────────────────────────────────────────────────────────────────

const result = await shop.events.append('order-1', { type: 'OrderPlaced', data: { total: 1 } }, { expected: 'empty' })
same<typeof result, AppendResult>(true)
same<typeof result.position, number>(true)
same<typeof result.version, number>(true)
const results = await shop.events.appendMany([
  { stream: 'order-1', events: { type: 'OrderPlaced', data: { total: 1 } }, expected: 1 },
  { stream: 'order-2', events: [{ type: 'OrderPaid', data: { method: 'card' } }] },
])
same<typeof results, AppendResult[]>(true)
await checked.events.append('order-1', { type: 'OrderPlaced', data: { total: 1 } })

// @ts-expect-error there is no such type
await shop.events.append('order-1', { type: 'OrderPlacd', data: { total: 1 } })
// @ts-expect-error the total is a number
await shop.events.append('order-1', { type: 'OrderPlaced', data: { total: '1' } })
// @ts-expect-error the total is a number, with a schema too
await checked.events.append('order-1', { type: 'OrderPlaced', data: { total: '1' } })
// @ts-expect-error the data of another type
await shop.events.append('order-1', [{ type: 'OrderPaid', data: { total: 1 } }])
// @ts-expect-error wrong within several streams
await shop.events.appendMany([{ stream: 'order-1', events: { type: 'OrderPaid', data: { method: 'shells' } } }])
// @ts-expect-error each stream states what it expects
await shop.events.appendMany([{ stream: 'order-1', events: [] }], { expected: 1 })
// @ts-expect-error there is no such expectation
await shop.events.append('order-1', [], { expected: 'some' })
// @ts-expect-error there is no such option
await shop.events.append('order-1', [], { expectedVersion: 1 })

const builder = shop.events.builder('order-1')
await builder
  .headers({ channel: 'web' })
  .push({ type: 'OrderPaid', data: { method: 'cash' } })
  .send()
// @ts-expect-error wrong through the builder
builder.push({ type: 'OrderPaid', data: { method: 'shells' } })

// ── Read: one kind of event per type, told apart by it ──────────────────────────────────────────────────────────────

for await (const event of shop.events.read('order-1', { from: 2, direction: 'backwards' })) {
  isAny<typeof event>(false)
  isAny<typeof event.data>(false)
  same<typeof event.type, 'OrderPlaced' | 'OrderPaid'>(true)
  if (event.type === 'OrderPlaced') same<typeof event.data, { total: number }>(true)
  else same<typeof event.data, { method: 'card' | 'cash' }>(true)
}
// @ts-expect-error a time is a Date
shop.events.read('order-1', { since: '2026-01-01' })

const all = await shop.events.readAll().toArray()
same<typeof all, RecordedEvent<ShopMap>[]>(true)
const first = await shop.events.readAll({ types: ['OrderPaid'], from: 5 }).first()
if (first !== undefined) same<typeof first.data, { method: 'card' | 'cash' }>(true)
// @ts-expect-error there is no such type
shop.events.readAll({ types: ['OrderPlacd'] })
// @ts-expect-error a position is a number
shop.events.readAll({ from: 5n })

for await (const event of shop.events.tail({ types: ['OrderPlaced'], from: 'start' })) {
  same<typeof event.type, 'OrderPlaced'>(true)
  same<typeof event.data.total, number>(true)
}
// @ts-expect-error there is no such type
shop.events.tail({ types: ['OrderPlacd'] })

const got = await shop.events.get('id')
same<typeof got, RecordedEvent<ShopMap> | undefined>(true)

// ── Untyped everything works, and data is unknown ───────────────────────────────────────────────────────────────────

await untyped.events.append('order-1', { type: 'Anything', data: { at: new Date() } })
for await (const event of untyped.events.readAll({ types: ['Anything'] })) {
  same<typeof event.type, 'Anything'>(true)
  same<typeof event.data, unknown>(true)
}
// @ts-expect-error not even untyped is an event without data
await untyped.events.append('order-1', { type: 'Anything' })

// ── The rest leaks nothing of any type either ───────────────────────────────────────────────────────────────────────

const answer = await shop.transaction(async tx => {
  same<typeof tx, Transaction>(true)
  const rows = await tx.query('select 1 as one')
  isAny<typeof rows>(false)
  isAny<(typeof rows)[number]['one']>(false)
  const typed = await tx.query<{ one: number }>('select 1 as one')
  same<typeof typed, { one: number }[]>(true)
  await shop.events.append('order-1', { type: 'OrderPlaced', data: { total: 1 } }, { tx })
  return 42
})
same<typeof answer, number>(true)

type Results = Awaited<
  | ReturnType<typeof shop.streams.list>
  | ReturnType<typeof shop.streams.resolve>
  | ReturnType<typeof shop.events.settled>
  | ReturnType<typeof shop.events.import>
  | ReturnType<typeof shop.schema.check>
>
isAny<Results>(false)
isAny<ReturnType<typeof shop.metrics>>(false)
isAny<ReturnType<typeof shop.metrics>['events_appended_total']>(false)

/** A client of `pg` is a transaction of the user's as it is. */
declare const client: import('pg').Client
await shop.events.append('order-1', [], { tx: client })
/** And so is a pool of `pg`. */
declare const pool: import('pg').Pool
await openStore({ pool })
