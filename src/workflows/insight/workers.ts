/** Who works: the workers that are alive, in all processes. */

import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { workflowNames } from '../schema.ts'

export interface WorkerDescription {
  /** A random id, a new one with each start. */
  readonly id: string
  readonly node: string | undefined
  readonly startedAt: Date
  /** How long ago it gave the last sign of life. */
  readonly heartbeatAgeMs: number
  /** The most handlers it runs at once. */
  readonly concurrency: number
  readonly handlers: readonly { readonly handler: string; readonly version: number }[]
  /** Executions it runs, and those it holds behind them in their lanes. */
  readonly running: number
  readonly held: number
}

interface WorkerRow {
  owner: string
  node: string | null
  started_at: Date
  age_ms: number
  concurrency: number
  handlers: { handler: string; version: number }[] | null
  running: number
  held: number
}

export async function listWorkers(log: Log): Promise<WorkerDescription[]> {
  const { clock } = log.names
  const { workflow_workers, workflow_routes, workflow_executions } = workflowNames(log)
  // Embedded, whoever came with another opening of the database is gone, whatever its last sign of life.
  const sign = log.database.soleUser ?? null
  const rows = await log.database.run<WorkerRow>(sql`/* workflows.workers */
    with busy as (
      select x.worker,
        count(*) filter (where x.state = 'running') as running,
        count(*) filter (where x.state = 'held') as held
      from ${workflow_executions} as x
      where x.worker is not null
      group by x.worker)
    select
      w.owner, w.node, w.started_at, w.concurrency,
      greatest(0, extract(epoch from ${clock}(w.heartbeat_at) - w.heartbeat_at) * 1000)::float8 as age_ms,
      (select jsonb_agg(jsonb_build_object('handler', r.handler, 'version', r.version) order by r.handler, r.version)
        from ${workflow_routes} as r
        where r.id = any(w.routes)) as handlers,
      coalesce(busy.running, 0) as running,
      coalesce(busy.held, 0) as held
    from ${workflow_workers} as w
    left join busy on busy.worker = w.owner
    where w.heartbeat_at >= ${clock}(w.heartbeat_at) - make_interval(secs => w.lease_ms / 1000.0)
      and (${sign}::text is null or split_part(w.owner, '/', 1) = ${sign}::text)
    order by w.node nulls last, w.started_at, w.owner`)
  return rows.map(row => ({
    id: row.owner,
    node: row.node ?? undefined,
    startedAt: row.started_at,
    heartbeatAgeMs: row.age_ms,
    concurrency: row.concurrency,
    handlers: row.handlers ?? [],
    running: Number(row.running),
    held: Number(row.held),
  }))
}
