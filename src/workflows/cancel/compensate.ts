/**
 * Compensation: the undos of a workflow's steps run, the newest first, each once.
 *
 *     compensating:  running attempts are stopped ─► all over, or expired ─► undo n ─► undo n-1 ─► … ─► compensated
 *                                                                              └─ fails for good ─► compensationFailed
 *
 * An attempt that runs when compensation begins is fenced off at once, but its code may still run. Compensation waits until
 * its worker confirms that the code has ended, its time is over, or its worker is dead. Only then the first undo is queued,
 * so that an undo and the step it undoes never run at the same time.
 *
 * An undo is an execution like any other, with retries and a timeout of its own. Its end and the beginning of the next are
 * one transaction. One that fails for good ends the compensation: it is a dead letter, and those before it stay recorded.
 */

import { derivedId } from '../../core/id.ts'
import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { enqueue } from '../dispatch/enqueue.ts'
import { prepareEmitted, type ReadResult } from '../emit.ts'
import { EventGone } from '../errors.ts'
import type { Handler } from '../handler.ts'
import { workflowNames } from '../schema.ts'
import type { AttemptParts } from '../work/attempt.ts'
import type { Claimed } from '../work/claim.ts'
import type { OutcomeEnd } from '../work/outcome.ts'

/** The owner of the counters of cancelled executions. */
export const cancelOwner = 'cancellation'

/** An attempt that is to stop, as stored. */
export interface StoppingAttempt {
  readonly id: string
  readonly correlationId: string
}

/**
 * These attempts are over, or waited for no longer; the last of a workflow begins its undos. Returns how many there were.
 * One transaction a workflow: it is the first thing to be locked.
 */
export async function confirmStopped(log: Log, stopped: readonly StoppingAttempt[]): Promise<number> {
  let count = 0
  for (const correlationId of new Set(stopped.map(each => each.correlationId))) {
    const ids = stopped.filter(each => each.correlationId === correlationId).map(({ id }) => id)
    count += await log.database.transaction(async tx => {
      const [row] = await tx.run<{ removed: number }>(sql`/* workflows.stopped */
        select removed
        from ${workflowNames(log).workflow_stopped}(
          p_owner => ${cancelOwner}::text,
          p_correlation => ${correlationId}::text,
          p_ids => ${ids}::uuid[])`)
      const { removed } = row!
      if (removed > 0) await nextUndo(log, tx, correlationId)
      return removed
    })
  }
  return count
}

interface NextUndo {
  readonly id: number | null
  readonly position: number
  readonly at: Date
  readonly execution: string
  readonly kind: string
  readonly step: string
  readonly route: number
}

/**
 * Queues the newest undo, or ends the compensation if there is none left; does nothing while something is still to be over.
 * `done` is the undo whose end is stored by the same transaction. The caller holds the workflow.
 */
export async function nextUndo(log: Log, tx: Executor, correlationId: string, done?: number): Promise<void> {
  const names = workflowNames(log)
  const [next] = await tx.run<NextUndo>(sql`/* workflows.next_undo */
    select u.id, u.position, u.at, u.execution, u.kind, u.step, u.route
    from ${names.workflows} as w
    left join lateral (
      select u.id, u.position, u.at, u.execution, u.kind, u.step, r.id as route
      from ${names.workflow_undos} as u
      cross join lateral (
        select r.id
        from ${names.workflow_routes} as r
        where r.handler = u.handler
          and r.kind = 'undo'
        order by r.retired_at is null desc, r.version desc
        limit 1) as r
      where u.correlation_id = w.correlation_id
        and u.state = 'recorded'
      order by u.id desc
      limit 1) as u on true
    where w.correlation_id = ${correlationId}::text
      and w.state = 'compensating'
      and not exists (
        select
        from ${names.workflow_executions} as x
        where x.correlation_id = w.correlation_id
          and (x.state = 'stopping' or x.undo_id <> ${done ?? 0}::bigint))`)
  if (next === undefined) return
  if (next.id === null) return endCompensation(log, tx, correlationId, 'compensated')
  await tx.run(sql`/* workflows.begin_undo */
    update ${names.workflow_undos}
    set state = 'running'
    where id = ${next.id}::bigint`)
  const id = derivedId(next.at, next.execution, next.kind, next.step, 'undo')
  await enqueue(log, tx, cancelOwner, [
    { id, position: next.position, route: next.route, correlationId, undoId: next.id },
  ])
}

/** The outcome of an undo. The event of the step it undoes is the cause of the events it emits. */
export async function undoOutcome(
  { log, limits }: AttemptParts,
  execution: Claimed,
  { name, definition }: Handler,
  { work, emitted: given }: ReadResult,
): Promise<OutcomeEnd> {
  const { event, position, undoId } = execution
  if (given.length > 0 && event === undefined) throw new EventGone({ position })
  const emitter = { handler: name, event: event!, batches: [], emits: definition.emits, about: `undo ${undoId}` }
  return {
    ...{ kind: 'done', activity: 'completed' },
    emitted: given.length === 0 ? undefined : await prepareEmitted(log, emitter, given, limits),
    async write(tx) {
      await work?.(tx)
      await undone(log, tx, execution)
    },
  }
}

/** The end of an undo, in the transaction that ends its execution. */
async function undone(log: Log, tx: Executor, { undoId, correlationId }: Claimed): Promise<void> {
  await endUndo(log, tx, undoId!, 'done')
  await nextUndo(log, tx, correlationId, undoId)
}

export async function undoFailed(log: Log, tx: Executor, { undoId, correlationId }: Claimed): Promise<void> {
  await endUndo(log, tx, undoId!, 'failed')
  await endCompensation(log, tx, correlationId, 'compensationFailed')
}

async function endUndo(log: Log, tx: Executor, id: number, state: 'done' | 'failed'): Promise<void> {
  await tx.run(sql`/* workflows.end_undo */
    update ${workflowNames(log).workflow_undos}
    set state = ${state}::text
    where id = ${id}::bigint`)
}

async function endCompensation(
  log: Log,
  tx: Executor,
  correlationId: string,
  state: 'compensated' | 'compensationFailed',
): Promise<void> {
  await tx.run(sql`/* workflows.end_compensation */
    update ${workflowNames(log).workflows}
    set state = ${state}::text,
      updated_at = ${log.names.clock}(updated_at)
    where correlation_id = ${correlationId}::text`)
}
