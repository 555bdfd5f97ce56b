/**
 * New executions, and those that wait no longer. The caller holds the rows of their workflows.
 *
 * A lane lets `width` executions be active at a time; the rest are blocked, in the order of their events. In an ordered
 * lane one that waits for its next try, for a timer or a signal keeps its place; in others it makes room meanwhile. A parked
 * lane lets nothing but dead letters that are tried again through, and those are not delayed a second time.
 *
 * The rank decides what is claimed first: the time it became ready, plus a while for each step of its priority. It is
 * stored, so that claiming needs no expression, and what has waited long enough comes first whatever its priority.
 */
import type { Quote } from '../migration.ts'

export function enqueueFunctions({ name, literal }: Quote): string[] {
  return [
    `create function ${name('workflow_rank')}(p_priority integer) returns bigint
language sql volatile
return (extract(epoch from clock_timestamp()) * 1000)::bigint + p_priority * 10000`,
    // Locks the workflows of events that are dispatched, sorted, and makes those that somebody wants. Locks those that have
    // started them, too: either the cancellation of a parent finds its new child, or the child finds it cancelled.
    `create function ${name('workflow_admit')}(
  p_owner text,
  p_ids text[],
  p_wanted boolean[],
  p_counts integer[],
  p_firsts bigint[],
  p_lasts bigint[],
  p_types text[],
  p_parents text[])
returns table (correlation_id text, state text, is_new boolean)
language plpgsql volatile
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as ${literal(`
declare
  known text[];
  grown text[];
  made integer := 0;
  counted integer;
begin
  select array_agg(l.id) into known
    from (
      select w.correlation_id as id
      from ${name('workflows')} as w
      where w.correlation_id = any(p_ids || p_parents)
      order by w.correlation_id
      for update) as l
    where l.id = any(p_ids);
  if known is not null then
    with touched as (
      update ${name('workflows')} as w
      set last_position = u.last_position,
        last_type = u.type,
        updated_at = clock_timestamp()
      from unnest(p_ids, p_lasts, p_types) as u(id, last_position, type)
      where w.correlation_id = u.id
        and u.id = any(known)
        and w.last_position < u.last_position
      returning u.id)
    select array_agg(t.id) into grown from touched as t;
  end if;
  if cardinality(p_ids) > coalesce(cardinality(known), 0) then
    insert into ${name('workflows')} (correlation_id, first_position, last_position, last_type, parent, state, reason)
      select u.id, u.first_position, u.last_position, u.type, u.parent,
        case when p.state <> 'active' then 'cancelled' else 'active' end, p.reason
      from unnest(p_ids, p_wanted, p_firsts, p_lasts, p_types, p_parents)
        as u(id, is_wanted, first_position, last_position, type, parent)
      left join ${name('workflows')} as p on p.correlation_id = u.parent
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
    perform ${name('workflow_count')}(p_owner, array['events', 'workflows'], array[counted, made]);
  end if;
  return query
    select w.correlation_id, w.state, w.correlation_id <> all(coalesce(known, '{}'))
    from ${name('workflows')} as w
    where w.correlation_id = any(p_ids);
end
`)}`,
    // Makes room in lanes: one place for each route given, in the lane at its side. `granted` says how many may be active.
    `create function ${name('workflow_widen')}(p_routes integer[], p_lanes text[], p_letters boolean[]) returns void
language plpgsql volatile
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as ${literal(`
begin
  insert into ${name('workflow_lanes')} as l (lane, ordered, width, open, active, granted)
    select g.lane, g.ordered, g.width, g.n, least(g.width, g.due), least(g.width, g.due)
    from (
      select u.lane,
        bool_or((r.definition->>'ordered')::boolean) as ordered,
        max(coalesce((r.definition->>'keyConcurrency')::integer, 1)) as width,
        count(*) as n,
        -- Where the order does not matter, one that is for later takes its place when its time has come.
        count(*) filter (where r.delay_ms = 0 or u.is_letter or (r.definition->>'ordered')::boolean) as due
      from unnest(p_routes, p_lanes, p_letters) as u(route, lane, is_letter)
      join ${name('workflow_routes')} as r on r.id = u.route
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
end
`)}`,
    // The lanes of executions that had none yet, in the order of their events.
    `create function ${name('workflow_assign')}(p_ids uuid[], p_lanes text[], out assigned integer)
language plpgsql volatile
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as ${literal(`
begin
  perform ${name('workflow_widen')}(
      array_agg(x.route order by u.n),
      array_agg(case when x.state = 'unkeyed' then u.lane end order by u.n),
      array_agg(x.is_letter order by u.n))
    from unnest(p_ids, p_lanes) with ordinality as u(id, lane, n)
    join ${name('workflow_executions')} as x on x.id = u.id;
  update ${name('workflow_executions')} as x
    set lane = g.lane,
      rank = ${name('workflow_rank')}(g.priority),
      run_at = case when g.delay_ms > 0 and g.is_active
        then x.queued_at + make_interval(secs => g.delay_ms / 1000.0) end,
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
          case when k.is_letter then 0 else r.delay_ms end as delay_ms
        from unnest(p_ids, p_lanes) as u(id, lane)
        join ${name('workflow_executions')} as k on k.id = u.id
        join ${name('workflow_routes')} as r on r.id = k.route
        left join ${name('workflow_lanes')} as l on l.lane = u.lane
        where k.state = 'unkeyed') as w) as g
    where x.id = g.id;
  get diagnostics assigned = row_count;
  perform ${name('workflow_advance')}('', array_agg(l.lane), null, 0)
    from ${name('workflow_lanes')} as l
    where l.lane = any(p_lanes)
      and l.parked;
end
`)}`,
    // p_states: ready, or unkeyed for one whose lane is found out by who has its code. Returns how many were new.
    `create function ${name('workflow_enqueue')}(
  p_owner text,
  p_ids uuid[],
  p_positions bigint[],
  p_routes integer[],
  p_correlations text[],
  p_states text[],
  p_lanes text[],
  p_joins uuid[],
  p_undos bigint[],
  p_letters boolean[],
  out enqueued integer)
language plpgsql volatile
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as ${literal(`
declare
  woken integer;
begin
  if p_lanes is not null then
    perform ${name('workflow_widen')}(p_routes, array(
        select case when x.id is null then u.lane end
        from unnest(p_ids, p_lanes) with ordinality as u(id, lane, n)
        left join ${name('workflow_executions')} as x on x.id = u.id
        order by u.n), p_letters);
  end if;
  perform ${name('workflow_announce')}();
  with added as (
    insert into ${name('workflow_executions')} as x (
      id, position, route, correlation_id, lane, join_id, undo_id, is_letter, rank, run_at, expires_at, state)
    select
      g.id, g.position, g.route, g.correlation_id, g.lane, g.join_id, g.undo_id, coalesce(g.is_letter, false),
      ${name('workflow_rank')}(g.priority),
      case when g.state = 'ready' and g.delay_ms > 0 and (g.lane is null or g.place <= g.granted)
        then clock_timestamp() + make_interval(secs => g.delay_ms / 1000.0) end,
      clock_timestamp() + make_interval(secs => g.deadline_ms / 1000.0),
      case
        when g.state <> 'ready' then g.state
        when g.lane is not null and g.place > g.granted then 'blocked'
        when g.delay_ms > 0 then 'delayed'
        else 'ready' end
    from (
      select u.*, r.priority, d.delay_ms, r.deadline_ms,
        case when d.delay_ms > 0 and not l.ordered then 2147483647 else coalesce(l.granted, 0) end as granted,
        row_number() over (partition by u.lane, d.delay_ms > 0 and not l.ordered order by u.position) as place
      from unnest(p_ids, p_positions, p_routes, p_correlations, p_states, p_lanes, p_joins, p_undos, p_letters)
        as u(id, position, route, correlation_id, state, lane, join_id, undo_id, is_letter)
      join ${name('workflow_routes')} as r on r.id = u.route
      cross join lateral (
        select case when u.is_letter then 0 else r.delay_ms end as delay_ms) as d
      left join ${name('workflow_lanes')} as l on l.lane = u.lane
      where not exists (
        select
        from ${name('workflow_executions')} as known
        where known.id = u.id)) as g
    order by g.position
    returning x.id, x.position, x.route, x.correlation_id, x.join_id, x.is_letter),
  told as (
    insert into ${name('workflow_activity')} (
      position, event_position, execution, version, attempt, kind, handler, correlation_id)
    select nextval(${literal(name('workflow_activity_position'))}), a.position, a.id, r.version, 0, 'dispatched',
      r.handler, a.correlation_id
    from added as a
    join ${name('workflow_routes')} as r on r.id = a.route
    order by a.position, r.id),
  -- A join that is complete was counted as open before; from now on its execution is.
  counted as (
    select a.correlation_id, count(*) as n
    from added as a
    where a.join_id is null
      or a.is_letter
    group by a.correlation_id),
  moved as (
    update ${name('workflows')} as w
    set open = w.open + c.n,
      updated_at = clock_timestamp()
    from counted as c
    where w.correlation_id = c.correlation_id
    returning w.open = c.n as is_woken)
  select (select count(*) from added), (select count(*) from moved where is_woken)
    into enqueued, woken;
  perform ${name('workflow_count')}(p_owner, array['active', 'dispatched'], array[woken, enqueued]);
  if p_letters is not null then
    perform ${name('workflow_advance')}('', array_agg(l.lane), null, 0)
      from ${name('workflow_lanes')} as l
      where l.lane = any(p_lanes)
        and l.parked;
  end if;
end
`)}`,
    // Executions whose wait is over, in whatever state they wait. Those in lanes take their place again, or queue for it.
    // p_patient: false leaves those to the next time whose lane somebody else has just now.
    `create function ${name('workflow_wake')}(p_ids uuid[], p_patient boolean default true, out woken integer)
language plpgsql volatile
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as ${literal(`
declare
  lanes text[];
begin
  select array_agg(distinct x.lane) into lanes
    from ${name('workflow_executions')} as x
    where x.id = any(p_ids)
      and x.lane is not null;
  if p_patient then
    perform
      from ${name('workflow_lanes')} as l
      where l.lane = any(lanes)
      order by l.lane
      for update;
  elsif lanes is not null then
    select array_agg(f.lane) into lanes
      from (
        select l.lane
        from ${name('workflow_lanes')} as l
        where l.lane = any(lanes)
        order by l.lane
        for update skip locked) as f;
  end if;
  with due as (
    select x.id, x.route, x.lane, coalesce(l.ordered, true) as keeps, l.width - l.active as free,
      row_number() over (partition by x.lane order by x.position) as place
    from ${name('workflow_executions')} as x
    left join ${name('workflow_lanes')} as l on l.lane = x.lane
    where x.id = any(p_ids)
      and x.state in ('delayed', 'suspended')
      and (x.lane is null or x.lane = any(lanes))),
  locked as (
    select x.id
    from ${name('workflow_executions')} as x
    where x.id in (select due.id from due)
      and x.state in ('delayed', 'suspended')
    for update skip locked),
  changed as (
    update ${name('workflow_executions')} as x
    set state = case when due.keeps or due.lane is null or due.place <= due.free then 'ready' else 'blocked' end,
      run_at = null,
      rank = ${name('workflow_rank')}(r.priority)
    from due
    join locked on locked.id = due.id
    join ${name('workflow_routes')} as r on r.id = due.route
    where x.id = due.id
    returning x.id, x.lane, x.state, due.keeps),
  taken as (
    update ${name('workflow_lanes')} as l
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
end
`)}`,
  ]
}
