/**
 * Retention of workflows. Events stay; the record of their handling is deleted: activity, rows of settled workflows,
 * closed joins, steps and undos that can no longer be used, runs of schedules. In chunks, so that no writer waits for
 * long.
 *
 * A workflow that was cancelled or compensated keeps its row, because the row stops later events of it from being handled.
 */
import { consumerNames } from '../consumers/schema.ts'
import { type OldRows, type PruneOptions, prune } from '../database/prune.ts'
import type { Log } from '../events/log.ts'
import { workflowNames } from './schema.ts'

/** Deletes rows that are older, or counts them; returns how many. */
export async function pruneAttempts(log: Log, options: PruneOptions): Promise<number> {
  let total = 0
  for (const old of oldAttempts(log)) total += await prune(log.database, old, options)
  return total
}

function oldAttempts(log: Log): OldRows[] {
  const names = { clock: log.names.clock, later: log.names.later, ...consumerNames(log), ...workflowNames(log) }
  const isSettled = (w: string): string => `${w}.state = 'active'
        and ${w}.open = 0
        and ${w}.updated_at < $1
        and not exists (
          select
          from ${names.dead_letters} as d
          where d.correlation_id = ${w}.correlation_id
            and d.state in ('open', 'retrying'))`
  /** Its workflow does not exist, or is deleted, too. */
  const isOrphan = (isAlsoDeleted: string): string => `not exists (
          select
          from ${names.workflows} as w
          where w.correlation_id = t.correlation_id
            and not (${isSettled('w')})
            and not (${isAlsoDeleted}))`
  return [
    {
      label: 'workflows.prune_activity',
      table: names.workflow_activity,
      key: ['position'],
      clock: names.clock,
      later: names.later,
      where: 't.at < $1',
      isInOrder: true,
    },
    {
      label: 'workflows.prune_workflows',
      table: names.workflows,
      key: ['correlation_id'],
      clock: names.clock,
      later: names.later,
      where: isSettled('t'),
    },
    {
      label: 'workflows.prune_joins',
      table: names.workflow_joins,
      key: ['id'],
      clock: names.clock,
      later: names.later,
      where: `t.state <> 'open'
        and t.closed_at < $1
        and not exists (
          select
          from ${names.workflow_executions} as x
          where x.join_id = t.id)
        -- A retry of its dead letter runs with the events it has.
        and not exists (
          select
          from ${names.dead_letters} as d
          where d.correlation_id = t.correlation_id
            and d.execution = t.id
            and d.state in ('open', 'retrying'))`,
      dependents: { table: names.workflow_join_entries, column: 'join_id' },
    },
    {
      // A branch is as old as its workflow.
      label: 'workflows.prune_branches',
      table: names.workflow_branches,
      key: ['batch_id', 'index', 'correlation_id'],
      clock: names.clock,
      later: names.later,
      where: isOrphan('false'),
    },
    {
      // Undos of a workflow that can still be compensated stay as long as the workflow.
      label: 'workflows.prune_undos',
      table: names.workflow_undos,
      key: ['id'],
      clock: names.clock,
      later: names.later,
      where: isOrphan(`w.state in ('cancelled', 'compensated', 'compensationFailed') and w.updated_at < $1`),
    },
    {
      label: 'workflows.prune_signals',
      table: names.workflow_signals,
      key: ['correlation_id', 'handler', 'position'],
      clock: names.clock,
      later: names.later,
      where: isOrphan('false'),
    },
    {
      // Of executions that failed for good, and whose dead letters are closed.
      label: 'workflows.prune_steps',
      table: names.workflow_steps,
      key: ['execution', 'kind', 'name'],
      clock: names.clock,
      later: names.later,
      where: `t.at < $1
        and not exists (
          select
          from ${names.workflow_executions} as x
          where x.id = t.execution)
        and not exists (
          select
          from ${names.dead_letters} as d
          where d.execution = t.execution
            and d.state in ('open', 'retrying'))`,
    },
    {
      label: 'workflows.prune_runs',
      table: names.workflow_schedule_runs,
      key: ['schedule', 'due_at', 'is_manual'],
      clock: names.clock,
      later: names.later,
      where: 't.ended_at < $1',
    },
  ]
}
