/**
 * A dead letter as it is read: one event that one consumer, or one handler, could not apply. Listed in pages by consumer
 * and position; one by itself comes with its event, its errors and its history.
 */

import { InvalidOption } from '../../core/errors.ts'
import { canonicalUuid } from '../../core/id.ts'
import { sql } from '../../database/sql.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import type { Log } from '../../events/log.ts'
import { checkPosition } from '../../events/read/log.ts'
import { rawEventOfRow } from '../../events/read/rows.ts'
import { DeadLetterNotFound } from '../errors.ts'
import type { ErrorDescription } from '../run/failure.ts'
import { consumerNames } from '../schema.ts'
import type { DeadLetterState } from './row.ts'

export interface DeadLetter {
  readonly consumer: string
  readonly eventId: string
  /** The event's place in the log. */
  readonly position: number
  readonly stream: string
  readonly version: number
  readonly type: string
  readonly state: DeadLetterState
  /** How often the event was tried, retries of the letter included. */
  readonly attempts: number
  readonly firstFailedAt: Date
  readonly lastFailedAt: Date
  readonly lastError: KeptError
  /** When it is to be tried again; undefined if nobody asked for that. */
  readonly retryAt: Date | undefined
  /** Why it was resolved. */
  readonly note: string | undefined
  /** Of letters of handlers: why it was set aside, in a word. */
  readonly reason?: string | undefined
  /** Of letters of handlers: equal for failures that are alike. */
  readonly fingerprint?: string | undefined
  /** Of letters of handlers: the workflow its event is part of. */
  readonly correlationId?: string | undefined
  /** Of letters of handlers: the execution that failed, and is run again by a retry. */
  readonly executionId?: string | undefined
}

export interface KeptError extends ErrorDescription {
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
  /** The event as it is stored, not upcast; undefined if it is not in the log any more. */
  readonly event: RecordedEvent | undefined
  /** The last 20 errors, the oldest first. */
  readonly errors: readonly KeptError[]
  /** The last 20 changes of state beside retries, the oldest first. */
  readonly history: readonly StateChange[]
  /** What it is, or was last, tried with instead of the event's data; undefined if it is the event's own. */
  readonly edited?: { readonly data: unknown } | undefined
}

/** Which letters; all that is given must hold. */
export interface DeadLetterFilter {
  type?: string | undefined
  stream?: string | undefined
  correlationId?: string | undefined
  reason?: string | undefined
  /** Equal for failures that are alike. */
  fingerprint?: string | undefined
  /** Only those that failed at or after this time. */
  since?: Date | undefined
}

export interface ListDeadLettersOptions extends DeadLetterFilter {
  consumer?: string | undefined
  /** Default: all. */
  state?: DeadLetterState | undefined
  /** Default 100, at most 10 000. */
  limit?: number | undefined
  /** Only those that come after this one: the last of the page before. */
  after?: Pick<DeadLetter, 'consumer' | 'position'> | undefined
}

/** By consumer, then by position; only those of handlers if that is asked for. */
export async function listDeadLetters(
  log: Log,
  options: ListDeadLettersOptions,
  ofHandlers = false,
): Promise<DeadLetter[]> {
  const { consumer = null, state = null, type = null, stream = null, limit = 100, after } = options
  const { correlationId = null, reason = null, fingerprint = null } = options
  checkLimit(limit)
  checkPosition('after.position', after?.position)
  const since = checkTime(options.since)
  checkState(options.state)
  const rows = await log.database.run<LetterRow>(sql`/* dead_letters.list */
    select consumer, event_id, position, stream, version, type, state, attempts, first_failed_at, last_failed_at,
      retry_at, note, reason, fingerprint, correlation_id, execution, jsonb_build_array(errors -> -1) as errors,
      '[]'::jsonb as history, null::jsonb as edited
    from ${consumerNames(log).dead_letters}
    where (${consumer}::text is null or consumer = ${consumer}::text)
      and (${state}::text is null or state = ${state}::text)
      and (${type}::text is null or type = ${type}::text)
      and (${stream}::text is null or stream = ${stream}::text)
      and (${correlationId}::text is null or correlation_id = ${correlationId}::text)
      and (${reason}::text is null or reason = ${reason}::text)
      and (${fingerprint}::text is null or fingerprint = ${fingerprint}::text)
      and (execution is not null or not ${ofHandlers}::boolean)
      and (${since}::timestamptz is null or last_failed_at >= ${since}::timestamptz)
      and (consumer, position) > (${after?.consumer ?? ''}::text, ${after?.position ?? -1}::bigint)
    order by consumer, position
    limit ${limit}::integer`)
  return rows.map(row => letterOf(row))
}

export async function showDeadLetter(log: Log, consumer: string, eventId: string): Promise<DeadLetterDetails> {
  const id = canonicalUuid(eventId)
  const [row] =
    id === undefined
      ? []
      : await log.database.run<LetterRow>(sql`/* dead_letters.show */
          select consumer, event_id, position, stream, version, type, state, attempts, first_failed_at, last_failed_at,
            retry_at, note, reason, fingerprint, correlation_id, execution, errors, history, edited
          from ${consumerNames(log).dead_letters}
          where consumer = ${consumer}::text
            and event_id = ${id}::uuid`)
  if (row === undefined) throw new DeadLetterNotFound({ consumer, eventId })
  const stored = await log.database.runArrays(sql`/* dead_letters.event */
    select
      position, stream, version, event_id, type, schema_version, data, headers,
      correlation_id, causation_id, user_id, created_at
    from ${log.names.events}
    where position = ${row.position}::bigint
      and event_id = ${row.event_id}::uuid`)
  return {
    ...letterOf(row),
    event: stored[0] === undefined ? undefined : rawEventOfRow(stored[0]),
    errors: row.errors.map(dated),
    history: row.history.map(dated),
    ...(row.edited === null ? {} : { edited: { data: row.edited.data } }),
  }
}

const states: readonly DeadLetterState[] = ['open', 'retrying', 'replayed', 'resolved']

export function checkState(state: DeadLetterState | undefined): void {
  if (state !== undefined && !states.includes(state))
    throw new InvalidOption({ option: 'state', reason: `must be one of ${states.join(', ')}, not ${String(state)}` })
}

export function checkLimit(limit: number): void {
  if (!Number.isSafeInteger(limit) || limit < 1 || limit > 10_000)
    throw new InvalidOption({ option: 'limit', reason: `must be a whole number from 1 to 10000, not ${String(limit)}` })
}

/** The time as the database takes it. */
export function checkTime(time: Date | undefined, option: string = 'since'): string | null {
  if (time === undefined) return null
  if (time instanceof Date && !Number.isNaN(time.getTime())) return time.toISOString()
  throw new InvalidOption({ option, reason: `must be a valid Date, not ${String(time)}` })
}

interface LetterRow {
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

function letterOf(row: LetterRow): DeadLetter {
  return {
    consumer: row.consumer,
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
    ...(row.reason === null ? {} : { reason: row.reason }),
    ...(row.fingerprint === null ? {} : { fingerprint: row.fingerprint }),
    ...(row.correlation_id === null ? {} : { correlationId: row.correlation_id }),
    ...(row.execution === null ? {} : { executionId: row.execution }),
  }
}

function dated<T extends { at: string }>(entry: T): Omit<T, 'at'> & { at: Date } {
  return { ...entry, at: new Date(entry.at) }
}
