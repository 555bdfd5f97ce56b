/**
 * Handlers that want an event only for what it does to an aggregate.
 *
 *     flows.on('OrderPaid', { name: 'ship', transition: transition(Order, (before, after) => after.paid >= after.total) }, …)
 */
import type { Aggregate } from '../aggregates/aggregate.ts'
import { StateCache } from '../aggregates/cache.ts'
import { loadState } from '../aggregates/load.ts'
import { category } from '../core/name.ts'
import type { RecordedEvent } from '../events/definition.ts'
import type { Log } from '../events/log.ts'

export interface Transition {
  readonly of: Aggregate
  readonly when: (before: unknown, after: unknown) => boolean
}

/** Whether an event leads from one state to another that is wanted. */
export function transition<State>(
  of: Aggregate<State, never, never>,
  when: (before: State, after: State) => boolean,
): Transition {
  return { of, when: when as Transition['when'] }
}

/** An event of another kind of stream changes nothing of this one. */
export async function isTransition(log: Log, { of, when }: Transition, event: RecordedEvent): Promise<boolean> {
  if (category(event.stream) !== of.name) return false
  const parts = { log, cacheOf: () => noCache }
  const stateAt = async (version: number): Promise<unknown> =>
    version === 0 ? of.initial() : (await loadState(parts, of, event.stream, log.database, { version })).state
  return when(await stateAt(event.version - 1), await stateAt(event.version))
}

const noCache = new StateCache(0)
