/**
 * The end of attempts, many in one call: each is accepted only if its fence is still the one it was claimed under.
 */
import { fragment } from '../../database/sql.ts'
import { byIndexOnly, inIndexOrder, plpgsql, type SqlFunction } from '../../schema/plpgsql.ts'
import { readSettled } from '../dispatch/dispatch.sql.ts'
import { activityPositions } from '../insight/activity.sql.ts'
import { beginExecutions } from './claim.sql.ts'

/**
 * Which of these attempts still have the fence of their claim. They are locked until the transaction ends.
 * [claim-4]
 */
export const hold: SqlFunction = plpgsql({ revision: 1, settings: byIndexOnly })`
  create function ~workflow_hold(
    p_correlations text[],
    p_lanes text[],
    p_ids uuid[],
    p_fences bigint[],
    out accepted uuid[])
  begin
    perform
      from ~workflows as w
      where w.correlation_id = any(p_correlations)
      order by w.correlation_id
      for update;
    if p_lanes is not null then
      perform
        from ~workflow_lanes as l
        where l.lane = any(p_lanes)
        order by l.lane
        for update;
    end if;
    select array_agg(x.id) into accepted
      from (
        select x.id
        from unnest(p_ids, p_fences) as u(id, fence)
        join ~workflow_executions as x on x.id = u.id
        where x.fence = u.fence
          and x.state = 'running'
        for update of x) as x;
  end`

/**
 * Completes attempts.
 *
 * - p_kinds: done (the row is deleted), retry (delayed), suspend (until woken, or due), release (ready again, perhaps
 *   later), park (until an operator resumes it), crash (its worker is dead: ready again). Suspended, released and parked
 *   attempts do not count.
 * - p_recorded, p_outcomes: the kind and outcome of the line in the activity. p_delays: in milliseconds, null for until woken.
 *   p_results, p_errors: a JSON array each, or null.
 * - p_next: executions held behind one of these in its lane, which start with this call; `begun` has those that did: one
 *   may have been cancelled meanwhile, or its lane parked. [claim-5]
 */
