/** What is added: the events of an order, what they cause, and what is derived from them. */
import { defineAggregate, defineEvents, defineHandler, defineProjection, defineTableProjection } from 'rillflow'

type OrderEvent =
  | { type: 'OrderImported'; data: { email: string; cents: number; status: string } }
  | { type: 'OrderPlaced'; data: { email: string; cents: number } }
  | { type: 'OrderShipped'; data: { carrier: string } }

export const events = defineEvents<OrderEvent>()

/** Stands for the mail service. */
export const mails: string[] = []

/** 1. The outbox: it runs because an order was committed, once and again until it succeeds. */
export const receipt = defineHandler('receipt', {
  events,
  on: 'OrderPlaced',
  async run({ data, stream }, { step }) {
    await step('mail', async () => void mails.push(`${data.email}: thank you for ${stream}`))
  },
})

/** 2. A read model next to the tables that are there. */
export const revenue = defineTableProjection('revenue', {
  events,
  columns: { email: 'text', orders: 'integer', cents: 'bigint' },
  primaryKey: ['email'],
  on: {
    OrderPlaced: ({ data }, row) => row({ email: data.email }, { increment: { orders: 1, cents: data.cents } }),
    OrderImported: ({ data }, row) => row({ email: data.email }, { increment: { orders: 1, cents: data.cents } }),
  },
})

/** 3. From CRUD to events, for one entity: what may happen to an order. */
export const Order = defineAggregate('order', {
  events,
  initial: () => ({ status: 'new' }),
  evolve: {
    OrderImported: (_, { data }) => ({ status: data.status }),
    OrderPlaced: () => ({ status: 'placed' }),
    OrderShipped: () => ({ status: 'shipped' }),
  },
  decide(command: { type: 'Ship'; carrier: string }, { status }) {
    if (status !== 'placed') throw new Error(`an order that is ${status} cannot be shipped`)
    return { type: 'OrderShipped', data: { carrier: command.carrier } }
  },
})

/** The table that everything else reads follows the events, in the same transaction. */
export const orderStatus = defineProjection('order-status', {
  events,
  lifecycle: 'inline',
  on: {
    OrderShipped: ({ stream }, { tx }) =>
      tx.query(`update public.orders set status = 'shipped' where id = $1`, [stream.replace('order-', '')]),
  },
})
