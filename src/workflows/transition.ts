/**
 * Transitions: a handler wants an event only if it changes an aggregate in a certain way. The worker loads the state
 * before the event and the state after it, from the aggregate's stream, and calls the condition with both.
 *
 *     defineHandler('ship', {
 *       events,
 *       on: 'OrderPaid',
 *       transition: transition(Order, (before, after) => before.due > 0 && after.due === 0),
 *       run: …,
 *     })
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

/**
 * The condition of a handler on the state before and after its event.
 *
 * @example
 * ```ts
 * const onShipping = defineHandler('on-shipping', {
 *   events,
 *   on: 'OrderShipped',
 *   transition: transition(Order, (before, after) => before.status !== after.status),
 *   run: () => console.log('its first parcel'),
 * })
 * ```
 */
export function transition<State>(
  of: Aggregate<State, never, never>,
  when: (before: State, after: State) => boolean,
): Transition {
  return { of, when: when as Transition['when'] }
}

/** False for an event of another category of streams: it does not change this aggregate. */
export async function isTransition(log: Log, { of, when }: Transition, event: RecordedEvent): Promise<boolean> {
  if (category(event.stream) !== of.name) return false
  const parts = { log, cacheOf: () => noCache }
  const stateAt = async (version: number): Promise<unknown> =>
    version === 0 ? of.initial() : (await loadState(parts, of, event.stream, log.database, { version })).state
  return when(await stateAt(event.version - 1), await stateAt(event.version))
}

const noCache = new StateCache(0)
