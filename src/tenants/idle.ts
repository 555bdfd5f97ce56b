/**
 * Whether a tenant has anything to do, in one statement that only looks. What a process runs for a tenant may be stopped
 * while there is nothing, as long as it is known when to look again.
 */

import { consumerNames } from '../consumers/schema.ts'
import { sql } from '../database/sql.ts'
import type { Log } from '../events/log.ts'
import { workflowNames } from '../workflows/schema.ts'

export interface Outlook {
  /** Of the log, as drawn. */
  readonly head: number
  readonly isIdle: boolean
  /** When the next timer, schedule, retry or join is due; undefined if none is. */
  readonly nextInMs: number | undefined
}

/** `consumers` are those that this process has code for: nobody waits here for the others. */
export async function lookAt(log: Log, consumers: readonly string[]): Promise<Outlook> {
  const names = { ...log.names, ...consumerNames(log), ...workflowNames(log) }
  const [row] = await log.database.run<{ head: number; idle: boolean; next_in: number | null }>(sql`/* tenants.idle */
    with head as materialized (
      select coalesce(pg_sequence_last_value(${names.events_position.quoted}::text::regclass), 0) as position)
    select
      head.position as head,
      not exists (
        select
        from ${names.consumers} as c
        where c.name = any(${consumers}::text[])
          and c.paused_at is null
          and c.state <> 'inline'
          and (c.checkpoint < head.position or c.state in ('emptying', 'rebuilding')))
      and not exists (
        select
        from ${names.workflow_executions} as x
        where x.state in ('ready', 'running', 'held', 'stopping', 'unkeyed'))
      and not exists (
        select
        from ${names.workflow_waits} as w
        where w.child is not null)
      and not exists (
        select
        from ${names.workflows} as w
        where w.is_spreading)
      and not exists (
        select
        from ${names.workflow_routes} as r
        where r.backfill_position is not null
          and r.retired_at is null) as idle,
      (extract(epoch from least(
        (select min(x.run_at) from ${names.workflow_executions} as x where x.state in ('delayed', 'suspended')),
        (select min(j.deadline_at) from ${names.workflow_joins} as j where j.state = 'open'),
        (select min(least(s.triggers[1], case when s.paused_at is null then s.next_at end))
          from ${names.workflow_schedules} as s),
        -- Also one that somebody was at who is gone.
        (select min(d.retry_at) from ${names.dead_letters} as d where d.retry_at is not null)
      ) - ${names.clock}(head.position)) * 1000)::float8 as next_in
    from head`)
  return { head: row!.head, isIdle: row!.idle, nextInMs: row!.next_in ?? undefined }
}
