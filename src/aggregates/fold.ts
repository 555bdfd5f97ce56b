/** Folding one event into a state, with nothing swallowed. */

import { isPromise } from '../core/core.ts'
import { encodeJson } from '../core/json.ts'
import type { Aggregate, AnyEvent } from './aggregate.ts'
import { FoldFailed } from './errors.ts'

/** The state after the event, which is this version of the stream. */
export function fold(aggregate: Aggregate, stream: string, state: unknown, event: AnyEvent, version: number): unknown {
  const refuse = (reason: string, cause?: unknown): never => {
    throw new FoldFailed({ aggregate: aggregate.name, stream, version, type: event.type, reason }, cause)
  }
  let after: unknown
  try {
    after = aggregate.evolve(state, event)
  } catch (error) {
    return refuse(error instanceof Error ? error.message : String(error), error)
  }
  if (after === undefined) refuse('it gave nothing')
  if (isPromise(after)) refuse('it gave a promise')
  return after
}

/** An event as it will be read: folded as it was said, a Date in it would make another state than the stored text. */
export function asRead<Event extends AnyEvent>(event: Event, maxBytes: number): Event {
  const { text } = encodeJson(event.data, { what: event.type, root: 'data', maxBytes })
  return { ...event, data: JSON.parse(text) }
}
