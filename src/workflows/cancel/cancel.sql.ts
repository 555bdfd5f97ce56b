/**
 * Cancelling a workflow: its open executions and joins are removed, in one call, under the lock of its row. Executions
 * that wait are deleted; those that run are deleted too, so that their outcome is refused, or, if the workflow is to be
 * compensated, stay as `stopping` under a new fence until their attempt is known to be over.
 */

import { reopenRemoved, withdrawRequests } from '../../consumers/consumers.sql.ts'
import { fragment } from '../../database/sql.ts'
import { byIndexOnly, plpgsql, type SqlFunction } from '../../schema/plpgsql.ts'
import { activityPositions } from '../insight/activity.sql.ts'

/**
 * p_state: cancelled or compensating. p_except: an execution whose end is stored by the same transaction. False if there
 * was nothing to cancel: it is over, with nothing open, nothing failed, and, to be compensated, nothing to undo.
 */
export const cancel: SqlFunction = plpgsql({ revision: 2, settings: byIndexOnly })`
  create function ~workflow_cancel(
    p_owner text,
    p_correlation text,
    p_dispatcher text,
    p_state text,
    p_reason text,
    p_except uuid,
    out cancelled boolean)
  declare
    workflow ~workflows;
    newest bigint;
    dispatched bigint;
    lanes text[];
    removed uuid[];
    joins integer;
    new_fence bigint;
  begin
    cancelled := false;
    select * into workflow
      from ~workflows as w
      where w.correlation_id = p_correlation
      for update;
    -- Read after the row is held: what the dispatcher has done for this workflow until now, it has committed.
    select c.checkpoint into dispatched
      from ~consumers as c
      where c.name = p_dispatcher;
    select e.position into newest
      from ~events as e
      where e.correlation_id = p_correlation
      order by e.position desc
      limit 1;
    if workflow.correlation_id is null then
      if coalesce(newest, 0) <= coalesce(dispatched, 0) then
        return;
      end if;
      perform ~workflow_make(p_owner => p_owner, p_correlation => p_correlation);
      select * into workflow
        from ~workflows as w
        where w.correlation_id = p_correlation
        for update;
      select c.checkpoint into dispatched
        from ~consumers as c
        where c.name = p_dispatcher;
    end if;
    if workflow.state <> 'active' then
      return;
    end if;
    if workflow.open = 0
      and coalesce(newest, 0) <= coalesce(dispatched, 0)
      and not exists (
        select
        from ~dead_letters as d
        where d.correlation_id = p_correlation
          and d.state in ('open', 'retrying'))
      and (p_state = 'cancelled' or not exists (
        select
        from ~workflow_undos as u
        where u.correlation_id = p_correlation)) then
      return;
    end if;

    cancelled := true;
    lanes := ~workflow_hold_lanes(p_correlation => p_correlation);
    perform
      from ~workflow_executions as x
      where x.correlation_id = p_correlation
      order by x.id
      for update;
    update ~workflows as w
      set state = p_state,
        reason = p_reason,
        is_spreading = exists (
          select
          from ~workflows as c
          where c.parent = p_correlation)
      where w.correlation_id = p_correlation;
    with closed as (
      update ~workflow_joins as j
      set state = 'cancelled',
        closed_at = ~clock(j.closed_at)
      where j.correlation_id = p_correlation
        and j.state = 'open'
      returning j.id)
    select count(*) into joins from closed;
    -- Cancelling it also decides about what its lanes were parked for.
    if p_except is null then
      update ~workflow_lanes as l
        set parked = false,
          parked_by = null
        where l.lane = any(lanes)
          and l.parked
          and exists (
            select
            from ~dead_letters as d
            where d.execution = l.parked_by
              and d.correlation_id = p_correlation);
    end if;
    -- A retry that was requested no longer happens.
    ${withdrawRequests}
    if p_state = 'compensating' then
      new_fence := (~consumers_draw(p_count => 1))[1];
      update ~workflow_executions as x
        set state = 'stopping',
          fence = new_fence
        where x.correlation_id = p_correlation
          and x.state = 'running'
          and x.id is distinct from p_except;
    end if;
    select array_agg(x.id) into removed
      from ~workflow_executions as x
      where x.correlation_id = p_correlation
        and x.state <> 'stopping'
        and x.id is distinct from p_except;
    perform ~workflow_remove(
      p_owner => p_owner,
      p_correlation => p_correlation,
      p_ids => removed,
      p_lanes => lanes,
      p_joins => joins);
  end`

/** Attempts that were stopped and are known to be over, or are waited for no longer. */
export const stopped: SqlFunction = plpgsql({ revision: 1, settings: byIndexOnly })`
  create function ~workflow_stopped(
    p_owner text,
    p_correlation text,
    p_ids uuid[],
    out removed integer)
  declare
    lanes text[];
    gone uuid[];
  begin
    perform
      from ~workflows as w
      where w.correlation_id = p_correlation
      for update;
    lanes := ~workflow_hold_lanes(p_correlation => p_correlation);
    select array_agg(s.id) into gone
      from (
        select x.id
        from ~workflow_executions as x
        where x.id = any(p_ids)
          and x.correlation_id = p_correlation
          and x.state = 'stopping'
        for update) as s;
    removed := coalesce(cardinality(gone), 0);
    if removed > 0 then
      perform ~workflow_remove(
        p_owner => p_owner,
        p_correlation => p_correlation,
        p_ids => gone,
        p_lanes => lanes,
        p_joins => 0);
    end if;
  end`

