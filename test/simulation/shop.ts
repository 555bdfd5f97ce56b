/**
 * The shop of the simulation: the workflow of the chaos test, with a projection, a subscription and a schedule beside it.
 * All handlers write what they have done into tables, for the judge.
 */

import { defineEvents } from '../../src/events/definition.ts'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import { defineTableProjection } from '../../src/projections/table-projection.ts'
import type { StoreDefinition } from '../../src/store.ts'
import { defineSubscription } from '../../src/subscriptions/subscription.ts'
import { defineSchedule } from '../../src/workflows/schedules/schedule.ts'
import type { OrderMap } from '../chaos/workflows/orders.ts'

export interface ShopMap extends OrderMap {
  readonly Counted: { readonly by: string }
  readonly ReportDue: { readonly at: string }
}

export const shopEvents = defineEvents<ShopMap>()

/** How often each order's events came: a wrong checkpoint shows as a wrong count. */
export const counts = defineTableProjection('counts', {
  events: shopEvents,
  columns: { stream: 'text', events: 'integer' },
  primaryKey: ['stream'],
  on: { Counted: (event, row) => row({ stream: event.stream }, { increment: { events: 1 } }) },
})

export const cleared = defineDocumentProjection('cleared', {
  events: shopEvents,
  identity: event => event.correlationId ?? event.stream,
  initial: () => ({ placed: 0, paid: 0, checked: 0 }),
  evolve: {
    OrderPlaced: document => ({ ...document, placed: document.placed + 1 }),
    OrderPaid: document => ({ ...document, paid: document.paid + 1 }),
    OrderChecked: document => ({ ...document, checked: document.checked + 1 }),
  },
})

const everyMs = 10_000

export interface Deliveries {
  /** Positions that the subscription was given. */
  readonly mailed: Set<number>
  /** Those that it is given now. */
  readonly inHand: Set<string>
}

export function shopDefinitions({ mailed, inHand }: Deliveries, rest: () => Promise<void>): StoreDefinition<ShopMap>[] {
  const mailer = defineSubscription('mailer', {
    events: shopEvents,
    types: ['OrderPaid', 'Counted'],
    async run(event) {
      inHand.add(`mail ${event.position}`)
      await rest()
      inHand.delete(`mail ${event.position}`)
      mailed.add(event.position)
    },
  })
  const report = defineSchedule('report', {
    events: shopEvents,
    everyMs,
    run: ({ emit, dueAt }) => emit('ReportDue', { at: dueAt.toISOString() }),
  })
  return [counts, cleared, mailer, report]
}
