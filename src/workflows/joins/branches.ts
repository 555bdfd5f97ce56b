/**
 * Branches: everything that follows from one event of a batch. Each counts its open work: events that were emitted and
 * not yet dispatched, executions, open joins of batches inside of it. With nothing open it has ended.
 *
 * A nested batch counts in the branch around it, too, at every level. Changes of one transaction are summed up first: a step
 * that ends one thing and begins another, as most do, writes nothing.
 */

import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import type { BatchPlace } from '../publish.ts'
import { workflowNames } from '../schema.ts'

/** The event because of which something happens: its workflow, and its position in the log. */
export interface Cause {
  readonly correlationId: string
  readonly position: number
}

export interface BranchChange extends Cause {
  readonly batchId: string
  readonly index: number
  readonly size: number
  /** How much more, or less, is open in it. */
  readonly change: number
  /** Whether an execution was dead-lettered in it; then the position is that of its event. */
  readonly isFailed: boolean
}

/** A branch with nothing open. */
export interface EndedBranch extends Cause {
  readonly batchId: string
  readonly index: number
  readonly size: number
  readonly isFailed: boolean
}

/** The sum of the changes, by branch. */
export type BranchChanges = Map<string, BranchChange>

export function branchKey({ batchId, index, correlationId }: Omit<EndedBranch, keyof Cause> & Cause): string {
  return `${batchId}/${index}/${correlationId}`
}

// [join-2]
export function addChange(
  changes: BranchChanges,
  { correlationId, position }: Cause,
  places: readonly BatchPlace[],
  change: number,
  isFailed = false,
): void {
  for (const { id: batchId, index, size } of places) {
    const added = { batchId, index, size, correlationId, position, change, isFailed }
    const key = branchKey(added)
    const known = changes.get(key)
    changes.set(
      key,
      known === undefined
        ? added
        : {
            ...added,
            position: known.isFailed ? known.position : position,
            change: known.change + change,
            isFailed: known.isFailed || isFailed,
          },
    )
  }
}

/** Returns the branches that have ended with it. The caller holds their workflows. [join-3] */
export async function storeBranches(log: Log, tx: Executor, changes: BranchChanges): Promise<EndedBranch[]> {
  const changed = [...changes.values()].filter(({ change, isFailed }) => change !== 0 || isFailed)
  if (changed.length === 0) return []
  const rows = await tx.runArrays(sql`/* workflows.branches */
    with moved as (
      insert into ${workflowNames(log).workflow_branches} as b
        (batch_id, index, correlation_id, size, position, open, outcome)
      select u.batch_id, u.index, u.correlation_id, u.size, u.position, u.change, u.outcome
      from unnest(
        ${changed.map(each => each.batchId)}::uuid[],
        ${changed.map(each => each.index)}::integer[],
        ${changed.map(each => each.correlationId)}::text[],
        ${changed.map(each => each.size)}::integer[],
        ${changed.map(each => each.position)}::bigint[],
        ${changed.map(each => each.change)}::integer[],
        ${changed.map(each => (each.isFailed ? 'failed' : null))}::text[])
        as u(batch_id, index, correlation_id, size, position, change, outcome)
      on conflict (batch_id, index, correlation_id) do update
      set open = greatest(0, b.open + excluded.open),
        outcome = coalesce(b.outcome, excluded.outcome),
        position = case when excluded.outcome is null or b.outcome is not null then b.position else excluded.position end
      returning b.batch_id, b.index, b.correlation_id, b.size, b.position, b.open, b.outcome)
    select batch_id, index, correlation_id, size, position, outcome
    from moved
    where open <= 0`)
  return rows.map(row => {
    const branch = endedOf(row)
    // The position of a branch that ended is that of its last event, of a failed one that of the event that failed.
    return branch.isFailed ? branch : { ...branch, position: changes.get(branchKey(branch))!.position }
  })
}

/** The branches of these batches that have ended so far. [join-4] */
export async function readEnded(log: Log, tx: Executor, batchIds: readonly string[]): Promise<EndedBranch[]> {
  if (batchIds.length === 0) return []
  const rows = await tx.runArrays(sql`/* workflows.ended_branches */
    select batch_id, index, correlation_id, size, position, outcome
    from ${workflowNames(log).workflow_branches}
    where batch_id = any(${batchIds}::uuid[])
      and open <= 0
    order by batch_id, index`)
  return rows.map(endedOf)
}

function endedOf(row: unknown[]): EndedBranch {
  const [batchId, index, correlationId, size, position, outcome] = row as [
    ...[string, number, string, number, number, string | null],
  ]
  return { batchId, index, correlationId, size, position, isFailed: outcome === 'failed' }
}
