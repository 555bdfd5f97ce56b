/**
 * Sending appends: one alone by `append_one`, several in one call by `append_batch`. Each gets its own answer: results,
 * an earlier outcome, or the error that says why it was refused.
 * The functions themselves, and the order in which they lock and check, are in the `.sql.ts` files of this folder.
 */
import type { RillflowError } from '../../core/errors.ts'
import type { Executor, Transaction } from '../../database/database.ts'
import { type Fragment, fragment, sql } from '../../database/sql.ts'
import {
  DuplicateEventId,
  IdempotencyConflict,
  IdempotencyMismatch,
  StreamArchived,
  StreamTombstoned,
  VersionConflict,
} from '../errors.ts'
import { type Log, whereLogIs } from '../log.ts'
import { type CheckedEvent, expectedVersion, expectedWord, type Part } from './prepare.ts'

/** One call of append: all of its parts are stored, or none. */
export interface Append {
  readonly parts: readonly Part[]
  readonly key: string | undefined
  readonly digest: string | undefined
  readonly onRepeat: 'return' | 'error'
  readonly allowArchived: boolean
  readonly advisoryLock: boolean
  /** Whether the events may be stored already: their ids came from outside, or the append was sent before. */
  checkIds: boolean
  readonly eventCount: number
  readonly bytes: number
  readonly alongside?: Alongside | undefined
}

/**
 * Documents and snapshots that are stored with an append: written in its transaction after its checks, before its
 * positions are drawn, and not at all if it is refused.
 */
export interface Alongside {
  /** The documents, each by a name of its own: two appends with the same one are never in one call. */
  readonly names: readonly string[]
  /** Their share of a call, counted as events. */
  readonly count: number
  write(tx: Transaction, parts: readonly Part[]): Promise<void>
  /** Set if several appends of this shape can write theirs in one statement, which is quicker than a transaction each. */
  readonly together?: { readonly shape: string; send(appends: readonly Append[]): Promise<Outcome[]> } | undefined
}

/**
 * Raised by `append_store` if documents of some appends were not as expected: all is rolled back. The detail of the error
 * names the appends, from 1.
 */
export const documentsRefused = 'RF003'

export function idsOf({ parts }: Pick<Append, 'parts'>): string[] {
  return parts.flatMap(part => part.events.map(event => event.id))
}

/** The database's answer to one append, per part. */
export interface Outcome {
  readonly kind: OutcomeKind
  /** The index of the part that was refused. */
  readonly failedPart: number
  readonly versions: readonly number[]
  readonly positions: readonly number[]
  /** When it was stored, where the call says it. */
  readonly at?: Date | undefined
}

/** `fragments.sql.ts` says what each of them means. */
export type OutcomeKind =
  | 'appended'
  | 'conflict'
  | 'archived'
  | 'tombstoned'
  | 'busy'
  | 'repeated'
  | 'mismatched'
  | 'stored'
  | 'taken'
  | 'inline'

/** Waits for the stream if another transaction holds it. */
export async function sendOne(executor: Executor, log: Log, append: Append): Promise<Outcome> {
  const { stream, expected, events } = append.parts[0]!
  const [row] = await executor.runArrays(sql`/* events.append */
    select outcome, version, last_position, ${log.names.appended_at}() as appended_at
    from ${log.names.append_one}(
      p_stream => ${stream}::text,
      p_expected => ${expectedWord(expected)}::text,
      p_version => ${expectedVersion(expected)}::bigint,
      p_allow_archived => ${append.allowArchived}::boolean,
      ${eventArguments(events)})`)
  const [kind, version, position, at] = row as [OutcomeKind, number, number | null, Date | null]
  const positions = position === null ? [] : [position]
  return { kind, failedPart: 0, versions: [Number(version)], positions, at: at ?? undefined }
}

