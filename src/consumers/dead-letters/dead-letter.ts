/**
 * A dead letter as it is read: one event that one consumer, or one handler, could not apply. Listed in pages by owner and
 * position, or in groups of failures that are alike; one by itself comes with its event, its errors and its history.
 */

import { InvalidOption } from '../../core/errors.ts'
import { camelCase, snakeCase } from '../../core/name.ts'
import { checkWhole, describe, optionNames, refuseUnknownOptions } from '../../core/options.ts'
import {
  decodeCursor,
  encodeCursor,
  type Page,
  type PageOptions,
  pageOptionNames,
  rowsToLookAt,
} from '../../core/page.ts'
import { type Fragment, fragment, type Identifier, numeral, sql } from '../../database/sql.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import type { Log } from '../../events/log.ts'
import { rawEventOfRow } from '../../events/read/rows.ts'
import { DeadLetterNotFound } from '../errors.ts'
import type { ErrorDescription } from '../run/failure.ts'
import { consumerNames } from '../schema.ts'
import { type DeadLetterOwner, type OwnerName, ownerName, ownerOfRow, rowOf, rowsOf } from './owner.ts'
import type { DeadLetterState } from './row.ts'

/**
 * It has the name of the consumer that failed, or that of the handler.
 *
 * @example
 * ```ts
 * const subject = ({ eventId, lastError }: DeadLetter) => `${eventId}: ${lastError.message}`
 * ;(await store.deadLetters.list()).items.map(subject)
 * ```
 */
export interface DeadLetter extends OwnerName {
  readonly eventId: string
  /** The event's place in the log. */
  readonly position: number
  readonly stream: string
  readonly version: number
  readonly type: string
  readonly state: DeadLetterState
  /** How often the event was tried, retries of the dead letter included. */
  readonly attempts: number
  readonly firstFailedAt: Date
  readonly lastFailedAt: Date
  readonly lastError: DeadLetterError
  /** When it is to be tried again; undefined if no retry was requested. */
  readonly retryAt: Date | undefined
  /** Why it was resolved. */
  readonly note: string | undefined
  /** Of a handler: why it was dead-lettered, in a word. Of a consumer: 'park' if it holds back its stream, or is held back. */
  readonly reason?: string | undefined
  /** Of a handler: equal for failures that are alike. */
  readonly fingerprint?: string | undefined
  /** Of a handler: the workflow that its event is part of. */
  readonly correlationId?: string | undefined
  /** Of a handler: the execution that failed, and that a retry runs again. */
  readonly executionId?: string | undefined
}

export interface DeadLetterError extends ErrorDescription {
  readonly at: Date
  /** The error of the handler's `onDeadLetter`, if that failed. */
  readonly onDeadLetter?: string | undefined
}

export interface StateChange {
  readonly at: Date
  readonly from: DeadLetterState
  readonly to: DeadLetterState
  readonly note?: string | undefined
}

export interface DeadLetterDetails extends DeadLetter {
  /** The event as it is stored, not upcast; undefined if the log no longer has it. */
  readonly event: RecordedEvent | undefined
  /** The last 20 errors, the oldest first. */
  readonly errors: readonly DeadLetterError[]
  /** The last 20 changes of state, without those by retries, the oldest first. */
  readonly history: readonly StateChange[]
  /** The data of its present or last retry; undefined if it is the event's own. */
  readonly edited?: { readonly data: unknown } | undefined
}

/** Which dead letters; all given conditions must hold. */
export interface DeadLetterFilter {
  /** Those of this consumer or handler: its definition or its name. Default: all. */
  of?: DeadLetterOwner | undefined
  type?: string | undefined
  stream?: string | undefined
  correlationId?: string | undefined
  reason?: string | undefined
  /** As a group of failures that are alike has it. */
  fingerprint?: string | undefined
  /** Only those that failed at or after this time. */
  since?: Date | undefined
}

/** The names of `DeadLetterFilter`. */
export const filterNames: readonly string[] = optionNames<DeadLetterFilter>({
  ...{ of: true, type: true, stream: true, correlationId: true, reason: true, fingerprint: true, since: true },
})

/** `limit`: default 100, at most 10 000. */
export interface ListDeadLettersOptions extends DeadLetterFilter, PageOptions {
  /** Default: all. */
  state?: DeadLetterState | undefined
  /** Default 'owner': by owner and position. 'newest': the latest failure first. */
  order?: 'owner' | 'newest' | undefined
}

