/**
 * New executions, and those that wait no longer: both become ready, take their place in their lane, or queue for it. The
 * caller holds the rows of their workflows, which everything locks first and in one order.
 */
import { derivedId } from '../../core/id.ts'
import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import { byBytes } from '../../events/append/send.ts'
import type { Log } from '../../events/log.ts'
import { workflowNames } from '../schema.ts'

export interface NewExecution {
  readonly id: string
  readonly position: number
  readonly route: number
  readonly correlationId: string
  /** Undefined: it waits for no other execution. */
  readonly lane?: string | undefined
  /** Its lane is assigned by a process that has the handler's code. */
  readonly isUnkeyed?: boolean | undefined
  readonly joinId?: string | undefined
  readonly undoId?: number | undefined
  /** Whether it retries a dead letter. */
  readonly isRetry?: boolean | undefined
}

/** The same for one event and one handler, in every process and every run. */
export function executionId(event: { readonly id: string; readonly createdAt: Date }, handler: string): string {
  return derivedId(event.createdAt, event.id, handler, 'execution')
}

/** Returns how many were new. */
export async function enqueue(
  log: Log,
  tx: Executor,
  owner: string,
  executions: readonly NewExecution[],
): Promise<number> {
  if (executions.length === 0) return 0
  const column = <T>(of: (each: NewExecution) => T | undefined): (T | null)[] | null =>
    executions.some(each => of(each) !== undefined) ? executions.map(each => of(each) ?? null) : null
  const [row] = await tx.runArrays(sql`/* workflows.enqueue */
    select enqueued
    from ${workflowNames(log).workflow_enqueue}(
      p_owner => ${owner}::text,
      p_ids => ${executions.map(each => each.id)}::uuid[],
      p_positions => ${executions.map(each => each.position)}::bigint[],
      p_routes => ${executions.map(each => each.route)}::integer[],
      p_correlations => ${executions.map(each => each.correlationId)}::text[],
      p_states => ${executions.map(each => (each.isUnkeyed === true ? 'unkeyed' : 'ready'))}::text[],
      p_lanes => ${column(each => each.lane)}::text[],
      p_joins => ${column(each => each.joinId)}::uuid[],
      p_undos => ${column(each => each.undoId)}::bigint[],
      p_retries => ${column(each => each.isRetry)}::boolean[])`)
  return Number((row as [number])[0])
}

/** Wakes executions whose delay or timer is over, except those in lanes that another transaction holds; returns how many. */
export async function wakeDue(log: Log, ids: readonly string[]): Promise<number> {
  if (ids.length === 0) return 0
  const [row] = await log.database.runArrays(sql`/* workflows.wake */
    select woken
    from ${workflowNames(log).workflow_wake}(p_ids => ${ids}::uuid[], p_patient => false)`)
  return Number((row as [number])[0])
}

/** Wakes suspended executions, because their wait is over. One that waits for its next retry is not woken. */
export async function wakeSuspended(log: Log, tx: Executor, ids: readonly string[]): Promise<number> {
  const names = workflowNames(log)
  // Two statements, because on Citus one with a table is sent to its node, where the function may not change rows.
  const suspended = await tx.run<{ id: string }>(sql`/* workflows.suspended */
    select x.id
    from ${names.workflow_executions} as x
    where x.id = any(${[...new Set(ids)]}::uuid[])
      and x.state = 'suspended'`)
  if (suspended.length === 0) return 0
  const [row] = await tx.runArrays(sql`/* workflows.wake */
    select woken
    from ${names.workflow_wake}(p_ids => ${suspended.map(({ id }) => id)}::uuid[])`)
  return Number((row as [number])[0])
}

/** Locks these workflows until the transaction ends. */
export async function lockWorkflows(log: Log, tx: Executor, correlationIds: readonly string[]): Promise<void> {
  await tx.run(sql`/* workflows.lock */
    select correlation_id
    from ${workflowNames(log).workflows}
    where correlation_id = any(${[...new Set(correlationIds)].sort(byBytes)}::text[])
    order by correlation_id
    for update`)
}
