/**
 * What must compile and what must not, of the types of projections. Nothing here runs: the type check of the project is
 * the test, and a `@ts-expect-error` that expects in vain fails it.
 */
import { type DocumentProjection, documentProjection } from '../../src/projections/document.ts'
import { tableProjection } from '../../src/projections/flat-table.ts'
import { type LiveProjection, liveProjection } from '../../src/projections/live.ts'
import { projection } from '../../src/projections/projection.ts'
import type { Projections } from '../../src/projections/projections.ts'
import { table } from '../../src/projections/table.ts'
import { shopEvents } from '../support/shop.ts'

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false
const same = <A, B>(_: Equal<A, B>): void => {}

interface Order {
  total: number
  parcel?: string
}

// ── Handlers know their events, from the definition alone ───────────────────────────────────────────────────────────

projection('order-totals', {
  events: shopEvents,
  on: {
    OrderPlaced: async (event, ctx) => {
      same<typeof event.data, { total: number; note?: string }>(true)
      same<typeof event.type, 'OrderPlaced'>(true)
      await ctx.tx.query(`select from ${ctx.table('order_totals')}`, [event.data.total, event.headers.customer])
    },
    '*': event => {
      same<typeof event.type, 'OrderPlaced' | 'OrderPaid' | 'OrderShipped'>(true)
    },
  },
})

projection('order-totals', {
  events: shopEvents,
  // @ts-expect-error: there is no such event
  on: { OrderPlacd: () => {} },
})

projection('any-event', {
  on: {
    Whatever: event => {
      same<typeof event.data, unknown>(true)
    },
  },
})

// ── Documents: the type comes from `initial`, or from the first parameter ───────────────────────────────────────────

const fromInitial = documentProjection('orders', {
  events: shopEvents,
  initial: (): Order => ({ total: 0 }),
  on: {
    OrderPlaced: (order, event) => {
      same<typeof order, Order>(true)
      return { ...order, total: event.data.total }
    },
    OrderShipped: (order, event) => ({ ...order, parcel: event.data.parcel }),
    OrderPaid: () => null,
  },
})
same<typeof fromInitial, DocumentProjection<Order>>(true)

const fromNothing = documentProjection('orders', {
  events: shopEvents,
  identity: event => (event.type === 'OrderShipped' ? event.data.parcel : undefined),
  on: {
    OrderPlaced: (order: Order | undefined, event) => ({ ...order, total: event.data.total }),
  },
})
same<typeof fromNothing, DocumentProjection<Order>>(true)

const much = { events: shopEvents, on: { OrderPlaced: (order: Order) => ({ ...order, total: 'much' }) } }
// @ts-expect-error: the total is a number
documentProjection('orders', { ...much, initial: (): Order => ({ total: 0 }) })

const live = liveProjection('order', {
  events: shopEvents,
  initial: (): Order => ({ total: 0 }),
  on: { OrderPlaced: (order, event) => ({ ...order, total: event.data.total }) },
})
same<typeof live, LiveProjection<Order>>(true)

// ── What is read is what was folded ─────────────────────────────────────────────────────────────────────────────────

declare const projections: Projections
const readDocument = () => projections.get(fromInitial, 'order-1')
const readLive = () => projections.get(live, 'order-1')
same<ReturnType<typeof readDocument>, Promise<Order | undefined>>(true)
same<ReturnType<typeof readLive>, Promise<Order | undefined>>(true)
// @ts-expect-error: a projection in SQL has no documents
const readTotals = () => projections.get(projection('totals', { on: { OrderPlaced: () => {} } }), 'order-1')
void [readDocument, readLive, readTotals]

// ── Flat tables: columns take the values of their types ─────────────────────────────────────────────────────────────

tableProjection('customer-totals', {
  events: shopEvents,
  columns: { customer: 'text', orders: 'bigint', total: 'numeric', parcel: 'text' },
  primaryKey: ['customer'],
  key: event => ({ customer: event.stream }),
  on: {
    OrderPlaced: { increment: { orders: 1, total: event => event.data.total } },
    OrderShipped: event => ({ set: { parcel: event.data.parcel } }),
    OrderPaid: 'delete',
  },
})

tableProjection('customer-totals', {
  events: shopEvents,
  columns: { customer: 'text', parcel: 'text' },
  // @ts-expect-error: there is no such column
  primaryKey: ['client'],
  key: event => ({ customer: event.stream }),
  on: {
    // @ts-expect-error: a parcel is text
    OrderShipped: { set: { parcel: 7 } },
  },
})

table('order_totals', {
  columns: { customer: 'text', total: { type: 'numeric', default: 0 } },
  primaryKey: ['customer'],
  // @ts-expect-error: there is no such column
  indexes: [['totl']],
})
