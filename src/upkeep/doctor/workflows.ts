/** What handlers have to do: is there somebody who can. */

import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { listHandlers } from '../../workflows/insight/handlers.ts'
import { workflowNames } from '../../workflows/schema.ts'
import type { Check } from './doctor.ts'

export function checkWorkflows(log: Log): Check[] {
  const { database } = log
  const names = workflowNames(log)
  return [
    {
      name: 'workflows.without_code',
      ok: 'For all that is to be done there is a worker with the code.',
      async find() {
        const handlers = await listHandlers(log)
        return handlers.flatMap(({ handler, version, workers, open }) => {
          const count = Object.values(open).reduce((sum, each) => sum + each, 0)
          if (workers > 0 || count === 0) return []
          return {
            level: 'warning' as const,
            message: `${count} executions wait for version ${version} of handler "${handler}", and no worker has its code.`,
            mend: 'Start a worker that registers it, or cancel the workflows that wait for it: store.workflows.flow(id).cancel(), or rillflow workflows cancel ID.',
          }
        })
      },
    },
    {
      name: 'workflows.workers',
      ok: 'No worker has died with work in its hands.',
      async find() {
        const sign = database.soleUser ?? null
        const rows = await database.run<{ worker: string; count: number }>(sql`/* doctor.workers */
          select x.worker, count(*) as count
          from ${names.workflow_executions} as x
          left join ${names.workflow_workers} as w
            on w.owner = x.worker
            and w.heartbeat_at >= ${log.names.clock}(w.heartbeat_at) - make_interval(secs => w.lease_ms / 1000.0)
            and (${sign}::text is null or split_part(w.owner, '/', 1) = ${sign}::text)
          where x.worker is not null
            and w.owner is null
          group by x.worker
          order by x.worker`)
        return rows.map(({ worker, count }) => ({
          level: 'warning' as const,
          message: `Worker ${worker} has given no sign of life, with ${count} executions in its hands.`,
          mend: 'Start a worker, or rillflow run: any one takes them over.',
        }))
      },
    },
    {
      name: 'workflows.lanes',
      ok: 'No lane is parked.',
      async find() {
        const rows = await database.run<{ lane: string; open: number }>(sql`/* doctor.lanes */
          select lane, open
          from ${names.workflow_lanes}
          where parked
          order by lane
          limit 20`)
        return rows.map(({ lane, open }) => ({
          level: 'warning' as const,
          message: `Lane ${lane} is parked behind a dead letter, with ${open} executions in it.`,
          mend: 'Retry or resolve the dead letter: see store.workflows.lanes({ isParked: true }), or rillflow dead-letters list.',
        }))
      },
    },
  ]
}
