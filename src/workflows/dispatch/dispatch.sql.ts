/**
 * Dispatching: from the events of a page to workflows and executions.
 *
 * `workflow_dispatch` dispatches in one call the events that need nothing but a queue: no inline handlers, lanes,
 * batches, parents or waits. Workflows are locked and made, executions queued, the checkpoint moved; executions for
 * which a worker in the dispatcher's process has room begin here, under its fence, and need no claim. For all other
 * events the outcome is 'involved', nothing is changed, and the caller dispatches step by step, beginning with
 * `workflow_admit`.
 */
import { saveDispatched } from '../../consumers/consumers.sql.ts'
import { byIndexOnly, plpgsql, type SqlFunction } from '../../schema/plpgsql.ts'

/**
 * Locks the workflows of events that are dispatched, sorted, and makes those that a handler wants. Locks their parents,
 * too: either the cancellation of a parent finds its new child, or the child finds it cancelled.
 */
export const admit: SqlFunction = plpgsql({ revision: 1, settings: byIndexOnly })`
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
        from unnest(p_ids, p_wanted, p_firsts, p_lasts, p_types, p_parents)
          as u(id, is_wanted, first_position, last_position, type, parent)
        left join ~workflows as p on p.correlation_id = u.parent
        where u.is_wanted
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
 *   fail-over, has undone some of it.
 * - p_first, p_checkpoint: the first of the events, and where the consumer is when they are done.
 * - is_idle: whether some of the workflows have nothing to do, so that they may be settled with it.
 * - p_worker: a worker that has room for p_limit more, of p_worker_routes, or null. They begin only if no execution is
 *   ready already.
 *
 * Not flushed to the disk, for the reasons that the dispatcher and the claim have.
 */
export const dispatch: SqlFunction = plpgsql({ revision: 3, settings: [...byIndexOnly, "lock_timeout = '10s'"] })`
  create function ~workflow_dispatch(
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
    out outcome text,
    out is_paused boolean,
    out is_idle boolean,
    out queued integer,
    out begun uuid[],
    out begun_at timestamptz)
  declare
    dispatcher ~consumers;
    known text[];
    states text[];
    takes boolean := false;
    made integer;
    counted integer;
    woken integer;
  begin
    select * into dispatcher
      from ~consumers as c
      where c.name = p_consumer
      for update;
    outcome := case
      when dispatcher.fence is distinct from p_fence then 'lost'
      when dispatcher.checkpoint <> p_reached or dispatcher.checkpoint >= p_first then 'moved'
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
    if p_limit > 0 then
      -- A worker that takes over from it holds its row, and waits for the workflows held here: it is not waited for.
      perform
        from ~runners as r
        where r.id = p_worker
          and r.routes <> '{}'
        for key share skip locked;
      takes := found and not exists (
        select
        from ~workflow_executions as x
        where x.route = any(p_worker_routes)
          and x.state = 'ready');
    end if;
    perform set_config('synchronous_commit', 'off', true);
    perform ~workflow_announce();
    with given as materialized (
      select g.*,
        g.fits and row_number() over (partition by g.fits order by g.priority, g.position, g.id) <= p_limit as begins
      from (
        select u.id, u.position, u.correlation_id, r.id as route, r.handler, r.version, r.priority, r.delay_ms,
          r.timeout_ms, r.deadline_ms,
          takes
            and r.id = any(p_worker_routes)
            and r.paused_at is null
            and r.concurrency is null
            and r.rate_limit is null
            and r.delay_ms = 0 as fits
        from unnest(p_ids, p_positions, p_routes, p_correlations) as u(id, position, route, correlation_id)
        join ~workflow_routes as r on r.id = u.route
        where not exists (
          select
          from ~workflow_executions as x
          where x.id = u.id)) as g),
    opened as (
      select g.correlation_id, count(*) as n
      from given as g
      group by g.correlation_id),
    touched as materialized (
      select u.*, coalesce(o.n, 0) as n
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
        begun_at,
        case when g.delay_ms > 0 then begun_at + make_interval(secs => g.delay_ms / 1000.0) end,
        begun_at + make_interval(secs => g.deadline_ms / 1000.0),
        case when g.begins then 'running' when g.delay_ms > 0 then 'delayed' else 'ready' end,
        case when g.begins then p_worker_fence else 0 end,
        case when g.begins then p_worker end,
        case when g.begins then 1 else 0 end,
        case when g.begins then begun_at end,
        case when g.begins then begun_at + make_interval(secs => (g.timeout_ms::bigint + p_grace_ms) / 1000.0) end
      from given as g
      order by g.position),
    recorded as (
      insert into ~workflow_activity (
        position, at, event_position, execution, version, attempt, queued_ms, kind, handler, correlation_id, worker)
      select nextval('~workflow_activity_position'), begun_at, t.*
      from (
        select g.position, g.id, g.version, 0, null::integer, 'dispatched', g.handler, g.correlation_id, null::text
        from given as g
        order by g.position, g.route) as t
      union all
      select nextval('~workflow_activity_position'), begun_at, t.*
      from (
        select g.position, g.id, g.version, 1, 0, 'started', g.handler, g.correlation_id, p_worker
        from given as g
        where g.begins
        order by g.priority, g.position, g.id) as t)
    select
        (select count(*) from given),
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
      into queued, begun, made, counted, woken, is_idle;
    perform ~workflow_count(
      p_owner => 'dispatcher',
      p_names => array['active', 'dispatched', 'events', 'workflows'],
      p_by => array[woken, queued, counted, made]);
    ${saveDispatched}
    is_paused := dispatcher.paused_at is not null;
    outcome := 'done';
  end`
