/**
 * Claiming: which worker runs which executions, under a fence that every write of the attempt has to match.
 *
 * The cost does not depend on the backlog: of each route the first few of an index that holds only ready executions.
 * Executions that other workers are claiming at the same moment are skipped. Routes with a limit on how many run at
 * once, or how many in a time, are locked while they are counted; all others never wait.
 *
 * A claim is not flushed to the disk: one that a crash of the server undoes has not happened, and the outcome of its
 * attempt is refused. For that no two claims may ever have one fence, so the worker brings it: fences are drawn before,
 * and flushed.
 */
import { maxPageBytes } from '../../core/page.ts'
import { Fragment, fragment } from '../../database/sql.ts'
import { inIndexOrder, plpgsql, type SqlFunction } from '../../schema/plpgsql.ts'
import { activityPositions } from '../insight/activity.sql.ts'

/**
 * Begins executions that the caller holds, as the CTE `begun`, and records it. The caller draws before, at least one position for
 * each, and has the variable `moment` and the arguments `p_owner` and `p_grace_ms`: how much longer than its timeout an
 * attempt may last before it counts as lost.
 */
export function beginExecutions({ set, where }: { set: Fragment; where: Fragment }): Fragment {
  return fragment`
    with begun as (
      update ~workflow_executions as x
      set state = 'running',
        attempt = x.attempt + 1,
        started_at = moment,
        deadline_at = ~later(p_at => moment, p_ms => greatest(0, r.timeout_ms - x.ran_ms)::bigint + p_grace_ms),
        ${set}
      from ~workflow_routes as r
      where r.id = x.route
        and ${where}
      returning x.id, x.lane, x.position, x.attempt, x.correlation_id, x.rank, r.handler, r.version, r.priority),
    recorded as (
      insert into ~workflow_activity (
        position, at, event_position, execution, version, attempt, queued_ms, kind, handler, correlation_id, worker)
      select ${activityPositions.each(fragment`row_number() over ()`)}, moment, b.position, b.id, b.version, b.attempt,
        ~workflow_queued_ms(
          p_at => moment,
          p_rank => b.rank,
          p_priority => b.priority), 'started', b.handler, b.correlation_id, p_owner
      from begun as b)`
}

/** Whether the events before it leave room for the event of an execution. */
const isInPage = new Fragment([`sum(e.bytes) over so_far - e.bytes < ${maxPageBytes}`], [])

/**
 * p_ahead: how many of an ordered lane to hold together with its head. p_grace_ms: how much longer than its timeout an
 * attempt may last before it counts as lost. Each comes with its event, and with the edited event of a dead letter, read
 * in here: the statement around a call has an older snapshot, which may lack an event published meanwhile. [claim-1]
 * Once they come to `maxPageBytes`, the others come without their events, which are read when their attempts begin.
 */
