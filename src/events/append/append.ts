/**
 * One call of append, from the caller's arguments to its results: grouped with others of this process, or inside a
 * transaction of the caller's.
 */

import { throwIfAborted } from '../../core/abort.ts'
import { type Awaitable, isPromise } from '../../core/core.ts'
import { InvalidOption } from '../../core/errors.ts'
import { elapsedMs } from '../../core/host.ts'
import { checkName } from '../../core/name.ts'
import { optionNames } from '../../core/options.ts'
import type { Executor } from '../../database/database.ts'
import { OutcomeUnknown } from '../../database/errors.ts'
import { foreignHandle, refuseLent } from '../../database/handle.ts'
import { sql } from '../../database/sql.ts'
import { type AnyTransaction, isOwnTransaction } from '../../database/transaction.ts'
import { carrying, type Span, type SpanEvent } from '../../telemetry/span.ts'
import { channels } from '../../telemetry/telemetry.ts'
import { VersionConflict } from '../errors.ts'
import { appendInline } from '../inline/inline.ts'
import type { Log } from '../log.ts'
import type { Wake } from '../order/wake.ts'
import { rereadable } from '../read/read.ts'
import { committedBy } from './committed.ts'
import type { GroupCommit } from './group-commit.ts'
import {
  type AppendDefaults,
  checkExpected,
  digestOf,
  type Expected,
  isExpected,
  type Part,
  prepareParts,
  type StreamEvents,
} from './prepare.ts'
import {
  type Alongside,
  type Append,
  type AppendResult,
  earlierResults,
  idsOf,
  lockStreams,
  mayStillBeStored,
  type Outcome,
  refusal,
  repeatedBy,
  resultsOf,
  sendBatch,
} from './send.ts'

/**
 * How events are appended.
 *
 * @example
 * ```ts
 * const options: AppendOptions = { expected: 'any', idempotencyKey: 'order-10' }
 * await store.events.append('order-10', placed, options)
 * ```
 */
export interface AppendOptions extends AppendDefaults {
  /** The version the stream must have. Default 'any'. */
  expected?: Expected | undefined
  /** Makes the append repeatable across processes: a second one with this key returns the first one's outcome. */
  idempotencyKey?: string | undefined
  /** On a repeat of the key: return the first outcome (default), or raise `IdempotencyConflict`. */
  onRepeat?: 'return' | 'error' | undefined
  /** Also append to an archived stream. Default false. */
  allowArchived?: boolean | undefined
  /** Take an advisory lock on the stream first, so that your own SQL can use the same lock. Default false. */
  advisoryLock?: boolean | undefined
  /** Append inside this transaction: one of the store's, or a `pg` client with an open transaction of yours. */
  tx?: AnyTransaction | undefined
  signal?: AbortSignal | undefined
}

const defaultNames = { headers: true, correlationId: true, causationId: true, userId: true } as const
export const appendOptionNames: readonly string[] = optionNames<AppendOptions>({
  ...{ ...defaultNames, expected: true, idempotencyKey: true, onRepeat: true, allowArchived: true },
  ...{ advisoryLock: true, tx: true, signal: true },
})

export interface AppendParts {
  readonly log: Log
  readonly group: GroupCommit
  readonly wake: Wake
  /** Runs our statements in a transaction of the store's or of the user's. */
  executorOf(tx: AnyTransaction): Executor
  /** The appends inside a transaction of the store, in case the outcome of its commit is unknown. */
  rememberIds(tx: AnyTransaction, ids: readonly string[]): void
}

/** Additions of the unit of work that an append is part of, and facts that it knows better than the append. */
export interface UnitOfWork {
  readonly alongside?: Alongside | undefined
  /** Stands for all of it, under an idempotency key. */
  readonly digest?: string | undefined
  /** Whether its events may be stored already. */
  readonly checkIds: boolean
  /** The span that the append is part of, if it has none of its own. */
  readonly span?: Span | undefined
}