/** With `waits` it waits for streams that other transactions hold; without, those come back as `busy`. */
export async function sendBatch(
  executor: Executor,
  log: Log,
  given: readonly Append[],
  waits: boolean,
): Promise<Outcome[]> {
  const isSingle = given.every(append => append.parts.length === 1)
  // Appends to one stream keep their order. Among streams it is the order in which every transaction locks them.
  const appends =
    isSingle && given.length > 1 ? [...given].sort((a, b) => byBytes(a.parts[0]!.stream, b.parts[0]!.stream)) : given
  const parts = appends.flatMap(append => append.parts)
  const [row] = await executor.runArrays(sql`/* events.append_batch */
    select outcomes::text, failed_parts::text, versions::text, positions, ${log.names.appended_at}() as appended_at
    from ${log.names.append_batch}(
      ${batchArguments(appends, waits)},
      p_event_numbers => ${eventNumbers(parts)}::integer[],
      ${eventArguments(parts.flatMap(part => part.events))})`)
  const outcomes = outcomesOf(appends, row as unknown as Answer)
  if (appends === given) return outcomes
  const outcomeOf = new Map(appends.map((append, at) => [append, outcomes[at]!]))
  return given.map(append => outcomeOf.get(append)!)
}

/** The arguments that `append_batch` and `append_check` share. */
export function batchArguments(appends: readonly Append[], waits: boolean): Fragment {
  const parts = appends.flatMap(append => append.parts)
  const streams = [...new Set(parts.map(part => part.stream))].sort(byBytes)
  const streamIndex = new Map(streams.map((stream, at) => [stream, at + 1]))
  const isKeyed = appends.some(append => append.key !== undefined)
  const isChecked = appends.some(append => append.checkIds)
  const isInOrder = parts.length === appends.length && parts.every((part, at) => part.stream === streams[at])
  const isSimple = isInOrder && streams.length === appends.length && !isKeyed && !isChecked
  return fragment`p_streams => ${streams}::text[],
      p_part_appends => ${appends.flatMap((append, at) => append.parts.map(() => at + 1))}::integer[],
      p_part_streams => ${parts.map(part => streamIndex.get(part.stream))}::integer[],
      p_part_expected => ${parts.map(part => expectedWord(part.expected))}::text[],
      p_part_versions => ${parts.map(part => expectedVersion(part.expected))}::bigint[],
      p_part_counts => ${parts.map(part => part.events.length)}::integer[],
      p_allow_archived => ${appends.map(append => append.allowArchived)}::boolean[],
      p_check_ids => ${isChecked ? appends.map(append => append.checkIds) : null}::boolean[],
      p_keys => ${isKeyed ? appends.map(append => append.key ?? null) : null}::text[],
      p_digests => ${isKeyed ? appends.map(append => append.digest ?? null) : null}::text[],
      p_is_simple => ${isSimple}::boolean,
      p_waits => ${waits}::boolean,
      p_event_parts => ${eventParts(parts)}::integer[]`
}

/** By event, its part, from 1. */
export function eventParts(parts: readonly Part[]): number[] {
  return parts.flatMap((part, at) => part.events.map(() => at + 1))
}

/** By event, its number in its part, from 1. */
export function eventNumbers(parts: readonly Part[]): number[] {
  return parts.flatMap(part => part.events.map((_, n) => n + 1))
}

/** The events of a call, as every function that appends takes them. */
export function eventArguments(events: readonly CheckedEvent[]): Fragment {
  const columns = columnsOf(events)
  return fragment`p_ids => ${columns.ids}::uuid[],
      p_types => ${columns.types}::text[],
      p_schema_versions => ${columns.schemaVersions}::integer[],
      p_data => ${columns.data}::jsonb,
      p_headers => ${columns.headers}::jsonb,
      p_correlations => ${columns.correlations}::text[],
      p_causations => ${columns.causations}::text[],
      p_users => ${columns.users}::text[]`
}

