/** What an aggregate decides, without a database: the same folding, deciding and validating that a commit does. */
import { isDeepStrictEqual } from 'node:util'
import type { Aggregate, AnyEvent } from '../aggregates/aggregate.ts'
import { asRead } from '../aggregates/fold.ts'
import { Loaded } from '../aggregates/loaded.ts'
import { systemClock } from '../core/clock.ts'
import type { EventMap, NewEventIn } from '../events/definition.ts'
import { SpecificationFailed } from './failure.ts'

/** An error by its class, by what its message matches, or by its name and message. */
export type ExpectedError = (abstract new (...given: never[]) => Error) | RegExp | Error

export type AggregateSpecification<State, Command, M extends EventMap = object> = (
  events?: NewEventIn<M> | readonly NewEventIn<M>[],
) => {
  when(command: Command): {
    /** These events in this order, of which only what is named is compared; [] for none; or an error. */
    then(expected: NewEventIn<M> | readonly NewEventIn<M>[] | ExpectedError): void
    /** The state that the decision leads to. */
    thenState(expected: State): void
  }
}

export function specifyAggregate(aggregate: Aggregate): AggregateSpecification<unknown, unknown> {
  return (events = []) => ({
    when(command) {
      const what = `Given ${namesOf(listOf(events))}, when ${commandName(command)}`
      const outcome = () => decided(aggregate, listOf(events), command)
      return {
        // biome-ignore lint/suspicious/noThenProperty: the word of the trade; awaited by mistake, it says so
        then: expected => check(what, expected, outcome()),
        thenState(expected) {
          const { error, state } = outcome()
          if (error !== undefined) throw new SpecificationFailed({ what, expected, actual: error }, error)
          if (!isDeepStrictEqual(state, expected)) throw new SpecificationFailed({ what, expected, actual: state })
        },
      }
    },
  })
}

interface Outcome {
  readonly events: readonly AnyEvent[]
  readonly state: unknown
  readonly error: unknown
}

function decided(aggregate: Aggregate, given: readonly AnyEvent[], command: unknown): Outcome {
  const stream = `${aggregate.name}-1`
  const begun = { state: aggregate.initial(), version: 0, eventId: undefined }
  const loaded = new Loaded(aggregate, stream, begun, { clock: systemClock, maxEventBytes: mostBytes })
  loaded.append(given)
  loaded.committed(given.length)
  try {
    const events = loaded.decide(command)
    const { state } = loaded.staged()
    return { events, state, error: undefined }
  } catch (error) {
    return { events: [], state: undefined, error: error ?? new Error(`threw ${String(error)}`) }
  }
}

const mostBytes = Number.MAX_SAFE_INTEGER

function check(what: string, expected: AnyEvent | readonly AnyEvent[] | ExpectedError, outcome: Outcome): void {
  const actual = outcome.error ?? outcome.events.map(event => asRead(event, mostBytes))
  if (isExpectedError(expected)) {
    if (!isMatch(expected, outcome.error)) throw new SpecificationFailed({ what, expected, actual }, outcome.error)
    return
  }
  if (typeof expected === 'function')
    throw new TypeError('a specification is not awaited before its end: call .then(events) or .then(error) on it')
  const wanted = listOf(expected)
  const fits =
    outcome.error === undefined &&
    wanted.length === outcome.events.length &&
    wanted.every((event, at) => fitsEvent(event, (actual as readonly AnyEvent[])[at]!))
  if (!fits) throw new SpecificationFailed({ what, expected: wanted, actual }, outcome.error)
}

function fitsEvent(expected: AnyEvent, actual: AnyEvent): boolean {
  return Object.entries(asRead(expected, mostBytes)).every(([key, value]) =>
    isDeepStrictEqual(value, (actual as unknown as Record<string, unknown>)[key]),
  )
}

/** The function that `await` calls a `then` with has no prototype. */
function isExpectedError(expected: unknown): expected is ExpectedError {
  if (expected instanceof RegExp || expected instanceof Error) return true
  return typeof expected === 'function' && expected.prototype !== undefined
}

function isMatch(expected: ExpectedError, error: unknown): boolean {
  if (error === undefined) return false
  if (expected instanceof RegExp) return expected.test(error instanceof Error ? error.message : String(error))
  if (expected instanceof Error)
    return error instanceof Error && error.name === expected.name && error.message === expected.message
  return error instanceof expected
}

function listOf<T>(one: T | readonly T[]): readonly T[] {
  return Array.isArray(one) ? one : [one as T]
}

function namesOf(events: readonly AnyEvent[]): string {
  return events.length === 0 ? 'nothing' : events.map(event => event.type).join(', ')
}

function commandName(command: unknown): string {
  const type = (command as { type?: unknown } | null | undefined)?.type
  return typeof type === 'string' ? type : String(command)
}
