/**
 * Iterating over a subscription: `for await (const event of store.subscribe('mailer', { types }))`. Each iteration has
 * a runner of its own, which holds the partitions it gets; leaving the loop releases them.
 *
 * It ends quietly when its signal aborts, when it is stopped, and with the store. It throws when the subscription fails.
 */

import type { Runnable } from '../consumers/runners/runnable.ts'
import { startRunner } from '../consumers/runners/runner.ts'
import { onAbort, once } from '../core/abort.ts'
import type { Service } from '../core/service.ts'
import { spanOf } from './callback.ts'
import type { Delivery } from './delivery.ts'
import { openGroup, type SubscriptionParts } from './group.ts'
import { liveSource, type Source } from './live.ts'
import type { SubscriptionOptions } from './options.ts'

/** A subscription that is iterated over. */
export interface SubscriptionIteration<E> extends AsyncIterable<E>, AsyncDisposable {
  /** Ends its iterations and releases their leases. May be called again. */
  stop(): Promise<void>
}

export function iterate(
  parts: SubscriptionParts,
  options: SubscriptionOptions,
  signal: AbortSignal | undefined,
): SubscriptionIteration<Delivery> {
  const running = new Set<() => Promise<void>>()
  const stop = async (): Promise<void> => {
    await Promise.all([...running].map(end => end()))
  }
  return {
    [Symbol.asyncIterator]() {
      const source = options.durable ? storedSource(parts, options, signal) : liveSource(parts, options, signal)
      const spans = openSpans(parts, options)
      const end = once(async () => {
        spans.end()
        await source.stop()
        running.delete(end)
      })
      running.add(end)
      return {
        async next() {
          spans.end()
          const delivery = await source.next().catch(async error => {
            await end()
            throw error
          })
          if (delivery !== undefined) {
            spans.begin(delivery)
            return { done: false, value: delivery }
          }
          await end()
          return { done: true, value: undefined }
        },
        async return() {
          await end()
          return { done: true, value: undefined }
        },
      }
    },
    stop,
    [Symbol.asyncDispose]: stop,
  }
}

function storedSource(parts: SubscriptionParts, options: SubscriptionOptions, signal: AbortSignal | undefined): Source {
  const { log, wake, services } = parts
  const group = openGroup(parts, options, { refresh: () => refresh(), onFailure: () => {} })
  const unsettled: Delivery[] = []
  let refresh = (): void => {}
  let starting: Promise<Service> | undefined
  let failed: { readonly error: unknown } | undefined
  let isStopped = false
  let stopListening = (): void => {}
  const runnable: Runnable = {
    kinds: ['subscriptions'],
    names: () => [options.name],
    async start(context) {
      refresh = context.refresh
      await group.start()
      return { leased: group.leased, stop: group.stop }
    },
  }

  function start(): void {
    log.database.refuseInsideTransaction('subscribe')
    if (signal !== undefined) stopListening = onAbort(signal, group.quiet)
    starting = startRunner(services, { log, wake, runnables: [runnable] }, { leaseMs: options.leaseMs })
    starting.catch((error: unknown) => {
      failed = { error }
      group.quiet()
    })
  }

  return {
    async next() {
      if (isStopped || signal?.aborted) return undefined
      if (starting === undefined) start()
      // The program asks for the next event, so it has completed the last one. If that cannot be stored, it is
      // delivered again.
      for (const done of unsettled.splice(0)) void done.ack().catch(() => {})
      const delivery = await group.pull({ alone: false })
      if (failed !== undefined && !isStopped) throw failed.error
      if (delivery !== undefined && options.ack === 'auto') unsettled.push(delivery)
      return delivery
    },
    async stop() {
      isStopped = true
      stopListening()
      group.quiet()
      await group.stop()
      await starting?.then(
        runner => runner.stop({ timeoutMs: options.drainMs }),
        () => {},
      )
    },
  }
}

/** The span of a delivery lasts until the program comes back for the next one, because a loop cannot be entered. */
function openSpans({ log: { telemetry, schema } }: SubscriptionParts, options: SubscriptionOptions) {
  let end = (): void => {}
  return {
    begin(delivery: Delivery): void {
      if (!telemetry.isTraced) return
      void telemetry.span(spanOf(schema, options, delivery), () => new Promise<void>(resolve => (end = resolve)))
    },
    end: (): void => end(),
  }
}
