/** Aggregates of one kind: loaded, asked, committed. */

import { isRillflowError } from '../core/errors.ts'
import { checkName } from '../core/name.ts'
import type { Executor } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import type { AnyTransaction } from '../database/transaction.ts'
import { type AppendParts, appendEvents } from '../events/append/append.ts'
import { type AppendResult, earlierResults } from '../events/append/outcome.ts'
import { checkExpected, type Expected, isExpected } from '../events/append/prepare.ts'
import type { EventMap, NewEventIn } from '../events/definition.ts'
import { IdempotencyConflict, VersionConflict } from '../events/errors.ts'
import { rereadable } from '../events/read/read.ts'
import { type Aggregate, type AnyEvent, checkStream } from './aggregate.ts'
import { type CommitOptions, commit } from './commit.ts'
import { type LoadParts, type LoadRange, loadState } from './load.ts'
import { Loaded, type LoadedAggregate, loadedOf } from './loaded.ts'

export interface LoadOptions extends LoadRange {
  tx?: AnyTransaction | undefined
}

export interface HandleOptions extends CommitOptions {
  /** How often it is decided anew when somebody else has appended meanwhile. Default 3. */
  retries?: number | undefined
}

/** What asking an aggregate came to. */
export interface Handled<State, M extends EventMap = object> {
  readonly state: State
  readonly events: readonly NewEventIn<M>[]
  readonly result: AppendResult
}

export interface Repository<State, Command, M extends EventMap = object> {
  /** The state of a stream, to decide on: now, at a version, or at a time. */
  load(id: string, options?: LoadOptions): Promise<LoadedAggregate<State, Command, M>>
  /** The state as it is now; undefined if the stream has no events. */
  fetchLatest(id: string, options?: { tx?: AnyTransaction | undefined }): Promise<State | undefined>
  /** Appends what is staged; `VersionConflict` if the stream has gone on since it was loaded. */
  commit(loaded: LoadedAggregate<State, Command, M>, options?: CommitOptions): Promise<AppendResult>
  /** Appends events that are decided already; the state they lead to is validated all the same. */
  commit(
    id: string,
    events: NewEventIn<M> | readonly NewEventIn<M>[],
    options?: HandleOptions & { expected?: Expected | undefined },
  ): Promise<AppendResult>
  /** Loads, decides and commits; decides anew if the stream has gone on meanwhile. */
  handle(id: string, command: Command, options?: HandleOptions): Promise<Handled<State, M>>
}

export type RepositoryParts = LoadParts & AppendParts

export function openRepository(parts: RepositoryParts, aggregate: Aggregate): Repository<unknown, unknown> {
  const { log } = parts
  const load = (id: string, { tx, ...range }: LoadOptions = {}): Promise<Loaded> =>
    loadForWriting(parts, aggregate, id, executorFor(parts, tx), range)

  /** Asked first: what was done once under a key would be refused by the state it led to. */
  const isRepeat = async (id: string, { idempotencyKey: key, tx }: CommitOptions): Promise<boolean> => {
    if (key === undefined) return false
    checkStream(aggregate, id)
    const executor = executorFor(parts, tx)
    const known = sql`/* aggregates.key */
      select 1
      from ${log.names.idempotency_keys}
      where key = ${checkName('Idempotency key', key)}::text`
    return (await rereadable(executor, log, () => executor.run(known))).length > 0
  }

  /** Stages and commits on the state of the moment, again if that has passed. */
  const committing = async (
    id: string,
    { retries = 3, ...options }: HandleOptions,
    stage: (loaded: Loaded) => void,
  ): Promise<Handled<unknown>> => {
    for (let left = retries; ; left--) {
      const loaded = await load(id, { tx: options.tx })
      stage(loaded)
      const { events } = loaded
      try {
        const result = await commit(parts, loaded, options)
        return { state: loaded.state, events: result.repeated ? [] : events, result }
      } catch (error) {
        if (left <= 0 || !isRillflowError(error, 'version_conflict')) throw error
      }
    }
  }

  return {
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
      if (!(await isRepeat(id, options))) return committing(id, options, loaded => loaded.decide(command))
      if (onRepeat === 'error') throw new IdempotencyConflict({ key: key! })
      const earlier = { key, parts: [{ stream: id, expected: 'any' as const, events: [] }] }
      const [result] = await earlierResults(executorFor(parts, tx), log, earlier, 'key')
      return { state: (await load(id, { tx })).state, events: [], result: result! }
    },
  }
}

/**
 * The state of a stream, its version, and what is decided on it, read through any executor. The unit of work appends
 * `staged()` beside its own writes, with `snapshotOf` among them.
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
