/**
 * How many executions are open, by their state. Of each handler and state 10 000 are counted at most, each by the index that
 * holds nothing else: never a whole table.
 */

import { numeral, sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { workflowNames } from '../schema.ts'

/**
 * Ready · running · delayed (for its next try, or by its handler) · suspended (waits for a timer or a signal) · blocked
 * (waits for its lane) · held (comes next in the lane a worker is at) · unkeyed (its lane is not known yet) · parked (waits
 * for a person) · stopping (its workflow compensates).
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

/** In the text of the statement: not knowing the limit, the planner expects a tenth of the table to do. */
const most = numeral(10_000)

/** By route. */
export async function countOpen(log: Log): Promise<Map<number, OpenCounts>> {
  const { workflow_executions: executions, workflow_routes: routes } = workflowNames(log)
  const rows = await log.database.run<Record<ExecutionState, number> & { id: number }>(sql`/* workflows.count_open */
    select r.id,
      (select count(*)
        from (
          select
          from ${executions} as x
          where x.route = r.id
            and x.state = 'ready'
          limit ${most}) as counted) as ready,
      (select count(*)
        from (
          select
          from ${executions} as x
          where x.route = r.id
            and x.state = 'running'
            and x.worker is not null
          limit ${most}) as counted) as running,
      (select count(*)
        from (
          select
          from ${executions} as x
          where x.route = r.id
            and x.state = 'held'
            and x.worker is not null
          limit ${most}) as counted) as held,
      (select count(*)
        from (
          select
          from ${executions} as x
          where x.route = r.id
            and x.state = 'unkeyed'
          limit ${most}) as counted) as unkeyed,
      (select count(*)
        from (
          select
          from ${executions} as x
          where x.route = r.id
            and x.state = 'delayed'
          limit ${most}) as counted) as delayed,
      (select count(*)
        from (
          select
          from ${executions} as x
          where x.route = r.id
            and x.state = 'suspended'
          limit ${most}) as counted) as suspended,
      (select count(*)
        from (
          select
          from ${executions} as x
          where x.route = r.id
            and x.state = 'blocked'
          limit ${most}) as counted) as blocked,
      (select count(*)
        from (
          select
          from ${executions} as x
          where x.route = r.id
            and x.state = 'parked'
          limit ${most}) as counted) as parked,
      (select count(*)
        from (
          select
          from ${executions} as x
          where x.route = r.id
            and x.state = 'stopping'
          limit ${most}) as counted) as stopping
    from ${routes} as r`)
  return new Map(rows.map(({ id, ...counts }) => [id, countsOf(counts)]))
}

/** Of all handlers together. */
export function sumOf(all: Iterable<OpenCounts>): OpenCounts {
  const sum = countsOf({})
  for (const counts of all) for (const state of executionStates) sum[state] += counts[state]
  return sum
}

function countsOf(row: Partial<Record<ExecutionState, number>>): Record<ExecutionState, number> {
  const entries = executionStates.map(state => [state, Number(row[state] ?? 0)])
  return Object.fromEntries(entries) as Record<ExecutionState, number>
}

const executionStates: readonly ExecutionState[] = [
  ...(['ready', 'running', 'delayed', 'suspended', 'blocked', 'held', 'unkeyed', 'parked', 'stopping'] as const),
]
