/**
 * Schedules: events that are published because it is time.
 *
 *     tick ─► claim ─► run ─► end: events, record, next due time        due ──► claimed ──► due · done (one-time)
 *
 * Guarantees:
 * - A due time is run by one process at a time, and recorded once: the claim has a fence, the record a primary key of schedule
 *   and due time, and what it publishes has ids that follow from both.
 * - Only the database's clock decides what is due, and the next due time follows from the last one, not from when it ran.
 * - A run that fails is recorded with its error; the next one comes when it is due. What is due during a run waits for its end.
 * - A run whose process died is taken over when its worker is known to be gone, at the latest when its time is over.
 *
 * What can fail: the code (recorded), the process (taken over; so the code is called at least once), the database (waited
 * for). A schedule whose code no process has stays, shows in `schedules.list()`, and is run when somebody has it again.
 *
 * Here: the schedules that are stored, also those whose code is elsewhere: where they stand, what their runs came to, and what an
 * operator does with them. Every change is told to the workers.
 */

import { InvalidOption, Overloaded } from '../../core/errors.ts'
import { nearestName } from '../../core/nearest.ts'
import { checkWhole } from '../../core/whole.ts'
import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { AppendParts } from '../../events/append/append.ts'
import type { Log } from '../../events/log.ts'
import { ScheduleNotFound } from '../errors.ts'
import { workflowNames } from '../schema.ts'
import { correlationOf } from './run.ts'
import type { ScheduleDefinition } from './schedule.ts'
import type { Scheduler } from './scheduler.ts'
import { type ListedRun, readRuns, readSchedules, type ScheduleStatus } from './status.ts'
import { dueTimes } from './times.ts'

export interface Schedules {
  /** All of them, by name. */
  list(): Promise<ScheduleStatus[]>
  /** A run under way still ends; none begins, except by `trigger`. */
  pause(name: string): Promise<void>
  /** Goes on with the next due time. What came due meanwhile was not missed but left out; a one-time schedule still runs. */
  resume(name: string): Promise<void>
  /** Asks for a run now, beside the regular ones; the next worker that has its code runs it, also while it is paused. */
  trigger(name: string): Promise<TriggeredRun>
  /** Its runs that have ended, the latest first, as far back as history is kept. */
  history(name: string, options?: ScheduleHistoryOptions): Promise<ListedRun[]>
  /** Removes it and its history. Where its code still is, it begins anew with the next start. */
  delete(name: string): Promise<void>
}

export interface TriggeredRun {
  readonly schedule: string
  readonly dueAt: Date
  /** The workflow that what it publishes will be part of. */
  readonly correlationId: string
}

export interface ScheduleHistoryOptions {
  /** The most runs to return. Default 100. */
  limit?: number | undefined
  /** Only those before this time, or before this run: the last one of the page before. */
  before?: Date | Pick<ListedRun, 'dueAt' | 'isManual'> | undefined
}

/** The most runs that can be asked for and not have begun. */
const mostTriggers = 100

export function openSchedules(parts: AppendParts, scheduler: Scheduler, register: () => Promise<void>): Schedules {
  const { log, wake } = parts

  return {
    async list() {
      await register()
      return readSchedules(log, scheduler)
    },
    async pause(name) {
      await register()
      const rows = await log.database.run(sql`/* workflows.pause_schedule */
        update ${workflowNames(log).workflow_schedules}
        set paused_at = coalesce(paused_at, ${log.names.clock}(paused_at))
        where name = ${name}::text
        returning name`)
      if (rows.length === 0) throw await notFound(log, name)
    },
    async resume(name) {
      await register()
      await log.database.transaction(tx => resume(log, tx, name))
      wake.changed()
    },
    async trigger(name) {
      await register()
      const triggered = await trigger(log, name)
      wake.changed()
      return triggered
    },
    async history(name, { limit = 100, before } = {}) {
      checkWhole('limit', limit, 1, 1_000)
      const time = before instanceof Date ? before : before?.dueAt
      if (before !== undefined && (!(time instanceof Date) || Number.isNaN(time.getTime())))
        throw new InvalidOption({ option: 'before', reason: 'must be a valid Date or a run' })
      await register()
      const isManual = before !== undefined && !(before instanceof Date) && before.isManual
      const runs = await readRuns(log, name, limit, time === undefined ? undefined : { dueAt: time, isManual })
      if (runs.length === 0 && !(await isKnown(log, name))) throw await notFound(log, name)
      return runs
    },
    async delete(name) {
      await register()
      await log.database.transaction(async tx => {
        const rows = await tx.run(sql`/* workflows.delete_schedule */
          delete from ${workflowNames(log).workflow_schedules}
          where name = ${name}::text
          returning name`)
        if (rows.length === 0) throw await notFound(log, name, tx)
        await tx.run(sql`/* workflows.delete_schedule_runs */
          delete from ${workflowNames(log).workflow_schedule_runs}
          where schedule = ${name}::text`)
      })
    },
  }
}

