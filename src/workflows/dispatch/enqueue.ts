/** New executions: in the transaction that is the reason for them, under the rows of their workflows. */

import { derivedId } from '../../core/derived-id.ts'
import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { workflowNames } from '../schema.ts'

export interface NewExecution {
  readonly id: string
  readonly position: number
  readonly route: number
  readonly correlationId: string
  /** Undefined: it waits for nobody. */
  readonly lane?: string | undefined
  /** Its lane is found out by who has the handler's code. */
  readonly isUnkeyed?: boolean | undefined
  readonly joinId?: string | undefined
  readonly undoId?: number | undefined
  readonly isLetter?: boolean | undefined
}

/** The same for one event and one handler, whenever and wherever it is asked for. */
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
      p_letters => ${column(each => each.isLetter)}::boolean[])`)
  return Number((row as [number])[0])
}