/** One result for each stream. */
export function appendEvents(
  parts: AppendParts,
  streams: readonly StreamEvents[],
  options: AppendOptions,
  unit?: UnitOfWork,
): Promise<AppendResult[]> {
  const { telemetry, schema } = parts.log
  if (!telemetry.isTraced || unit?.span !== undefined) return appendAndCount(parts, streams, options, unit, unit?.span)
  const fields = { streams: streams.map(part => part.stream) }
  return telemetry.span({ name: 'events.append', schema, fields }, span =>
    appendAndCount(parts, streams, carrying(options, span), unit, span),
  )
}

async function appendAndCount(
  parts: AppendParts,
  streams: readonly StreamEvents[],
  options: AppendOptions,
  unit: UnitOfWork | undefined,
  span?: Span,
): Promise<AppendResult[]> {
  const { telemetry, schema } = parts.log
  const started = elapsedMs()
  const events = streams.reduce((sum, part) => sum + part.events.length, 0)
  const publish = (error?: unknown): void =>
    telemetry.publish(channels.append, () => {
      const message = { schema, streams: streams.map(part => part.stream), events }
      return { ...message, durationMs: elapsedMs() - started, ...(error === undefined ? {} : { error }) }
    })
  try {
    const results = await checkAndAppend(parts, streams, options, unit, span)
    if (streams.length === 0) return results
    telemetry.count('event_appends_total')
    telemetry.observe('event_append_seconds', (elapsedMs() - started) / 1000)
    if (results[0]?.repeated === true) telemetry.count('event_repeats_total')
    else if (options.tx === undefined) telemetry.count('events_appended_total', events)
    publish()
    return results
  } catch (error) {
    if (error instanceof VersionConflict) telemetry.count('event_conflicts_total')
    if (streams.length > 0) publish(error)
    throw error
  }
}

async function checkAndAppend(
  parts: AppendParts,
  streams: readonly StreamEvents[],
  options: AppendOptions,
  unit: UnitOfWork | undefined,
  span: Span | undefined,
): Promise<AppendResult[]> {
  const { log } = parts
  throwIfAborted(options.signal)
  if (streams.length === 0 && unit?.alongside === undefined) return []
  if (options.tx === undefined) log.database.refuseInsideTransaction('append')
  if (streams.length > 0 && streams.every(({ events }) => events.length === 0))
    return nothingAppended(parts, streams, options)
  if (streams.some(({ events }) => events.length === 0))
    throw new InvalidOption({
      option: 'streams',
      reason: 'One of the streams of this append has no events. Leave that stream out.',
    })
  if (options.idempotencyKey !== undefined) checkName('Idempotency key', options.idempotencyKey)
  const prepared = prepareAppend(log, streams, options, unit)
  const append = isPromise(prepared) ? await prepared : prepared
  span?.wrote(writtenBy(append))
  return options.tx === undefined ? appendGrouped(parts, append, options.signal) : appendIn(parts, append, options.tx)
}

/** The events of an append, for the span it is part of. */
export function writtenBy({ parts }: Append): SpanEvent[] {
  return parts.flatMap(({ stream, events }) =>
    events.map(({ id, type, correlationId }) => ({ id, type, stream, correlationId })),
  )
}

/** Everything that can be wrong with it by itself is found here; a promise only where a schema is asynchronous. */
export function prepareAppend(
  log: Log,
  streams: readonly StreamEvents[],
  options: AppendOptions,
  unit?: UnitOfWork,
): Awaitable<Append> {
  const prepared = prepareParts(log, streams, options)
  return isPromise(prepared) ? prepared.then(toAppend) : toAppend(prepared)

  function toAppend(parts: readonly Part[]): Append {
    return {
      parts,
      key: options.idempotencyKey,
      digest: options.idempotencyKey === undefined ? undefined : (unit?.digest ?? digestOf(streams)),
      onRepeat: options.onRepeat ?? 'return',
      allowArchived: options.allowArchived ?? false,
      advisoryLock: options.advisoryLock ?? false,
      checkIds: unit?.checkIds ?? streams.some(({ events }) => events.some(event => event.id !== undefined)),
      eventCount: streams.reduce((sum, { events }) => sum + events.length, 0),
      bytes: parts.reduce((sum, part) => part.events.reduce((all, event) => all + event.bytes, sum), 0),
      alongside: unit?.alongside,
    }
  }
}

