/**
 * Asking for dead letters to be tried again. Nothing is run here: the time is noted at the letter, and whoever works for its
 * consumer carries it out. Letters of a workflow that was cancelled or undone are not asked for: nobody would.
 */

import { InvalidOption } from '../../core/errors.ts'
import { nearestName } from '../../core/nearest.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { ConsumerNotFound } from '../errors.ts'
import { changeLetter } from './change.ts'
import { checkLimit, checkTime, type DeadLetterFilter } from './list.ts'

/** Which open letters are to be tried again. */
export interface RetryFilter extends DeadLetterFilter {
  /** The most letters asked for at once, lowest positions first. Default and at most 10 000. */
  limit?: number | undefined
}

export interface RetryRequest {
  /** How many letters were asked for. */
  readonly requested: number
  /** False: nobody works for the consumer now, and the letters stay open until somebody does. */
  readonly isRunning: boolean
}

/** How many letters are tried in a second, unless told. */
export const defaultPerSecond = 50

/** What a letter is tried with instead of the data of its event. */
export interface EditedData {
  readonly type: string
  /** As JSON. */
  readonly data: string
  readonly schemaVersion: number
}

/**
 * Asks for one open letter. As long as a request with edited data waits to be carried out, nobody can ask with other data:
 * of two who do so at once, one hears that it is not theirs that is tried.
 */
export async function requestRetry(log: Log, consumer: string, eventId: string, edited?: EditedData): Promise<void> {
  const text =
    edited === undefined
      ? null
      : `{"type":${JSON.stringify(edited.type)},"schemaVersion":${edited.schemaVersion},"data":${edited.data}}`
  await changeLetter(
    log,
    { consumer, eventId, wanted: 'retried' },
    id => sql`/* dead_letters.request */
      update ${log.names.dead_letters} as d
      set retry_at = least(d.retry_at, ${log.names.clock}(d.retry_at)),
        edited = coalesce(${text}::jsonb, case when d.retry_at is not null then d.edited end)
      where d.consumer = ${consumer}::text
        and d.event_id = ${id}::uuid
        and d.state = 'open'
        and (${text}::jsonb is null or d.retry_at is null or coalesce(d.edited = ${text}::jsonb, true))
        and not exists (
          select from ${log.names.workflows} as w
          where d.execution is not null
            and w.correlation_id = d.correlation_id
            and w.state <> 'active')
      returning d.event_id`,
  )
}

/**
 * Asks for all open letters that match, of a consumer or of all handlers. They come behind those that were asked for before,
 * so that several requests together are no faster than one.
 */
export async function requestMatching(
  log: Log,
  consumer: string | undefined,
  filter: RetryFilter,
  perSecond: number,
): Promise<number> {
  const { type = null, stream = null, correlationId = null, reason = null, fingerprint = null, limit = 10_000 } = filter
  checkLimit(limit)
  const since = checkTime(filter.since)
  const name = consumer ?? null
  const rows = await log.database.runArrays(sql`/* dead_letters.request_matching */
    with line as materialized (
      select greatest(${log.names.clock}(max(retry_at)), max(retry_at) + make_interval(secs => 1 / ${perSecond}::float8)) as free_at
      from ${log.names.dead_letters}
      where (consumer = ${name}::text or (${name}::text is null and execution is not null))
        and retry_at is not null),
    wanted as (
      select consumer, event_id, row_number() over (order by position, consumer) - 1 as place
      from ${log.names.dead_letters} as d
      where (consumer = ${name}::text or (${name}::text is null and execution is not null))
        and state = 'open'
        and retry_at is null
        and (${type}::text is null or type = ${type}::text)
        and (${stream}::text is null or stream = ${stream}::text)
        and (${correlationId}::text is null or correlation_id = ${correlationId}::text)
        and (${reason}::text is null or reason = ${reason}::text)
        and (${fingerprint}::text is null or fingerprint = ${fingerprint}::text)
        and (${since}::timestamptz is null or last_failed_at >= ${since}::timestamptz)
        and not exists (
          select from ${log.names.workflows} as w
          where d.execution is not null
            and w.correlation_id = d.correlation_id
            and w.state <> 'active')
      order by position, consumer
      limit ${limit}::integer)
    update ${log.names.dead_letters} as d
    set retry_at = line.free_at + make_interval(secs => wanted.place / ${perSecond}::float8),
      edited = null
    from wanted, line
    where d.consumer = wanted.consumer
      and d.event_id = wanted.event_id
      and d.state = 'open'
      and d.retry_at is null
    returning 1`)
  return rows.length
}

export function checkRate(perSecond: number): void {
  if (!(Number.isFinite(perSecond) && perSecond > 0))
    throw new InvalidOption({ option: 'perSecond', reason: `must be a number above 0, not ${String(perSecond)}` })
}

/** Whether somebody works for it: holds the consumer's lease, or runs the newest version of the handler. */
export async function isServed(log: Log, consumer: string, requested: number): Promise<boolean> {
  const sign = log.database.soleUser ?? null
  const [row] = await log.database.run<{ served: boolean }>(sql`/* dead_letters.is_served */
    (select owner is not null
      and lease_until > ${log.names.clock}(lease_until)
      and paused_at is null
      and (${sign}::text is null or split_part(owner, '/', 1) = ${sign}::text) as served
    from ${log.names.consumers}
    where name = ${consumer}::text)
    union all
    (select r.paused_at is null
      and exists (
        select from ${log.names.workflow_workers} as w
        where r.id = any(w.routes)
          and w.heartbeat_at > ${log.names.clock}(w.heartbeat_at) - make_interval(secs => w.lease_ms / 1000.0)
          and (${sign}::text is null or split_part(w.owner, '/', 1) = ${sign}::text)) as served
    from ${log.names.workflow_routes} as r
    where 'handler:' || r.handler = ${consumer}::text
      and r.retired_at is null
    order by r.version desc
    limit 1)`)
  if (row === undefined && requested === 0) await refuseUnknown(log, consumer)
  return row?.served ?? false
}

async function refuseUnknown(log: Log, consumer: string): Promise<void> {
  const rows = await log.database.run<{ name: string }>(sql`/* dead_letters.consumers */
    (select name
    from ${log.names.consumers}
    limit 1000)
    union
    (select 'handler:' || handler
    from ${log.names.workflow_routes}
    limit 1000)
    union
    (select consumer
    from ${log.names.dead_letters}
    where consumer = ${consumer}::text
    limit 1)`)
  const names = rows.map(row => row.name)
  if (!names.includes(consumer)) throw new ConsumerNotFound({ consumer, nearest: nearestName(consumer, names) })
}
