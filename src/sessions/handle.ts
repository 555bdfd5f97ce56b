/**
 * Load, decide, save; again from the beginning after a conflict with another writer. Commands of one process take turns on
 * their streams (`aggregates/turns.ts`), so those on a hot stream do not overtake each other.
 */

import { type Aggregate, type AnyEvent, checkStream } from '../aggregates/aggregate.ts'
import { loadState } from '../aggregates/load.ts'
import { decidedEvents, type LoadedAggregate } from '../aggregates/loaded.ts'
import type { Saved } from '../aggregates/saved.ts'
import type { HeldTurns } from '../aggregates/turns.ts'
import { sleep } from '../core/abort.ts'
import type { Awaitable } from '../core/core.ts'
import { asRetryable, InvalidOption, isRillflowError, type RillflowError } from '../core/errors.ts'
import { checkName } from '../core/name.ts'
import { describe, refuseUnknownOptions } from '../core/options.ts'
import { type Backoff, delay } from '../core/retry.ts'
import type { Executor } from '../database/database.ts'
import type { AnyTransaction } from '../database/transaction.ts'
import type { EventMap, EventsAccepted, NewEvent, UntypedEvents } from '../events/definition.ts'
import { IdempotencyConflict, IdempotencyMismatch } from '../events/errors.ts'
import { rereadable } from '../events/read/read.ts'
import { outcomeOfKey } from './key.ts'
import type { Sent } from './save.ts'
import {
  openSession,
  type SaveOptions,
  type Session,
  type SessionOptions,
  type SessionParts,
  savedOf,
  saveOptionNames,
} from './session.ts'

export interface HandleSessionOptions extends SaveOptions {
  /** How often it is done again after a conflict with another writer. Default 3; none inside a transaction of yours, which has failed then. */
  retries?: number | undefined
}

/** The result of the function, and the outcome of the save. */
export interface HandledSession<T> {
  /** Undefined if it was done before, under the same idempotency key. */
  readonly value: T | undefined
  readonly saved: Saved
}

/** The outcome of a decision: the new state, the events, and the outcome of the save. */
export interface Decided<State, M extends EventMap = UntypedEvents> {
  readonly state: State
  /** Empty if it was done before, under the same idempotency key. */
  readonly events: readonly NewEvent<M>[]
  readonly saved: Saved
}

export interface Handle<M extends EventMap = UntypedEvents> {
  /** Loads an aggregate, lets it decide on a command, and saves the events. */
  <State, Command>(
    aggregate: Aggregate<State, Command, EventsAccepted<M>>,
    id: string,
    command: NoInfer<Command>,
    options?: HandleSessionOptions,
  ): Promise<Decided<State, M>>
  /** Runs `work` in a new session and saves it; after a conflict again, in another session. */
  <T>(work: (session: Session<M>) => Awaitable<T>, options?: HandleSessionOptions): Promise<HandledSession<T>>
}

/** Loads an aggregate, decides by the function given, and saves the events. */
export type DecideOn<M extends EventMap = UntypedEvents> = <State>(
  aggregate: Aggregate<State, never, EventsAccepted<M>>,
  id: string,
  decide: (state: State) => NewEvent<M> | readonly NewEvent<M>[],
  options?: HandleSessionOptions,
) => Promise<Decided<State, M>>

export function openDecide(parts: SessionParts): DecideOn {
  return ((aggregate: Aggregate, id: string, decide: (state: unknown) => unknown, options: HandleSessionOptions = {}) =>
    decideOn(parts, aggregate, id, options, loaded => {
      const events = decidedEvents(aggregate, loaded.stream, decide(loaded.state))
      loaded.append(events)
      return events
    })) as DecideOn
}

export function openHandle(parts: SessionParts): Handle {
  const handle = (
    first: Aggregate | ((session: Session) => Awaitable<unknown>),
    second?: string | HandleSessionOptions,
    command?: unknown,
    last: HandleSessionOptions = {},
  ): Promise<unknown> => {
    if (typeof first === 'function') return handleWork(parts, first, second as HandleSessionOptions | undefined)
    if (first?.kind !== 'aggregate') return Promise.reject(noAggregate(first))
    return decideOn(parts, first, second as string, last, loaded => loaded.decide(command))
  }
  return handle as Handle
}

function noAggregate(given: unknown): Error {
  const reason = `store.handle takes an aggregate (of defineAggregate), or a function of a session. It was given ${describe(given)}.`
  return new InvalidOption({ option: 'aggregate', reason })
}

/** A loaded aggregate whose types are not known here. */
type Deciding = LoadedAggregate<unknown, unknown>

