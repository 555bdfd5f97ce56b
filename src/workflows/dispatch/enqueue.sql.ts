/**
 * New executions, and those that wait no longer. The caller holds the rows of their workflows.
 *
 * A lane lets `width` executions be active at a time; the rest are blocked, in the order of their events. In an ordered
 * lane one that waits for its next try, for a timer or a signal keeps its place; in others it makes room meanwhile. A
 * parked lane lets nothing but retried dead letters through, and those are not delayed a second time.
 *
 * The rank decides which execution is claimed first: the time it became ready, plus ten seconds for each step of its
 * priority. It is stored, so that claiming needs no expression, and an execution that has waited long enough comes
 * first whatever its priority.
 */
import { fragment } from '../../database/sql.ts'
import { byIndexOnly, expression, plpgsql, type SqlFunction } from '../../schema/plpgsql.ts'
import { activityPositions } from '../insight/activity.sql.ts'

/** The order of claims: lower is earlier. */
export const rank: SqlFunction = expression({ revision: 1, volatility: 'immutable' })`
  create function ~workflow_rank(p_at timestamptz, p_priority integer) returns bigint
  select (extract(epoch from p_at at time zone 'UTC') * 1000)::bigint + p_priority * 10000`

/**
 * Makes room in lanes: one place for each route given, in the lane of the same index. `granted` says how many may be
 * active. [claim-11]
 */
export const widen: SqlFunction = plpgsql({ revision: 2, settings: byIndexOnly })`
  create function ~workflow_widen(p_routes integer[], p_lanes text[], p_retries boolean[]) returns void
  begin
    insert into ~workflow_lanes as l (lane, ordered, width, open, active, granted)
      select g.lane, g.ordered, g.width, g.n, least(g.width, g.due), least(g.width, g.due)
      from (
        select u.lane,
          bool_or((r.definition->>'ordered')::boolean) as ordered,
          max(coalesce((r.definition->>'keyConcurrency')::integer, 1)) as width,
          count(*) as n,
          -- Where the order does not matter, one that is for later takes its place when its time has come.
          count(*) filter (where r.delay_ms = 0 or u.is_retry or (r.definition->>'ordered')::boolean) as due
        from unnest(p_routes, p_lanes, p_retries) as u(route, lane, is_retry)
        join ~workflow_routes as r on r.id = u.route
        where u.lane is not null
        group by u.lane) as g
      order by g.lane
      on conflict (lane) do update
      set width = excluded.width,
        open = l.open + excluded.open,
        active = case
          when l.parked then l.active
          else greatest(l.active, least(excluded.width, l.active + excluded.granted)) end,
        granted = case
          when l.parked then 0
          else greatest(0, least(excluded.width - l.active, excluded.granted)) end;
  end`

/** Parked lanes let retried dead letters through. */
const advanceParked = fragment`
  select array_agg(l.lane)
    into lanes
    from ~workflow_lanes as l
    where l.lane = any(p_lanes)
      and l.parked;
  if lanes is not null then
    perform ~workflow_advance(p_owner => '', p_lanes => lanes, p_next => null, p_grace_ms => 0);
  end if;`

