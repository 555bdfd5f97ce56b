/**
 * Schedules: events that are published because it is time.
 *
 *     duty ─► claim ─► run ─► end: events, record, next due time        due ──► claimed ──► due · done (one-time)
 *
 * Guarantees:
 * - A due time is run by one process at a time, and recorded once: the claim has a fence, the record a primary key of schedule
 *   and due time, and the events it publishes have ids that follow from both.
 * - Only the database's clock decides which schedules are due, and the next due time follows from the last one, not
 *   from when it ran.
 * - A run that fails is recorded with its error; the next one comes when it is due. A due time during a run waits for its end.
 * - A run whose process died is taken over when its worker is known to be dead, at the latest when its time is over.
 *
 * What can fail: the code (recorded), the process (taken over; so the code is called at least once), the database (the run
 * waits). A schedule whose code no process has stays, shows in `schedules.list()`, and runs when a process has it again.
 *
 * Here: the schedules that are stored, also those whose code is elsewhere: their status, their runs, and the changes by
 * an operator. Every change sends a hint to the workers.
 */

import type { ErrorDescription } from '../../consumers/run/failure.ts'
import { isAlive } from '../../consumers/runners/row.ts'
import { consumerNames } from '../../consumers/schema.ts'
import { type Named, nameOf } from '../../core/definition.ts'
import { Overloaded } from '../../core/errors.ts'
import { nearestName } from '../../core/name.ts'
import { describe, refuseUnknownOptions } from '../../core/options.ts'
import { decodeCursor, type Page, type PageOptions, pageOf, pageOptionNames } from '../../core/page.ts'
import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { ScheduleNotFound } from '../errors.ts'
import { checkCount, refusal } from '../handler.ts'
import type { WorkflowHints } from '../hints.ts'
import { workflowNames } from '../schema.ts'
import { correlationOf, type ScheduleOutcome } from './run.ts'
import type { StoredSchedule } from './schedule.ts'
import type { Scheduler } from './scheduler.ts'
import { dueTimes } from './times.ts'

/** The schedules of a store: `store.workflows.schedules`. */
export interface Schedules {
  /** By name: 1000 in a page by default. */
  list(options?: PageOptions): Promise<Page<ScheduleStatus>>
  /** Its next due times, 5 by default, at most 100; none if it is paused or done. */
  next(schedule: Named, count?: number): Promise<Date[]>
  /** A run that has begun still ends; none begins, except by `trigger`. */
  pause(schedule: Named): Promise<void>
  /** Continues with the next due time. Times that came due meanwhile are skipped; a one-time schedule still runs. */
  resume(schedule: Named): Promise<void>
  /** Asks for one more run now; the next worker that has its code runs it, also while it is paused. */
  trigger(schedule: Named): Promise<TriggeredRun>
  /** Its runs that have ended, the latest first, as far back as retention keeps them: 100 in a page by default. */
  history(schedule: Named, options?: ScheduleHistoryOptions): Promise<Page<ScheduleRun>>
  /** Removes it and its history. Where its code still is, it begins anew with the next start. */
  delete(schedule: Named): Promise<void>
}

export interface ScheduleStatus {
  readonly name: string
  /** Done: it has no due time left, as a one-time schedule that has run. */
  readonly state: 'active' | 'paused' | 'done'
  readonly definition: StoredSchedule
  /** When it is due next; in the past if it waits for a worker. */
  readonly nextAt: Date | undefined
  /** When the last run was due, also if an operator asked for it, and how it ended. */
  readonly lastAt: Date | undefined
  readonly lastOutcome: ScheduleOutcome | undefined
  readonly pausedAt: Date | undefined
  readonly isRunning: boolean
  /** Runs that operators asked for and that have not ended. */
  readonly triggered: number
  /** Whether this store has its code. */
  readonly isHere: boolean
}

export interface TriggeredRun {
  readonly schedule: string
  readonly dueAt: Date
  /** The workflow that its events will be part of. */
  readonly correlationId: string
}

