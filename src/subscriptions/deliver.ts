/**
 * Deliveries as spans. Around a callback the span is entered, so what the callback does is part of it. A loop cannot be
 * entered: its span lasts from handing an event over until the consumer comes back, and what the loop does stands beside it.
 */
import type { Awaitable } from '../core/core.ts'
import type { SpanStart } from '../telemetry/span.ts'
import type { Delivery } from './delivery.ts'
import type { Plan } from './plan.ts'
import type { SubscriptionParts } from './runner.ts'

export type OnEvent = (event: Delivery) => Awaitable<void>

/** `handle` sees to what the callback throws; the span is told of it on the way. */
export function deliverTo(
  { log: { telemetry, schema } }: SubscriptionParts,
  plan: Plan,
  delivery: Delivery,
  onEvent: OnEvent,
  handle: (onEvent: OnEvent) => Promise<void>,
): Promise<void> {
  if (!telemetry.isTraced) return handle(onEvent)
  return telemetry.span(startOf(schema, plan, delivery), span =>
    handle(async event => {
      try {
        await onEvent(event)
      } catch (error) {
        span.fail(error)
        throw error
      }
    }),
  )
}

/** Of one iteration. */
export interface Deliveries {
  handOver(delivery: Delivery): void
  /** The consumer is done with what it had, or gone. */
  comeBack(): void
}

export function deliveriesOf({ log: { telemetry, schema } }: SubscriptionParts, plan: Plan): Deliveries {
  let end = (): void => {}
  return {
    handOver(delivery) {
      end()
      if (!telemetry.isTraced) return
      void telemetry.span(startOf(schema, plan, delivery), () => new Promise<void>(resolve => (end = resolve)))
    },
    comeBack: () => end(),
  }
}

function startOf(schema: string, { name, group }: Plan, delivery: Delivery): SpanStart {
  const { deliveries, isReplay } = delivery
  const fields = { subscription: name, group, deliveries, isReplay }
  return { name: 'subscriptions.deliver', schema, causes: [delivery], fields }
}