/** Assigns lanes to executions that had none yet, in the order of their events. */
export const assign: SqlFunction = plpgsql({ revision: 3, settings: byIndexOnly })`
  create function ~workflow_assign(p_ids uuid[], p_lanes text[], out assigned integer)
  declare
    moment constant timestamptz := ~clock(p_ids);
    routes integer[];
    lanes text[];
    retries boolean[];
  begin
    select array_agg(x.route order by u.n), array_agg(case when x.state = 'unkeyed' then u.lane end order by u.n),
        array_agg(x.is_retry order by u.n)
      into routes, lanes, retries
      from unnest(p_ids, p_lanes) with ordinality as u(id, lane, n)
      join ~workflow_executions as x on x.id = u.id;
    perform ~workflow_widen(p_routes => routes, p_lanes => lanes, p_retries => retries);
    update ~workflow_executions as x
      set lane = g.lane,
        rank = ~workflow_rank(p_at => moment, p_priority => g.priority),
        run_at = case when g.delay_ms > 0 and g.is_active
          then ~later(p_at => x.queued_at, p_ms => g.delay_ms) end,
        state = case
          when not g.is_active then 'blocked'
          when g.delay_ms > 0 then 'delayed'
          else 'ready' end
      from (
        select w.id, w.lane, w.priority, w.delay_ms,
          w.lane is null
            or (w.delay_ms > 0 and not w.ordered)
            or row_number() over (partition by w.lane, w.delay_ms > 0 and not w.ordered order by w.position)
              <= w.granted as is_active
        from (
          select k.id, k.position, u.lane, r.priority, l.ordered, l.granted,
            case when k.is_retry then 0 else r.delay_ms end as delay_ms
          from unnest(p_ids, p_lanes) as u(id, lane)
          join ~workflow_executions as k on k.id = u.id
          join ~workflow_routes as r on r.id = k.route
          left join ~workflow_lanes as l on l.lane = u.lane
          where k.state = 'unkeyed') as w) as g
      where x.id = g.id;
    get diagnostics assigned = row_count;
    ${advanceParked}
  end`

/** p_states: ready, or unkeyed for one whose lane is found by a process that has its code. Returns how many were new. */
export const enqueue: SqlFunction = plpgsql({ revision: 5, settings: byIndexOnly })`
  create function ~workflow_enqueue(
    p_owner text,
    p_ids uuid[],
    p_positions bigint[],
    p_routes integer[],
    p_correlations text[],
    p_states text[],
    p_lanes text[],
    p_joins uuid[],
    p_undos bigint[],
    p_retries boolean[],
    out enqueued integer)
  declare
    moment constant timestamptz := ~clock(p_owner);
    woken integer;
    lanes text[];
    drawn bigint[];
  begin
    if p_lanes is not null then
      select array_agg(case when x.id is null then u.lane end order by u.n)
        into lanes
        from unnest(p_ids, p_lanes) with ordinality as u(id, lane, n)
        left join ~workflow_executions as x on x.id = u.id;
      perform ~workflow_widen(p_routes => p_routes, p_lanes => lanes, p_retries => p_retries);
    end if;
    ${activityPositions.before(fragment`cardinality(p_ids)`)}
    with added as (
      insert into ~workflow_executions as x (
        id, position, route, correlation_id, lane, join_id, undo_id, is_retry, rank, queued_at, run_at, expires_at,
        state)
      select
        g.id, g.position, g.route, g.correlation_id, g.lane, g.join_id, g.undo_id, coalesce(g.is_retry, false),
        ~workflow_rank(p_at => moment, p_priority => g.priority),
        moment,
        case when g.state = 'ready' and g.delay_ms > 0 and (g.lane is null or g.place <= g.granted)
          then ~later(p_at => moment, p_ms => g.delay_ms) end,
        case when g.deadline_ms is not null then ~later(p_at => moment, p_ms => g.deadline_ms) end,
        case
          when g.state <> 'ready' then g.state
          when g.lane is not null and g.place > g.granted then 'blocked'
          when g.delay_ms > 0 then 'delayed'
          else 'ready' end
      from (
        select u.*, r.priority, d.delay_ms, r.deadline_ms,
          case when d.delay_ms > 0 and not l.ordered then 2147483647 else coalesce(l.granted, 0) end as granted,
          row_number() over (partition by u.lane, d.delay_ms > 0 and not l.ordered order by u.position) as place
        from unnest(p_ids, p_positions, p_routes, p_correlations, p_states, p_lanes, p_joins, p_undos, p_retries)
          as u(id, position, route, correlation_id, state, lane, join_id, undo_id, is_retry)
        join ~workflow_routes as r on r.id = u.route
        cross join lateral (
          select case when u.is_retry then 0 else r.delay_ms end as delay_ms) as d
        left join ~workflow_lanes as l on l.lane = u.lane
        where not exists (
          select
          from ~workflow_executions as known
          where known.id = u.id)) as g
      order by g.position
      returning x.id, x.position, x.route, x.correlation_id, x.join_id, x.is_retry),
    recorded as (
      insert into ~workflow_activity (
        position, at, event_position, execution, version, attempt, kind, handler, correlation_id)
      select ${activityPositions.each(fragment`row_number() over (order by a.position, r.id)`)}, moment, a.position, a.id, r.version, 0, 'dispatched',
        r.handler, a.correlation_id
      from added as a
      join ~workflow_routes as r on r.id = a.route
      order by a.position, r.id),
    -- A join that is complete was counted as open before; from now on its execution is.
    counted as (
      select a.correlation_id, count(*) as n
      from added as a
      where a.join_id is null
        or a.is_retry
      group by a.correlation_id),
    moved as (
      update ~workflows as w
      set open = w.open + c.n,
        updated_at = moment
      from counted as c
      where w.correlation_id = c.correlation_id
      returning w.open = c.n as is_woken)
    select (select count(*) from added), (select count(*) from moved where is_woken)
      into enqueued, woken;
    perform ~workflow_count(
      p_owner => p_owner,
      p_names => array['active', 'dispatched'],
      p_by => array[woken, enqueued]);
    if p_retries is not null then
      ${advanceParked}
    end if;
  end`