/** A run that has ended. */
export interface ScheduleRun {
  readonly schedule: string
  readonly dueAt: Date
  readonly isManual: boolean
  /** Skipped: it was missed, and its schedule does not run missed times. */
  readonly outcome: ScheduleOutcome
  readonly startedAt: Date
  readonly endedAt: Date
  readonly correlationId: string
  readonly eventIds: readonly string[]
  readonly error: ErrorDescription | undefined
}

export interface ScheduleHistoryOptions extends PageOptions {
  /** Only runs that were due before this time. */
  dueBefore?: Date | undefined
}

/** The most runs that can be asked for and have not begun. */
const maxTriggers = 100

export function openSchedules(
  log: Log,
  hints: WorkflowHints,
  scheduler: Scheduler,
  sync: () => Promise<void>,
): Schedules {
  const { workflow_schedules, workflow_schedule_runs } = workflowNames(log)
  return {
    async list(options = {}) {
      await sync()
      return listSchedules(log, scheduler, options)
    },
    async next(schedule, count = 5) {
      checkCount(`The due times of a schedule`, 'count', count, 1, 100)
      await sync()
      return nextTimes(log, nameOf(schedule), count)
    },
    async pause(schedule) {
      const name = nameOf(schedule)
      await sync()
      const rows = await log.database.run(sql`/* workflows.pause_schedule */
        update ${workflow_schedules}
        set paused_at = coalesce(paused_at, ${log.names.clock}(created_at))
        where name = ${name}::text
        returning name`)
      if (rows.length === 0) throw await notFound(log, name)
    },
    async resume(schedule) {
      await sync()
      await log.database.transaction(tx => resume(log, tx, nameOf(schedule)))
      hints.changed()
    },
    async trigger(schedule) {
      await sync()
      const triggered = await trigger(log, nameOf(schedule))
      hints.changed()
      return triggered
    },
    async history(schedule, options = {}) {
      await sync()
      const name = nameOf(schedule)
      const runs = await listRuns(log, name, options)
      if (runs.items.length === 0 && !(await isKnown(log, name))) throw await notFound(log, name)
      return runs
    },
    async delete(schedule) {
      const name = nameOf(schedule)
      await sync()
      await log.database.transaction(async tx => {
        const rows = await tx.run(sql`/* workflows.delete_schedule */
          delete from ${workflow_schedules}
          where name = ${name}::text
          returning name`)
        if (rows.length === 0) throw await notFound(log, name, tx)
        await tx.run(sql`/* workflows.delete_schedule_runs */
          delete from ${workflow_schedule_runs}
          where schedule = ${name}::text`)
      })
    },
  }
}

async function nextTimes(log: Log, name: string, count: number): Promise<Date[]> {
  const [row] = await log.database.run<{ definition: StoredSchedule; next_at: Date | null; paused: boolean }>(
    sql`/* workflows.next_times */
      select definition, next_at, paused_at is not null as paused
      from ${workflowNames(log).workflow_schedules}
      where name = ${name}::text`,
  )
  if (row === undefined) throw await notFound(log, name)
  const times: Date[] = []
  const due = dueTimes(row.definition)
  let next = row.paused ? undefined : (row.next_at ?? undefined)
  while (next !== undefined && times.length < count) {
    times.push(next)
    next = due.next(next)
  }
  return times
}

