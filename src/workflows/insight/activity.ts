/**
 * The activity: a record of the changes of executions, line by line, in an order of its own. Its positions are
 * announced and settled like those of the log, so a reader that reads up to `settled` has missed nothing.
 */

import type { ErrorDescription } from '../../consumers/run/failure.ts'
import { type Named, nameOf } from '../../core/definition.ts'
import { canonicalUuid } from '../../core/id.ts'
import { camelCase, checkName, snakeCase } from '../../core/name.ts'
import { describe, optionNames, refuseUnknownOptions } from '../../core/options.ts'
import { decodeCursor, encodeCursor, type Page, type PageOptions } from '../../core/page.ts'
import { fragment, numeral, sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { epochOf, type Settled } from '../../events/order/order.ts'
import { checkCount, refusal } from '../handler.ts'
import { workflowNames } from '../schema.ts'
import type { RecordedStep } from './open-work.ts'

/**
 * Dispatched (there is an execution) · started (an attempt began) · completed · failed (an attempt, or for good) · skipped
 * (its handler did not want the event, or skips failures) · suspended (waits) · released (not counted) · parked (waits for
 * an operator) · cancelled.
 */
export type ActivityKind =
  | 'dispatched'
  | 'started'
  | 'completed'
  | 'failed'
  | 'skipped'
  | 'suspended'
  | 'released'
  | 'parked'
  | 'cancelled'

/**
 * One line of what happened in workflows.
 *
 * @example
 * ```ts
 * const line = ({ kind, handler }: Activity) => `${handler} ${kind}`
 * ```
 */
export interface Activity {
  /** Its place in the activity; watching `from` it continues behind it. */
  readonly position: number
  readonly at: Date
  readonly kind: ActivityKind
  /** More of it, in a word: `retry`, `timeout`, `maxRetries`, `inline`, … */
  readonly outcome: string | undefined
  readonly correlationId: string
  readonly handler: string
  readonly version: number
  readonly executionId: string
  readonly eventPosition: number
  /** Undefined, as its type, if the event is no longer in the log. */
  readonly eventId: string | undefined
  readonly eventType: string | undefined
  /** 0 when it was dispatched. */
  readonly attempt: number
  /** How long it had been ready before this attempt began. */
  readonly queuedMs: number | undefined
  readonly runningMs: number | undefined
  /** The worker that ran it. */
  readonly worker: string | undefined
  /**
   * The recorded steps of its execution; only for the watch of one workflow, with a line after which the execution waits
   * or has failed.
   */
  readonly steps?: readonly RecordedStep[] | undefined
  /** The events that a completed attempt emitted. */
  readonly result: unknown
  readonly error: ErrorDescription | undefined
}

export interface ActivityFilter {
  readonly correlationId?: string | undefined
  readonly handler?: string | undefined
  readonly kinds?: readonly ActivityKind[] | undefined
}

/** A statement of its own: the lines are read by another one, on a snapshot taken after this. */
export async function settleActivity(log: Log): Promise<Settled> {
  log.telemetry.count('settles_total')
  const [row] = await log.database.runArrays(sql`/* workflows.settle */
    select head, settled, timeline, session
    from ${workflowNames(log).workflow_settle}()`)
  const [head, settled, timeline, session] = row as [number, number, string, string]
  return { head, settled, timeline, epoch: epochOf(log, session) }
}

/** Lines above `after` and up to `to`, which must be settled; in their order. */
export async function readActivity(
  log: Log,
  filter: ActivityFilter,
  { after, to, limit }: { after: number; to: number; limit: number },
): Promise<Activity[]> {
  const { correlationId } = filter
  const handler = filter.handler ?? null
  const kinds = filter.kinds ?? null
  const { workflow_activity, events } = { ...log.names, ...workflowNames(log) }
  // The events one by one, by index: joined as a set the planner may expect so many lines that it reads all events.
  const rows =
    correlationId === undefined
      ? await log.database.run<ActivityRow>(sql`/* workflows.activity */
          select l.*, e.event_id, e.type
          from (
            select *
            from ${workflow_activity} as a
            where a.position > ${after}::bigint
              and a.position <= ${to}::bigint
              and (${handler}::text is null or a.handler = ${handler}::text)
              and (${kinds}::text[] is null or a.kind = any(${kinds}::text[]))
            order by a.position
            limit ${limit}::integer) as l
          left join lateral (
            select found.event_id, found.type
            from ${events} as found
            where found.position = l.event_position
            limit 1) as e on true
          order by l.position`)
      : await log.database.run<ActivityRow>(sql`/* workflows.activity_of_one */
          select l.*, e.event_id, e.type
          from (
            select *
            from ${workflow_activity} as a
            where a.correlation_id = ${correlationId}::text
              and a.position > ${after}::bigint
              and a.position <= ${to}::bigint
              and (${handler}::text is null or a.handler = ${handler}::text)
              and (${kinds}::text[] is null or a.kind = any(${kinds}::text[]))
            order by a.position
            limit ${limit}::integer) as l
          left join lateral (
            select found.event_id, found.type
            from ${events} as found
            where found.position = l.event_position
            limit 1) as e on true
          order by l.position`)
  return rows.map(activityOf)
}

/** Lines below `before`, of one workflow or of all; the newest first. */
export async function readActivityBefore(
  log: Log,
  correlationId: string | undefined,
  { before, limit }: { before: number; limit: number },
): Promise<Activity[]> {
  const { workflow_activity, events } = { ...log.names, ...workflowNames(log) }
  const ofOne = correlationId === undefined ? fragment`true` : fragment`a.correlation_id = ${correlationId}::text`
  const page = fragment`
    select l.*, e.event_id, e.type
    from (
      select *
      from ${workflow_activity} as a
      where ${ofOne}
        and a.position < ${before}::bigint
      order by a.position desc
      limit ${limit}::integer) as l
    left join lateral (
      select found.event_id, found.type
      from ${events} as found
      where found.position = l.event_position
      limit 1) as e on true
    order by l.position desc`
  const rows = await log.database.run<ActivityRow>(
    correlationId === undefined
      ? sql`/* workflows.activity_before */${page}`
      : sql`/* workflows.activity_of_one_before */${page}`,
  )
  return rows.map(activityOf)
}

export interface ActivityRow {
  position: number
  event_position: number
  at: Date
  execution: string
  version: number
  attempt: number
  queued_ms: number | null
  running_ms: number | null
  kind: ActivityKind
  outcome: string | null
  handler: string
  correlation_id: string
  worker: string | null
  result: unknown
  error: ErrorDescription | null
  event_id: string | null
  type: string | null
}

export function activityOf(row: ActivityRow): Activity {
  return {
    position: row.position,
    at: row.at,
    kind: row.kind,
    outcome: row.outcome === null ? undefined : camelCase(row.outcome),
    correlationId: row.correlation_id,
    handler: row.handler,
    version: row.version,
    executionId: row.execution,
    eventPosition: row.event_position,
    eventId: row.event_id ?? undefined,
    eventType: row.type ?? undefined,
    attempt: row.attempt,
    queuedMs: row.queued_ms ?? undefined,
    runningMs: row.running_ms ?? undefined,
    worker: row.worker ?? undefined,
    result: row.result ?? undefined,
    error: row.error ?? undefined,
  }
}

/** Attempts that have ended. */
export interface AttemptsOptions extends PageOptions {
  correlationId?: string | undefined
  handler?: Named | undefined
  /** 'completed', 'failed', or the word it ended with: 'retry', 'timeout', 'maxRetries', … */
  outcome?: string | undefined
  /** Fast together with its `correlationId`; alone, the latest lines are searched, page by page. */
  executionId?: string | undefined
}

const attemptsOptionNames = optionNames<AttemptsOptions>({
  ...{ correlationId: true, handler: true, outcome: true, executionId: true, after: true, limit: true },
})

export interface Attempt extends Activity {
  readonly kind: 'completed' | 'failed' | 'parked'
  readonly error: ErrorDescription | undefined
}

/**
 * The most lines that one page reads, so that with a filter that fits few of them a page may be short and still have a
 * `next`.
 */
const maxRead = 10_000
const most = numeral(maxRead)

interface AttemptRow extends ActivityRow {
  n: number
  fits: boolean
}

/** The newest first: how long each had waited, how long it ran, and how it ended. At most 1000, 100 by default. */
export async function listAttempts(log: Log, options: AttemptsOptions): Promise<Page<Attempt>> {
  refuseUnknownOptions('store.workflows.attempts', options, attemptsOptionNames)
  const { correlationId, limit = 100, after } = options
  const handler = options.handler === undefined ? undefined : nameOf(options.handler)
  checkCount('A list of attempts', 'limit', limit, 1, 1000)
  const before = after === undefined ? undefined : (decodeCursor(after, 1)[0] as number)
  if (correlationId !== undefined) checkName('Correlation id', correlationId)
  if (handler !== undefined) checkName('Handler', handler)
  const rows = await readAttempts(
    log,
    { ...options, handler, executionId: executionOf(options.executionId), before },
    limit,
  )
  const last = rows.at(-1)
  const isMore = last !== undefined && (rows.length === limit || last.n === maxRead)
  return {
    items: rows.filter(row => row.fits).map(row => activityOf(row) as Attempt),
    next: isMore ? encodeCursor([last.position]) : undefined,
  }
}

function executionOf(given: string | undefined): string | undefined {
  if (given === undefined) return undefined
  const id = canonicalUuid(given)
  if (id === undefined)
    throw refusal('A list of attempts', 'executionId', `needs a UUID as "executionId", not ${describe(given)}.`)
  return id
}

/** The last line that was read is among them even if it does not fit: the next page begins there. */
function readAttempts(
  log: Log,
  options: Omit<AttemptsOptions, 'handler'> & {
    readonly handler: string | undefined
    readonly before: number | undefined
  },
  limit: number,
): Promise<AttemptRow[]> {
  const { correlationId, handler = null, executionId = null, before = null } = options
  const outcome = options.outcome === undefined ? null : snakeCase(options.outcome)
  const { workflow_activity, events } = { ...log.names, ...workflowNames(log) }
  if (correlationId !== undefined)
    return log.database.run<AttemptRow>(sql`/* workflows.attempts_of_one */
      select l.*, e.event_id, e.type
      from (
        select a.*,
          row_number() over (order by a.position desc) as n,
          a.kind in ('completed', 'failed', 'parked')
            and (${handler}::text is null or a.handler = ${handler}::text)
            and (${outcome}::text is null or ${outcome}::text in (a.kind, a.outcome))
            and (${executionId}::uuid is null or a.execution = ${executionId}::uuid) as fits
        from ${workflow_activity} as a
        where a.correlation_id = ${correlationId}::text
          and a.position < coalesce(${before}::bigint, 9223372036854775807)
        order by a.position desc
        limit ${most}) as l
      left join lateral (
        select found.event_id, found.type
        from ${events} as found
        where found.position = l.event_position
        limit 1) as e on true
      where l.fits
        or l.n = ${most}
      order by l.position desc
      limit ${limit}::integer`)
  if (handler !== null)
    return log.database.run<AttemptRow>(sql`/* workflows.attempts_of_handler */
      select l.*, e.event_id, e.type
      from (
        select a.*,
          row_number() over (order by a.position desc) as n,
          (${outcome}::text is null or ${outcome}::text in (a.kind, a.outcome))
            and (${executionId}::uuid is null or a.execution = ${executionId}::uuid) as fits
        from ${workflow_activity} as a
        where a.handler = ${handler}::text
          and a.kind in ('completed', 'failed', 'parked')
          and a.position < coalesce(${before}::bigint, 9223372036854775807)
        order by a.position desc
        limit ${most}) as l
      left join lateral (
        select found.event_id, found.type
        from ${events} as found
        where found.position = l.event_position
        limit 1) as e on true
      where l.fits
        or l.n = ${most}
      order by l.position desc
      limit ${limit}::integer`)
  return log.database.run<AttemptRow>(sql`/* workflows.attempts */
    select l.*, e.event_id, e.type
    from (
      select a.*,
        row_number() over (order by a.position desc) as n,
        a.kind in ('completed', 'failed', 'parked')
          and (${outcome}::text is null or ${outcome}::text in (a.kind, a.outcome))
          and (${executionId}::uuid is null or a.execution = ${executionId}::uuid) as fits
      from ${workflow_activity} as a
      where a.position < coalesce(${before}::bigint, 9223372036854775807)
      order by a.position desc
      limit ${most}) as l
    left join lateral (
      select found.event_id, found.type
      from ${events} as found
      where found.position = l.event_position
      limit 1) as e on true
    where l.fits
      or l.n = ${most}
    order by l.position desc
    limit ${limit}::integer`)
}
