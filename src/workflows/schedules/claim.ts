/**
 * Claiming schedules that are due: one statement, decided by the database's clock and the row alone. Only the holder of the
 * row's fence can end the run; the claim is free again when it has expired, or when its worker is dead.
 */

import { drawFence } from '../../consumers/row.ts'
import { isAlive } from '../../consumers/runners/row.ts'
import { consumerNames } from '../../consumers/schema.ts'
import { sql } from '../../database/sql.ts'
import { byBytes } from '../../events/append/send.ts'
import type { Log } from '../../events/log.ts'
import { moment } from '../../schema/clock.sql.ts'
import { workflowNames } from '../schema.ts'
import type { Schedule, StoredSchedule } from './schedule.ts'
import { dueTimes } from './times.ts'

export interface ClaimedSchedule {
  readonly name: string
  readonly fence: number
  readonly definition: StoredSchedule
  readonly dueAt: Date
  /** The database's time at the claim. */
  readonly now: Date
  readonly isManual: boolean
  /** Whether a run of this due time has begun and not ended. */
  readonly isBegun: boolean
  /** Whether this due time was run before. */
  readonly isDone: boolean
}

export interface ScheduleClaim {
  readonly owner: string
  /** Those that do not run here: a claim of ours on them is one whose answer was lost. */
  readonly names: readonly string[]
  readonly limit: number
}

/** Longer than the run itself may take: its end has to be stored, too. */
const graceMs = 10_000

/** Runs asked for by hand come first. */
export async function claimSchedules(log: Log, { owner, names, limit }: ScheduleClaim): Promise<ClaimedSchedule[]> {
  const fence = await drawFence(log, log.database)
  const rows = await log.database.run<ClaimedRow>(sql`/* workflows.claim_schedules */
    with due as (
      select s.name, s.begun_at
      from ${workflowNames(log).workflow_schedules} as s
      where s.name = any(${names}::text[])
        and (cardinality(s.triggers) > 0
          or (s.paused_at is null and s.next_at <= ${log.names.clock}(s.next_at)))
        and (s.claimed_until is null
          or s.claimed_until <= ${log.names.clock}(s.claimed_until)
          or s.owner = ${owner}::text
          or (s.owner is not null and not exists (
            select
            from ${consumerNames(log).runners} as r
            where r.id = s.owner
              and ${isAlive(log)})))
      order by least(s.next_at, s.triggers[1])
      limit ${limit}::integer
      for update of s skip locked)
    update ${workflowNames(log).workflow_schedules} as s
    set fence = ${fence}::bigint,
      owner = ${owner}::text,
      claimed_until = ${log.names.later}(${log.names.clock}(s.claimed_until),
        (s.definition->>'timeoutMs')::float8 + ${graceMs}::float8),
      -- As precise as a Date, so that a due time is the same wherever it is compared.
      next_at = ${log.names.to_ms}(s.next_at),
      begun_at = case when cardinality(s.triggers) > 0 then s.begun_at else ${log.names.to_ms}(s.next_at) end
    from due
    where s.name = due.name
    returning s.name, s.fence, s.definition, s.next_at, s.triggers[1] as trigger_at, ${log.names.clock}(s.name) as now,
      coalesce(due.begun_at = s.next_at, false) as begun,
      exists (
        select
        from ${workflowNames(log).workflow_schedule_runs} as r
        where r.schedule = s.name
          and r.due_at = s.next_at
          and not r.is_manual) as done`)
  return rows.map(claimedOf)
}

interface ClaimedRow {
  readonly name: string
  readonly fence: number
  readonly definition: StoredSchedule
  readonly next_at: Date | null
  readonly trigger_at: Date | null
  readonly now: Date
  readonly begun: boolean
  readonly done: boolean
}

function claimedOf({ name, fence, definition, next_at, trigger_at, now, begun, done }: ClaimedRow): ClaimedSchedule {
  const about = { name, fence, definition, now }
  if (trigger_at !== null) return { ...about, dueAt: trigger_at, isManual: true, isBegun: false, isDone: false }
  return { ...about, dueAt: next_at!, isManual: false, isBegun: begun, isDone: done }
}

/** Changes the due time of a claim; undefined if the claim was lost. */
export async function moveClaim(log: Log, claimed: ClaimedSchedule, dueAt: Date): Promise<ClaimedSchedule | undefined> {
  const [row] = await log.database.run<{ done: boolean }>(sql`/* workflows.move_schedule */
    update ${workflowNames(log).workflow_schedules} as s
    set next_at = ${dueAt.toISOString()}::timestamptz,
      begun_at = ${dueAt.toISOString()}::timestamptz
    where s.name = ${claimed.name}::text
      and s.fence = ${claimed.fence}::bigint
      and s.next_at = ${claimed.dueAt.toISOString()}::timestamptz
    returning exists (
      select
      from ${workflowNames(log).workflow_schedule_runs} as r
      where r.schedule = s.name
        and r.due_at = s.next_at
        and not r.is_manual) as done`)
  return row === undefined ? undefined : { ...claimed, dueAt, isDone: row.done }
}

/** Releases the claim: any worker may claim it again in a moment. */
export async function releaseClaim(log: Log, { name, fence }: ClaimedSchedule): Promise<void> {
  await log.database.run(sql`/* workflows.release_schedule */
    update ${workflowNames(log).workflow_schedules}
    set claimed_until = ${log.names.later}(${log.names.clock}(claimed_until), 500),
      owner = null
    where name = ${name}::text
      and fence = ${fence}::bigint
      and claimed_until is not null`)
}

/** Stores the schedules of a process: new ones begin, changed times begin anew, everything else stays as it is. */
export async function storeSchedules(log: Log, schedules: readonly Schedule[]): Promise<void> {
  const [row] = await log.database.run<{ now: Date }>(sql`/* workflows.now */
    select date_trunc('milliseconds', moment.at) as now
    from ${moment(log.names.clock)}`)
  const sorted = [...schedules].sort((a, b) => byBytes(a.name, b.name))
  const firsts = sorted.map(({ definition }) => dueTimes(definition).first(row!.now)?.toISOString() ?? null)
  await log.database.run(sql`/* workflows.store_schedules */
    insert into ${workflowNames(log).workflow_schedules} as s (name, digest, definition, next_at, created_at)
    select u.name, u.digest, u.definition::jsonb, u.next_at, ${log.names.clock}(u.n)
    from unnest(
      ${sorted.map(({ name }) => name)}::text[],
      ${sorted.map(({ digest }) => digest)}::text[],
      ${sorted.map(({ definition }) => JSON.stringify(definition))}::text[],
      ${firsts}::timestamptz[]) with ordinality as u(name, digest, definition, next_at, n)
    order by u.n
    on conflict (name) do update
    set digest = excluded.digest,
      definition = excluded.definition,
      next_at = case when s.digest = excluded.digest then s.next_at else excluded.next_at end
    where s.definition is distinct from excluded.definition`)
}
