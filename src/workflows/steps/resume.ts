/** Letting a parked execution go on: under the row of its workflow, and in its place among those of its lane. */

import { canonicalUuid } from '../../core/id.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import type { Wake } from '../../events/order/wake.ts'
import { ExecutionNotParked } from '../errors.ts'
import { workflowNames } from '../schema.ts'
import { wakeWaiting } from './waits.ts'

export async function resumeExecution({ log, wake }: { log: Log; wake: Wake }, executionId: string): Promise<void> {
  const id = canonicalUuid(executionId)
  if (id === undefined) throw new ExecutionNotParked({ executionId, state: 'gone' })
  await log.database.transaction(async tx => {
    const [known] = await tx.run<{ correlation_id: string }>(sql`/* workflows.execution */
      select correlation_id
      from ${workflowNames(log).workflow_executions}
      where id = ${id}::uuid`)
    await tx.run(sql`/* workflows.lock */
      select correlation_id
      from ${workflowNames(log).workflows}
      where correlation_id = ${known?.correlation_id ?? null}::text
      for update`)
    await tx.run(sql`/* workflows.lock_lane */
      select l.lane
      from ${workflowNames(log).workflow_lanes} as l
      join ${workflowNames(log).workflow_executions} as x on x.lane = l.lane
      where x.id = ${id}::uuid
      for update of l`)
    const [row] = await tx.run<{ state: string }>(sql`/* workflows.execution_state */
      select state
      from ${workflowNames(log).workflow_executions}
      where id = ${id}::uuid`)
    if (row?.state !== 'parked') throw new ExecutionNotParked({ executionId, state: row?.state ?? 'gone' })
    await tx.run(sql`/* workflows.unpark */
      update ${workflowNames(log).workflow_executions}
      set state = 'suspended'
      where id = ${id}::uuid
        and state = 'parked'`)
    await wakeWaiting(log, tx, [id])
    tx.afterCommit(() => wake.worked())
  })
}
