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
import type { Wake } from '../../events/order/wake.ts'
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

export interface CancelParts {
  readonly log: Log
  readonly wake: Wake
}

/** `flow.cancel('why', { compensate })` or `flow.cancel({ reason, compensate })`. */
export async function cancelFlow(
  parts: CancelParts,
  correlationId: string,
  first: string | CancelOptions | undefined,
  second: Omit<CancelOptions, 'reason'> | undefined,
): Promise<WorkflowStatus> {
  parts.log.database.refuseInsideTransaction('cancel')
  const options = typeof first === 'object' ? first : { ...second, reason: first }
  const { reason, compensate } = options
  if (reason !== undefined && typeof reason !== 'string')
    throw new InvalidOption({ option: 'reason', reason: `must be text, not ${JSON.stringify(reason)}` })
  if (compensate !== undefined && typeof compensate !== 'boolean')
    throw new InvalidOption({
      option: 'compensate',
      reason: `must be true or false, not ${JSON.stringify(compensate)}`,
    })
  await cancelWorkflow(parts, correlationId, options)
  const [status] = await readStatuses(parts.log, [correlationId])
  return status!
}

/** With all that it has started. Returns whether there was anything to cancel. */
async function cancelWorkflow(parts: CancelParts, correlationId: string, options: CancelOptions): Promise<boolean> {
  const { log, wake } = parts
  const isCancelled = await log.database.transaction(tx => cancelIn(log, tx, correlationId, options))
  if (isCancelled) {
    // All workers look at once whether what they run is still theirs.
    wake.changed()
    wake.worked()
    wake.ended()
  }
  await reachChildren(parts, correlationId)
  return isCancelled
}

export interface CancelInOptions extends CancelOptions {
  /** An execution whose end is stored by the same transaction. */
  readonly except?: string | undefined
}

/** In the caller's transaction, which holds nothing after the row of the workflow and its lanes. */
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

/** The row of a workflow and all lanes it has work in: taken in the order of everybody, before anything else is. */
export async function holdWhole(log: Log, tx: Executor, correlationId: string): Promise<void> {
  await tx.run(sql`/* workflows.hold_workflow */
    select correlation_id
    from ${workflowNames(log).workflows}
    where correlation_id = ${correlationId}::text
    for update`)
  await tx.run(sql`/* workflows.hold_lanes */
    select ${workflowNames(log).workflow_hold_lanes}(p_correlation => ${correlationId}::text)`)
}

/** Goes on where whoever cancelled a workflow has not come to its children; returns how many it cancelled. */
export async function reachAllChildren(parts: CancelParts): Promise<number> {
  const rows = await parts.log.database.run<{ correlation_id: string }>(sql`/* workflows.spreading */
    select correlation_id
    from ${workflowNames(parts.log).workflows}
    where is_spreading
    order by correlation_id
    limit 100`)
  let count = 0
  for (const row of rows) count += await reachChildren(parts, row.correlation_id)
  return count
}

async function reachChildren(parts: CancelParts, correlationId: string): Promise<number> {
  const { log } = parts
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
  for (const child of children) if (await cancelWorkflow(parts, child.correlation_id, options)) count++
  await log.database.run(sql`/* workflows.spread */
    update ${workflowNames(log).workflows}
    set is_spreading = false
    where correlation_id = ${correlationId}::text`)
  return count
}