/** By owner, then by position. */
export async function listDeadLetters(log: Log, options: ListDeadLettersOptions): Promise<Page<DeadLetter>> {
  refuseUnknownOptions('store.deadLetters.list', options, ['state', 'order', ...filterNames, ...pageOptionNames])
  const { state, limit = 100, after, order = 'owner' } = options
  checkWhole('limit', limit, 1, maxPage)
  checkState(state)
  if (order === 'newest') return listNewest(log, options, limit)
  if (order !== 'owner')
    throw new InvalidOption({
      option: 'order',
      reason: `The option "order" is ${describe(order)}. It must be 'owner' or 'newest'.`,
    })
  const [consumer, position] = after === undefined ? ['', -1] : (decodeCursor(after, 2) as [string, number])
  const owners = options.of === undefined ? null : await rowsOf(log, options.of)
  const beyond = fragment`(each.consumer, each.position) > (${consumer}::text, ${position}::bigint)`
  const rows = await log.database.run<LookedRow>(sql`/* dead_letters.list */
    with looked as materialized (${lookedBy(log, options, owners, limit, beyond)}),
    found as (
      select ${listedColumns}, true as matched
      from looked as d
      where ${matches(options, owners)}
      order by d.consumer, d.position
      limit ${limit + 1}::integer),
    rest as (
      select ${listedColumns}, false as matched
      from looked as d
      where (select count(*) from looked) >= ${looks(options, limit)}
      order by d.consumer desc, d.position desc
      limit 1)
    select * from found
    union all
    select * from rest
    order by matched desc, consumer, position`)
  return pageOfLooked(rows, limit, last => [last.consumer, last.position])
}

/**
 * The next ones by owner and position. Those of a workflow that are open have an index; of others the next 10 000 are
 * looked at, so a page may be short although its `next` continues.
 */
function lookedBy(
  log: Log,
  options: ListDeadLettersOptions,
  owners: readonly string[] | null,
  limit: number,
  beyond: Fragment,
): Fragment {
  const { dead_letters } = consumerNames(log)
  const { state, correlationId } = options
  const most = looks(options, limit)
  if (correlationId !== undefined && (state === 'open' || state === 'retrying'))
    return fragment`
      select *
      from ${dead_letters} as each
      where each.correlation_id = ${correlationId}::text
        and each.state in ('open', 'retrying')
        and each.state = ${state}::text
        and ${beyond}
      order by each.consumer, each.position
      limit ${most}`
  const inState = state === undefined ? fragment`true` : fragment`each.state = ${state}::text`
  if (owners === null)
    return fragment`
      select *
      from ${dead_letters} as each
      where ${inState}
        and ${beyond}
      order by each.consumer, each.position
      limit ${most}`
  return fragment`
      select d.*
      from unnest(${owners}::text[]) as owner(name)
      cross join lateral (
        select *
        from ${dead_letters} as each
        where each.consumer = owner.name
          and ${inState}
          and ${beyond}
        order by each.position
        limit ${most}) as d
      order by d.consumer, d.position
      limit ${most}`
}

const listedColumns = fragment`d.consumer, d.event_id, d.position, d.stream, d.version, d.type, d.state, d.attempts,
      d.first_failed_at, d.last_failed_at, d.retry_at, d.note, d.reason, d.fingerprint, d.correlation_id, d.execution,
      jsonb_build_array(d.errors -> -1) as errors, '[]'::jsonb as history, null::jsonb as edited`

/** Whether a dead letter `d` meets the filter. */
export function matches(filter: Omit<DeadLetterFilter, 'of'>, owners: readonly string[] | null): Fragment {
  const { type = null, stream = null, correlationId = null, fingerprint = null } = filter
  const reason = filter.reason === undefined ? null : snakeCase(filter.reason)
  const since = checkTime(filter.since)
  return fragment`(${owners}::text[] is null or d.consumer = any(${owners}::text[]))
      and (${type}::text is null or d.type = ${type}::text)
      and (${stream}::text is null or d.stream = ${stream}::text)
      and (${correlationId}::text is null or d.correlation_id = ${correlationId}::text)
      and (${reason}::text is null or d.reason = ${reason}::text)
      and (${fingerprint}::text is null or d.fingerprint = ${fingerprint}::text)
      and (${since}::timestamptz is null or d.last_failed_at >= ${since}::timestamptz)`
}

/**
 * The latest failure first. Of each state the next 10 000 are looked at: if few of them match, the page is short and its
 * `next` continues behind them.
 */
async function listNewest(log: Log, options: ListDeadLettersOptions, limit: number): Promise<Page<DeadLetter>> {
  const wanted = options.state === undefined ? states : [options.state]
  const owners = options.of === undefined ? null : await rowsOf(log, options.of)
  const [failedAt, position] =
    options.after === undefined ? ['infinity', 0] : (decodeCursor(options.after, 2) as [string, number])
  const most = looks(options, limit)
  const rows = await log.database.run<LookedRow & { failed_text: string }>(sql`/* dead_letters.newest */
    with looked as materialized (
      select d.*
      from unnest(${wanted}::text[]) as wanted(state)
      cross join lateral (
        select *
        from ${consumerNames(log).dead_letters} as each
        where each.state = wanted.state
          and (each.last_failed_at, each.position) < (${failedAt}::timestamptz, ${position}::bigint)
        order by each.last_failed_at desc, each.position desc
        limit ${most}) as d),
    found as (
      select ${listedColumns}, d.last_failed_at::text as failed_text, true as matched
      from looked as d
      where ${matches(options, owners)}
      order by d.last_failed_at desc, d.position desc
      limit ${limit + 1}::integer),
    rest as (
      select ${listedColumns}, d.last_failed_at::text as failed_text, false as matched
      from looked as d
      where (select count(*) from looked) >= ${most}
      order by d.last_failed_at, d.position
      limit 1)
    select * from found
    union all
    select * from rest
    order by matched desc, last_failed_at desc, position desc`)
  return pageOfLooked(rows, limit, last => [last.failed_text, last.position])
}

