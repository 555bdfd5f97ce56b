/**
 * Whether workflows have anything to do, and when the next timer, join or schedule is due, as pieces of a statement that
 * asks for a whole store at once (`tenants/has-work.ts`).
 */
import { type Fragment, fragment } from '../database/sql.ts'
import type { LogNames } from '../events/log.ts'

/** True if a worker has something to do now. */
export function hasOpenWork(names: LogNames): Fragment {
  return fragment`(
        exists (
          select
          from ${names.workflow_executions} as x
          where x.state in ('ready', 'running', 'held', 'stopping', 'unkeyed'))
        or exists (
          select
          from ${names.workflow_waits} as w
          where w.child is not null)
        or exists (
          select
          from ${names.workflows} as w
          where w.is_spreading)
        or exists (
          select
          from ${names.workflow_routes} as r
          where r.backfill_position is not null
            and r.retired_at is null))`
}

/** When the next delayed execution, deadline of a join, or schedule is due; null if there is none. */
export function nextWorkAt(names: LogNames): Fragment {
  return fragment`least(
        (select min(x.run_at) from ${names.workflow_executions} as x where x.state in ('delayed', 'suspended')),
        (select min(j.deadline_at) from ${names.workflow_joins} as j where j.state = 'open'),
        (select min(least(s.triggers[1], case when s.paused_at is null then s.next_at end))
          from ${names.workflow_schedules} as s))`
}
