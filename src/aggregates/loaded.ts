/**
 * A loaded aggregate: its state, and the events that are staged on it. A staged event is folded at once, so that the next
 * decision sees it; nothing is appended before a commit.
 */
import { isPromise } from '../core/core.ts'
import { InvalidOption } from '../core/errors.ts'
import type { EventMap, NewEventIn } from '../events/definition.ts'
import type { Log } from '../events/log.ts'
import type { Aggregate, AnyEvent } from './aggregate.ts'
import { InvalidAggregateState, InvalidDecision } from './errors.ts'
import { asRead, type Folded, fold } from './load.ts'
import { provisional } from './projected.ts'

export interface LoadedAggregate<State, Command, M extends EventMap = object> {
  readonly stream: string
  /** The state after all staged events. */
  readonly state: State
  /** The version of the stream when it was loaded, which it must still have at the commit; 0 if it has no events. */
  readonly version: number
  /** The events that are staged and not committed yet. */
  readonly events: readonly NewEventIn<M>[]
  /** Stages the events that the aggregate decides, and returns them. */
  decide(command: Command): readonly NewEventIn<M>[]
  /** Stages events that need no decision. */
  append(events: NewEventIn<M> | readonly NewEventIn<M>[]): void
}

/** The events to append, and the state they lead to. */
export interface Staged {
  readonly stream: string
  readonly events: readonly AnyEvent[]
  /** The version the stream must still have. */
  readonly expected: number
  /** The version it will have then. */
  readonly version: number
  /** The state at that version. */
  readonly state: unknown
}

export class Loaded implements LoadedAggregate<unknown, unknown> {
  readonly aggregate: Aggregate
  readonly stream: string
  readonly #log: Pick<Log, 'clock' | 'maxEventBytes'>
  #version: number
  #state: unknown
  #events: AnyEvent[] = []
  #failed: { readonly error: unknown } | undefined

  constructor(
    aggregate: Aggregate,
    stream: string,
    { state, version }: Folded,
    log: Pick<Log, 'clock' | 'maxEventBytes'>,
  ) {
    this.aggregate = aggregate
    this.stream = stream
    this.#state = state
    this.#version = version
    this.#log = log
  }

  get state(): unknown {
    return this.#state
  }

  get version(): number {
    return this.#version
  }

  get events(): readonly AnyEvent[] {
    return [...this.#events]
  }

  decide(command: unknown): readonly AnyEvent[] {
    this.#refuseFailed()
    const { name, decide } = this.aggregate
    if (decide === undefined) {
      const reason = `Aggregate "${name}" has no "decide", so it takes no commands. Define it with one, or decide in the call with store.decide(aggregate, id, state => events).`
      throw new InvalidOption({ option: 'decide', reason })
    }
    const events = decidedEvents(this.aggregate, this.stream, decide(command, this.#state))
    this.append(events)
    return events
  }

  append(given: AnyEvent | readonly AnyEvent[]): void {
    this.#refuseFailed()
    const events = Array.isArray(given) ? (given as readonly AnyEvent[]) : [given as AnyEvent]
    const { clock, maxEventBytes } = this.#log
    const shaped = events.map(event => asRead(event, maxEventBytes))
    try {
      for (const [at, event] of shaped.entries()) {
        const version = this.#version + this.#events.length + 1
        const { aggregate, stream } = this
        const seen = aggregate.isProjected ? provisional(event, stream, version, clock.now()) : event
        this.#state = fold(aggregate, stream, this.#state, seen, version)
        this.#events.push(events[at]!)
      }
    } catch (error) {
      // A fold that failed halfway may have changed the state in place, so the state can no longer be used.
      this.#failed = { error }
      throw error
    }
  }

  /** The staged events, if the state they lead to is valid. */
  staged(): Staged {
    this.#refuseFailed()
    const { aggregate, stream } = this
    const expected = this.#version
    const version = expected + this.#events.length
    const refuse = (reason: string, cause?: unknown): never => {
      throw new InvalidAggregateState({ aggregate: aggregate.name, stream, version, reason }, cause)
    }
    if (this.#events.length > 0) {
      let reason: string | undefined
      try {
        reason = aggregate.validate(this.#state)
      } catch (error) {
        refuse(error instanceof Error ? error.message : String(error), error)
      }
      if (reason !== undefined) refuse(reason)
    }
    return { stream, events: this.events, expected, version, state: this.#state }
  }

  /** The staged events are in the stream. */
  committed(version: number): void {
    this.#version = version
    this.#events = []
  }

  /** Continues from this state, with nothing staged. */
  reset({ state, version }: Folded): void {
    this.#state = state
    this.committed(version)
  }

  #refuseFailed(): void {
    if (this.#failed !== undefined) throw this.#failed.error
  }
}

/** A decision as a list of events; anything else that a function can return is refused. */
export function decidedEvents({ name }: Aggregate, stream: string, decided: unknown): readonly AnyEvent[] {
  const events: readonly unknown[] = Array.isArray(decided) ? decided : [decided]
  for (const event of events) {
    if (typeof event === 'object' && event !== null && 'type' in event && typeof event.type === 'string') continue
    const what = isPromise(event as object) ? 'a promise' : String(event)
    const reason = `it returned ${what} where an event was expected; to append nothing, return []`
    throw new InvalidDecision({ aggregate: name, stream, reason })
  }
  return events as readonly AnyEvent[]
}

export function loadedOf(given: LoadedAggregate<unknown, unknown>, { name }: Aggregate): Loaded {
  if (given instanceof Loaded && given.aggregate.name === name) return given
  const reason = `The first argument of commit was not loaded as aggregate "${name}". Pass the result of load() of the same aggregate.`
  throw new InvalidOption({ option: 'loaded', reason })
}