/** Makes the row of a workflow that is cancelled before it was dispatched. */
export const make: SqlFunction = plpgsql({ revision: 1 })`
  create function ~workflow_make(p_owner text, p_correlation text) returns void
  declare
    moment constant timestamptz := ~clock(p_owner);
    made bigint;
  begin
    insert into ~workflows as w (
      correlation_id, first_position, last_position, last_type, parent, started_at, updated_at)
      -- Nothing of it is dispatched yet.
      select p_correlation, first.position, first.position - 1, last.type, first.headers->'workflow'->>'parent', moment,
        moment
      from (
        select e.position, e.headers
        from ~events as e
        where e.correlation_id = p_correlation
        order by e.position
        limit 1) as first,
      (
        select e.type
        from ~events as e
        where e.correlation_id = p_correlation
        order by e.position desc
        limit 1) as last
      on conflict (correlation_id) do nothing;
    get diagnostics made = row_count;
    perform ~workflow_count(p_owner => p_owner, p_names => array['workflows'], p_by => array[made]);
  end`

/** Locks all lanes that executions of a workflow are in, or that were parked for one. The caller holds the workflow. */
export const holdLanes: SqlFunction = plpgsql({ revision: 1, settings: byIndexOnly })`
  create function ~workflow_hold_lanes(p_correlation text, out lanes text[])
  begin
    select array_agg(u.lane) into lanes
      from (
        select x.lane
        from ~workflow_executions as x
        where x.correlation_id = p_correlation
          and x.lane is not null
        union
        select l.lane
        from ~dead_letters as d
        join ~workflow_lanes as l on l.parked and l.parked_by = d.execution
        where d.correlation_id = p_correlation
          and d.state in ('open', 'retrying')) as u;
    perform
      from ~workflow_lanes as l
      where l.lane = any(lanes)
      order by l.lane
      for update;
  end`

/**
 * Removes these executions of one workflow, whatever their state, and lets their lanes continue. The caller holds the
 * workflow, the lanes and the executions. p_joins: how many joins of the workflow were closed with it.
 */
export const remove: SqlFunction = plpgsql({ revision: 4, settings: byIndexOnly })`
  create function ~workflow_remove(
    p_owner text,
    p_correlation text,
    p_ids uuid[],
    p_lanes text[],
    p_joins integer)
  returns void
  declare
    moment constant timestamptz := ~clock(p_owner);
    removed integer := 0;
    settled integer := 0;
    drawn bigint[];
  begin
    if p_ids is not null then
      ${activityPositions.before(fragment`cardinality(p_ids)`)}
      insert into ~workflow_activity (
        position, at, event_position, execution, version, attempt, running_ms, kind, outcome, handler, correlation_id,
        worker)
      select ${activityPositions.each(fragment`row_number() over (order by x.position, x.id)`)}, moment, x.position, x.id, r.version, x.attempt,
        least(2147483647, extract(epoch from moment - x.started_at) * 1000)::integer,
        'cancelled', x.state, r.handler, x.correlation_id, x.worker
      from ~workflow_executions as x
      join ~workflow_routes as r on r.id = x.route
      where x.id = any(p_ids)
      order by x.position, x.id;
      -- In an ordered lane all but those that queue have their place, in others only those at work or about to be.
      update ~workflow_lanes as l
        set open = l.open - c.n,
          active = l.active - case when l.ordered then c.placed else c.busy end
        from (
          select x.lane, count(*) as n,
            count(*) filter (where x.state not in ('blocked', 'held')) as placed,
            count(*) filter (where x.state in ('ready', 'running', 'stopping')) as busy
          from ~workflow_executions as x
          where x.id = any(p_ids)
            and x.lane is not null
          group by x.lane) as c
        where l.lane = c.lane;
      delete from ~workflow_steps as s
        where s.execution = any(p_ids);
      delete from ~workflow_waits as w
        where w.execution = any(p_ids);
      ${reopenRemoved}
      delete from ~workflow_executions as x
        where x.id = any(p_ids);
      get diagnostics removed = row_count;
    end if;
    update ~workflows as w
      set open = w.open - removed - p_joins,
        updated_at = moment
      where w.correlation_id = p_correlation
      returning case when w.open = 0 and removed + p_joins > 0 then 1 else 0 end into settled;
    perform ~workflow_count(
      p_owner => p_owner,
      p_names => array['active', 'cancelled'],
      p_by => array[-settled, removed]::bigint[]);
    if p_lanes is null then
      return;
    end if;
    perform ~workflow_advance(p_owner => p_owner, p_lanes => p_lanes, p_next => null, p_grace_ms => 0);
  end`
