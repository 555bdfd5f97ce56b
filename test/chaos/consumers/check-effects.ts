/** The checker: counts each event's committed effects per consumer, and checks their order. */
import type { RecordedEvent } from '../../../src/events/definition.ts'

export interface Effect {
  readonly consumer: string
  readonly position: number | string
}

export interface EffectErrors {
  /** Effects that are missing, came more than once, or have no event. */
  readonly lost: number
  readonly repeated: number
  readonly unknown: number
  /** Effects after one with a higher position, of the same consumer; and of the same stream. */
  readonly outOfOrder: number
  readonly outOfOrderInStream: number
}

export const noErrors: EffectErrors = { lost: 0, repeated: 0, unknown: 0, outOfOrder: 0, outOfOrderInStream: 0 }

/** The effects are given in the order in which they were written. */
export function checkEffects(
  consumers: readonly string[],
  events: readonly Pick<RecordedEvent, 'position' | 'stream'>[],
  effects: readonly Effect[],
): EffectErrors {
  const errors = { ...noErrors }
  const streams = new Map(events.map(event => [event.position, event.stream]))
  for (const consumer of consumers) {
    const positions = effects.filter(effect => effect.consumer === consumer).map(effect => Number(effect.position))
    const seen = new Set<number>()
    const lastOfStream = new Map<string, number>()
    let last = -1
    for (const position of positions) {
      const stream = streams.get(position)
      if (stream === undefined) {
        errors.unknown++
        continue
      }
      if (seen.has(position)) errors.repeated++
      if (position < last) errors.outOfOrder++
      if (position < (lastOfStream.get(stream) ?? -1)) errors.outOfOrderInStream++
      seen.add(position)
      lastOfStream.set(stream, position)
      last = position
    }
    errors.lost += events.length - seen.size
  }
  return errors
}

/**
 * Whether the effects of one consumer follow the log from its beginning to its end, leaving it only for these resets, in
 * their order. Returns the first position that does not fit.
 */
export function firstUnexpected(
  events: readonly Pick<RecordedEvent, 'position'>[],
  positions: readonly number[],
  resets: readonly number[],
): number | undefined {
  const log = events.map(event => event.position)
  const next = new Map<number, number>()
  for (const [at, position] of log.entries()) next.set(at === 0 ? 0 : log[at - 1]!, position)
  const left = [...resets]
  let cursor = 0
  for (const position of positions) {
    while (next.get(cursor) !== position && left.length > 0) cursor = left.shift()!
    if (next.get(cursor) !== position) return position
    cursor = position
  }
  return cursor === log.at(-1) ? undefined : cursor
}
