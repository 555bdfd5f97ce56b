/** What may happen to an order, decided on the events of its own stream. */
import { defineAggregate } from 'rillflow'
import { events } from './events.ts'

export const Order = defineAggregate('order', {
  events,
  initial: () => ({ status: 'new' as 'new' | 'placed' | 'paid' | 'shipped', cents: 0 }),
  evolve: {
    OrderPlaced: (order, { data }) => ({ ...order, status: 'placed', cents: data.cents }),
    OrderPaid: order => ({ ...order, status: 'paid' }),
    OrderShipped: order => ({ ...order, status: 'shipped' }),
  },
  decide(command: { type: 'Ship'; carrier: string }, order) {
    if (order.status !== 'paid') throw new Error(`an order that is ${order.status} cannot be shipped`)
    return { type: 'OrderShipped', data: { carrier: command.carrier } }
  },
  snapshots: { every: 100 },
})
