/**
 * The pending work of workflows, as pieces of statements about a whole store: whether there is work now or later
 * (`tenants/has-work.ts`), and which events are still needed (`upkeep/archived-streams.ts`).
 */
import { type Fragment, fragment, type Identifier } from '../database/sql.ts'
import { workflowNames } from './schema.ts'

/** A store, known by its schema. */
interface StoreSchema {
  readonly schema: string
}

/** True if a worker has something to do now. */
export function hasOpenWork(store: StoreSchema): Fragment {
  const names = workflowNames(store)
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
export function nextWorkAt(store: StoreSchema): Fragment {
  const names = workflowNames(store)
  return fragment`least(
        (select min(x.run_at) from ${names.workflow_executions} as x where x.state in ('delayed', 'suspended')),
        (select min(j.deadline_at) from ${names.workflow_joins} as j where j.state = 'open'),
        (select min(least(s.triggers[1], case when s.paused_at is null then s.next_at end))
          from ${names.workflow_schedules} as s))`
}

/** True if a workflow is open, may still be compensated, or is waited for by another one. */
export function needsWorkflowEvents(store: StoreSchema, correlationId: Identifier): Fragment {
  const names = workflowNames(store)
  return fragment`(
            exists (
              select
              from ${names.workflows} as w
              where w.correlation_id = ${correlationId}
                and w.open > 0)
            or exists (
              select
              from ${names.workflow_undos} as u
              where u.correlation_id = ${correlationId}
                and u.state = 'recorded')
            or exists (
              select
              from ${names.workflow_waits} as c
              where c.child = ${correlationId}))`
}

/** How far each handler has been given earlier events, as rows of a name and a position. */
export function backfillPositions(store: StoreSchema): Fragment {
  const names = workflowNames(store)
  return fragment`
      select 'handler ' || h.handler as name, h.backfill_position as position
      from ${names.workflow_routes} as h
      where h.backfill_position is not null
        and h.retired_at is null`
}
