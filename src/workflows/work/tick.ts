/**
 * What a worker looks after from time to time, in one statement: its sign of life, whose time has come, who is dead, and
 * what else is due. The statement only looks; what is to be done is done by whoever gets hold of it first.
 */

import { consumerNames } from '../../consumers/schema.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import type { Stopping } from '../cancel/compensate.ts'
import { workflowNames } from '../schema.ts'

export interface Tick {
  /** False if this worker's own row is gone: others took it for dead. */
  readonly isKnown: boolean
  /** Executions whose delay or timer is over. */
  readonly due: readonly string[]
  /** When the next one is; undefined if none is. */
  readonly nextInMs: number | undefined
  readonly deadWorkers: readonly string[]
  /** Fences of the executions of this worker, as stored: what is missing here was taken away. */
  readonly own: ReadonlyMap<string, number>
  /** Executions of this worker whose attempts are to stop; whether they have is to be confirmed. */
  readonly stopping: readonly Stopping[]
  readonly hasUnkeyed: boolean
  readonly hasBackfill: boolean
  readonly hasExpired: boolean
  /** When the time of the next open join is over; undefined if none has one. */
  readonly nextJoinInMs: number | undefined
  readonly hasRequestedLetters: boolean
  readonly hasChildWaits: boolean
  /** Whether a cancellation has not come to all children of its workflow yet. */
  readonly hasCancelledChildren: boolean
  /** Whether something waits for one of our handlers. */
  readonly hasReady: boolean
  /** When the next of our schedules is due, or free again; undefined if none is. */
  readonly nextScheduleInMs: number | undefined
  /** When another one of a handler with a rate may begin; undefined if none waits, or only for something else. */
  readonly nextRatedInMs: number | undefined
}

const mostDue = 500

