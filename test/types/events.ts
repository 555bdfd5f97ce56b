/**
 * What must compile and what must not, of the types that follow from a definition of events. Nothing here runs: the
 * type check of the project is the test, and a `@ts-expect-error` that expects in vain fails it.
 */
import { type } from 'arktype'
import * as v from 'valibot'
import { z } from 'zod'
import {
  defineEvents,
  type EventDefinitions,
  type EventMap,
  type EventsOf,
  type NewEvent,
  type RecordedEvent,
  type UntypedEvents,
} from '../../src/events/definition.ts'
import { defineUpcaster } from '../../src/events/read/upcast.ts'

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false
const same = <A, B>(_: Equal<A, B>): void => {}

/** Stands for every call that takes its types from the definition given to the store. */
declare function openShop<M extends EventMap = UntypedEvents>(options: { events?: EventDefinitions<M> }): Shop<M>
interface Shop<M extends EventMap> {
  append(stream: string, events: readonly NewEvent<M>[]): void
  read(stream: string): readonly RecordedEvent<M>[]
}

// ── Both forms by type, and one by schema of each library, give the same map ────────────────────────────────────────

interface Placed {
  total: number
}
type ShopMap = { readonly OrderPlaced: Placed; readonly OrderPaid: { method: 'card' | 'cash' } }

type ByUnion = { type: 'OrderPlaced'; data: Placed } | { type: 'OrderPaid'; data: { method: 'card' | 'cash' } }
interface ByMap {
  OrderPlaced: Placed
  OrderPaid: { method: 'card' | 'cash' }
}

const byUnion = defineEvents<ByUnion>()
const byMap = defineEvents<ByMap>()
const byZod = defineEvents({
  OrderPlaced: z.object({ total: z.number() }),
  OrderPaid: z.object({ method: z.enum(['card', 'cash']) }),
})
const byValibot = defineEvents({
  OrderPlaced: v.object({ total: v.number() }),
  OrderPaid: v.object({ method: v.picklist(['card', 'cash']) }),
})
const byArktype = defineEvents({
  OrderPlaced: type({ total: 'number' }),
  OrderPaid: type({ method: "'card' | 'cash'" }),
})

same<EventsOf<typeof byUnion>, ShopMap>(true)
same<EventsOf<typeof byMap>, ByMap>(true)
same<EventsOf<typeof byZod>['OrderPlaced'], { total: number }>(true)
same<EventsOf<typeof byZod>['OrderPaid'], { method: 'card' | 'cash' }>(true)
same<EventsOf<typeof byValibot>['OrderPaid'], { method: 'card' | 'cash' }>(true)
same<EventsOf<typeof byArktype>['OrderPaid'], { method: 'card' | 'cash' }>(true)
same<NewEvent<EventsOf<typeof byZod>>['type'], 'OrderPlaced' | 'OrderPaid'>(true)

/** A schema checks and does not change: the type is what goes in. */
const coerced = defineEvents({ OrderPlaced: z.object({ at: z.iso.datetime(), currency: z.string().default('EUR') }) })
same<EventsOf<typeof coerced>['OrderPlaced'], { at: string; currency?: string | undefined }>(true)

// @ts-expect-error a schema is needed, not a type's name
defineEvents({ OrderPlaced: 'number' })

// ── Append: a wrong name, a wrong payload, a missing payload do not compile ────────────────────────────────────────

for (const shop of [openShop({ events: byUnion }), openShop({ events: byMap })]) {
  shop.append('order-42', [{ type: 'OrderPlaced', data: { total: 99 } }])
  shop.append('order-42', [
    { type: 'OrderPlaced', data: { total: 99 }, headers: { channel: 'web' } },
    { type: 'OrderPaid', data: { method: 'card' }, userId: undefined, schemaVersion: 2 },
  ])
  // @ts-expect-error there is no such type
  shop.append('order-42', [{ type: 'OrderPlacd', data: { total: 99 } }])
  // @ts-expect-error the total is a number
  shop.append('order-42', [{ type: 'OrderPlaced', data: { total: '99' } }])
  // @ts-expect-error the data of another type
  shop.append('order-42', [{ type: 'OrderPaid', data: { total: 99 } }])
  // @ts-expect-error no data
  shop.append('order-42', [{ type: 'OrderPlaced' }])
  // @ts-expect-error a property too many
  shop.append('order-42', [{ type: 'OrderPlaced', data: { total: 99 }, version: 1 }])
}

for (const shop of [openShop({ events: byZod }), openShop({ events: byValibot }), openShop({ events: byArktype })]) {
  shop.append('order-42', [{ type: 'OrderPlaced', data: { total: 99 } }])
  // @ts-expect-error there is no such type
  shop.append('order-42', [{ type: 'OrderPlacd', data: { total: 99 } }])
  // @ts-expect-error the total is a number
  shop.append('order-42', [{ type: 'OrderPlaced', data: { total: '99' } }])
  // @ts-expect-error no data
  shop.append('order-42', [{ type: 'OrderPlaced' }])
}

// ── Read: the type narrows the data ─────────────────────────────────────────────────────────────────────────────────

for (const event of openShop({ events: byUnion }).read('order-42')) {
  same<typeof event.position, number>(true)
  same<typeof event.version, number>(true)
  same<typeof event.createdAt, Date>(true)
  if (event.type === 'OrderPlaced') same<typeof event.data, Placed>(true)
  else same<typeof event.data, { method: 'card' | 'cash' }>(true)

  // @ts-expect-error not before the type is known
  event.data.total
  // @ts-expect-error there is no such type
  if (event.type === 'OrderPlacd') event
  // @ts-expect-error a fact does not change
  event.version = 2
}

// ── Without a definition everything works, untyped ──────────────────────────────────────────────────────────────────

const untyped = openShop({})
untyped.append('order-42', [
  { type: 'Anything', data: { total: 99 } },
  { type: 'Other', data: null },
])
// @ts-expect-error data is needed here too
untyped.append('order-42', [{ type: 'Anything' }])
for (const event of untyped.read('order-42')) {
  same<typeof event.type, string>(true)
  same<typeof event.data, unknown>(true)
}

/** A typed event is an event: what is written for any log takes that of the shop. */
const anyLog = (_: RecordedEvent): void => {}
for (const event of openShop({ events: byZod }).read('order-42')) anyLog(event)

// ── Upcasters take the old shape from their function ────────────────────────────────────────────────────────────────

defineUpcaster('OrderPlaced', { from: 1, to: 2, run: (data: { sum: number }) => ({ total: data.sum }) })
defineUpcaster('OrderPlaced', { from: '*', to: 2, toType: undefined, run: async data => data })
// @ts-expect-error data of unknown shape
defineUpcaster('OrderPlaced', { from: 1, to: 2, run: data => data.total })
// @ts-expect-error the version is a number or the wildcard
defineUpcaster('OrderPlaced', { from: 'any', to: 2, run: data => data })

// ── A Date is typed as what comes back: text ─────────────────────────────────────────────────────────────────────────

const dated = defineEvents<{ type: 'Visited'; data: { at: Date } } | { type: 'Left'; data: { page: string } }>()
const visited: { at: string } = dated.create('Visited', { at: new Date().toISOString() }).data
void visited
// @ts-expect-error it would come back as text
dated.create('Visited', { at: new Date() })