export const claim: SqlFunction = plpgsql({ revision: 8, settings: inIndexOrder })`
  create function ~workflow_claim(
    p_owner text,
    p_fence bigint,
    p_routes integer[],
    p_limit integer,
    p_ahead integer,
    p_grace_ms integer)
  returns table (execution ~workflow_executions, event ~events, edited jsonb)
  declare
    moment timestamptz;
    open_routes integer[];
    max_counts integer[];
    limited ~workflow_routes;
    running integer;
    tokens double precision;
    max_count integer;
    taken integer;
    claimed uuid[];
    held uuid[];
    drawn bigint[];
  begin
    -- A worker without a row, or without routes, counts as dead and gets nothing: no other worker would ever take it
    -- over from it.
    perform
      from ~runners as r
      where r.id = p_owner
        and r.routes <> '{}'
      for key share;
    if not found then
      return;
    end if;
    select array_agg(r.id), array_agg(p_limit * 2)
      into open_routes, max_counts
      from ~workflow_routes as r
      where r.id = any(p_routes)
        and r.paused_at is null
        and r.concurrency is null
        and r.rate_limit is null;
    for limited in
      select *
      from ~workflow_routes as r
      where r.id = any(p_routes)
        and r.paused_at is null
        and (r.concurrency is not null or r.rate_limit is not null)
      order by r.id
      for update
    loop
      max_count := p_limit;
      if limited.concurrency is not null then
        select count(*) into running
          from ~workflow_executions as x
          where x.route = limited.id
            and x.worker is not null;
        max_count := least(max_count, limited.concurrency - running);
      end if;
      if limited.rate_limit is not null then
        moment := ~clock(limited.id);
        tokens := least(limited.rate_limit, coalesce(limited.rate_tokens, limited.rate_limit)
          + extract(epoch from moment - coalesce(limited.rate_at, moment)) * 1000
            * limited.rate_limit / limited.rate_per_ms);
        max_count := least(max_count, floor(tokens)::integer);
        update ~workflow_routes as r
          set rate_tokens = tokens,
            rate_at = moment
          where r.id = limited.id;
      end if;
      if max_count > 0 then
        open_routes := open_routes || limited.id;
        max_counts := max_counts || max_count;
      end if;
    end loop;
    if open_routes is null then
      return;
    end if;

    with candidates as materialized (
      select c.id, c.rank
      from unnest(open_routes, max_counts) as o(route, max_count)
      cross join lateral (
        select x.id, x.rank
        from ~workflow_executions as x
        where x.route = o.route
          and x.state = 'ready'
        order by x.rank, x.id
        limit o.max_count) as c
      order by c.rank, c.id
      limit p_limit * 2)
    select array_agg(l.id) into claimed
      from (
        select x.id
        from candidates as o
        join ~workflow_executions as x on x.id = o.id
        where x.state = 'ready'
        order by o.rank, o.id
        limit p_limit
        for update of x skip locked) as l;
    if claimed is null then
      return;
    end if;

    moment := ~clock(p_owner);
    perform set_config('synchronous_commit', 'off', true);
    ${activityPositions.before(fragment`cardinality(claimed)`)}
    ${beginExecutions({
      set: fragment`fence = p_fence, worker = p_owner`,
      where: fragment`x.id = any(claimed)`,
    })}
    select array_agg(b.id) into claimed from begun as b;

    if p_ahead > 0 then
      with follows as materialized (
        select f.id, f.lane, f.position, f.fits
        from ~workflow_executions as h
        join ~workflow_lanes as l on l.lane = h.lane and l.ordered and not l.parked
        join ~workflow_routes as r on r.id = h.route
          and r.concurrency is null
          and r.rate_limit is null
          and r.delay_ms = 0
        cross join lateral (
          select x.id, x.lane, x.position, x.state = 'blocked' and x.route = h.route as fits
          from ~workflow_executions as x
          where x.lane = h.lane
            and x.position > h.position
          order by x.position
          limit p_ahead) as f
        where h.id = any(claimed)
          and h.lane is not null),
      free as materialized (
        select x.id
        from ~workflow_executions as x
        where x.id in (select follows.id from follows where follows.fits)
          -- By the ids alone: a plan from before there was a backlog would read all that is blocked.
          and x.state || '' = 'blocked'
        for update skip locked)
      select array_agg(u.id) into held
        from (
          select follows.id,
            bool_and(free.id is not null) over (partition by follows.lane order by follows.position) as is_next
          from follows
          left join free on free.id = follows.id) as u
        where u.is_next;
      if held is not null then
        update ~workflow_executions as x
          set state = 'held',
            fence = p_fence,
            worker = p_owner
          where x.id = any(held);
      end if;
    end if;

    for limited in
      select *
      from ~workflow_routes as r
      where r.id = any(p_routes)
        and r.rate_limit is not null
      order by r.id
    loop
      select count(*) into taken
        from ~workflow_executions as x
        where x.id = any(claimed)
          and x.route = limited.id;
      if taken > 0 then
        update ~workflow_routes as r
          set rate_tokens = r.rate_tokens - taken
          where r.id = limited.id;
      end if;
    end loop;

    return query
      select x,
        case when ${isInPage} then e end,
        case when ${isInPage} then d.edited end
      from ~workflow_executions as x
      join ~workflow_routes as r on r.id = x.route
      left join ~events as e on e.position = x.position
      left join ~dead_letters as d
        on x.is_retry
        and d.consumer = 'handler:' || r.handler
        and d.event_id = e.event_id
        and d.state = 'retrying'
      where x.id = any(claimed || held)
      window so_far as (order by x.rank, x.position rows unbounded preceding)
      order by x.rank, x.position;
  end`
