/** Until nothing is left that could be done now, of one store. */
import { isRillflowError } from '../../core/errors.ts'
import { sleep } from '../../core/lifecycle.ts'
import type { Store } from '../../store.ts'
import type { HandlerDescription } from '../../workflows/insight/handlers.ts'
import { dispatcherName } from '../../workflows/routes.ts'
import type { Opened } from '../command.ts'
import type { Parts } from './parts.ts'
import { startSubscriptions } from './together.ts'

export interface RanOnce {
  readonly events: number
  readonly snapshots: number
}

/** Work first, because what handlers emit is applied by the others. */
export async function runOnce(
  opened: Pick<Opened, 'store' | 'config'>,
  parts: Parts,
  signal: AbortSignal,
): Promise<RanOnce> {
  const { store } = opened
  if (parts.hasWork) await workUntilIdle(store, signal)
  const events = await store.projections.runUntilIdle({ signal })
  let snapshots = 0
  for (const each of parts.snapshotters) snapshots += await each.runUntilIdle({ signal })
  const subscriptions = startSubscriptions(opened)
  try {
    await Promise.race([deliveredAll(opened, signal), ...subscriptions.map(each => each.ended)])
  } finally {
    await Promise.all(subscriptions.map(each => each.stop()))
  }
  return { events, snapshots }
}

const lookMs = 50

/** Until everything that is in the log now was dispatched, and no workflow is running. One that waits for a time does not count. */
async function workUntilIdle(store: Store, signal: AbortSignal): Promise<void> {
  const worker = store.workflows.worker()
  await worker.start()
  try {
    await store.projections.waitFor(dispatcherName, await store.events.head(), { signal })
    // The dispatcher is done with the log; a handler that begins before it was known may not have been given it yet.
    while ((await store.workflows.handlers()).some(isCatchingUp)) await sleep(lookMs, { signal })
    while ((await store.workflows.list({ state: 'running', limit: 1 })).workflows.length > 0)
      await sleep(lookMs, { signal })
  } finally {
    await worker.stop()
  }
}

function isCatchingUp({ isBackfilling, pausedAt, retiredAt }: HandlerDescription): boolean {
  return isBackfilling && pausedAt === undefined && retiredAt === undefined
}

async function deliveredAll({ store, config }: Pick<Opened, 'store' | 'config'>, signal: AbortSignal): Promise<void> {
  for (const [name, { group }] of Object.entries(config.subscriptions ?? {}))
    while (await isBehind(store, name, group)) await sleep(lookMs, { signal })
}

/** One that has only just begun may not be stored yet. */
async function isBehind(store: Store, name: string, group: string | undefined): Promise<boolean> {
  try {
    return (await store.subscriptions.status(name, group)).lag > 0
  } catch (error) {
    if (isRillflowError(error, 'subscription_not_found')) return true
    throw error
  }
}
