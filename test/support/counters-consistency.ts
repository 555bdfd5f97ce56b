/**
 * Compares the counters that are stored next to the executions with a count of the executions. Returns the rows that
 * differ.
 */
import type { Shop } from './shop.ts'

export async function inconsistentCounters({ query }: Pick<Shop, 'query'>): Promise<object[]> {
  const workflows = await query(`
    select w.correlation_id, w.open, x.n + j.n as counted
    from ~workflows as w
    cross join lateral (select count(*) as n from ~workflow_executions where correlation_id = w.correlation_id) as x
    cross join lateral (
      select count(*) as n
      from ~workflow_joins
      where correlation_id = w.correlation_id and state = 'open') as j
    where w.open <> x.n + j.n`)
  // In an ordered lane all but queued executions occupy a place, in others only those that run or are about to.
  const lanes = await query(`
    select l.lane, l.open, l.active, x.open as counted_open, x.active as counted_active
    from ~workflow_lanes as l
    cross join lateral (
      select count(*) as open,
        count(*) filter (where case when l.ordered
          then state not in ('blocked', 'held')
          else state in ('ready', 'running', 'stopping') end) as active
      from ~workflow_executions
      where lane = l.lane) as x
    where l.open <> x.open or l.active <> x.active or (l.open = 0 and not l.parked)`)
  const orphans = await query(`
    select execution
    from (select execution from ~workflow_steps union select execution from ~workflow_waits) as o
    where not exists (select from ~workflow_executions where id = o.execution)
      and not exists (select from ~dead_letters as d where d.execution = o.execution and d.state = 'open')`)
  const counters = await query(`
    select c.*
    from (
      select
        coalesce(sum(active), 0) as active,
        coalesce(sum(dispatched - completed - failed - cancelled), 0) as open
      from ~workflow_counters) as c
    where c.active <> (select count(*) from ~workflows where open > 0)
      or c.open <> (select count(*) from ~workflow_executions)`)
  return [...workflows, ...lanes, ...orphans, ...counters]
}
