/** Executions that come to their branches, or leave them, without an event or an outcome: a retry, a removal. */

import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import type { NewExecution } from '../dispatch/enqueue.ts'
import { type BatchPlace, envelopeOf } from '../envelope.ts'
import { loadRoutes } from '../routes.ts'
import { workflowNames } from '../schema.ts'
import { moveBatches } from './joins.ts'

/**
 * One more of each (+1) is under way, or one less (-1). Returns the executions of joins that are complete by it, which the
 * caller queues. The caller holds the workflows.
 */
export async function recountBranches(
  log: Log,
  tx: Executor,
  owner: string,
  executions: readonly Pick<NewExecution, 'position' | 'correlationId' | 'joinId'>[],
  change: 1 | -1,
): Promise<readonly NewExecution[]> {
  if (executions.length === 0) return []
  const rows = await tx.run<{
    n: number
    headers: Record<string, unknown> | null
    outer: BatchPlace[] | null
  }>(sql`/* workflows.places */
    select u.n, e.headers, j.outer_batches as outer
    from unnest(
      ${executions.map(({ position }) => position)}::bigint[],
      ${executions.map(({ joinId }) => joinId ?? null)}::uuid[]) with ordinality as u(position, join_id, n)
    left join lateral (
      select found.headers
      from ${log.names.events} as found
      where found.position = u.position
      limit 1) as e on true
    left join lateral (
      select found.outer_batches
      from ${workflowNames(log).workflow_joins} as found
      where found.id = u.join_id
      limit 1) as j on true`)
  const branches = rows.flatMap(({ n, headers, outer }) => {
    const { position, correlationId } = executions[Number(n) - 1]!
    const batches = outer ?? envelopeOf({ headers: headers ?? {} }).batches
    return batches.length === 0 ? [] : [{ position, correlationId, batches, change, isFailed: false, emits: [] }]
  })
  const moves = { branches, arrivals: [], emitted: [] }
  return (await moveBatches(log, tx, owner, () => loadRoutes(log, tx), moves)).joined
}
