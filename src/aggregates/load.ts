/**
 * Loads the state of a stream, with one query where the tail fits a page: the newest known state, and the events after
 * it folded into it.
 *
 *     now        a state in memory ─┐
 *                a snapshot ────────┼──► fold the events after it ──► state, version
 *                a stored document ─┘
 *     version    a snapshot of an earlier version, or nothing, and the events up to the version
 *     at         the events up to that time, from the first
 *
 * Guarantees:
 * - A state from memory is used only if the event of its version still exists: the query reads that one, too.
 * - A snapshot and the events after it come from one statement, so they belong together.
 * - Only committed states are remembered: a transaction may see events that no other will ever see.
 *
 * What can fail: `FoldFailed` where `evolve` throws or returns nothing. A snapshot that cannot be read is logged, and the
 * stream is folded from its first event.
 */

import { isPromise } from '../core/core.ts'
import { InvalidOption } from '../core/errors.ts'
import { encodeJson } from '../core/json.ts'
import { describe } from '../core/options.ts'
import { maxPageBytes } from '../core/page.ts'
import type { Executor } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import type { RecordedEvent } from '../events/definition.ts'
import { StreamArchived, StreamTombstoned } from '../events/errors.ts'
import type { Log } from '../events/log.ts'
import { readStream, rereadable } from '../events/read/read.ts'
import { eventColumns, eventColumnsOf, eventsOfRows, isCut, storedColumns } from '../events/read/rows.ts'
import type { Aggregate, AnyEvent } from './aggregate.ts'
import { type CachedState, maxCachedBytes, type StateCache } from './cache.ts'
import { FoldFailed } from './errors.ts'
import type { ReadStored } from './projected.ts'
import { aggregateNames } from './schema.ts'
import { freeze, thaw } from './snapshot.ts'

export interface LoadRange {
  /** The state as it was at this version. */
  version?: number | undefined
  /** The state as it was at this time. */
  at?: Date | undefined
}

export interface Folded {
  readonly state: unknown
  /** That of the last event folded; 0 if there is none. */
  readonly version: number
  readonly eventId: string | undefined
}

export interface LoadParts {
  readonly log: Log
  /** Of this store alone: two stores never see each other's states. */
  readonly cacheOf: (aggregate: Aggregate) => StateCache
}

export async function loadState(
  parts: LoadParts,
  aggregate: Aggregate,
  stream: string,
  executor: Executor,
  range: LoadRange = {},
): Promise<Folded> {
  checkRange(range)
  if (range.at !== undefined) return foldUntil(parts.log, aggregate, stream, executor, range.at)
  if (range.version !== undefined) return foldTo(parts.log, aggregate, stream, executor, range.version)
  if (aggregate.readStored !== undefined)
    return foldStored(parts.log, aggregate, aggregate.readStored, stream, executor)
  const cache = parts.cacheOf(aggregate)
  const known = cache.get(stream)
  const loaded =
    (known && (await foldFrom(parts.log, aggregate, stream, executor, known))) ??
    (await foldAll(parts.log, aggregate, stream, executor))
  // A transaction may see events that no other will ever see.
  if (executor === parts.log.database && loaded.version !== known?.version) remember(parts, aggregate, stream, loaded)
  return loaded
}

/** Remembers a committed state. One that cannot be written as text is folded anew each time. */
export function remember(parts: LoadParts, aggregate: Aggregate, stream: string, folded: Folded): void {
  const { version, eventId, state } = folded
  if (aggregate.cacheSize === 0 || aggregate.snapshotForm === 'none' || eventId === undefined) return
  try {
    parts.cacheOf(aggregate).put(stream, { version, eventId, text: freeze(aggregate, stream, state, maxCachedBytes) })
  } catch {
    parts.cacheOf(aggregate).drop(stream)
  }
}

