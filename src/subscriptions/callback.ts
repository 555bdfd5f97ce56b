/**
 * Delivering to `run`, the code of a subscription, in a runner. So many calls at the same time as `concurrency` says, and
 * never two of one key.
 *
 *     pull ──► run(event) ──► returned: ack        not awaited, so that many are stored together
 *                         └── threw ────► nack: delivered again, or ended by the policy
 */
import { pause } from '../consumers/operator.ts'
import { readRows } from '../consumers/row-names.ts'
import type { RunContext, RunningPart } from '../consumers/runners/runnable.ts'
import { abortable } from '../core/abort.ts'
import { isRillflowError } from '../core/errors.ts'
import { runDetached } from '../core/service.ts'
import type { SpanStart } from '../telemetry/span.ts'
import type { Delivery } from './delivery.ts'
import { type Group, openGroup, type SubscriptionParts } from './group.ts'
import { liveSource } from './live.ts'
import type { SubscriptionOptions } from './options.ts'
import type { Subscription } from './subscription.ts'

type Run = NonNullable<Subscription['run']>

export interface CallbackContext extends Pick<RunContext, 'refresh' | 'onFailure'> {
  /** Called after each delivery that was acknowledged, or given back. */
  onDelivered?(): void
}

/** Resolves when the group is stored and its events are delivered, as soon as the runner holds its partitions. */
export async function startCallback(
  parts: SubscriptionParts,
  definition: Subscription,
  { refresh, onFailure, onDelivered = () => {} }: CallbackContext,
): Promise<RunningPart> {
  const { log } = parts
  const { name, options, concurrency } = definition
  const run = definition.run!
  if (!options.durable) return startLive(parts, definition, onFailure)
  const group = openGroup(parts, options, { refresh, onFailure: error => void stopped(error) })
  try {
    await group.start()
  } catch (error) {
    await group.stop()
    throw error
  }
  const loops = Promise.all(Array.from({ length: concurrency }, () => runDetached(() => deliver(group))))
  // A failure of the group ends its loops, and was reported.
  loops.catch(() => {})
  return {
    leased: group.leased,
    async stop(cutOff) {
      group.quiet()
      await abortable(loops, cutOff).catch(() => {})
      await group.stop()
    },
  }

  async function deliver(from: Group): Promise<void> {
    for (;;) {
      const delivery = await from.pull({ alone: concurrency > 1 })
      if (delivery === undefined) return
      await inSpan(parts, options, delivery, run, traced => handle(options, delivery, traced))
      onDelivered()
    }
  }

  /** If the policy has stopped it, no runner may start it again until an operator resumes it. */
  async function stopped(error: unknown): Promise<void> {
    log.telemetry.log.error({ schema: log.schema, subscription: name, error }, 'A subscription has stopped.')
    if (!isRillflowError(error, 'consumer_not_found')) {
      const rows = await readRows(log, name, options.group).catch(() => [])
      await pause(log, rows).catch(() => {})
    }
    onFailure(name, error)
  }
}

/** Nothing is stored, so an event that fails cannot be delivered again: the subscription ends with the error. */
function startLive(
  parts: SubscriptionParts,
  { name, options, run }: Subscription,
  onFailure: RunContext['onFailure'],
): RunningPart {
  const { log } = parts
  const source = liveSource(parts, options, undefined)
  const loop = runDetached(async () => {
    try {
      for (let event = await source.next(); event !== undefined; event = await source.next())
        await inSpan(parts, options, event, run!, async traced => traced(event!))
    } catch (error) {
      log.telemetry.log.error({ schema: log.schema, subscription: name, error }, 'A subscription has stopped.')
      onFailure(name, error)
    }
  })
  return {
    async stop(cutOff) {
      await source.stop()
      await abortable(loop, cutOff).catch(() => {})
    },
  }
}

async function handle({ ack }: SubscriptionOptions, delivery: Delivery, run: Run): Promise<void> {
  try {
    await run(delivery)
  } catch (reason) {
    await delivery.nack({ reason }).catch((error: unknown) => {
      // After a lost lease, or a moved checkpoint, the event is delivered again. An outcome that `run` gave itself counts.
      const isDeliveredAgain = isRillflowError(error, 'lease_lost') || isRillflowError(error, 'checkpoint_moved')
      if (!isDeliveredAgain && !isRillflowError(error, 'already_settled')) throw error
    })
    return
  }
  // Not waited for, so that many are stored together; if it cannot be stored, the event is delivered again.
  if (ack === 'auto') void delivery.ack().catch(() => {})
}

/** `work` catches the errors of `run`; the span records them before that. */
function inSpan(
  { log: { telemetry, schema } }: SubscriptionParts,
  options: SubscriptionOptions,
  delivery: Delivery,
  run: Run,
  work: (run: Run) => Promise<void>,
): Promise<void> {
  if (!telemetry.isTraced) return work(run)
  return telemetry.span(spanOf(schema, options, delivery), span =>
    work(async event => {
      try {
        await run(event)
      } catch (error) {
        span.fail(error)
        throw error
      }
    }),
  )
}

export function spanOf(schema: string, { name, group }: SubscriptionOptions, delivery: Delivery): SpanStart {
  const { deliveries, isReplay } = delivery
  const fields = { subscription: name, group, deliveries, isReplay }
  return { name: 'subscriptions.deliver', schema, causes: [delivery], fields }
}