/** Events by column, as the functions take them: null where every row has the default. */
export function columnsOf(events: readonly CheckedEvent[]): Columns {
  const column = <T>(of: (event: CheckedEvent) => T, isDefault: (event: CheckedEvent) => boolean): T[] | null =>
    events.every(isDefault) ? null : events.map(of)
  const headers = column(
    event => event.headers ?? 'null',
    event => event.headers === undefined,
  )
  return {
    ids: events.map(event => event.id),
    types: events.map(event => event.type),
    schemaVersions: column(
      event => event.schemaVersion,
      event => event.schemaVersion === 1,
    ),
    data: `[${events.map(event => event.data).join(',')}]`,
    headers: headers === null ? null : `[${headers.join(',')}]`,
    correlations: column(
      event => event.correlationId,
      event => event.correlationId === event.id,
    ),
    causations: column(
      event => event.causationId ?? null,
      event => event.causationId === undefined,
    ),
    users: column(
      event => event.userId ?? null,
      event => event.userId === undefined,
    ),
  }
}

interface Columns {
  readonly ids: string[]
  readonly types: string[]
  readonly schemaVersions: number[] | null
  readonly data: string
  readonly headers: string | null
  readonly correlations: string[] | null
  readonly causations: (string | null)[] | null
  readonly users: (string | null)[] | null
}

/** The order of collation C: by UTF-8 bytes, which for ASCII names is how JavaScript compares anyway. */
export function byBytes(a: string, b: string): number {
  if (a === b) return 0
  if (beyondAscii.test(a) || beyondAscii.test(b)) return Buffer.compare(Buffer.from(a), Buffer.from(b))
  return a < b ? -1 : 1
}

const beyondAscii = /[^\0-\x7f]/

/** The advisory locks of an append's streams, until the transaction ends: on the hash of `schema/stream`, sorted. */
export async function lockStreams(executor: Executor, log: Log, append: Append): Promise<void> {
  await executor.run(sql`/* events.advisory_lock */
    select pg_advisory_xact_lock(key)::text
    from (
      select distinct hashtextextended(stream, 0) as key
      from unnest(${append.parts.map(part => `${log.schema}/${part.stream}`)}::text[]) as s(stream)
      order by key
    ) as keys
    cross join ${whereLogIs(log)}`)
}

/** Outcomes, failed parts and versions, each an array as text, the positions that were drawn, and when. */
export type Answer = readonly [
  string,
  string | null,
  string | null,
  readonly number[] | null,
  Date | null,
  ...unknown[],
]

/** By append, from the columns of the answer. */
export function outcomesOf(appends: readonly Append[], [kinds, failed, before, drawn, storedAt]: Answer): Outcome[] {
  const kindOf = kinds.slice(1, -1).split(',') as OutcomeKind[]
  const failedParts = numbersOf(failed)
  const versions = numbersOf(before)
  let part = 0
  let last = 0
  return appends.map((append, n) => {
    const kind = kindOf[n]!
    const isStored = kind === 'appended'
    const first = part
    part += append.parts.length
    const positions: number[] = []
    if (isStored)
      for (const { events } of append.parts) {
        last += events.length
        positions.push(drawn![last - 1]!)
      }
    return {
      kind,
      failedPart: Math.max(0, (failedParts[n] ?? 0) - first - 1),
      // The database gives the version before; of an append that was stored, the caller wants the one after.
      versions: append.parts.map(({ events }, at) => (versions[first + at] ?? 0) + (isStored ? events.length : 0)),
      positions,
      at: storedAt ?? undefined,
    }
  })
}

function numbersOf(array: string | null): number[] {
  return array === null || array === '{}' ? [] : array.slice(1, -1).split(',').map(Number)
}

// ── what the answer means to the caller ───────────────────────────────────────────────────────────────────────────

/**
 * The result of an append to one stream.
 *
 * @example
 * ```ts
 * const { version }: AppendResult = await store.events.append('order-11', placed)
 * ```
 */
export interface AppendResult {
  readonly stream: string
  /** The stream's version after it. */
  readonly version: number
  /** The position of its last event. */
  readonly position: number
  readonly eventIds: readonly string[]
  /** True if an earlier append with this idempotency key or these event ids had stored it; this is its outcome. */
  readonly repeated: boolean
}