async function foldAll(
  log: Log,
  aggregate: Aggregate,
  stream: string,
  executor: Executor,
  begun?: Folded,
): Promise<Folded> {
  const range = { after: begun?.version, to: Number.MAX_SAFE_INTEGER }
  const page = await readPage(log, aggregate, stream, executor, range)
  if (page.isTombstoned) throw new StreamTombstoned({ stream })
  if (page.isArchived) throw new StreamArchived({ stream })
  return foldPage(log, aggregate, stream, executor, page, begun)
}

/** A stored document may be behind. The events that it does not have yet are folded here, and none twice. */
async function foldStored(
  log: Log,
  aggregate: Aggregate,
  read: ReadStored,
  stream: string,
  executor: Executor,
): Promise<Folded> {
  const stored = await rereadable(executor, log, () => read(log, executor, stream))
  return foldAll(log, aggregate, stream, executor, stored && { ...stored, eventId: undefined })
}

async function foldTo(log: Log, aggregate: Aggregate, stream: string, executor: Executor, to: number): Promise<Folded> {
  const folded = await foldPage(
    log,
    aggregate,
    stream,
    executor,
    await readPage(log, aggregate, stream, executor, { to }),
  )
  if (folded.version === to) return folded
  const reason = `Stream "${stream}" cannot be loaded at version ${to}: its last version is ${folded.version}.`
  throw new InvalidOption({ option: 'version', reason })
}

/** Events of one stream follow each other in time; the first one that is later ends it. */
async function foldUntil(
  log: Log,
  aggregate: Aggregate,
  stream: string,
  executor: Executor,
  at: Date,
): Promise<Folded> {
  let folded: Folded = { state: aggregate.initial(), version: 0, eventId: undefined }
  for await (const event of readStream(log, executor, stream, { includeArchived: true })) {
    if (event.createdAt > at) break
    folded = next(aggregate, stream, folded, event)
  }
  return folded
}

/** Undefined if the remembered state belongs to another stream of this name. */
async function foldFrom(
  log: Log,
  aggregate: Aggregate,
  stream: string,
  executor: Executor,
  known: CachedState,
): Promise<Folded | undefined> {
  const limit = log.database.batch.readEvents
  const rows = await rereadable(executor, log, () =>
    executor.runArrays(sql`/* aggregates.tail */
      select ${eventColumns}, total
      from (
        select ${storedColumns}, sum(bytes) over (order by version rows unbounded preceding) as total
        from ${log.names.events}
        where stream = ${stream}::text
          and version >= ${known.version}::bigint
          and not exists (
            select from ${log.names.streams} as archived
            where archived.stream = ${stream}::text
              and archived.archived_at is not null)
        order by version
        limit ${limit}::integer) as page
      where total - bytes < ${maxPageBytes}::bigint
      order by version`),
  )
  const [first, ...tail] = await eventsOfRows(log, rows)
  if (first?.version !== known.version || first.id !== known.eventId) return undefined
  const { version, eventId } = known
  let folded: Folded = { state: thaw(aggregate, JSON.parse(known.text)), version, eventId }
  for (const event of tail) folded = next(aggregate, stream, folded, event)
  return rows.length < limit && !isCut(rows) ? folded : foldRest(log, aggregate, stream, executor, folded)
}

interface Page {
  readonly isArchived: boolean
  readonly isTombstoned: boolean
  readonly snapshot: { readonly version: number; readonly eventId: string; readonly body: unknown } | undefined
  readonly events: readonly RecordedEvent[]
  readonly to: number
  readonly isLast: boolean
}