async function resume(log: Log, tx: Executor, name: string): Promise<void> {
  const [row] = await tx.run<{
    next_at: Date | null
    now: Date
    paused: boolean
    definition: ScheduleDefinition
  }>(sql`/* workflows.paused_schedule */
    select next_at, ${log.names.clock}(name) as now, paused_at is not null as paused, definition
    from ${workflowNames(log).workflow_schedules}
    where name = ${name}::text
    for update`)
  if (row === undefined) throw await notFound(log, name, tx)
  if (!row.paused) return
  const { next_at: nextAt, now, definition } = row
  const times = dueTimes(definition)
  const isPast = nextAt !== null && nextAt <= now && !('at' in definition)
  const resumed = isPast ? times.next(times.latest(nextAt, now)) : nextAt
  await tx.run(sql`/* workflows.resume_schedule */
    update ${workflowNames(log).workflow_schedules}
    set paused_at = null,
      next_at = ${resumed?.toISOString() ?? null}::timestamptz
    where name = ${name}::text`)
}

/** Due now, or a moment later: each has a due time of its own. */
async function trigger(log: Log, name: string): Promise<TriggeredRun> {
  const [row] = await log.database.run<{ due_at: Date; definition: ScheduleDefinition }>(sql`/* workflows.trigger */
    update ${workflowNames(log).workflow_schedules} as s
    set triggers = s.triggers || greatest(
      date_trunc('milliseconds', ${log.names.clock}(s.name)),
      s.triggers[cardinality(s.triggers)] + interval '1 millisecond',
      (select max(r.due_at) + interval '1 millisecond'
        from ${workflowNames(log).workflow_schedule_runs} as r
        where r.schedule = s.name
          and r.due_at >= date_trunc('milliseconds', ${log.names.clock}(r.due_at))
          and r.is_manual))
    where s.name = ${name}::text
      and cardinality(s.triggers) < ${mostTriggers}::integer
    returning s.triggers[cardinality(s.triggers)] as due_at, s.definition`)
  if (row === undefined) {
    if (await isKnown(log, name)) throw new Overloaded({ queue: `"${name}" trigger`, limit: mostTriggers })
    throw await notFound(log, name)
  }
  const { due_at: dueAt, definition } = row
  return { schedule: name, dueAt, correlationId: correlationOf(definition, { name, dueAt, isManual: true }) }
}

async function isKnown(log: Log, name: string): Promise<boolean> {
  const rows = await log.database.run(sql`/* workflows.known_schedule */
    select name
    from ${workflowNames(log).workflow_schedules}
    where name = ${name}::text`)
  return rows.length > 0
}

async function notFound(
  log: Log,
  schedule: string,
  executor: Executor = log.database,
): Promise<InstanceType<typeof ScheduleNotFound>> {
  const rows = await executor.run<{ name: string }>(sql`/* workflows.schedule_names */
    select name
    from ${workflowNames(log).workflow_schedules}`)
  const nearest = nearestName(
    schedule,
    rows.map(({ name }) => name),
  )
  return new ScheduleNotFound({ schedule, nearest })
}
