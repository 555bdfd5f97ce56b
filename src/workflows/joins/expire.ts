/** Joins whose time is over: no event has to come for that. Whoever sees it first closes them, under their workflows. */

import { sql } from '../../database/sql.ts'
import { byBytes } from '../../events/append/send.ts'
import type { Log } from '../../events/log.ts'
import { enqueue } from '../dispatch/enqueue.ts'
import { workflowNames } from '../schema.ts'

const mostAtOnce = 100

/** Returns how many were closed; their executions run with what is there, or fail, as the join says. */
export async function expireJoins(log: Log, owner: string): Promise<number> {
  let total = 0
  for (let seen = mostAtOnce; seen === mostAtOnce; ) {
    const due = await log.database.run<{ id: string; correlation_id: string }>(sql`/* workflows.due_joins */
      select id, correlation_id
      from ${workflowNames(log).workflow_joins}
      where state = 'open'
        and deadline_at <= ${log.names.clock}(deadline_at)
      order by deadline_at
      limit ${mostAtOnce}::integer`)
    seen = due.length
    if (seen > 0) total += await expireSome(log, owner, due)
  }
  return total
}

async function expireSome(
  log: Log,
  owner: string,
  due: readonly { readonly id: string; readonly correlation_id: string }[],
): Promise<number> {
  return log.database.transaction(async tx => {
    await tx.run(sql`/* workflows.lock */
      select correlation_id
      from ${workflowNames(log).workflows}
      where correlation_id = any(${[...new Set(due.map(each => each.correlation_id))].sort(byBytes)}::text[])
      order by correlation_id
      for update`)
    const rows = await tx.run<{
      id: string
      route: number
      correlation_id: string
      position: number
    }>(sql`/* workflows.expire_joins */
      update ${workflowNames(log).workflow_joins} as j
      set state = case when r.definition->'join'->>'onTimeout' = 'partial' then 'closed' else 'expired' end,
        closed_at = ${log.names.clock}(j.closed_at)
      from ${workflowNames(log).workflow_routes} as r
      where j.id = any(${due.map(({ id }) => id)}::uuid[])
        and r.id = j.route
        and j.state = 'open'
        and j.deadline_at <= ${log.names.clock}(j.deadline_at)
      returning j.id, j.route, j.correlation_id, coalesce((
        select max(e.position)
        from ${workflowNames(log).workflow_join_entries} as e
        where e.join_id = j.id
          and e.outcome = 'arrived'), j.position) as position`)
    const executions = rows.map(({ id, route, correlation_id, position }) => ({
      ...{ id, joinId: id, route, correlationId: correlation_id, position },
    }))
    await enqueue(log, tx, owner, executions)
    return rows.length
  })
}
