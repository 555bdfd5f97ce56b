/**
 * Aggregates of one kind: load, decide, commit.
 *
 *     load(id) ──► decide(command), append(events) ──► commit          VersionConflict if the stream has changed meanwhile
 *     handle(id, command)                                             all three; again after a conflict
 */

import { asRetryable, isRillflowError } from '../core/errors.ts'
import { checkName } from '../core/name.ts'
import { refusingUnknownOptions } from '../core/options.ts'
import type { Executor } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import type { AnyTransaction } from '../database/transaction.ts'
import { type AppendOptions, type AppendParts, appendEvents, appendOptionNames } from '../events/append/append.ts'
import { checkExpected, type Expected, isExpected } from '../events/append/prepare.ts'
import { type Alongside, type AppendResult, earlierResults } from '../events/append/send.ts'
import type { EventMap, NewEventIn } from '../events/definition.ts'
import { IdempotencyConflict, IdempotencyMismatch, VersionConflict } from '../events/errors.ts'
import { rereadable } from '../events/read/read.ts'
import { type Aggregate, type AnyEvent, checkStream } from './aggregate.ts'
import { type LoadParts, type LoadRange, loadState, remember } from './load.ts'
import { Loaded, type LoadedAggregate, loadedOf } from './loaded.ts'
import type { Saved } from './saved.ts'
import { snapshotOf } from './snapshot.ts'
import type { Turns } from './turns.ts'

export type CommitOptions = Omit<AppendOptions, 'expected'>

export interface LoadOptions extends LoadRange {
  tx?: AnyTransaction | undefined
}

/**
 * How a command is decided and committed.
 *
 * @example
 * ```ts
 * const options: HandleOptions = { idempotencyKey: 'ship-7', retries: 5 }
 * ```
 */
export interface HandleOptions extends CommitOptions {
  /** How often the decision is made again after a conflict with another append. Default 3. */
  retries?: number | undefined
}

/** The outcome of a command: the new state, the events, and the outcome of the save. */
export interface Handled<State, M extends EventMap = object> {
  readonly state: State
  /** Empty if it was done before, under the same idempotency key. */
  readonly events: readonly NewEventIn<M>[]
  readonly saved: Saved
}

/** The streams of one aggregate: load a state, decide, commit. `store.aggregates(Order)` gives it. */
export interface Repository<State, Command, M extends EventMap = object> {
  /** The state of a stream, to decide on: now, at a version, or at a time. */
  load(id: string, options?: LoadOptions): Promise<LoadedAggregate<State, Command, M>>
  /** The state as it is now; undefined if the stream has no events. */
  fetchLatest(id: string, options?: { tx?: AnyTransaction | undefined }): Promise<State | undefined>
  /** Appends the staged events; `VersionConflict` if the stream has changed since it was loaded. */
  commit(loaded: LoadedAggregate<State, Command, M>, options?: CommitOptions): Promise<AppendResult>
  /** Appends events that are decided already; the state they lead to is validated all the same. */
  commit(
    id: string,
    events: NewEventIn<M> | readonly NewEventIn<M>[],
    options?: HandleOptions & { expected?: Expected | undefined },
  ): Promise<AppendResult>
  /** Loads, decides and commits; decides again if the stream has changed meanwhile. */
  handle(id: string, command: Command, options?: HandleOptions): Promise<Handled<State, M>>
}

export type RepositoryParts = LoadParts & AppendParts & { readonly turns: Turns }