async function decideOn(
  parts: SessionParts,
  aggregate: Aggregate,
  id: string,
  options: HandleSessionOptions,
  decide: (loaded: Deciding) => readonly AnyEvent[],
): Promise<Decided<unknown>> {
  const stream = checkStream(aggregate, id)
  const { value, saved } = await handleWork(
    parts,
    async session => {
      const loaded = (await session.fetchForWriting(aggregate, id, { tx: options.tx })) as unknown as Deciding
      return { loaded, events: decide(loaded) }
    },
    options,
    stream,
  )
  if (value !== undefined) return { state: value.loaded.state, events: saved.repeated ? [] : value.events, saved }
  const { state } = await loadState(parts, aggregate, stream, executorFor(parts, options.tx))
  return { state, events: [], saved }
}

async function handleWork<T>(
  parts: SessionParts,
  work: (session: Session) => Awaitable<T>,
  given: HandleSessionOptions = {},
  stream?: string,
): Promise<HandledSession<T>> {
  refuseUnknownOptions('store.handle', given, [...saveOptionNames, 'retries'])
  const { retries = 3, ...options } = given
  const maxRetries = options.tx === undefined ? retries : 0
  const { headers, correlationId, causationId, userId }: SessionOptions = options
  const earlier = await earlierOutcome(parts, options, stream)
  if (earlier !== undefined) return { value: undefined, saved: savedOf(earlier) }
  const attempt = async (turns?: HeldTurns): Promise<Attempt<T>> => {
    const session = openSession(parts, { headers, correlationId, causationId, userId }, turns)
    const value = await work(session)
    try {
      return { value, saved: await session.save(options) }
    } catch (error) {
      if (!isOvertaken(error)) throw error
      return { error, streams: turns?.streams ?? [] }
    }
  }
  // In a transaction of the caller there are no turns: it may hold locks that others need in theirs.
  const inTurn = (streams: readonly string[]): Promise<Attempt<T>> =>
    options.tx === undefined ? parts.turns.run(streams, options.signal, attempt) : attempt()
  let needed: readonly string[] = stream === undefined ? [] : [stream]
  for (let tries = 1; ; tries++) {
    const ended = await inTurn(needed).catch(async (error: unknown) => {
      return { value: undefined, saved: savedOf(await outcomeByNow(parts, options, stream, error)) }
    })
    if (!('error' in ended)) {
      const { documents, streams } = ended.saved
      const isNothing = documents.length === 0 && streams.length === 0
      const repeat = isNothing && options.tx === undefined ? await earlierOutcome(parts, options, stream) : undefined
      return repeat === undefined ? ended : { value: undefined, saved: savedOf(repeat) }
    }
    if (tries > maxRetries) throw options.tx === undefined ? asRetryable(ended.error) : ended.error
    needed = ended.streams.length > 0 ? ended.streams : needed
    // By real time: a clock that a test moves would keep the call waiting for ever.
    await sleep(delay(backoff, tries), { signal: options.signal })
  }
}

/** The outcome of another call with the key, which was carried out meanwhile: the state it led to refused this one. */
async function outcomeByNow(
  parts: SessionParts,
  options: HandleSessionOptions,
  stream: string | undefined,
  error: unknown,
): Promise<Sent> {
  // A transaction of the caller may have failed, and answers nothing more.
  if (options.tx !== undefined) throw error
  const earlier = await earlierOutcome(parts, options, stream).catch((found: unknown) => {
    throw isRillflowError(found) && found.code.startsWith('idempotency_') ? found : error
  })
  if (earlier === undefined) throw error
  return earlier
}

/** One try; `streams` are those that the next try takes its turn on, all of them before it begins. */
type Attempt<T> = HandledSession<T> | { readonly error: RillflowError; readonly streams: readonly string[] }

/**
 * Looked up first: the state that the first call led to would refuse a second one. `stream`: the only one that a repeat can
 * have written to.
 */
async function earlierOutcome(
  parts: SessionParts,
  { idempotencyKey: key, onRepeat, tx }: HandleSessionOptions,
  stream: string | undefined,
): Promise<Sent | undefined> {
  if (key === undefined) return undefined
  checkName('Idempotency key', key)
  const executor = executorFor(parts, tx)
  const earlier = await rereadable(executor, parts.log, () => outcomeOfKey(executor, parts.log, key))
  if (earlier !== undefined && stream !== undefined) {
    const isOther = earlier.documents.length > 0 || earlier.streams.some(each => each.stream !== stream)
    if (isOther) throw new IdempotencyMismatch({ key })
  }
  if (earlier !== undefined && onRepeat === 'error') throw new IdempotencyConflict({ key })
  return earlier
}

function executorFor({ log, executorOf }: SessionParts, tx: AnyTransaction | undefined): Executor {
  return tx === undefined ? log.database : executorOf(tx)
}

const backoff: Backoff = { baseMs: 2, factor: 2, maxMs: 100, jitter: 0.5 }

/** The documents or streams that were loaded have changed: a new decision may succeed. */
function isOvertaken(error: unknown): error is RillflowError {
  return isRillflowError(error) && overtaken.has(error.code)
}

const overtaken = new Set([
  'version_conflict',
  'document_conflict',
  'document_exists',
  'document_deleted',
  'document_not_found',
  'serialization_failed',
])