export const complete: SqlFunction = plpgsql({ revision: 4, settings: byIndexOnly })`
  create function ~workflow_complete(
    p_owner text,
    p_correlations text[],
    p_lanes text[],
    p_ids uuid[],
    p_fences bigint[],
    p_kinds text[],
    p_recorded text[],
    p_outcomes text[],
    p_delays integer[],
    p_running_ms integer[],
    p_results jsonb,
    p_errors jsonb,
    p_next uuid[],
    p_grace_ms integer,
    p_clean boolean,
    out accepted uuid[],
    out begun uuid[])
  declare
    moment timestamptz;
    gone uuid[];
    ended integer;
    settled integer;
    failures integer;
    drawn bigint[];
  begin
    accepted := ~workflow_hold(
      p_correlations => p_correlations,
      p_lanes => p_lanes,
      p_ids => p_ids,
      p_fences => p_fences);
    if accepted is null then
      -- What is held behind an execution that is gone must not wait for it.
      if p_lanes is not null then
        perform ~workflow_advance(p_owner => p_owner, p_lanes => p_lanes, p_next => null, p_grace_ms => p_grace_ms);
      end if;
      return;
    end if;

    moment := ~clock(p_owner);
    ${activityPositions.before(fragment`cardinality(accepted)`)}
    insert into ~workflow_activity (
      position, at, event_position, execution, version, attempt, queued_ms, running_ms, kind, outcome, handler,
      correlation_id, worker, result, error)
    select ${activityPositions.each(fragment`row_number() over (order by u.n)`)}, moment, x.position, x.id, r.version, x.attempt,
      ~workflow_queued_ms(
        p_at => x.started_at,
        p_rank => x.rank,
        p_priority => r.priority), u.running_ms, u.recorded, u.outcome, r.handler,
      x.correlation_id, p_owner, nullif(u.result, 'null'), nullif(u.error, 'null')
    from rows from (
      unnest(p_ids, p_recorded, p_outcomes, p_running_ms),
      jsonb_array_elements(p_results),
      jsonb_array_elements(p_errors)) with ordinality as u(id, recorded, outcome, running_ms, result, error, n)
    join ~workflow_executions as x on x.id = u.id
    join ~workflow_routes as r on r.id = x.route
    where u.id = any(accepted)
    order by u.n;

    -- Lanes first: executions that are deleted cannot be counted afterwards.
    if p_lanes is not null then
      update ~workflow_lanes as l
        set open = l.open - c.done,
          active = l.active - case when l.ordered then c.done else c.ended end
        from (
          select x.lane,
            count(*) filter (where u.kind = 'done') as done,
            count(*) filter (where u.kind in ('done', 'retry', 'suspend', 'park') or u.delay_ms > 0) as ended
          from unnest(p_ids, p_kinds, p_delays) as u(id, kind, delay_ms)
          join ~workflow_executions as x on x.id = u.id
          where u.id = any(accepted)
            and x.lane is not null
          group by x.lane) as c
        where l.lane = c.lane;
    end if;

    select array_agg(u.id) into gone
      from unnest(p_ids, p_kinds) as u(id, kind)
      where u.kind = 'done'
        and u.id = any(accepted);
    if gone is not null then
      if p_clean then
        -- The steps of an execution that failed for good stay, for a retry of its dead letter.
        delete from ~workflow_steps as s
          using unnest(p_ids, p_recorded) as u(id, recorded)
          where s.execution = u.id
            and u.id = any(gone)
            and u.recorded <> 'failed';
        delete from ~workflow_waits as w
          where w.execution = any(gone);
      end if;
      with deleted as (
        delete from ~workflow_executions as x
        where x.id = any(gone)
        returning x.correlation_id),
      counted as (
        select d.correlation_id, count(*) as n
        from deleted as d
        group by d.correlation_id),
      moved as (
        update ~workflows as w
        set open = w.open - c.n,
          updated_at = moment
        from counted as c
        where w.correlation_id = c.correlation_id
        returning w.open = 0 as is_settled)
      select (select count(*) from deleted), (select count(*) from moved where is_settled)
        into ended, settled;
      select count(*) into failures
        from unnest(p_ids, p_kinds, p_recorded) as u(id, kind, recorded)
        where u.kind = 'done'
          and u.recorded = 'failed'
          and u.id = any(accepted);
      perform ~workflow_count(
        p_owner => p_owner,
        p_names => array['active', 'completed', 'failed'],
        p_by => array[-settled, ended - failures, failures]);
    end if;
    if cardinality(accepted) > coalesce(cardinality(gone), 0) then
      update ~workflow_executions as x
        set state = case u.kind
            when 'retry' then 'delayed'
            when 'suspend' then 'suspended'
            when 'park' then 'parked'
            else case when u.delay_ms > 0 then 'delayed' else 'ready' end end,
          run_at = case
            when u.kind = 'suspend' then least(
              ~later(p_at => moment, p_ms => u.delay_ms), x.expires_at)
            when u.kind = 'retry' or u.delay_ms > 0
            then ~later(p_at => moment, p_ms => u.delay_ms) end,
          attempt = x.attempt - case when u.kind in ('suspend', 'release', 'park') then 1 else 0 end,
          crashes = x.crashes + case when u.kind = 'crash' then 1 else 0 end,
          -- Above zero, the next run of this attempt looks for the steps it has left.
          ran_ms = case u.kind
            when 'suspend' then x.ran_ms + greatest(1, u.running_ms)
            when 'release' then greatest(1, x.ran_ms)
            when 'park' then greatest(1, x.ran_ms)
            else 0 end,
          worker = null,
          started_at = null,
          deadline_at = null
        from unnest(p_ids, p_kinds, p_delays, p_running_ms) as u(id, kind, delay_ms, running_ms)
        where x.id = u.id
          and u.kind <> 'done'
          and x.id = any(accepted);
    end if;

    if p_lanes is not null then
      begun := ~workflow_advance(p_owner => p_owner, p_lanes => p_lanes, p_next => p_next, p_grace_ms => p_grace_ms);
    end if;
  end`

