/**
 * The work that waits: the numbers of `/metrics`, and the problems that the doctor looks for. Each is one statement,
 * bounded by the number of handlers and never by the number of executions.
 */
import { isAlive } from '../../consumers/runners/row.ts'
import { consumerNames } from '../../consumers/schema.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { workflowNames } from '../schema.ts'

export interface HandlerQueue {
  /** The route: one version of a handler. */
  readonly route: number
  readonly handler: string
  /** How long the next execution has been ready; 0 if there is none. */
  readonly readySeconds: number
  /** Open ones of all versions of the handler; 10 000 stands for that many or more. */
  readonly deadLetters: number
}

/**
 * Of the first 5000 routes. The rank of an execution is the time in milliseconds at which it became ready, plus ten
 * seconds for each step of priority.
 */
export async function readHandlerQueues(log: Log): Promise<HandlerQueue[]> {
  const { clock } = log.names
  const { dead_letters } = consumerNames(log)
  const { workflow_routes, workflow_executions } = workflowNames(log)
  const rows = await log.database.run<{
    id: number
    handler: string
    ready_seconds: number | null
    dead_letters: number
  }>(sql`/* workflows.queues */
    select
      r.id, r.handler,
      (select
          greatest(0, extract(epoch from ${clock}(x.queued_at)) * 1000 - x.rank + r.priority * 10000)::float8 / 1000
        from ${workflow_executions} as x
        where x.route = r.id
          and x.state = 'ready'
        order by x.rank, x.id
        limit 1) as ready_seconds,
      (select count(*) filter (where l.state in ('open', 'retrying'))
        from (
          select state
          from ${dead_letters}
          where consumer = 'handler:' || r.handler
          order by position desc
          limit 10000) as l) as dead_letters
    from ${workflow_routes} as r
    order by r.handler, r.version
    limit 5000`)
  return rows.map(row => ({
    route: row.id,
    handler: row.handler,
    readySeconds: row.ready_seconds ?? 0,
    deadLetters: row.dead_letters,
  }))
}

/** Workers without a heartbeat that still have executions. Any other worker will take those over. */
export async function readLostWorkers(log: Log): Promise<{ worker: string; executions: number }[]> {
  return log.database.run<{ worker: string; executions: number }>(sql`/* workflows.lost_workers */
    select x.worker, count(*) as executions
    from ${workflowNames(log).workflow_executions} as x
    left join ${consumerNames(log).runners} as r
      on r.id = x.worker
      and ${isAlive(log)}
    where x.worker is not null
      and r.id is null
    group by x.worker
    order by x.worker`)
}

/** Lanes that wait behind a dead letter, the first 20. */
export async function readParkedLanes(log: Log): Promise<{ lane: string; executions: number }[]> {
  return log.database.run<{ lane: string; executions: number }>(sql`/* workflows.parked_lanes */
    select lane, open as executions
    from ${workflowNames(log).workflow_lanes}
    where parked
    order by lane
    limit 20`)
}

/** Runners by role, and workers, with a heartbeat, in all processes. */
export async function countAlive(log: Log): Promise<{ active: number; standby: number; workers: number }> {
  const [row] = await log.database.run<{ active: number; standby: number; workers: number }>(sql`/* workflows.alive */
    select
      count(*) filter (where r.role = 'active') as active,
      count(*) filter (where r.role = 'standby') as standby,
      count(*) filter (where r.concurrency is not null) as workers
    from ${consumerNames(log).runners} as r
    where ${isAlive(log)}`)
  return row!
}