// [append-8]
async function appendGrouped(parts: AppendParts, append: Append, signal?: AbortSignal): Promise<AppendResult[]> {
  const { log, group, wake } = parts
  const { outcome, resent } = await group.submit(append, signal)
  const repeated = repeatedBy(append, outcome, resent)
  if (resent && mayStillBeStored(append, outcome)) {
    const reason = 'it was refused when it was sent again, but the first one may still arrive'
    throw new OutcomeUnknown({ eventIds: idsOf(append), reason }, refusal(append, outcome))
  }
  if (repeated === undefined) {
    const results = resultsOf(append, outcome)
    if (append.eventCount > 0) wake.appended(committedBy(append, outcome))
    return results
  }
  const earlier = await rereadable(log.database, log, () => earlierResults(log.database, log, append, repeated))
  return resent && repeated === 'ids' ? earlier.map(result => Object.assign(result, { repeated: false })) : earlier
}

/**
 * Appends to one transaction that are made at the same time run one after the other: otherwise an inline projection would
 * read a document before the append next to it has written it, and the savepoints of both would cross.
 */
export function appendIn(parts: AppendParts, append: Append, tx: AnyTransaction): Promise<AppendResult[]> {
  refuseLent(tx)
  const previous = lastAppends.get(tx)
  const run = (): Promise<AppendResult[]> => appendAlone(parts, append, tx)
  const result = previous === undefined ? run() : previous.then(run, run)
  lastAppends.set(tx, result)
  return result
}

/** The last append of each transaction. */
const lastAppends = new WeakMap<AnyTransaction, Promise<unknown>>()

async function appendAlone(parts: AppendParts, append: Append, tx: AnyTransaction): Promise<AppendResult[]> {
  const { log, wake } = parts
  const executor = parts.executorOf(tx)
  if (append.advisoryLock) await lockStreams(executor, log, append)
  let outcome: Outcome | undefined
  // Another append made a stream between two looks at it: it exists now.
  while (append.alongside === undefined && (outcome === undefined || outcome.kind === 'busy'))
    [outcome] = await sendBatch(executor, log, [append], true)
  if (outcome === undefined || outcome.kind === 'inline') {
    const own = isOwnTransaction(tx) ? tx : foreignHandle(executor)
    // A projection that fails undoes its append, and leaves the rest of the transaction to its owner.
    outcome = await own.savepoint(() => appendInline(log, append, own))
  }
  const repeated = repeatedBy(append, outcome)
  if (repeated !== undefined) return earlierResults(executor, log, append, repeated)
  const results = resultsOf(append, outcome)
  parts.rememberIds(tx, idsOf(append))
  await wake.appendedIn(tx, executor)
  const count = (): void => log.telemetry.count('events_appended_total', append.eventCount)
  // Whether a transaction of the user's own was committed is not known here.
  if (isOwnTransaction(tx)) tx.afterCommit(count)
  else count()
  return results
}

/** No events: nothing is stored, but the expected version is still checked. */
async function nothingAppended(
  { log, executorOf }: AppendParts,
  streams: readonly StreamEvents[],
  options: AppendOptions,
): Promise<AppendResult[]> {
  const executor = options.tx === undefined ? log.database : executorOf(options.tx)
  const results: AppendResult[] = []
  for (const { stream, expected = 'any' } of streams) {
    checkExpected(expected)
    const [row] = await executor.run<{ version: number; position: number }>(sql`/* events.last */
      select version, position
      from ${log.names.events}
      where stream = ${checkName('Stream', stream)}::text
      order by version desc
      limit 1`)
    const version = Number(row?.version ?? 0)
    if (!isExpected(version, expected))
      throw new VersionConflict({ stream, expected: expected === 'any' ? 0 : expected, actual: version })
    results.push({ stream, version, position: row?.position ?? 0, eventIds: [], repeated: false })
  }
  throwIfAborted(options.signal)
  return results
}
