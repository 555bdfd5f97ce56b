/**
 * What must compile and what must not, of the types of projections. Nothing here runs: the type check of the project is
 * the test, and a `@ts-expect-error` that expects in vain fails it. The messages are in `messages.test.ts`.
 */
import type { Documents, ReadDocuments } from '../../src/documents/documents.ts'
import { gt } from '../../src/documents/query/condition.ts'
import { count, sum } from '../../src/documents/query/group.ts'
import type { StoredDocument } from '../../src/documents/read.ts'
import { type DocumentProjection, defineDocumentProjection } from '../../src/projections/document-projection.ts'
import { defineProjection, type Projection } from '../../src/projections/projection.ts'
import { defineTableProjection, type TableProjection } from '../../src/projections/table-projection.ts'
import type { Store } from '../../src/store.ts'
import { type ShopMap, shopEvents } from '../support/shop.ts'

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false
const same = <A, B>(_: Equal<A, B>): void => {}

interface Order {
  total: number
  parcel?: string
}

// ── Handlers know their events, from the definition alone ───────────────────────────────────────────────────────────

const totals = defineProjection('order-totals', {
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
same<typeof totals, Projection<ShopMap>>(true)

const anyEvent = defineProjection('any-event', {
  on: {
    Whatever: event => {
      same<typeof event.data, unknown>(true)
    },
  },
})

defineProjection('order-totals', {
  on: { OrderPlaced: () => {} },
  tables: {
    order_totals: {
      columns: { customer: 'text', total: { type: 'numeric', default: 0 } },
      primaryKey: ['customer'],
      // @ts-expect-error: there is no such column
      indexes: [['totl']],
    },
  },
})

// ── Documents: the type comes from `initial` ────────────────────────────────────────────────────────────────────────

const fromInitial = defineDocumentProjection('orders', {
  events: shopEvents,
  initial: (): Order => ({ total: 0 }),
  evolve: {
    OrderPlaced: (order, event) => {
      same<typeof order, Order>(true)
      return { ...order, total: event.data.total }
    },
    OrderShipped: (order, event) => ({ ...order, parcel: event.data.parcel }),
    OrderPaid: () => null,
  },
  indexes: ['total', { path: 'parcel', unique: true }],
})
same<typeof fromInitial, DocumentProjection<Order, ShopMap>>(true)

const fromNothing = defineDocumentProjection('orders', {
  events: shopEvents,
  identity: event => (event.type === 'OrderShipped' ? event.data.parcel : undefined),
  initial: () => null as Order | null,
  evolve: { OrderPlaced: (order, event) => ({ ...order, total: event.data.total }) },
})
same<typeof fromNothing, DocumentProjection<Order, ShopMap>>(true)

const byFunction = defineDocumentProjection('orders', {
  events: shopEvents,
  lifecycle: 'live',
  initial: (): Order => ({ total: 0 }),
  evolve: (order, event) => (event.type === 'OrderPlaced' ? { ...order, total: event.data.total } : order),
})
same<typeof byFunction, DocumentProjection<Order, ShopMap>>(true)

// @ts-expect-error: it has no such field
defineDocumentProjection('orders', { initial: (): Order => ({ total: 0 }), evolve: o => o, indexes: ['parcl'] })

// ── Tables: columns take the values of their types, and give those that rows are read with ──────────────────────────

const customers = defineTableProjection('customer-totals', {
  events: shopEvents,
  columns: {
    customer: 'text',
    orders: 'bigint',
    share: 'double precision',
    total: 'numeric',
    parcel: 'text',
    seen: 'timestamptz',
    known: 'boolean',
    extra: 'jsonb',
  },
  primaryKey: ['customer'],
  indexes: [['total']],
  on: {
    OrderPlaced: ({ stream, data, createdAt }, row) =>
      row(
        { customer: stream },
        { increment: { orders: 1n, total: data.total }, set: { seen: createdAt, parcel: null } },
      ),
    OrderShipped: ({ data }, row) => (data.parcel === '' ? undefined : [row({ customer: data.parcel }, {})]),
    OrderPaid: (event, row) => row({ customer: event.stream }, 'delete'),
  },
})
interface CustomerRow {
  readonly customer: string
  readonly orders: number
  readonly share: number
  readonly total: string
  readonly parcel: string | null
  readonly seen: Date | null
  readonly known: boolean | null
  readonly extra: unknown
}
const asRow: TableProjection<CustomerRow, ShopMap> = customers

// ── They fit a store that has their events ──────────────────────────────────────────────────────────────────────────

interface MoreEvents extends ShopMap {
  readonly CustomerMoved: { city: string }
}
const fitting: readonly Projection<MoreEvents>[] = [totals, anyEvent, fromInitial, customers]
const anywhere: readonly Projection[] = fitting
// @ts-expect-error: that store has none of its events
const foreign: readonly Projection<{ CustomerMoved: { city: string } }>[] = [totals]

// ── What is read is what was folded ─────────────────────────────────────────────────────────────────────────────────

declare const store: Store<ShopMap>

export async function read(): Promise<void> {
  const orders = store.documents(fromInitial)
  same<typeof orders, ReadDocuments<Order>>(true)
  const order = await orders.get('order-1')
  same<typeof order, StoredDocument<Order> | undefined>(true)
  await orders.where(each => gt(each.total, 5)).first()
  // @ts-expect-error: only the projection writes them
  await orders.put('order-1', { total: 1 })
  // @ts-expect-error: a projection in SQL has no documents
  store.documents(totals)
  same<ReturnType<typeof byName>, Documents<Order>>(true)

  const rows = store.rows(customers)
  const [first] = await rows
    .where(row => gt(row.orders, 5))
    .orderBy(row => row.total, 'desc')
    .limit(5)
    .toArray()
  const known: CustomerRow | undefined = first
  const selected = await rows.select({ who: row => row.customer, parcel: row => row.parcel }).one()
  same<typeof selected, { who: string; parcel: string | null }>(true)
  const groups = await rows
    .groupBy({ known: row => row.known }, row => ({ n: count(), all: sum(row.orders) }))
    .toArray()
  same<(typeof groups)[number]['known'], boolean | null>(true)
  // @ts-expect-error: there is no such column
  rows.where(row => gt(row.oders, 5))
  // @ts-expect-error: orders are numbers
  rows.where(row => gt(row.orders, 'many'))
  // @ts-expect-error: a document projection has no rows
  store.rows(fromInitial)
  void known
}

const byName = () => store.documents<Order>('orders')
void [asRow, anywhere, foreign]

// ── A Date of a document is text when the next event comes ──────────────────────────────────────────────────────────

defineDocumentProjection('parcels', {
  events: shopEvents,
  initial: () => ({ total: 0, placedAt: new Date(0) }),
  evolve: {
    OrderPlaced: (parcel, event) => {
      same<typeof parcel, { total: number; placedAt: string }>(true)
      return { total: parcel.total, placedAt: event.createdAt }
    },
    OrderPaid: parcel => parcel,
    // @ts-expect-error: it is text, which has no year
    OrderShipped: parcel => ({ ...parcel, total: parcel.placedAt.getFullYear() }),
  },
})