export function openRepository(parts: RepositoryParts, aggregate: Aggregate): Repository<unknown, unknown> {
  const { log } = parts
  const load = (id: string, { tx, ...range }: LoadOptions = {}): Promise<Loaded> =>
    loadForWriting(parts, aggregate, id, executorFor(parts, tx), range)

  /**
   * Looked up first: the state after the first call would refuse a second one. It stands for events of this stream and for
   * nothing else; those may have been removed since.
   */
  const isRepeat = async (id: string, { idempotencyKey: key, tx }: CommitOptions): Promise<boolean> => {
    if (key === undefined) return false
    const stream = checkStream(aggregate, id)
    const executor = executorFor(parts, tx)
    const known = sql`/* aggregates.key */
      select distinct e.stream, coalesce(jsonb_array_length(k.documents), 0) > 0 as has_documents
      from ${log.names.idempotency_keys} as k
      left join ${log.names.events} as e on e.event_id = any(k.event_ids)
      where k.key = ${checkName('Idempotency key', key)}::text`
    const rows = await rereadable(executor, log, () => executor.run<KnownKey>(known))
    const isOther = (row: KnownKey): boolean => row.has_documents || (row.stream !== null && row.stream !== stream)
    if (rows.some(isOther)) throw new IdempotencyMismatch({ key })
    return rows.length > 0
  }

  /** Whether another call was carried out under the key while this one was decided: its state refuses this one, too. */
  const isRepeatByNow = async (id: string, options: CommitOptions, error: unknown): Promise<boolean> => {
    if (options.tx !== undefined) return false
    return isRepeat(id, options).catch((found: unknown) => {
      throw isRillflowError(found, 'idempotency_mismatch') ? found : error
    })
  }

  /** Loads, stages and commits; again if the stream got further events meanwhile. */
  const committing = async (
    id: string,
    { retries = 3, ...options }: HandleOptions,
    stage: (loaded: Loaded) => void,
  ): Promise<Committed> => {
    const { tx, signal } = options
    const attempt = async (): Promise<Committed> => {
      const loaded = await load(id, { tx })
      stage(loaded)
      const { events } = loaded
      const result = await commit(parts, loaded, options)
      return { state: loaded.state, events: result.repeated ? [] : events, result }
    }
    // A transaction of the caller that has failed cannot be tried again, and may hold locks that others need in their turn.
    if (tx !== undefined) return attempt()
    const stream = checkStream(aggregate, id)
    for (let left = retries; ; left--) {
      try {
        return await parts.turns.run([stream], signal, attempt)
      } catch (error) {
        if (!isRillflowError(error, 'version_conflict')) throw error
        if (left <= 0) throw asRetryable(error)
      }
    }
  }

  const repository: Repository<unknown, unknown> = {
    load,
    async fetchLatest(id, { tx } = {}) {
      const { state, version } = await load(id, { tx })
      return version === 0 ? undefined : state
    },
    commit: (async (
      target: string | LoadedAggregate<unknown, unknown>,
      second?: AnyEvent | readonly AnyEvent[] | CommitOptions,
      third: HandleOptions & { expected?: Expected | undefined } = {},
    ) => {
      if (typeof target !== 'string') return commit(parts, loadedOf(target, aggregate), (second ?? {}) as CommitOptions)
      const { expected = 'any', ...options } = third
      checkExpected(expected)
      const events = Array.isArray(second) ? (second as readonly AnyEvent[]) : [second as AnyEvent]
      if (await isRepeat(target, options)) return (await appendEvents(parts, [{ stream: target, events }], options))[0]!
      const { result } = await committing(target, options, loaded => {
        refuseUnexpected(loaded, expected)
        loaded.append(events)
      })
      return result
    }) as Repository<unknown, unknown>['commit'],
    async handle(id, command, options = {}) {
      const { idempotencyKey: key, onRepeat, tx } = options
      if (!(await isRepeat(id, options))) {
        const committed = await committing(id, options, loaded => loaded.decide(command)).catch(async error => {
          if (!(await isRepeatByNow(id, options, error))) throw error
        })
        const isNothing = committed !== undefined && committed.result.eventIds.length === 0
        if (committed !== undefined && !(isNothing && tx === undefined && (await isRepeat(id, options))))
          return { state: committed.state, events: committed.events, saved: savedOf(committed.result) }
      }
      if (onRepeat === 'error') throw new IdempotencyConflict({ key: key! })
      const earlier = { key, parts: [{ stream: id, expected: 'any' as const, events: [] }] }
      const [result] = await earlierResults(executorFor(parts, tx), log, earlier, 'key')
      return { state: (await load(id, { tx })).state, events: [], saved: savedOf(result!) }
    },
  }
  return refusingUnknownOptions('aggregates', repository, optionsOfCalls)
}

/** The events and documents that were stored under a key. */
interface KnownKey {
  readonly stream: string | null
  readonly has_documents: boolean
}

const optionsOfCalls = {
  ...({ load: [1, ['tx', 'version', 'at']], fetchLatest: [1, ['tx']] } as const),
  ...({ commit: [2, [...appendOptionNames, 'retries']], handle: [2, handleOptionNames()] } as const),
}

/** A command is decided on a version: there is none to expect. */
function handleOptionNames(): readonly string[] {
  return [...appendOptionNames.filter(name => name !== 'expected'), 'retries']
}

interface Committed {
  readonly state: unknown
  readonly events: readonly AnyEvent[]
  readonly result: AppendResult
}

/** A command without events has stored nothing. */
function savedOf(result: AppendResult): Saved {
  const { eventIds, position, repeated } = result
  const isEmpty = eventIds.length === 0
  return { documents: [], streams: isEmpty ? [] : [result], position: isEmpty ? undefined : position, repeated }
}

/** Appends the staged events at the version they were decided on, with the snapshot that is then due. */
async function commit(
  parts: LoadParts & AppendParts,
  loaded: Loaded,
  options: CommitOptions = {},
): Promise<AppendResult> {
  const { aggregate, stream } = loaded
  const staged = loaded.staged()
  const { events, expected, version, state } = staged
  const snapshot = snapshotOf(parts, aggregate, staged)
  const alongside: Alongside | undefined = snapshot && { names: [], count: 1, write: snapshot }
  const hasOwnIds = events.some(event => event.id !== undefined)
  const [result] = await appendEvents(parts, [{ stream, events, expected }], options, {
    alongside,
    checkIds: hasOwnIds,
  })
  if (result!.repeated) {
    // The events under this key come from an earlier call, which may have decided on another state.
    const executor = options.tx === undefined ? parts.log.database : parts.executorOf(options.tx)
    loaded.reset(await loadState(parts, aggregate, stream, executor))
    return result!
  }
  loaded.committed(version)
  const eventId = result!.eventIds.at(-1)
  if (options.tx === undefined && eventId !== undefined) remember(parts, aggregate, stream, { state, version, eventId })
  return result!
}

/**
 * Loads an aggregate to decide on, through any executor. A session appends the events of `staged()` together with its
 * other writes, and with the snapshot of `snapshotOf`.
 */
export async function loadForWriting(
  parts: LoadParts,
  aggregate: Aggregate,
  id: string,
  executor: Executor,
  range: LoadRange = {},
): Promise<Loaded> {
  const stream = checkStream(aggregate, id)
  const folded = await loadState(parts, aggregate, stream, executor, range)
  return new Loaded(aggregate, stream, folded, parts.log)
}

function executorFor({ log, executorOf }: RepositoryParts, tx: AnyTransaction | undefined): Executor {
  if (tx !== undefined) return executorOf(tx)
  log.database.refuseInsideTransaction('aggregates')
  return log.database
}

function refuseUnexpected({ stream, version }: Loaded, expected: Expected): void {
  if (expected === 'any' || isExpected(version, expected)) return
  throw new VersionConflict({ stream, expected, actual: version })
}