/** The answer for the caller, or the error of a refusal. */
export function resultsOf(append: Append, outcome: Outcome): AppendResult[] {
  if (outcome.kind !== 'appended') throw refusal(append, outcome)
  return append.parts.map(({ stream, events }, at) => ({
    stream,
    version: outcome.versions[at]!,
    position: outcome.positions[at]!,
    eventIds: events.map(event => event.id),
    repeated: false,
  }))
}

/** The first outcome of an append that was stored before, found by its key or by its events' ids. */
export async function earlierResults(
  executor: Executor,
  log: Log,
  append: Pick<Append, 'parts' | 'key'>,
  by: 'key' | 'ids',
): Promise<AppendResult[]> {
  const ids = append.parts.flatMap(part => part.events.map(event => event.id))
  const rows = await executor.run<{ stream: string; version: number; position: number; ids: string }>(
    by === 'key'
      ? sql`/* events.outcome_of_key */
          select e.stream, max(e.version) as version, max(e.position) as position,
            string_agg(e.event_id::text, ',' order by e.version) as ids
          from ${log.names.idempotency_keys} as k
          join ${log.names.events} as e on e.event_id = any(k.event_ids)
          where k.key = ${append.key}::text
          group by e.stream`
      : sql`/* events.outcome_of_ids */
          select e.stream, max(e.version) as version, max(e.position) as position,
            string_agg(e.event_id::text, ',' order by e.version) as ids
          from ${log.names.events} as e
          where e.event_id = any(${ids}::uuid[])
          group by e.stream`,
  )
  const found = new Map(rows.map(row => [row.stream, row]))
  return append.parts.map(part => {
    const row = found.get(part.stream)
    if (row === undefined && by === 'key' && found.size > 0 && append.parts.length === 1)
      throw new IdempotencyMismatch({ key: append.key! })
    // Its events were deleted with the stream, when the retention of archived streams had passed.
    if (row === undefined) throw new StreamTombstoned({ stream: part.stream })
    const { stream, version, position } = row
    return { stream, version, position, eventIds: row.ids.split(','), repeated: true }
  })
}

/** How the append is a repeat: by its key, or by the ids of its events. Undefined if it is none, or must not be one. */
export function repeatedBy(append: Append, { kind }: Outcome, resent = false): 'key' | 'ids' | undefined {
  // An append that this process sent twice is still the caller's first call.
  if (kind === 'stored' && (resent || append.key === undefined)) return 'ids'
  if ((kind !== 'repeated' && kind !== 'stored') || append.onRepeat === 'error') return undefined
  return kind === 'repeated' ? 'key' : 'ids'
}

/**
 * Whether an append that was refused might be taken if it came later: an archived stream may be restored, and one that
 * has not got to the expected version yet may get there. One that is past it never comes back. [append-9]
 */
export function mayStillBeStored(append: Append, { kind, failedPart, versions }: Outcome): boolean {
  if (kind === 'archived') return true
  if (kind !== 'conflict') return false
  const { expected } = append.parts[failedPart]!
  return expected === 'exists' || versions[failedPart]! < (expectedVersion(expected) ?? 0)
}

export function refusal(append: Append, { kind, failedPart, versions }: Outcome): RillflowError {
  const { stream, expected } = append.parts[failedPart]!
  const key = append.key ?? ''
  if (kind === 'conflict') {
    const wanted = expected === 'any' ? 0 : expected
    return new VersionConflict({ stream, expected: wanted, actual: versions[failedPart]! })
  }
  if (kind === 'archived') return new StreamArchived({ stream })
  if (kind === 'tombstoned') return new StreamTombstoned({ stream })
  if (kind === 'repeated' || kind === 'stored') return new IdempotencyConflict({ key })
  if (kind === 'mismatched') return new IdempotencyMismatch({ key })
  return new DuplicateEventId({ eventIds: append.parts.flatMap(part => part.events.map(event => event.id)) })
}
