/** Runs a subscription with `run` by hand, in a runner of its own. */

import type { EventMap, UntypedEvents } from '../../src/events/definition.ts'
import type { Store } from '../../src/store.ts'
import { defineSubscription, type SubscriptionDefinition } from '../../src/subscriptions/subscription.ts'

export interface RunningSubscription extends AsyncDisposable {
  /** Lets running calls end, for a while, and gives the leases back. May be called again. */
  stop(): Promise<void>
  /** Resolves when it was stopped, rejects when it has failed. */
  readonly ended: Promise<void>
}

export function runSubscription<M extends EventMap = UntypedEvents, T extends keyof M & string = keyof M & string>(
  store: Store<M>,
  name: string,
  { signal, ...definition }: SubscriptionDefinition<M, T> & { signal?: AbortSignal | undefined },
): RunningSubscription {
  const subscription = defineSubscription(name, definition)
  const stopping = new AbortController()
  signal?.addEventListener('abort', () => stopping.abort())
  const ended = (async () => {
    await store.register(subscription as never)
    await store.consumers.run(subscription, { signal: stopping.signal })
  })()
  // A test that does not look at it is not ended by it.
  ended.catch(() => {})
  const stop = async (): Promise<void> => {
    stopping.abort()
    await ended.catch(() => {})
  }
  return { stop, ended, [Symbol.asyncDispose]: stop }
}
