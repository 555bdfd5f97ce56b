/** Read models of the shop: one of each kind. */
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import {
  defineProjection,
  type Projection,
  type ProjectionContext,
  type ProjectionDefinition,
} from '../../src/projections/projection.ts'
import { type Shop, type ShopMap, shopEvents } from '../support/shop.ts'

/** What was ordered in each stream: counts, so that an event applied twice shows. */
export function totals(more: Partial<ProjectionDefinition<ShopMap, 'OrderPlaced', never>> = {}): Projection {
  return defineProjection('order-totals', {
    events: shopEvents,
    tables: {
      order_totals: {
        columns: { stream: 'text', orders: { type: 'bigint', default: 0 }, total: { type: 'numeric', default: 0 } },
        primaryKey: ['stream'],
        indexes: [['total']],
      },
    },
    on: {
      OrderPlaced: (event, ctx: ProjectionContext) =>
        ctx.tx.query(
          `insert into ${ctx.table('order_totals')} as t (stream, orders, total)
          values ($1, 1, $2)
          on conflict (stream) do update
          set orders = t.orders + 1, total = t.total + excluded.total`,
          [event.stream, event.data.total],
        ),
    },
    ...more,
  })
}

export interface TotalRow {
  stream: string
  orders: number
  total: string
}

export function totalRows({ query }: Pick<Shop, 'query'>): Promise<TotalRow[]> {
  return query<TotalRow>('select stream, orders, total from ~order_totals order by stream')
}

export interface Order {
  total: number
  note: string | null
  isPaid: boolean
}

/** Each order as a document; gone when it is shipped. */
export const orders = defineDocumentProjection('orders', {
  events: shopEvents,
  initial: (): Order => ({ total: 0, note: null, isPaid: false }),
  evolve: {
    OrderPlaced: (order, event) => ({ ...order, total: order.total + event.data.total, note: event.data.note ?? null }),
    OrderPaid: order => ({ ...order, isPaid: true }),
    OrderShipped: () => null,
  },
})
