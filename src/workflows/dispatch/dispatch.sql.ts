/**
 * Dispatching: from the events of a page to workflows and executions.
 *
 * `workflow_dispatch_page` dispatches in one call the events that need nothing but a queue: no inline handlers, lanes,
 * batches, parents or waits. Workflows are locked and made, executions queued, the checkpoint moved; executions for
 * which a worker in the dispatcher's process has room begin here, under its fence, and need no claim. Executions that
 * this worker has run before the call, and that have ended, leave no row: only their history. For all other events the
 * outcome is 'involved', nothing is changed, and the caller dispatches step by step, beginning with `workflow_admit`.
 */

import { noOpenDeadLetter, saveDispatched } from '../../consumers/consumers.sql.ts'
import { type Fragment, fragment } from '../../database/sql.ts'
import { ofOneRow, withOneRow } from '../../events/append/fragments.sql.ts'
import { byIndexOnly, plpgsql, type SqlFunction } from '../../schema/plpgsql.ts'
import { activityPositions } from '../insight/activity.sql.ts'

/**
 * Which of the workflows p_watched are settled, into the variable `settled`, for a function that has changed them: nothing
 * open, nothing of them in the log after the dispatcher's checkpoint, and no dead letter that is to be looked at.
 */
export function readSettled(checkpoint: Fragment): Fragment {
  return fragment`
  select jsonb_agg(jsonb_build_array(
      w.correlation_id, w.last_type, w.started_at, w.updated_at, w.parent, w.reason, w.attributes))
    into settled
    from ~workflows as w
    where w.correlation_id = any(p_watched)
      and w.open = 0
      and w.state = 'active'
      and not exists (
        select
        from ~events as e
        where e.correlation_id = w.correlation_id
          and e.position > ${checkpoint}
        limit 1)
      and ${noOpenDeadLetter};`
}

/**
 * Locks the workflows of events that are dispatched, sorted, and makes those that a handler wants. Locks their parents,
 * too: either the cancellation of a parent finds its new child, or the child finds it cancelled.
 */
export const admit: SqlFunction = plpgsql({ revision: 3, settings: byIndexOnly })`
  create function ~workflow_admit(
    p_owner text,
    p_ids text[],
    p_wanted boolean[],
    p_counts integer[],
    p_firsts bigint[],
    p_lasts bigint[],
    p_types text[],
    p_parents text[])
  returns table (correlation_id text, state text, is_new boolean)
  declare
    moment timestamptz;
    known text[];
    grown text[];
    made integer := 0;
    counted integer;
  begin
    select array_agg(l.id) into known
      from (
        select w.correlation_id as id
        from ~workflows as w
        where w.correlation_id = any(p_ids || p_parents)
        order by w.correlation_id
        for update) as l
      where l.id = any(p_ids);
    moment := ~clock(p_owner);
    if known is not null then
      with touched as (
        update ~workflows as w
        set last_position = u.last_position,
          last_type = u.type,
          updated_at = moment
        from unnest(p_ids, p_lasts, p_types) as u(id, last_position, type)
        where w.correlation_id = u.id
          and u.id = any(known)
          and w.last_position < u.last_position
        returning u.id)
      select array_agg(t.id) into grown from touched as t;
    end if;
    if cardinality(p_ids) > coalesce(cardinality(known), 0) then
      insert into ~workflows (
          correlation_id, first_position, last_position, last_type, parent, started_at, updated_at, state, reason)
        select u.id, u.first_position, u.last_position, u.type, u.parent, moment, moment,
          case when p.state <> 'active' then 'cancelled' else 'active' end, p.reason
        from ${withOneRow(fragment`
          unnest(p_ids, p_wanted, p_firsts, p_lasts, p_types, p_parents)
            as u(id, is_wanted, first_position, last_position, type, parent)`)}
        left join ~workflows as p on p.correlation_id = u.parent
        where ${ofOneRow(fragment`u.is_wanted`)}
          and u.id <> all(coalesce(known, '{}'))
        -- One that was cancelled before it was dispatched has a row by now.
        on conflict do nothing;
      get diagnostics made = row_count;
    end if;
    -- What is dispatched once more, to a handler that came later, has been counted.
    select sum(u.n) into counted
      from unnest(p_ids, p_wanted, p_counts) as u(id, is_wanted, n)
      where u.id = any(grown)
        or (u.is_wanted and u.id <> all(coalesce(known, '{}')));
    if counted > 0 then
      perform ~workflow_count(
        p_owner => p_owner,
        p_names => array['events', 'workflows'],
        p_by => array[counted, made]);
    end if;
    return query
      select w.correlation_id, w.state, w.correlation_id <> all(coalesce(known, '{}'))
      from ~workflows as w
      where w.correlation_id = any(p_ids);
  end`

