import { defineTableProjection } from 'rillflow'
/** What each customer has bought, as a table. */
import { shopEvents } from './events.ts'

export const sales = defineTableProjection('sales', {
  events: shopEvents,
  columns: { customer: 'text', orders: 'bigint', cents: 'bigint' },
  primaryKey: ['customer'],
  key: event => (event.type === 'OrderPlaced' ? { customer: event.data.customer } : undefined),
  on: {
    OrderPlaced: {
      increment: { orders: 1, cents: event => event.data.items.reduce((sum, item) => sum + item.cents, 0) },
    },
  },
})

export const salesTable = '"rillflow"."sales"'
