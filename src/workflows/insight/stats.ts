/**
 * Figures of all workflows. Totals come from counters that are kept by whoever changes what they count, in the same
 * transaction; what is open is counted up to a limit. No table is ever counted whole.
 */

import type { DeadLetterState } from '../../consumers/dead-letters/row.ts'
import { consumerNames } from '../../consumers/schema.ts'
import { numeral, sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { workflowNames } from '../schema.ts'
import { countOpen, type OpenCounts, sumOf } from './open.ts'

export interface WorkflowStats {
  readonly workflows: {
    /** Those that were forgotten after a while included. */
    readonly total: number
    /** Something of it is open. */
    readonly active: number
    /** Nothing of it is open. An event that is not dispatched yet does not count; `flow.status()` looks at that too. */
    readonly settled: number
  }
  /** Events of workflows that were dispatched. */
  readonly events: number
  readonly executions: {
    readonly dispatched: number
    /** Those not wanted by their handler, after all, included. */
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
  const deadLetters = await countLetters(log)
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

/** Each who counts has rows of its own: there are as many as workers. */
export async function readTotals(log: Log): Promise<Map<string, number>> {
  const rows = await log.database.run<{ name: string; value: number }>(sql`/* workflows.totals */
    select name, sum(value)::float8 as value
    from ${workflowNames(log).workflow_counters}
    group by name`)
  return new Map(rows.map(({ name, value }) => [name, value]))
}

const most = numeral(10_000)

async function countLetters(log: Log): Promise<Record<DeadLetterState, number>> {
  const { dead_letters: letters } = consumerNames(log)
  const [row] = await log.database.run<Record<DeadLetterState, number>>(sql`/* workflows.count_letters */
    select
      (select count(*)
        from (
          select
          from ${letters}
          where correlation_id is not null
            and state = 'open'
          limit ${most}) as counted) as open,
      (select count(*)
        from (
          select
          from ${letters}
          where correlation_id is not null
            and state = 'retrying'
          limit ${most}) as counted) as retrying,
      (select count(*)
        from (
          select
          from ${letters}
          where correlation_id is not null
            and state = 'replayed'
          limit ${most}) as counted) as replayed,
      (select count(*)
        from (
          select
          from ${letters}
          where correlation_id is not null
            and state = 'resolved'
          limit ${most}) as counted) as resolved`)
  const { open, retrying, replayed, resolved } = row!
  return { open: Number(open), retrying: Number(retrying), replayed: Number(replayed), resolved: Number(resolved) }
}
