/**
 * Cancelling a workflow: from then on nothing of it runs. Executions that wait are deleted; the signal of attempts that
 * run aborts, and their outcomes are refused; events of the workflow that are dispatched later run no handler. The
 * effects of its handlers stay, unless it is to be compensated (see `compensate.ts`).
 *
 *     active ──► cancelled                                     final: a second cancellation changes nothing
 *     active ──► compensating ──► compensated · compensationFailed
 *
 * A workflow that is over stays as it is, because there is nothing to cancel: nothing is open or still to be dispatched, no
 * dead letter can be retried, and, to be compensated, no undo is recorded.
 *
 * A cancellation reaches the workflows that this one has started, and those that they have: each in a transaction of its own,
 * right after. A mark on the row lets any worker continue if this process ends in between. A workflow that is started
 * meanwhile is cancelled when it is dispatched, because that looks at its parent.
 */

import { describe, refuseUnknownOptions } from '../../core/options.ts'
import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { refusal } from '../handler.ts'
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

export async function cancelWorkflow(
  log: Log,
  hints: WorkflowHints,
  correlationId: string,
  options: CancelOptions,
): Promise<WorkflowStatus> {
  log.database.refuseInsideTransaction('cancel')
  const what = `The cancellation of workflow ${correlationId}`
  if (typeof options !== 'object')
    throw refusal(what, 'options', `takes an object: { reason, compensate }, not ${describe(options)}.`)
  refuseUnknownOptions(what, options, ['reason', 'compensate'])
  const { reason, compensate } = options
  if (reason !== undefined && typeof reason !== 'string')
    throw refusal(what, 'reason', `needs text as "reason", not ${describe(reason)}.`)
  if (compensate !== undefined && typeof compensate !== 'boolean')
    throw refusal(what, 'compensate', `needs true or false as "compensate", not ${describe(compensate)}.`)
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