/** The snapshot, and the first page of events after it: one statement, so that they belong together. */
async function readPage(
  log: Log,
  { stateVersion, snapshotForm }: Aggregate,
  stream: string,
  executor: Executor,
  { after = 0, to, isWhole = snapshotForm === 'none' }: { after?: number | undefined; to: number; isWhole?: boolean },
): Promise<Page> {
  const limit = log.database.batch.readEvents
  const rows = await rereadable(executor, log, () =>
    executor.runArrays(sql`/* aggregates.load */
      select
        s.archived_at is not null as archived, s.tombstoned_at is not null as tombstoned,
        n.version as snapshot_version, n.event_id as snapshot_event_id,
        case when row_number() over (order by e.version) = 1 then n.body end as body,
        ${eventColumnsOf('e')}, e.total
      from ${log.names.streams} as s
      left join ${aggregateNames(log).snapshots} as n
        on n.stream = s.stream
        and n.state_version = ${stateVersion}::integer
        and n.version <= ${to}::bigint
        and not ${isWhole}::boolean
      left join lateral (
        select *
        from (
          select tail.*, sum(tail.bytes) over (order by tail.version rows unbounded preceding) as total
          from ${log.names.events} as tail
          where tail.stream = s.stream
            and tail.version > coalesce(n.version, ${after}::bigint)
            and tail.version <= ${to}::bigint
          order by tail.version
          limit ${limit}::integer) as page
        where page.total - page.bytes < ${maxPageBytes}::bigint) as e on true
      where s.stream = ${stream}::text
      order by e.version`),
  )
  const [archived, tombstoned, version, eventId, body] = (rows[0] ?? []) as [boolean, boolean, number, string, unknown]
  const events = rows.filter(row => row[5] !== null).map(row => row.slice(5))
  return {
    isArchived: archived === true,
    isTombstoned: tombstoned === true,
    snapshot: version === undefined || version === null ? undefined : { version: Number(version), eventId, body },
    events: await eventsOfRows(log, events),
    to,
    isLast: events.length < limit && !isCut(events),
  }
}

async function foldPage(
  log: Log,
  aggregate: Aggregate,
  stream: string,
  executor: Executor,
  page: Page,
  begun?: Folded,
): Promise<Folded> {
  const { snapshot } = page
  let folded = begun ?? { state: aggregate.initial(), version: 0, eventId: undefined }
  try {
    if (snapshot !== undefined)
      folded = { state: thaw(aggregate, snapshot.body), version: snapshot.version, eventId: snapshot.eventId }
  } catch (error) {
    log.telemetry.log.warn(
      { schema: log.schema, stream, error },
      'A snapshot could not be read. The stream is folded from its first event.',
    )
    const whole = await readPage(log, aggregate, stream, executor, { to: page.to, isWhole: true })
    return foldPage(log, aggregate, stream, executor, whole)
  }
  for (const event of page.events) folded = next(aggregate, stream, folded, event)
  return page.isLast ? folded : foldRest(log, aggregate, stream, executor, folded, page.to)
}

async function foldRest(
  log: Log,
  aggregate: Aggregate,
  stream: string,
  executor: Executor,
  begun: Folded,
  to?: number,
): Promise<Folded> {
  let folded = begun
  const range = { after: begun.version, to, includeArchived: true }
  for await (const event of readStream(log, executor, stream, range)) folded = next(aggregate, stream, folded, event)
  return folded
}

function next(aggregate: Aggregate, stream: string, { state }: Folded, event: RecordedEvent): Folded {
  const { version, id } = event
  return { state: fold(aggregate, stream, state, event, version), version, eventId: id }
}

function checkRange({ version, at }: LoadRange): void {
  const refuse = (option: string, reason: string): never => {
    throw new InvalidOption({ option, reason })
  }
  if (version !== undefined && at !== undefined)
    refuse('version', 'The options "version" and "at" of load exclude each other. Give one of them.')
  if (version !== undefined && !(Number.isSafeInteger(version) && version >= 0))
    refuse('version', `The option "version" of load is ${describe(version)}. It must be a whole number from 0 on.`)
  if (at !== undefined && !(at instanceof Date && !Number.isNaN(at.getTime())))
    refuse('at', `The option "at" of load is ${describe(at)}. It must be a valid Date.`)
}

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
  if (after === undefined) refuse('it returned nothing')
  if (isPromise(after)) refuse('it returned a promise')
  return after
}

/** An event as it will be read. Folded as it was given, a Date in it would lead to another state than its stored text. */
export function asRead<Event extends AnyEvent>(event: Event, maxBytes: number): Event {
  const { text } = encodeJson(event.data, { what: event.type, root: 'data', maxBytes })
  return { ...event, data: JSON.parse(text) }
}