async function listSchedules(
  log: Log,
  code: Pick<Scheduler, 'has'>,
  options: PageOptions,
): Promise<Page<ScheduleStatus>> {
  refuseUnknownOptions('store.workflows.schedules.list', options, pageOptionNames)
  const { after, limit = 1000 } = options
  checkCount('A list of schedules', 'limit', limit, 1, 10_000)
  const { workflow_schedules } = workflowNames(log)
  const rows = await log.database.run<{
    name: string
    definition: StoredSchedule
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
          from ${consumerNames(log).runners} as r
          where r.id = s.owner
            and ${isAlive(log)}) as running,
      cardinality(s.triggers) as triggered
    from ${workflow_schedules} as s
    where s.name > ${after === undefined ? '' : (decodeCursor(after, 1)[0] as string)}::text
    order by s.name
    limit ${limit + 1}::integer`)
  const schedules = rows.map(({ name, definition, next_at, last_at, last_outcome, paused_at, running, triggered }) => ({
    name,
    state: next_at === null ? ('done' as const) : paused_at === null ? ('active' as const) : ('paused' as const),
    definition,
    nextAt: next_at ?? undefined,
    lastAt: last_at ?? undefined,
    lastOutcome: last_outcome ?? undefined,
    pausedAt: paused_at ?? undefined,
    isRunning: running,
    triggered,
    isHere: code.has(name),
  }))
  return pageOf(schedules, limit, last => [last.name])
}

async function resume(log: Log, tx: Executor, name: string): Promise<void> {
  const { workflow_schedules } = workflowNames(log)
  const [row] = await tx.run<{
    next_at: Date | null
    now: Date
    paused: boolean
    definition: StoredSchedule
  }>(sql`/* workflows.paused_schedule */
    select next_at, ${log.names.clock}(created_at) as now, paused_at is not null as paused, definition
    from ${workflow_schedules}
    where name = ${name}::text
    for update`)
  if (row === undefined) throw await notFound(log, name, tx)
  if (!row.paused) return
  const { next_at: nextAt, now, definition } = row
  const times = dueTimes(definition)
  const isPast = nextAt !== null && nextAt <= now && !('at' in definition)
  const resumed = isPast ? times.next(times.latest(nextAt, now)) : nextAt
  await tx.run(sql`/* workflows.resume_schedule */
    update ${workflow_schedules}
    set paused_at = null,
      next_at = ${resumed?.toISOString() ?? null}::timestamptz
    where name = ${name}::text`)
}

/** Due now, or a moment later: each has a due time of its own. */
async function trigger(log: Log, name: string): Promise<TriggeredRun> {
  const { workflow_schedules, workflow_schedule_runs } = workflowNames(log)
  const { clock, later, to_ms } = log.names
  const [row] = await log.database.run<{ due_at: Date; definition: StoredSchedule }>(sql`/* workflows.trigger */
    update ${workflow_schedules} as s
    set triggers = s.triggers || greatest(
      ${to_ms}(${clock}(s.created_at)),
      ${later}(s.triggers[cardinality(s.triggers)], 1),
      (select ${later}(max(r.due_at), 1)
        from ${workflow_schedule_runs} as r
        where r.schedule = s.name
          and r.due_at >= ${later}(${to_ms}(${clock}(s.created_at)), -1000)
          and r.is_manual))
    where s.name = ${name}::text
      and cardinality(s.triggers) < ${maxTriggers}::integer
    returning s.triggers[cardinality(s.triggers)] as due_at, s.definition`)
  if (row === undefined) {
    if (await isKnown(log, name)) throw new Overloaded({ queue: `"${name}" trigger`, limit: maxTriggers })
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

/** The latest first. */
async function listRuns(log: Log, schedule: string, options: ScheduleHistoryOptions): Promise<Page<ScheduleRun>> {
  refuseUnknownOptions('store.workflows.schedules.history', options, ['dueBefore', ...pageOptionNames])
  const { after, limit = 100, dueBefore } = options
  const what = 'The history of a schedule'
  checkCount(what, 'limit', limit, 1, 1_000)
  if (dueBefore !== undefined && (!(dueBefore instanceof Date) || Number.isNaN(dueBefore.getTime())))
    throw refusal(what, 'dueBefore', `needs a valid Date as "dueBefore", not ${describe(dueBefore)}.`)
  const [dueAt, isManual] = after === undefined ? [null, false] : (decodeCursor(after, 2) as [string, boolean])
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
      and (due_at, is_manual) < (coalesce(${dueAt}::timestamptz, 'infinity'), ${isManual}::boolean)
      and due_at < coalesce(${dueBefore?.toISOString() ?? null}::timestamptz, 'infinity')
    order by due_at desc, is_manual desc
    limit ${limit + 1}::integer`)
  const runs = rows.map(row => ({
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
  return pageOf(runs, limit, last => [last.dueAt.toISOString(), last.isManual])
}
