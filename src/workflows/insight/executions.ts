/**
 * Open executions for operators: a list, how many there are in each state, and what can be done about one that is parked. Of
 * each handler and state at most 10 000 are counted, each by an index that holds nothing else: never a whole table.
 *
 *     its code does not fit its recorded steps ─► parked ─┬─ resume ──► it continues, with code that fits
 *                                                         └─ reject ──► a runner that has its handler dead-letters it
 */
import { canonicalUuid } from '../../core/id.ts'
import type { Page } from '../../core/page.ts'
import { type Fragment, fragment, joinFragments, numeral, sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { lockWorkflows, wakeSuspended } from '../dispatch/enqueue.ts'
import { ExecutionNotParked } from '../errors.ts'
import type { WorkflowHints } from '../hints.ts'
import { workflowNames } from '../schema.ts'
import type { Attempt } from './activity.ts'
import type { ExecutionDescription, ListExecutionsOptions } from './list-executions.ts'

/** The executions of a store: `store.workflows.executions`. */
export interface Executions {
  /** Those that are open, by id; at most 10 000 in a page, 100 by default. */
  list(options?: ListExecutionsOptions): Promise<Page<ExecutionDescription>>
  /** Lets an execution continue that was parked because its code did not fit its recorded steps. */
  resume(executionId: string): Promise<void>
  /**
   * Runs one in this process that is ready or waits for its next attempt, also while its handler is paused and no runner is
   * active. Resolves to its attempt; to undefined if it waits.
   */
  run(executionId: string, options?: { signal?: AbortSignal | undefined }): Promise<Attempt | undefined>
  /** Dead-letters an execution that was parked: a runner that has its handler does so, instead of running it. */
  reject(executionId: string): Promise<void>
}

/**
 * Ready · running · delayed (for its next attempt, or by its handler) · suspended (waits for a timer or a signal) · blocked
 * (waits for its lane) · held (comes next in a lane that a worker runs) · unkeyed (its lane is not assigned yet) · parked
 * (waits for an operator) · stopping (its workflow compensates).
 */
export type ExecutionState =
  | 'ready'
  | 'running'
  | 'delayed'
  | 'suspended'
  | 'blocked'
  | 'held'
  | 'unkeyed'
  | 'parked'
  | 'stopping'

/** Of one handler, a count of 10 000 stands for that many or more. */
export type OpenCounts = Readonly<Record<ExecutionState, number>>

/** Each by an index of its own: its condition has to be the text of the statement. */
export const conditions: Readonly<Record<ExecutionState, Fragment>> = {
  ready: fragment`x.state = 'ready'`,
  running: fragment`x.state = 'running' and x.worker is not null`,
  delayed: fragment`x.state = 'delayed'`,
  suspended: fragment`x.state = 'suspended'`,
  blocked: fragment`x.state = 'blocked'`,
  held: fragment`x.state = 'held' and x.worker is not null`,
  unkeyed: fragment`x.state = 'unkeyed'`,
  parked: fragment`x.state = 'parked'`,
  stopping: fragment`x.state = 'stopping'`,
}

export const executionStates: readonly ExecutionState[] = Object.keys(conditions) as ExecutionState[]

/** In the text of the statement, too: without the limit the planner expects to read a tenth of the table. */
const maxCounted = numeral(10_000)

/** By route. */
export async function countOpen(log: Log): Promise<Map<number, OpenCounts>> {
  const { workflow_executions, workflow_routes } = workflowNames(log)
  const counts = executionStates.map(
    state => fragment`
      (select count(*)
        from (
          select
          from ${workflow_executions} as x
          where x.route = r.id
            and ${conditions[state]}
          limit ${maxCounted}) as counted)`,
  )
  const rows = await log.database.runArrays(sql`/* workflows.count_open */
    select r.id,${joinFragments(counts, ',')}
    from ${workflow_routes} as r`)
  return new Map(rows.map(([id, ...row]) => [id as number, countsOf(at => Number(row[at]))]))
}

/** Of all handlers together. */
export function sumOf(all: Iterable<OpenCounts>): OpenCounts {
  const list = [...all]
  return countsOf(at => list.reduce((sum, counts) => sum + counts[executionStates[at]!], 0))
}

function countsOf(count: (at: number) => number): OpenCounts {
  return Object.fromEntries(executionStates.map((state, at) => [state, count(at)])) as unknown as OpenCounts
}

/** Lets it continue, or be dead-lettered: under the row of its workflow, and in its place among those of its lane. */
export async function unpark(
  log: Log,
  hints: WorkflowHints,
  executionId: string,
  { rejects }: { readonly rejects: boolean },
): Promise<void> {
  const id = canonicalUuid(executionId)
  if (id === undefined) throw new ExecutionNotParked({ executionId, state: 'gone' })
  await log.database.transaction(async tx => {
    const [known] = await tx.run<{ correlation_id: string }>(sql`/* workflows.execution */
      select correlation_id
      from ${workflowNames(log).workflow_executions}
      where id = ${id}::uuid`)
    await lockWorkflows(log, tx, known === undefined ? [] : [known.correlation_id])
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
      set state = 'suspended',
        is_rejected = ${rejects}::boolean
      where id = ${id}::uuid
        and state = 'parked'`)
    await wakeSuspended(log, tx, [id])
    tx.afterCommit(() => hints.ready())
  })
}
