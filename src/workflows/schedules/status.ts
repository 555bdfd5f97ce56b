/** Reading schedules and their runs, for people. */

import type { ErrorDescription } from '../../consumers/run/failure.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { workflowNames } from '../schema.ts'
import type { ScheduleOutcome } from './run.ts'
import type { ScheduleDefinition } from './schedule.ts'

export interface ScheduleStatus {
  readonly name: string
  /** Done is one that has no due time any more: a one-time schedule that has run. */
  readonly state: 'active' | 'paused' | 'done'
  readonly definition: ScheduleDefinition
  /** When it is due next; in the past if it is waiting for somebody to run it. */
  readonly nextAt: Date | undefined
  /** When the last run was due, also if it was asked for by hand, and what it came to. */
  readonly lastAt: Date | undefined
  readonly lastOutcome: ScheduleOutcome | undefined
  readonly pausedAt: Date | undefined
  readonly isRunning: boolean
  /** Runs asked for by hand that have not ended. */
  readonly triggered: number
  /** Whether this store has its code. */
  readonly isHere: boolean
}

/** A run that has ended. */
export interface ListedRun {
  readonly schedule: string
  readonly dueAt: Date
  readonly isManual: boolean
  /** Skipped is one that was missed, by a schedule that does not make up for that. */
  readonly outcome: ScheduleOutcome
  readonly startedAt: Date
  readonly endedAt: Date
  readonly correlationId: string
  readonly eventIds: readonly string[]
  readonly error: ErrorDescription | undefined
}

export async function readSchedules(log: Log, code: { has(name: string): boolean }): Promise<ScheduleStatus[]> {
  const rows = await log.database.run<{
    name: string
    definition: ScheduleDefinition
    next_at: Date | null
    last_at: Date | null
    last_outcome: ScheduleOutcome | null
    paused_at: Date | null
    running: boolean
    triggered: number
  }>(sql`/* workflows.schedules */
    select
      s.name, s.definition, s.next_at, s.last_at, s.last_outcome, s.paused_at,
      coalesce(s.claimed_until > ${log.names.clock}(s.claimed_until), false)
        and exists (
          select
          from ${workflowNames(log).workflow_workers} as w
          where w.owner = s.owner) as running,
      cardinality(s.triggers) as triggered
    from ${workflowNames(log).workflow_schedules} as s
    order by s.name`)
  return rows.map(({ name, definition, next_at, last_at, last_outcome, paused_at, running, triggered }) => ({
    name,
    state: next_at === null ? 'done' : paused_at === null ? 'active' : 'paused',
    definition,
    nextAt: next_at ?? undefined,
    lastAt: last_at ?? undefined,
    lastOutcome: last_outcome ?? undefined,
    pausedAt: paused_at ?? undefined,
    isRunning: running,
    triggered,
    isHere: code.has(name),
  }))
}

/** The latest first; `before` is the run that the page before ended with. */
export async function readRuns(
  log: Log,
  schedule: string,
  limit: number,
  before: Pick<ListedRun, 'dueAt' | 'isManual'> | undefined,
): Promise<ListedRun[]> {
  const rows = await log.database.run<{
    due_at: Date
    is_manual: boolean
    outcome: ScheduleOutcome
    started_at: Date
    ended_at: Date
    correlation_id: string
    event_ids: string[]
    error: ErrorDescription | null
  }>(sql`/* workflows.schedule_runs */
    select due_at, is_manual, outcome, started_at, ended_at, correlation_id, to_jsonb(event_ids) as event_ids, error
    from ${workflowNames(log).workflow_schedule_runs}
    where schedule = ${schedule}::text
      and (due_at, is_manual) < (
        coalesce(${before?.dueAt.toISOString() ?? null}::timestamptz, 'infinity'), ${before?.isManual ?? false}::boolean)
    order by due_at desc, is_manual desc
    limit ${limit}::integer`)
  return rows.map(row => ({
    schedule,
    dueAt: row.due_at,
    isManual: row.is_manual,
    outcome: row.outcome,
    startedAt: row.started_at,
    endedAt: row.ended_at,
    correlationId: row.correlation_id,
    eventIds: row.event_ids,
    error: row.error ?? undefined,
  }))
}