/**
 * - p_reached: the checkpoint that the caller knows to be stored. Another one means that a crash of the server, or a
 *   fail-over, has undone some of it. So does another event, or none, where the last of these was.
 * - p_first, p_checkpoint: the first of the events, and where the consumer is when they are done.
 * - is_idle: whether some of the workflows have nothing to do, so that they may be settled with it.
 * - p_worker: a worker that has room for p_limit more, of p_worker_routes, or null. They begin only if no execution is
 *   ready already.
 * - p_states: null, or for each execution null, or what the worker has done already: it runs (begun), or has ended
 *   (completed, skipped). One that runs is stored as begun, whatever else is ready. p_running_ms: how long it took.
 *   p_began_at: when these began.
 * - p_watched: workflows that callers wait for; `settled` has those that are settled with this call.
 *
 * Flushed to the disk only with executions that have ended: for others nothing is lost without it, for the reasons that
 * the dispatcher and the claim have. [early-3]
 */
export const dispatchPage: SqlFunction = plpgsql({ revision: 5, settings: [...byIndexOnly, "lock_timeout = '10s'"] })`
  create function ~workflow_dispatch_page(
    p_consumer text,
    p_fence bigint,
    p_version integer,
    p_reached bigint,
    p_first bigint,
    p_checkpoint bigint,
    p_workflows text[],
    p_wanted boolean[],
    p_counts integer[],
    p_firsts bigint[],
    p_lasts bigint[],
    p_types text[],
    p_ids uuid[],
    p_positions bigint[],
    p_routes integer[],
    p_correlations text[],
    p_worker text,
    p_worker_fence bigint,
    p_worker_routes integer[],
    p_limit integer,
    p_grace_ms integer,
    p_states text[],
    p_running_ms integer[],
    p_began_at timestamptz,
    p_watched text[],
    out outcome text,
    out is_paused boolean,
    out is_idle boolean,
    out ready integer,
    out begun uuid[],
    out begun_at timestamptz,
    out settled jsonb)
  declare
    dispatcher ~consumers;
    known text[];
    states text[];
    lives boolean := false;
    takes boolean := false;
    queued integer;
    ended integer;
    made integer;
    counted integer;
    woken integer;
    -- The executions of which the worker has said something, and the most that start with this call.
    done integer;
    most_started integer;
    drawn bigint[];
  begin
    select * into dispatcher
      from ~consumers as c
      where c.name = p_consumer
      for update;
    outcome := case
      when dispatcher.fence is distinct from p_fence then 'lost'
      when dispatcher.checkpoint <> p_reached or dispatcher.checkpoint >= p_first then 'moved'
      -- A server that took over without the last events gives their positions to others.
      when not exists (
        select
        from ~events as e
        where (e.position, e.correlation_id) = (
            select u.position, u.id
            from unnest(p_lasts, p_workflows) as u(position, id)
            order by u.position desc
            limit 1)) then 'moved'
      when coalesce((dispatcher.definition->>'routes')::integer, 0) <> p_version then 'outdated' end;
    if outcome is not null then
      return;
    end if;
    select array_agg(l.id), array_agg(distinct l.state)
      into known, states
      from (
        select w.correlation_id as id, w.state
        from ~workflows as w
        where w.correlation_id = any(p_workflows)
        order by w.correlation_id
        for update) as l;
    if states <> array['active'] or exists (
        select
        from ~workflow_waits as w
        where w.correlation_id = any(known)
          and w.type is not null) then
      outcome := 'involved';
      return;
    end if;

    begun_at := ~clock(p_consumer);
    if p_worker is not null then
      -- A worker that takes over from it holds its row, and waits for the workflows held here: it is not waited for.
      perform
        from ~runners as r
        where r.id = p_worker
          and r.routes <> '{}'
        for key share skip locked;
      lives := found;
      takes := lives and p_limit > 0 and not exists (
        select
        from ~workflow_executions as x
        where x.route = any(p_worker_routes)
          and x.state = 'ready');
    end if;
    if p_states is null or not (p_states && array['completed', 'skipped']) then
      perform set_config('synchronous_commit', 'off', true);
    end if;
    done := coalesce(cardinality(array_remove(p_states, null)), 0);
    most_started := done + case when takes then p_limit else 0 end;
    ${activityPositions.before(fragment`cardinality(p_ids) + most_started + done`)}
    with given as materialized (
      select g.*,
        g.fits and (g.state is not null
          or row_number() over (partition by g.fits and g.state is null order by g.priority, g.position, g.id) <= p_limit)
          as begins
      from (
        select u.id, u.position, u.correlation_id, u.state, u.running_ms, r.id as route, r.handler, r.version,
          r.priority, r.delay_ms, r.timeout_ms, r.deadline_ms,
          coalesce(u.state in ('completed', 'skipped'), false) as has_ended,
          case
            when u.state is not null then u.state = 'begun' and lives
            else takes
              and r.id = any(p_worker_routes)
              and r.paused_at is null
              and r.concurrency is null
              and r.rate_limit is null
              and r.delay_ms = 0
          end as fits
        from unnest(p_ids, p_positions, p_routes, p_correlations, p_states, p_running_ms)
          as u(id, position, route, correlation_id, state, running_ms)
        join ~workflow_routes as r on r.id = u.route
        where not exists (
          select
          from ~workflow_executions as x
          where x.id = u.id)) as g),
    opened as (
      select g.correlation_id, count(*) as n
      from given as g
      where not g.has_ended
      group by g.correlation_id),
    touched as (
      select u.id, u.is_wanted, u.events, u.first_position, u.last_position, u.type, coalesce(o.n, 0) as n
      from unnest(p_workflows, p_wanted, p_counts, p_firsts, p_lasts, p_types)
        as u(id, is_wanted, events, first_position, last_position, type)
      left join opened as o on o.correlation_id = u.id),
    grown as (
      update ~workflows as w
      set last_position = greatest(w.last_position, f.last_position),
        last_type = case when w.last_position < f.last_position then f.type else w.last_type end,
        open = w.open + f.n,
        updated_at = begun_at
      from touched as f
      where w.correlation_id = f.id
        and f.id = any(known)
      returning f.events, w.open, f.n > 0 and w.open = f.n as is_woken),
    added as (
      insert into ~workflows (
        correlation_id, first_position, last_position, last_type, open, started_at, updated_at)
      select f.id, f.first_position, f.last_position, f.type, f.n, begun_at, begun_at
      from touched as f
      where f.is_wanted
        and f.id <> all(coalesce(known, '{}'))
      returning open),
    executions as (
      insert into ~workflow_executions (
        id, position, route, correlation_id, rank, queued_at, run_at, expires_at, state, fence, worker, attempt,
        started_at, deadline_at)
      select g.id, g.position, g.route, g.correlation_id,
        (extract(epoch from begun_at) * 1000)::bigint + g.priority * 10000,
        case when g.state is null then begun_at else p_began_at end,
        case when g.delay_ms > 0 then ~later(p_at => begun_at, p_ms => g.delay_ms) end,
        case when g.deadline_ms is not null then ~later(p_at => begun_at, p_ms => g.deadline_ms) end,
        case when g.begins then 'running' when g.delay_ms > 0 then 'delayed' else 'ready' end,
        case when g.begins then p_worker_fence else 0 end,
        case when g.begins then p_worker end,
        case when g.begins then 1 else 0 end,
        case when g.begins then begun_at end,
        case when g.begins then ~later(p_at => begun_at, p_ms => g.timeout_ms::bigint + p_grace_ms) end
      from given as g
      where not g.has_ended
      order by g.position),
    recorded as (
      insert into ~workflow_activity (
        position, at, event_position, execution, version, attempt, queued_ms, running_ms, kind, handler,
        correlation_id, worker)
      select ${activityPositions.each(fragment`row_number() over ()`)}, begun_at, t.*
      from (
        select g.position, g.id, g.version, 0, null::integer, null::integer, 'dispatched', g.handler, g.correlation_id,
          null::text
        from given as g
        order by g.position, g.route) as t
      union all
      select ${activityPositions.each(fragment`cardinality(p_ids) + row_number() over ()`)}, begun_at, t.*
      from (
        select g.position, g.id, g.version, 1, 0, null::integer, 'started', g.handler, g.correlation_id, p_worker
        from given as g
        where g.begins
          or g.has_ended
        order by g.priority, g.position, g.id) as t
      union all
      select ${activityPositions.each(fragment`cardinality(p_ids) + most_started + row_number() over ()`)}, begun_at, t.*
      from (
        select g.position, g.id, g.version, 1, 0, g.running_ms, g.state, g.handler, g.correlation_id, p_worker
        from given as g
        where g.has_ended
        order by g.position, g.route) as t)
    select
        (select count(*) from given),
        (select count(*) from given as g where not g.has_ended and not g.begins),
        (select count(*) from given as g where g.has_ended),
        (select array_agg(g.id order by g.priority, g.position, g.id) from given as g where g.begins),
        (select count(*) from added),
        coalesce((select sum(g.events) from grown as g), 0)
          + coalesce((
            select sum(f.events)
            from touched as f
            where f.is_wanted
              and f.id <> all(coalesce(known, '{}'))), 0),
        (select count(*) from grown as g where g.is_woken) + (select count(*) from added as a where a.open > 0),
        exists (select from grown as g where g.open = 0) or exists (select from added as a where a.open = 0)
      into queued, ready, ended, begun, made, counted, woken, is_idle;
    perform ~workflow_count(
      p_owner => 'dispatcher',
      p_names => array['active', 'completed', 'dispatched', 'events', 'workflows'],
      p_by => array[woken, ended, queued, counted, made]);
    ${saveDispatched}
    if p_watched is not null and is_idle then
      ${readSettled(fragment`p_checkpoint`)}
    end if;
    is_paused := dispatcher.paused_at is not null;
    outcome := 'done';
  end`
