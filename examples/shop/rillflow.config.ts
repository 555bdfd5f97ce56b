/** The shop as one object. The program, the command line and the tests open it. */
import { defineConfig } from 'rillflow'
import { customers } from './customers.ts'
import { events } from './events.ts'
import { Order } from './order.ts'
import { orders, sales } from './read-models.ts'
import { charge, mailer, nightly, pack, refund, ship } from './workflows.ts'

export default defineConfig({
  events,
  aggregates: [Order],
  collections: [customers],
  projections: [orders, sales],
  subscriptions: [mailer],
  handlers: [charge, pack],
  joins: [ship],
  undos: [refund],
  schedules: [nightly],
})
