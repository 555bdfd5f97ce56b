/**
 * Cancelling a workflow: from then on nothing of it is run. What waits goes; what runs is told by its signal, and whatever
 * it comes to is refused; events of the workflow that are dispatched later run no handler. What has been done stays done,
 * unless it is to be compensated (see `compensate.ts`).
 *
 *     active ──► cancelled                                     final: a second cancellation changes nothing
 *     active ──► compensating ──► compensated · compensationFailed
 *
 * A workflow that is over is left as it is, since there is nothing to cancel: nothing open, nothing still to be dispatched,
 * no dead letter to be retried, and, to be compensated, nothing recorded to undo.
 *
 * Cancellation reaches the workflows started by this one, and by those: each in a transaction of its own, right after. A
 * mark on the row lets any worker go on with it should this process end in between. One that is started meanwhile is
 * cancelled when it is dispatched, because that looks at its parent.
 */

import { InvalidOption } from '../../core/errors.ts'
import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import type { WorkflowHints } from '../hints.ts'
import { dispatcherName } from '../routes.ts'
import { workflowNames } from '../schema.ts'
import { readStatuses, type WorkflowStatus } from '../status.ts'
import { cancelOwner, nextUndo } from './compensate.ts'

export interface CancelOptions {
  /** Why, for people. */
  reason?: string | undefined
  /** Whether the undos that its steps have recorded are run, the newest first. Default false. */
  compensate?: boolean | undefined
}

/** `flow.cancel('why', { compensate })` or `flow.cancel({ reason, compensate })`. */
export async function cancelFlow(
  log: Log,
  hints: WorkflowHints,
  correlationId: string,
  first: string | CancelOptions | undefined,
  second: Omit<CancelOptions, 'reason'> | undefined,
): Promise<WorkflowStatus> {
  log.database.refuseInsideTransaction('cancel')
  const options = typeof first === 'object' ? first : { ...second, reason: first }
  const { reason, compensate } = options
  if (reason !== undefined && typeof reason !== 'string')
    throw new InvalidOption({ option: 'reason', reason: `must be text, not ${JSON.stringify(reason)}` })
  if (compensate !== undefined && typeof compensate !== 'boolean')
    throw new InvalidOption({
      option: 'compensate',
      reason: `must be true or false, not ${JSON.stringify(compensate)}`,
    })
  await cancelTree(log, hints, correlationId, options)
  const [status] = await readStatuses(log, [correlationId])
  return status!
}

/** Cancels a workflow and those that it has started. Returns whether there was anything to cancel. */
async function cancelTree(
  log: Log,
  hints: WorkflowHints,
  correlationId: string,
  options: CancelOptions,
): Promise<boolean> {
  const isCancelled = await log.database.transaction(tx => cancelIn(log, tx, correlationId, options))
  if (isCancelled) {
    // All workers look at once which executions are still theirs.
    hints.changed()
    hints.ready()
    hints.ended()
  }
  await reachChildren(log, hints, correlationId)
  return isCancelled
}

export interface CancelInOptions extends CancelOptions {
  /** An execution whose end is stored by the same transaction. */
  readonly except?: string | undefined
}

/** In the caller's transaction, which has locked nothing that is locked after the workflow and its lanes. */
export async function cancelIn(
  log: Log,
  tx: Executor,
  correlationId: string,
  { reason, compensate = false, except }: CancelInOptions,
): Promise<boolean> {
  const [row] = await tx.run<{ cancelled: boolean }>(sql`/* workflows.cancel */
    select cancelled
    from ${workflowNames(log).workflow_cancel}(
      p_owner => ${cancelOwner}::text,
      p_correlation => ${correlationId}::text,
      p_dispatcher => ${dispatcherName}::text,
      p_state => ${compensate ? 'compensating' : 'cancelled'}::text,
      p_reason => ${reason ?? null}::text,
      p_except => ${except ?? null}::uuid)`)
  const { cancelled } = row!
  if (cancelled && compensate) await nextUndo(log, tx, correlationId)
  return cancelled
}

/** Locks a workflow and all lanes it has executions in, in the order in which they are locked everywhere. */
export async function holdWorkflow(log: Log, tx: Executor, correlationId: string): Promise<void> {
  await tx.run(sql`/* workflows.hold_workflow */
    select correlation_id
    from ${workflowNames(log).workflows}
    where correlation_id = ${correlationId}::text
    for update`)
  await tx.run(sql`/* workflows.hold_lanes */
    select ${workflowNames(log).workflow_hold_lanes}(p_correlation => ${correlationId}::text)`)
}

/** Cancels children that a cancellation has not reached, because its process ended; returns how many. */
export async function reachAllChildren(log: Log, hints: WorkflowHints): Promise<number> {
  const rows = await log.database.run<{ correlation_id: string }>(sql`/* workflows.spreading */
    select correlation_id
    from ${workflowNames(log).workflows}
    where is_spreading
    order by correlation_id
    limit 100`)
  let count = 0
  for (const row of rows) count += await reachChildren(log, hints, row.correlation_id)
  return count
}

async function reachChildren(log: Log, hints: WorkflowHints, correlationId: string): Promise<number> {
  const [parent] = await log.database.run<{ state: string; reason: string | null }>(sql`/* workflows.cancelled_parent */
    select state, reason
    from ${workflowNames(log).workflows}
    where correlation_id = ${correlationId}::text
      and is_spreading`)
  if (parent === undefined) return 0
  const children = await log.database.run<{ correlation_id: string }>(sql`/* workflows.descendants */
    with recursive below as (
      select c.correlation_id, c.state
      from ${workflowNames(log).workflows} as c
      where c.parent = ${correlationId}::text
      union
      select c.correlation_id, c.state
      from below
      join ${workflowNames(log).workflows} as c on c.parent = below.correlation_id)
    select correlation_id
    from below
    where state = 'active'
    order by correlation_id`)
  const options = { reason: parent.reason ?? undefined, compensate: parent.state !== 'cancelled' }
  let count = 0
  for (const child of children) if (await cancelTree(log, hints, child.correlation_id, options)) count++
  await log.database.run(sql`/* workflows.spread */
    update ${workflowNames(log).workflows}
    set is_spreading = false
    where correlation_id = ${correlationId}::text`)
  return count
}
