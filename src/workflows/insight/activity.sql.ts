/**
 * The activity of workflows: an append-only table in an order of its own, which readers follow as they follow the log;
 * and counters.
 */
import { fragment } from '../../database/sql.ts'
import { type DrawnRows, drawing, drawingRows, orderedLog } from '../../events/order/order.sql.ts'
import { expression, plpgsql, type SqlFunction } from '../../schema/plpgsql.ts'

/**
 * Adds to counters. Each owner has a row of its own, so that owners do not wait for each other; a total is the sum of all.
 * (A row for each counter took four times as long: as many updates, and as many entries of the index.)
 */
export const count: SqlFunction = plpgsql({ revision: 2 })`
  create function ~workflow_count(p_owner text, p_names text[], p_by bigint[]) returns void
  begin
    insert into ~workflow_counters as c (
        owner, active, cancelled, completed, dispatched, events, failed, workflows)
      select p_owner,
        coalesce(sum(u.by) filter (where u.name = 'active'), 0),
        coalesce(sum(u.by) filter (where u.name = 'cancelled'), 0),
        coalesce(sum(u.by) filter (where u.name = 'completed'), 0),
        coalesce(sum(u.by) filter (where u.name = 'dispatched'), 0),
        coalesce(sum(u.by) filter (where u.name = 'events'), 0),
        coalesce(sum(u.by) filter (where u.name = 'failed'), 0),
        coalesce(sum(u.by) filter (where u.name = 'workflows'), 0)
      from unnest(p_names, p_by) as u(name, by)
      having bool_or(u.by <> 0)
      on conflict (owner) do update
      set active = c.active + excluded.active,
        cancelled = c.cancelled + excluded.cancelled,
        completed = c.completed + excluded.completed,
        dispatched = c.dispatched + excluded.dispatched,
        events = c.events + excluded.events,
        failed = c.failed + excluded.failed,
        workflows = c.workflows + excluded.workflows;
  end`

/** How long an execution of this rank had been ready when it began. */
export const queuedMs: SqlFunction = expression({ revision: 1, volatility: 'immutable' })`
  create function ~workflow_queued_ms(p_at timestamptz, p_rank bigint, p_priority integer)
  returns integer
  select least(2147483647, greatest(0,
    (extract(epoch from p_at at time zone 'UTC') * 1000)::bigint - p_rank + p_priority * 10000))::integer`

const names = {
  announce: fragment`~workflow_announce`,
  draw: fragment`~workflow_draw`,
  settle: fragment`~workflow_settle`,
  source: fragment`~workflow_activity_position`,
}
const ofActivity = orderedLog(names)
export const announceActivity: SqlFunction = ofActivity.announce
export const drawActivity: SqlFunction = ofActivity.draw
export const settleActivity: SqlFunction = ofActivity.settle
export const activityPositions: DrawnRows = drawingRows(names)

export const drawRoute: SqlFunction = drawing({
  draw: fragment`~workflow_draw_route`,
  source: fragment`~workflow_routes_id`,
})
export const drawUndo: SqlFunction = drawing({
  draw: fragment`~workflow_draw_undo`,
  source: fragment`~workflow_undos_id`,
})
