/** What people look at, derived from the events. */
import { defineDocumentProjection, defineTableProjection } from 'rillflow'
import { events } from './events.ts'

/** A document for each order. It is written in the append's own transaction, so it is never behind. */
export const orders = defineDocumentProjection('orders', {
  events,
  lifecycle: 'inline',
  initial: () => ({ customer: '', status: 'placed' }),
  evolve: {
    OrderPlaced: (order, { data }) => ({ ...order, customer: data.customer }),
    OrderShipped: order => ({ ...order, status: 'shipped' }),
  },
})

/** A row for each customer. A runner applies each event soon after its append. */
export const sales = defineTableProjection('sales', {
  events,
  columns: { customer: 'text', orders: 'integer', cents: 'bigint' },
  primaryKey: ['customer'],
  on: {
    OrderPlaced: ({ data }, row) => row({ customer: data.customer }, { increment: { orders: 1, cents: data.cents } }),
  },
})
