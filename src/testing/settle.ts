/** Waits until every appended event is in the read models. */

import { sleep } from '../core/abort.ts'
import { elapsedMs } from '../core/host.ts'
import { refuseUnknownOptions } from '../core/options.ts'
import type { Events } from '../events/events.ts'
import type { Store } from '../store.ts'
import { NotSettled } from './errors.ts'

export interface SettleOptions {
  /** How long to wait for events that are retried, and for runners. Default 10 000. */
  timeoutMs?: number | undefined
}

/**
 * Runs all registered projections until they have applied the present log, or waits for the runner that does. A dead letter
 * counts as applied; the error of a projection that stops is thrown.
 *
 * @example
 * ```ts
 * await using shop = await testStore({ events, projections: [orders] })
 * await shop.events.append('order-1', placed)
 * await settle(shop)
 * console.log((await shop.documents(orders).get('order-1'))?.data)
 * ```
 */
export async function settle(
  store: Pick<Store, 'consumers'> & { readonly events: Pick<Events, 'head' | 'waitFor'> },
  options: SettleOptions = {},
): Promise<void> {
  refuseUnknownOptions('settle', options, ['timeoutMs'])
  const { timeoutMs = 10_000 } = options
  const until = elapsedMs() + timeoutMs
  const left = (): number => Math.max(1, Math.ceil(until - elapsedMs()))
  const head = await store.events.head()
  await store.events.waitFor(head, { timeoutMs })
  for (let open = true; open; ) {
    open = false
    const { items } = await store.consumers.list({ kind: 'projection', limit: 10_000 })
    for (const { name: consumer } of items.filter(({ isRegistered }) => isRegistered)) {
      const { result, error } = await store.consumers.runOnce(consumer)
      if (result === 'stopped') throw error
      if (result === 'idle' || result === 'inline') continue
      if (result === 'paused') throw new NotSettled({ consumer, reason: 'is paused' })
      if (result === 'leasedByOther') await store.consumers.waitFor(consumer, head, { timeoutMs: left() })
      else open = true
      if (elapsedMs() > until) throw new NotSettled({ consumer, reason: `is still running (${result})` }, error)
      if (result === 'backoff' || result === 'rebuilding') await sleep(5)
    }
  }
}