/**
 * Executions whose wait is over, in whatever state they wait. Those in lanes take their place again, or queue for it.
 * p_patient: false leaves those to the next time whose lane another transaction holds.
 */
export const wake: SqlFunction = plpgsql({ revision: 1, settings: byIndexOnly })`
  create function ~workflow_wake(p_ids uuid[], p_patient boolean default true, out woken integer)
  declare
    moment timestamptz;
    lanes text[];
  begin
    select array_agg(distinct x.lane) into lanes
      from ~workflow_executions as x
      where x.id = any(p_ids)
        and x.lane is not null;
    if p_patient then
      perform
        from ~workflow_lanes as l
        where l.lane = any(lanes)
        order by l.lane
        for update;
    elsif lanes is not null then
      select array_agg(f.lane) into lanes
        from (
          select l.lane
          from ~workflow_lanes as l
          where l.lane = any(lanes)
          order by l.lane
          for update skip locked) as f;
    end if;
    moment := ~clock(p_ids);
    with due as (
      select x.id, x.route, x.lane, coalesce(l.ordered, true) as keeps, l.width - l.active as free,
        row_number() over (partition by x.lane order by x.position) as place
      from ~workflow_executions as x
      left join ~workflow_lanes as l on l.lane = x.lane
      where x.id = any(p_ids)
        and x.state in ('delayed', 'suspended')
        and (x.lane is null or x.lane = any(lanes))),
    locked as (
      select x.id
      from ~workflow_executions as x
      where x.id in (select due.id from due)
        and x.state in ('delayed', 'suspended')
      for update skip locked),
    changed as (
      update ~workflow_executions as x
      set state = case when due.keeps or due.lane is null or due.place <= due.free then 'ready' else 'blocked' end,
        run_at = null,
        rank = ~workflow_rank(p_at => moment, p_priority => r.priority)
      from due
      join locked on locked.id = due.id
      join ~workflow_routes as r on r.id = due.route
      where x.id = due.id
      returning x.id, x.lane, x.state, due.keeps),
    taken as (
      update ~workflow_lanes as l
      set active = l.active + c.n
      from (
        select lane, count(*) as n
        from changed
        where lane is not null
          and not keeps
          and state = 'ready'
        group by lane) as c
      where l.lane = c.lane)
    select count(*) into woken from changed;
  end`