type LookedRow = DeadLetterRow & { matched: boolean }

/** A page of the rows that matched; without enough of them its end is the last one that was looked at. */
function pageOfLooked<R extends LookedRow>(
  rows: readonly R[],
  limit: number,
  placeOf: (row: R) => readonly (string | number)[],
): Page<DeadLetter> {
  const found = rows.filter(row => row.matched)
  const items = found.slice(0, limit)
  const end = found.length > limit ? items.at(-1) : rows.find(row => !row.matched)
  return { items: items.map(deadLetterOf), next: end === undefined ? undefined : encodeCursor(placeOf(end)) }
}

/** How many are looked at for a page. The number is part of the text, for the plan. */
function looks(options: ListDeadLettersOptions, limit: number): Identifier {
  const isFiltered = filterNames.some(name => options[name as keyof DeadLetterFilter] !== undefined)
  return numeral(rowsToLookAt(isFiltered, limit))
}

export async function showDeadLetter(log: Log, of: DeadLetterOwner, eventId: string): Promise<DeadLetterDetails> {
  const { row: owner, id } = await rowOf(log, of, eventId)
  const [row] = await log.database.run<DeadLetterRow>(sql`/* dead_letters.show */
    select consumer, event_id, position, stream, version, type, state, attempts, first_failed_at, last_failed_at,
      retry_at, note, reason, fingerprint, correlation_id, execution, errors, history, edited
    from ${consumerNames(log).dead_letters}
    where consumer = ${owner}::text
      and event_id = ${id}::uuid`)
  if (row === undefined) throw new DeadLetterNotFound({ of: ownerName(of), eventId })
  const stored = await log.database.runArrays(sql`/* dead_letters.event */
    select
      position, stream, version, event_id, type, schema_version, data, headers,
      correlation_id, causation_id, user_id, created_at
    from ${log.names.events}
    where position = ${row.position}::bigint
      and event_id = ${row.event_id}::uuid`)
  return {
    ...deadLetterOf(row),
    event: stored[0] === undefined ? undefined : rawEventOfRow(stored[0]),
    errors: row.errors.map(dated),
    history: row.history.map(dated),
    ...(row.edited === null ? {} : { edited: { data: row.edited.data } }),
  }
}

/** The most of one page. */
export const maxPage = 10_000

export const states: readonly DeadLetterState[] = ['open', 'retrying', 'parked', 'replayed', 'resolved']

export function checkState(state: DeadLetterState | undefined): void {
  if (state !== undefined && !states.includes(state))
    throw new InvalidOption({
      option: 'state',
      reason: `The option "state" is ${describe(state)}. It must be one of ${states.join(', ')}.`,
    })
}

/** The time as the database takes it. */
export function checkTime(time: Date | undefined, option: string = 'since'): string | null {
  if (time === undefined) return null
  if (time instanceof Date && !Number.isNaN(time.getTime())) return time.toISOString()
  throw new InvalidOption({ option, reason: `The option "${option}" is ${describe(time)}. It must be a valid Date.` })
}

interface DeadLetterRow {
  consumer: string
  event_id: string
  position: number
  stream: string
  version: number
  type: string
  state: DeadLetterState
  attempts: number
  first_failed_at: Date
  last_failed_at: Date
  retry_at: Date | null
  note: string | null
  reason: string | null
  fingerprint: string | null
  correlation_id: string | null
  execution: string | null
  edited: { data: unknown } | null
  errors: (ErrorDescription & { at: string })[]
  history: (Omit<StateChange, 'at'> & { at: string })[]
}

function deadLetterOf(row: DeadLetterRow): DeadLetter {
  return {
    ...ownerOfRow(row.consumer),
    eventId: row.event_id,
    position: row.position,
    stream: row.stream,
    version: Number(row.version),
    type: row.type,
    state: row.state,
    attempts: row.attempts,
    firstFailedAt: row.first_failed_at,
    lastFailedAt: row.last_failed_at,
    lastError: dated(row.errors.at(-1)!),
    retryAt: row.retry_at ?? undefined,
    note: row.note ?? undefined,
    ...(row.reason === null ? {} : { reason: camelCase(row.reason) }),
    ...(row.fingerprint === null ? {} : { fingerprint: row.fingerprint }),
    ...(row.correlation_id === null ? {} : { correlationId: row.correlation_id }),
    ...(row.execution === null ? {} : { executionId: row.execution }),
  }
}

export function dated<T extends { at: string }>(entry: T): Omit<T, 'at'> & { at: Date } {
  return { ...entry, at: new Date(entry.at) }
}
