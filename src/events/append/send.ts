/**
 * Sending appends: one alone by `append_one`, several in one call by `append_batch`.
 * The functions themselves, and the order in which they lock and check, are in the `.sql.ts` files of this folder.
 */
import type { Executor, Transaction } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../log.ts'
import { type CheckedEvent, expectedNumber, type Part } from './prepare.ts'

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
  /** Whether it was sent before, in a call whose answer never came. */
  readonly isUnanswered?: boolean | undefined
  readonly eventCount: number
  readonly bytes: number
  /** Written in the append's transaction after its checks, before its positions are drawn. Never run if it is refused. */
  readonly beside?: Beside | undefined
}

export type Beside = (tx: Transaction, parts: readonly Part[]) => Promise<void>

/** The database's answer to one append, per part. */
export interface Outcome {
  readonly code: number
  /** The index of the part that was refused. */
  readonly failedPart: number
  readonly versions: readonly number[]
  readonly positions: readonly number[]
}

/** A stream is held by another transaction, so the batch left this append out. */
export const busy = 4

/** An inline projection wants one of its events: nothing was stored, and it has to go another way. */
export const meetsInline = 9

/** Waits for the stream if somebody holds it. */
export async function sendOne(executor: Executor, log: Log, append: Append): Promise<Outcome> {
  const part = append.parts[0]!
  const columns = columnsOf(part.events)
  const [row] = await executor.runArrays(sql`/* events.append */
    select outcome, at_version, at_position
    from ${log.names.append_one}(
      ${part.stream}::text,
      ${expectedNumber(part.expected)}::bigint,
      ${append.allowArchived}::boolean,
      ${columns.ids}::uuid[],
      ${columns.types}::text[],
      ${columns.schemaVersions}::integer[],
      ${columns.data}::jsonb,
      ${columns.headers}::jsonb,
      ${columns.correlations}::text[],
      ${columns.causations}::text[],
      ${columns.users}::text[])`)
  const [code, version, position] = row as [number, number, number | null]
  return { code, failedPart: 0, versions: [Number(version)], positions: position === null ? [] : [position] }
}

/** With `wait` it waits for streams that others hold; without, those come back as `busy`. */
export async function sendBatch(
  executor: Executor,
  log: Log,
  given: readonly Append[],
  wait: boolean,
): Promise<Outcome[]> {
  const single = given.every(append => append.parts.length === 1)
  // Appends to one stream keep their order. Among streams it is the order everybody locks in.
  const appends =
    single && given.length > 1 ? [...given].sort((a, b) => byBytes(a.parts[0]!.stream, b.parts[0]!.stream)) : given
  const parts = appends.flatMap(append => append.parts)
  const streams = [...new Set(parts.map(part => part.stream))]
  if (!single) streams.sort(byBytes)
  const streamIndex = new Map(streams.map((stream, at) => [stream, at + 1]))
  const keyed = appends.some(append => append.key !== undefined)
  const checked = appends.some(append => append.checkIds)
  const simple = single && !keyed && !checked && streams.length === appends.length
  const columns = columnsOf(parts.flatMap(part => part.events))
  const [row] = await executor.runArrays(sql`/* events.append_batch */
    select outcomes::text, failed_parts::text, versions::text, positions
    from ${log.names.append_batch}(
      ${streams}::text[],
      ${appends.flatMap((append, at) => append.parts.map(() => at + 1))}::integer[],
      ${parts.map(part => streamIndex.get(part.stream))}::integer[],
      ${parts.map(part => expectedNumber(part.expected))}::bigint[],
      ${parts.map(part => part.events.length)}::integer[],
      ${appends.map(append => append.allowArchived)}::boolean[],
      ${checked ? appends.map(append => append.checkIds) : null}::boolean[],
      ${keyed ? appends.map(append => append.key ?? null) : null}::text[],
      ${keyed ? appends.map(append => append.digest ?? null) : null}::text[],
      ${simple}::boolean,
      ${wait}::boolean,
      ${parts.flatMap((part, at) => part.events.map(() => at + 1))}::integer[],
      ${parts.flatMap(part => part.events.map((_, n) => n + 1))}::integer[],
      ${columns.ids}::uuid[],
      ${columns.types}::text[],
      ${columns.schemaVersions}::integer[],
      ${columns.data}::jsonb,
      ${columns.headers}::jsonb,
      ${columns.correlations}::text[],
      ${columns.causations}::text[],
      ${columns.users}::text[])`)
  const [codes, failed, versions, positions] = row as [string, string | null, string, number[] | null]
  const outcomes = outcomesOf(
    appends,
    numbersOf(codes),
    numbersOf(failed ?? '{}'),
    numbersOf(versions),
    positions ?? [],
  )
  if (appends === given) return outcomes
  const outcomeOf = new Map(appends.map((append, at) => [append, outcomes[at]!]))
  return given.map(append => outcomeOf.get(append)!)
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

export function numbersOf(array: string): number[] {
  return array === '{}' ? [] : array.slice(1, -1).split(',').map(Number)
}

/** The advisory locks of an append's streams, until the transaction ends: on the hash of `schema/stream`, sorted. */
export async function lockStreams(executor: Executor, log: Log, append: Append): Promise<void> {
  await executor.run(sql`/* events.advisory_lock */
    select pg_advisory_xact_lock(key)
    from (
      select distinct hashtextextended(stream, 0) as key
      from unnest(${append.parts.map(part => `${log.schema}/${part.stream}`)}::text[]) as s(stream)
      order by key
    ) as keys`)
}

/** By append, from the answer's columns. */
export function outcomesOf(
  appends: readonly Append[],
  codes: readonly number[],
  failed: readonly number[],
  versions: readonly number[],
  positions: readonly number[],
): Outcome[] {
  let part = 0
  let drawn = 0
  return appends.map((append, at) => {
    const first = part
    part += append.parts.length
    const last: number[] = []
    if (codes[at] === 0)
      for (const { events } of append.parts) {
        drawn += events.length
        last.push(positions[drawn - 1]!)
      }
    return {
      code: codes[at]!,
      failedPart: Math.max(0, (failed[at] ?? 0) - first - 1),
      // What the database gives is the version before; of an append that was stored, the caller wants the one after.
      versions: append.parts.map(({ events }, n) => (versions[first + n] ?? 0) + (codes[at] === 0 ? events.length : 0)),
      positions: last,
    }
  })
}
