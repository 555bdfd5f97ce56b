/** A subscription of which nothing is stored: for live views, which begin anew with every run. */
import type { RecordedEvent } from '../events/definition.ts'
import { tailLog } from '../events/order/tail.ts'
import { type Delivery, deliveryOf, type Settler } from './delivery.ts'
import type { Plan } from './plan.ts'
import type { SubscriptionParts } from './runner.ts'

/** Events as they come, in the shape of deliveries; there is nothing to acknowledge. */
export async function* followLive(
  { log, watch }: SubscriptionParts,
  { filter, where, startFrom }: Plan,
  signal: AbortSignal,
): AsyncGenerator<Delivery, void, undefined> {
  const from = startFrom === 'beginning' ? 'start' : startFrom
  const settler: Settler = { signal, ack: async () => {}, nack: async () => {} }
  for await (const event of tailLog(log, watch, { ...filter, from, signal })) {
    if (where === undefined || where(event as RecordedEvent)) yield deliveryOf(event, 1, settler)
  }
}
