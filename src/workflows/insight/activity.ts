/**
 * The activity: what happened to executions, line by line, in an order of its own. Its positions are announced and settled
 * as those of the log are (see `events/order/order.sql.ts`), so who reads up to `settled` has missed nothing.
 */

import type { ErrorDescription } from '../../consumers/run/failure.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { epochOf, type Settled } from '../../events/order/order.ts'
import { workflowNames } from '../schema.ts'

/**
 * Dispatched (there is an execution) · started (an attempt began) · completed · failed (an attempt, or for good) · skipped
 * (its handler did not want the event) · suspended (waits) · released (given back, not counted) · parked (waits for a
 * person) · cancelled.
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

export interface Activity {
  /** Its place in the activity; watching `after` it goes on behind it. */
  readonly position: number
  readonly at: Date
  readonly kind: ActivityKind
  /** More of it, in a word: `retry`, `timeout`, `max_retries`, `inline`, … */
  readonly outcome: string | undefined
  readonly correlationId: string
  readonly handler: string
  readonly version: number
  readonly executionId: string
  readonly eventPosition: number
  /** Undefined, as its type, if the event is not in the log any more. */
  readonly eventId: string | undefined
  readonly eventType: string | undefined
  /** 0 when it was dispatched. */
  readonly attempt: number
  /** How long it had been ready before this attempt began. */
  readonly queuedMs: number | undefined
  readonly runningMs: number | undefined
  /** Who ran it. */
  readonly worker: string | undefined
  /** What a completed attempt came to. */
  readonly result: unknown
  readonly error: ErrorDescription | undefined
}

export interface ActivityFilter {
  readonly correlationId?: string | undefined
  readonly handler?: string | undefined
  readonly kinds?: readonly ActivityKind[] | undefined
}

/** One statement by itself: the lines are read by another one, on a snapshot taken after this. */
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
    outcome: row.outcome ?? undefined,
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