export async function tick(
  log: Log,
  owner: string,
  routes: readonly number[],
  schedules: readonly string[],
): Promise<Tick> {
  const names = { clock: log.names.clock, ...consumerNames(log), ...workflowNames(log) }
  const sign = log.database.soleUser ?? null
  const [row] = await log.database.run<{
    known: boolean
    due: string[] | null
    next_in: number | null
    dead: string[] | null
    own: Record<string, string> | null
    stopping: Stopping[] | null
    unkeyed: boolean
    backfill: boolean
    expired: boolean
    join_in: number | null
    letters: boolean
    children: boolean
    cancelled: boolean
    schedule_in: number | null
    rated_in: number | null
    ready: boolean
  }>(sql`/* workflows.tick */
    with beat as (
      update ${names.workflow_workers}
      set heartbeat_at = ${names.clock}(heartbeat_at),
        routes = ${routes}::integer[]
      where owner = ${owner}::text
      returning owner),
    due as (
      select id, run_at
      from ${names.workflow_executions}
      where run_at <= ${names.clock}(run_at)
        and state in ('delayed', 'suspended')
      order by run_at
      limit ${mostDue}::integer)
    select
      exists (select from beat) as known,
      (select jsonb_agg(due.id) from due) as due,
      (select (extract(epoch from min(run_at) - ${names.clock}(min(run_at))) * 1000)::float8
        from ${names.workflow_executions}
        where run_at > ${names.clock}(run_at)) as next_in,
      (select jsonb_agg(w.owner)
        from ${names.workflow_workers} as w
        where w.owner <> ${owner}::text
          and (w.heartbeat_at < ${names.clock}(w.heartbeat_at) - make_interval(secs => w.lease_ms / 1000.0)
            or (${sign}::text is not null and split_part(w.owner, '/', 1) <> ${sign}::text))) as dead,
      (select jsonb_object_agg(x.id, x.fence::text)
        from ${names.workflow_executions} as x
        where x.worker = ${owner}::text
          and x.state <> 'stopping') as own,
      (select jsonb_agg(jsonb_build_object('id', x.id, 'correlationId', x.correlation_id))
        from ${names.workflow_executions} as x
        where x.worker = ${owner}::text
          and x.state = 'stopping') as stopping,
      exists (
        select
        from ${names.workflow_executions} as x
        where x.state = 'unkeyed'
          and x.route = any(${routes}::integer[])) as unkeyed,
      exists (
        select
        from ${names.workflow_routes} as r
        where r.backfill_position is not null
          and r.retired_at is null) as backfill,
      exists (
        select
        from ${names.workflow_executions} as x
        where x.worker is not null
          and (x.deadline_at < ${names.clock}(x.deadline_at)
            or (x.state = 'stopping' and not exists (
              select
              from ${names.workflow_workers} as w
              where w.owner = x.worker)))) as expired,
      (select (extract(epoch from min(j.deadline_at) - ${names.clock}(min(j.deadline_at))) * 1000)::float8
        from ${names.workflow_joins} as j
        where j.state = 'open') as join_in,
      exists (
        select
        from ${names.workflow_routes} as r
        join ${names.dead_letters} as d on d.consumer = 'handler:' || r.handler
        where r.id = any(${routes}::integer[])
          and d.retry_at <= ${names.clock}(d.retry_at)
          and d.state = 'open') as letters,
      exists (
        select
        from ${names.workflow_waits} as w
        where w.child is not null) as children,
      exists (
        select
        from ${names.workflows} as w
        where w.is_spreading) as cancelled,
      (select (extract(epoch from min(greatest(
            least(s.triggers[1], case when s.paused_at is null then s.next_at end),
            case
              when s.owner is null
                or (s.owner <> ${owner}::text
                  and exists (select from ${names.workflow_workers} as w where w.owner = s.owner)
                  and split_part(s.owner, '/', 1) = coalesce(${sign}::text, split_part(s.owner, '/', 1)))
              then s.claimed_until
            end)) - ${names.clock}(min(s.name))) * 1000)::float8
        from ${names.workflow_schedules} as s
        where s.name = any(${schedules}::text[])
          and (cardinality(s.triggers) > 0 or (s.paused_at is null and s.next_at is not null))) as schedule_in,
      exists (
        select
        from ${names.workflow_executions} as x
        where x.route = any(${routes}::integer[])
          and x.state = 'ready') as ready,
      (select min(f.in_ms)
        from ${names.workflow_routes} as r
        cross join lateral (
          select (r.rate_per_ms * greatest(0, 1 - r.rate_tokens) / r.rate_limit
            - extract(epoch from ${names.clock}(r.rate_at) - r.rate_at) * 1000)::float8 as in_ms) as f
        where r.id = any(${routes}::integer[])
          and r.rate_limit is not null
          and f.in_ms > 0
          and exists (
            select
            from ${names.workflow_executions} as x
            where x.route = r.id
              and x.state = 'ready')) as rated_in`)
  const { known, due, next_in, dead, own, unkeyed, backfill, expired, letters } = row!
  return {
    isKnown: known,
    due: due ?? [],
    nextInMs: next_in ?? undefined,
    deadWorkers: dead ?? [],
    own: new Map(Object.entries(own ?? {}).map(([id, fence]) => [id, Number(fence)])),
    stopping: row!.stopping ?? [],
    hasUnkeyed: unkeyed,
    hasBackfill: backfill,
    hasExpired: expired,
    nextJoinInMs: row!.join_in ?? undefined,
    hasRequestedLetters: letters,
    hasChildWaits: row!.children,
    hasCancelledChildren: row!.cancelled,
    nextScheduleInMs: row!.schedule_in ?? undefined,
    nextRatedInMs: row!.rated_in ?? undefined,
    hasReady: row!.ready,
  }
}

/** Those whose wait is over go on, but for those in lanes that somebody has just now; returns how many. */
export async function wakeDue(log: Log, ids: readonly string[]): Promise<number> {
  if (ids.length === 0) return 0
  const [row] = await log.database.runArrays(sql`/* workflows.wake */
    select woken
    from ${workflowNames(log).workflow_wake}(p_ids => ${ids}::uuid[], p_patient => false)`)
  return Number((row as [number])[0])
}
