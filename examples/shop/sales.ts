/** What each customer has bought, as a table. */
import { defineTableProjection } from 'rillflow'
import { shopEvents } from './events.ts'

export const sales = defineTableProjection('sales', {
  events: shopEvents,
  columns: { customer: 'text', orders: 'bigint', cents: 'bigint' },
  primaryKey: ['customer'],
  on: {
    OrderPlaced: ({ data }, row) => {
      const cents = data.items.reduce((sum, item) => sum + item.cents, 0)
      return row({ customer: data.customer }, { increment: { orders: 1, cents } })
    },
  },
})

export const salesTable = '"rillflow"."sales"'
