/** A subscription of which nothing is stored (`durable: false`): for live views, which begin anew with every run. */
import { onAbort } from '../core/abort.ts'
import type { RecordedEvent } from '../events/definition.ts'
import { tailLog } from '../events/order/tail.ts'
import { type Delivery, deliveryOf, type Settler } from './delivery.ts'
import type { SubscriptionParts } from './group.ts'
import type { SubscriptionOptions } from './options.ts'

/** The source of deliveries, one after the other. */
export interface Source {
  /** Undefined when it was stopped. */
  next(): Promise<Delivery | undefined>
  stop(): Promise<void>
}

/** Events as they come, in the shape of deliveries; there is nothing to acknowledge. */
export function liveSource(
  { log, watch }: SubscriptionParts,
  { filter, where, from }: SubscriptionOptions,
  signal: AbortSignal | undefined,
): Source {
  const stopping = new AbortController()
  const release = signal === undefined ? () => {} : onAbort(signal, () => stopping.abort(signal.reason))
  const settler: Settler = { signal: stopping.signal, ack: async () => {}, nack: async () => {} }
  const events = tailLog(log, watch, { ...filter, from, signal: stopping.signal })
  return {
    async next() {
      try {
        for (;;) {
          const { done, value: event } = await events.next()
          if (done === true) return undefined
          if (where === undefined || where(event as RecordedEvent)) return deliveryOf(event, 1, settler)
        }
      } catch (error) {
        if (stopping.signal.aborted) return undefined
        throw error
      }
    },
    async stop() {
      release()
      stopping.abort()
    },
  }
}