/**
 * Of the workflows p_watched those that are settled, after `complete` in the same statement. An event that is dispatched
 * meanwhile is in the log beyond the checkpoint that is read here, or has raised `open`.
 */
export const settledBy: SqlFunction = plpgsql({ revision: 1, settings: byIndexOnly })`
  create function ~workflow_settled(p_watched text[], out settled jsonb)
  declare
    reached bigint;
  begin
    if p_watched is null then
      return;
    end if;
    select c.checkpoint into reached
      from ~consumers as c
      where c.name = 'workflows';
    ${readSettled(fragment`coalesce(reached, 0)`)}
  end`

/**
 * Lets the next executions of these lanes begin, whose rows the caller holds. In a parked lane: retried dead letters.
 * Begun: those of p_next that could be, and no others. [claim-6]
 */
export const advance: SqlFunction = plpgsql({ revision: 6, settings: inIndexOrder })`
  create function ~workflow_advance(
    p_owner text,
    p_lanes text[],
    p_next uuid[],
    p_grace_ms integer,
    out begun uuid[])
  declare
    moment constant timestamptz := ~clock(p_owner);
    taken text[];
    drawn bigint[];
  begin
    if p_next is not null then
      ${activityPositions.before(fragment`cardinality(p_next)`)}
      ${beginExecutions({
        set: fragment`worker = p_owner`,
        where: fragment`
          x.id = any(p_next)
            and x.state = 'held'
            and x.worker = p_owner
            and r.paused_at is null
            and exists (
              select
              from ~workflow_lanes as l
              where l.lane = x.lane
                and l.active < l.width
                and not l.parked)`,
      })}
      select array_agg(b.id), array_agg(b.lane) into begun, taken from begun as b;
      update ~workflow_lanes as l
        set active = l.active + 1
        where l.lane = any(taken);
    end if;
    -- What is held behind an execution that no longer runs, or is not to be started here, queues again.
    update ~workflow_executions as x
      set state = 'blocked',
        worker = null
      where x.lane = any(p_lanes)
        and x.state = 'held'
        and not exists (
          select
          from ~workflow_executions as h
          where h.lane = x.lane
            and h.state = 'running'
            and h.fence = x.fence
          -- Not joined, which could read what runs in all lanes.
          offset 0);
    -- By lane and id alone: with a plain comparison of the state, a plan made before there was a backlog would read all
    -- that is blocked.
    with free as (
      select l.lane, l.parked, l.width - l.active as places
      from ~workflow_lanes as l
      where l.lane = any(p_lanes)
        and l.width > l.active),
    next as (
      select n.id, r.priority, n.due_at, coalesce(n.due_at > moment, false) as is_early
      from free
      cross join lateral (
        select x.id, x.route, x.queued_at, x.is_retry
        from ~workflow_executions as x
        where x.lane = free.lane
          and x.state || '' = 'blocked'
          and (x.is_retry or not free.parked)
        order by x.position
        limit free.places) as b
      join ~workflow_routes as r on r.id = b.route
      cross join lateral (
        select b.id,
          case when not b.is_retry then ~later(p_at => b.queued_at, p_ms => r.delay_ms) end as due_at) as n),
    promoted as (
      -- One whose time has not come keeps its place in the lane until then.
      update ~workflow_executions as x
      set state = case when next.is_early then 'delayed' else 'ready' end,
        run_at = case when next.is_early then next.due_at end,
        rank = ~workflow_rank(p_at => moment, p_priority => next.priority)
      from next
      where x.id = next.id
        and x.state || '' = 'blocked'
      returning x.lane)
    update ~workflow_lanes as l
      set active = l.active + c.n
      from (
        select p.lane, count(*) as n
        from promoted as p
        group by p.lane) as c
      where l.lane = c.lane;
    delete from ~workflow_lanes as l
      where l.lane = any(p_lanes)
        and l.open = 0
        and not l.parked;
  end`
