/**
 * Numbers of all workflows. Totals come from counters, which change in the same transactions as the counted rows; open
 * executions and dead letters are counted up to a limit. No table is ever counted whole.
 */

import type { DeadLetterState } from '../../consumers/dead-letters/row.ts'
import { consumerNames } from '../../consumers/schema.ts'
import { type Fragment, fragment, joinFragments, numeral, sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { workflowNames } from '../schema.ts'
import { countOpen, type OpenCounts, sumOf } from './executions.ts'

export interface WorkflowStats {
  readonly workflows: {
    /** Those that retention has deleted included. */
    readonly total: number
    /** Workflows with open work. */
    readonly active: number
    /**
     * Workflows without open work. An event that is not dispatched yet does not count; `workflow.status()` looks at
     * that, too.
     */
    readonly settled: number
  }
  /** Events of workflows that were dispatched. */
  readonly events: number
  readonly executions: {
    readonly dispatched: number
    /** Those that their handler skipped included. */
    readonly completed: number
    /** For good. */
    readonly failed: number
    readonly cancelled: number
    readonly open: OpenCounts
  }
  /** Of each state 10 000 are counted at most. */
  readonly deadLetters: Readonly<Record<DeadLetterState, number>>
}

export async function readStats(log: Log): Promise<WorkflowStats> {
  const totals = await readTotals(log)
  const total = (name: string): number => totals.get(name) ?? 0
  const open = sumOf((await countOpen(log)).values())
  const deadLetters = await countDeadLetters(log)
  return {
    workflows: {
      total: total('workflows'),
      active: total('active'),
      settled: total('workflows') - total('active'),
    },
    events: total('events'),
    executions: {
      dispatched: total('dispatched'),
      completed: total('completed'),
      failed: total('failed'),
      cancelled: total('cancelled'),
      open,
    },
    deadLetters,
  }
}

/** Each owner has a row of its own: there are as many as workers. */
export async function readTotals(log: Log): Promise<Map<string, number>> {
  const [row] = await log.database.run<Record<string, number | null>>(sql`/* workflows.totals */
    select sum(active)::float8 as active,
      sum(cancelled)::float8 as cancelled,
      sum(completed)::float8 as completed,
      sum(dispatched)::float8 as dispatched,
      sum(events)::float8 as events,
      sum(failed)::float8 as failed,
      sum(workflows)::float8 as workflows
    from ${workflowNames(log).workflow_counters}`)
  return new Map(Object.entries(row!).map(([name, value]) => [name, value ?? 0]))
}

/** In the text of the statement, as each state is: each is counted by an index that holds nothing else. */
const maxCounted = numeral(10_000)

const states: Readonly<Record<DeadLetterState, Fragment>> = {
  open: fragment`'open'`,
  retrying: fragment`'retrying'`,
  parked: fragment`'parked'`,
  replayed: fragment`'replayed'`,
  resolved: fragment`'resolved'`,
}

async function countDeadLetters(log: Log): Promise<Record<DeadLetterState, number>> {
  const { dead_letters } = consumerNames(log)
  const counts = Object.values(states).map(
    state => fragment`
      (select count(*)
        from (
          select
          from ${dead_letters}
          where correlation_id is not null
            and state = ${state}
          limit ${maxCounted}) as counted)`,
  )
  const [row] = await log.database.runArrays(sql`/* workflows.count_dead_letters */
    select${joinFragments(counts, ',')}`)
  const entries = Object.keys(states).map((state, at) => [state, Number(row![at])])
  return Object.fromEntries(entries) as Record<DeadLetterState, number>
}
