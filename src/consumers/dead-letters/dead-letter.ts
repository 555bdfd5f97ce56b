/**
 * A dead letter as it is read: one event that one consumer, or one handler, could not apply. Listed in pages by owner and
 * position, or in groups of failures that are alike; one by itself comes with its event, its errors and its history.
 */

import { InvalidOption } from '../../core/errors.ts'
import { camelCase, snakeCase } from '../../core/name.ts'
import { checkWhole, describe, optionNames, refuseUnknownOptions } from '../../core/options.ts'
import { decodeCursor, type Page, type PageOptions, pageOf, pageOptionNames } from '../../core/page.ts'
import { sql } from '../../database/sql.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import type { Log } from '../../events/log.ts'
import { rawEventOfRow } from '../../events/read/rows.ts'
import { DeadLetterNotFound } from '../errors.ts'
import type { ErrorDescription } from '../run/failure.ts'
import { consumerNames } from '../schema.ts'
import { type DeadLetterOwner, type OwnerName, ownerName, ownerOfRow, rowOf, rowsOf } from './owner.ts'
import type { DeadLetterState } from './row.ts'

/** It has the name of the consumer that failed, or that of the handler. */
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
  /** Of a handler: why it was dead-lettered, in a word. */
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
}

/** By owner, then by position. */
export async function listDeadLetters(log: Log, options: ListDeadLettersOptions): Promise<Page<DeadLetter>> {
  refuseUnknownOptions('store.deadLetters.list', options, ['state', ...filterNames, ...pageOptionNames])
  const { state = null, type = null, stream = null, limit = 100, after } = options
  const { correlationId = null, fingerprint = null } = options
  const reason = options.reason === undefined ? null : snakeCase(options.reason)
  checkWhole('limit', limit, 1, maxPage)
  const since = checkTime(options.since)
  checkState(options.state)
  const [consumer, position] = after === undefined ? ['', -1] : (decodeCursor(after, 2) as [string, number])
  const owners = options.of === undefined ? null : await rowsOf(log, options.of)
  const rows = await log.database.run<DeadLetterRow>(sql`/* dead_letters.list */
    select consumer, event_id, position, stream, version, type, state, attempts, first_failed_at, last_failed_at,
      retry_at, note, reason, fingerprint, correlation_id, execution, jsonb_build_array(errors -> -1) as errors,
      '[]'::jsonb as history, null::jsonb as edited
    from ${consumerNames(log).dead_letters}
    where (${owners}::text[] is null or consumer = any(${owners}::text[]))
      and (${state}::text is null or state = ${state}::text)
      and (${type}::text is null or type = ${type}::text)
      and (${stream}::text is null or stream = ${stream}::text)
      and (${correlationId}::text is null or correlation_id = ${correlationId}::text)
      and (${reason}::text is null or reason = ${reason}::text)
      and (${fingerprint}::text is null or fingerprint = ${fingerprint}::text)
      and (${since}::timestamptz is null or last_failed_at >= ${since}::timestamptz)
      and (consumer, position) > (${consumer}::text, ${position}::bigint)
    order by consumer, position
    limit ${limit + 1}::integer`)
  const { items, next } = pageOf(rows, limit, last => [last.consumer, last.position])
  return { items: items.map(deadLetterOf), next }
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

/** Failures of one handler that are alike, whatever numbers and ids their messages have. */
export interface DeadLetterGroup extends OwnerName {
  readonly fingerprint: string
  readonly count: number
  /** Of the latest. */
  readonly reason: string
  readonly latestError: DeadLetterError
  readonly firstFailedAt: Date
  readonly lastFailedAt: Date
}

/** `limit`: default 100, at most 10 000. */
export interface GroupDeadLettersOptions extends PageOptions {
  /** Default: those of all handlers. */
  of?: DeadLetterOwner | undefined
  /** Default 'open'. */
  state?: DeadLetterState | undefined
}

/** The largest group first. Only failures of handlers have a fingerprint. */
export async function groupDeadLetters(log: Log, options: GroupDeadLettersOptions): Promise<Page<DeadLetterGroup>> {
  refuseUnknownOptions('store.deadLetters.groups', options, ['of', 'state', ...pageOptionNames])
  const { of, state = 'open', limit = 100, after } = options
  checkState(state)
  checkWhole('limit', limit, 1, maxPage)
  const [count, consumer, fingerprint] =
    after === undefined ? [null, null, null] : (decodeCursor(after, 3) as [number, string, string])
  const owners = of === undefined ? null : await rowsOf(log, of)
  const rows = await log.database.run<{
    consumer: string
    fingerprint: string
    reason: string
    error: Omit<DeadLetterError, 'at'> & { at: string }
    first_failed_at: Date
    last_failed_at: Date
    count: number
  }>(sql`/* dead_letters.groups */
    select *
    from (
      select distinct on (consumer, fingerprint)
        consumer, fingerprint, reason, errors -> -1 as error,
        min(first_failed_at) over alike as first_failed_at,
        max(last_failed_at) over alike as last_failed_at,
        count(*) over alike as count
      from ${consumerNames(log).dead_letters} as d
      where fingerprint is not null
        and state = ${state}::text
        and (${owners}::text[] is null or consumer = any(${owners}::text[]))
      window alike as (partition by consumer, fingerprint)
      order by consumer, fingerprint, d.last_failed_at desc, d.position desc) as g
    where ${count}::bigint is null
      or (-count, consumer, fingerprint) > (-${count}::bigint, ${consumer}::text, ${fingerprint}::text)
    order by count desc, consumer, fingerprint
    limit ${limit + 1}::integer`)
  const { items, next } = pageOf(rows, limit, last => [Number(last.count), last.consumer, last.fingerprint])
  return {
    items: items.map(row => ({
      ...ownerOfRow(row.consumer),
      ...{ fingerprint: row.fingerprint, count: Number(row.count), reason: camelCase(row.reason) },
      latestError: dated(row.error),
      ...{ firstFailedAt: row.first_failed_at, lastFailedAt: row.last_failed_at },
    })),
    next,
  }
}

export interface DeadLetterStats extends OwnerName, Readonly<Record<DeadLetterState, number>> {}

/** By owner. */
export async function countDeadLetters(log: Log, options: PageOptions): Promise<Page<DeadLetterStats>> {
  refuseUnknownOptions('store.deadLetters.stats', options, pageOptionNames)
  const { after, limit = 100 } = options
  checkWhole('limit', limit, 1, maxPage)
  const [last] = after === undefined ? [''] : (decodeCursor(after, 1) as [string])
  const rows = await log.database.run<
    Record<DeadLetterState, number> & { consumer: string }
  >(sql`/* dead_letters.stats */
    select consumer,
      count(*) filter (where state = 'open') as open,
      count(*) filter (where state = 'retrying') as retrying,
      count(*) filter (where state = 'replayed') as replayed,
      count(*) filter (where state = 'resolved') as resolved
    from ${consumerNames(log).dead_letters}
    where consumer > ${last}::text
    group by consumer
    order by consumer
    limit ${limit + 1}::integer`)
  const { items, next } = pageOf(rows, limit, row => [row.consumer])
  return {
    items: items.map(({ consumer, open, retrying, replayed, resolved }) => ({
      ...ownerOfRow(consumer),
      open: Number(open),
      retrying: Number(retrying),
      replayed: Number(replayed),
      resolved: Number(resolved),
    })),
    next,
  }
}

/** The most of one page. */
const maxPage = 10_000

const states: readonly DeadLetterState[] = ['open', 'retrying', 'replayed', 'resolved']

function checkState(state: DeadLetterState | undefined): void {
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

function dated<T extends { at: string }>(entry: T): Omit<T, 'at'> & { at: Date } {
  return { ...entry, at: new Date(entry.at) }
}
