/**
 * Workflows when the log is cut at a position (`transfer/backup/cut-log.ts`).
 *
 * The effects of a handler cannot be undone, and its recorded steps are deleted when it completes. So no workflow can
 * be put back into the state it had at an earlier position. Therefore:
 * - A workflow that began after the position is deleted, as if it had never been.
 * - A workflow that began before it, and had events after it, is cancelled if anything of it was open; the reason says
 *   why. If nothing was open, it is settled with the events that are left: the effects of its handlers stay, and the
 *   events they emitted after the position are deleted and not emitted again.
 * - A workflow that has started a workflow which is deleted is cancelled if anything of it is open: it would wait for ever.
 * - All others continue. Schedules stay as they are.
 */
import type { Database, Executor } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import { type LogNames, logNames } from '../events/log.ts'
import { dispatcherName } from './routes.ts'
import { workflowNames } from './schema.ts'

export interface CutWorkflows {
  /** Workflows that began after the position. */
  readonly removedWorkflows: number
  /** Workflows that were open and are cancelled. */
  readonly cancelledWorkflows: number
}

type Names = LogNames & ReturnType<typeof workflowNames>

const workflowsPerPage = 200

/** Runs `work` in a transaction of its own. */
export type RunTransaction = <T>(work: (tx: Executor) => Promise<T>) => Promise<T>

/** May be repeated. To be called before the events after the position are deleted. */
export async function cutWorkflows(
  database: Database,
  schema: string,
  position: number,
  run: RunTransaction,
): Promise<CutWorkflows> {
  const names = { ...logNames(schema), ...workflowNames({ schema }) }
  const reason = `The log was cut at position ${position}.`
  let removedWorkflows = 0
  let cancelledWorkflows = 0
  for (let after: string | null = ''; after !== null; ) {
    const page: WorkflowRow[] = await readWorkflows(database, names, position, after)
    for (const workflow of page)
      await run(async tx => {
        const wasOpen = await cancelIfOpen(names, tx, workflow.id, reason)
        await removeExecutions(names, tx, workflow, position)
        if (workflow.is_new) await deleteWorkflow(names, tx, workflow.id)
        if (workflow.is_new) removedWorkflows++
        else if (wasOpen) cancelledWorkflows++
      })
    after = page.length < workflowsPerPage ? null : page.at(-1)!.id
  }
  for (const parent of await readParentsOfRemoved(database, names, position))
    await run(async tx => {
      if (await cancelIfOpen(names, tx, parent, reason)) cancelledWorkflows++
    })
  await run(async tx => {
    await tx.run(sql`/* workflows.cut_activity */
      delete from ${names.workflow_activity}
      where event_position > ${position}::bigint`)
    await tx.run(sql`/* workflows.cut_routes */
      update ${names.workflow_routes}
      set start_position = least(start_position, ${position}::bigint),
        backfill_position = least(backfill_position, ${position}::bigint)
      where greatest(start_position, backfill_position) > ${position}::bigint`)
  })
  return { removedWorkflows, cancelledWorkflows }
}

interface WorkflowRow {
  readonly id: string
  /** Whether it began after the position. */
  readonly is_new: boolean
}

/** Workflows that have events after the position. */
function readWorkflows(database: Database, names: Names, position: number, after: string): Promise<WorkflowRow[]> {
  return database.run<WorkflowRow>(sql`/* workflows.cut_page */
    select w.correlation_id as id, w.first_position > ${position}::bigint as is_new
    from ${names.workflows} as w
    where w.correlation_id > ${after}::text
      and exists (
        select
        from ${names.events} as e
        where e.correlation_id = w.correlation_id
          and e.position > ${position}::bigint)
    order by w.correlation_id
    limit ${workflowsPerPage}::integer`)
}

/** Returns whether anything of it was open. */
async function cancelIfOpen(names: Names, tx: Executor, id: string, reason: string): Promise<boolean> {
  const open = await tx.run(sql`/* workflows.cut_open */
    select
    from ${names.workflows}
    where correlation_id = ${id}::text
      and open > 0`)
  if (open.length === 0) return false
  const [row] = await tx.run<{ cancelled: boolean }>(sql`/* workflows.cut_cancel */
    select cancelled
    from ${names.workflow_cancel}(
      p_owner => 'upkeep',
      p_correlation => ${id}::text,
      p_dispatcher => ${dispatcherName}::text,
      p_state => 'cancelled',
      p_reason => ${reason}::text,
      p_except => null)`)
  return row!.cancelled
}

/** Removes the executions of events that are deleted. A running compensation is not cancelled above, so it is removed here. */
async function removeExecutions(names: Names, tx: Executor, workflow: WorkflowRow, position: number): Promise<void> {
  // Two statements, because on Citus one with a table is sent to its node, where the function may not change rows.
  const cut = await tx.run<{ id: string }>(sql`/* workflows.executions_to_cut */
    select x.id
    from ${names.workflow_executions} as x
    where x.correlation_id = ${workflow.id}::text
      and (${workflow.is_new}::boolean or x.position > ${position}::bigint)`)
  await tx.run(sql`/* workflows.cut_executions */
    select ${names.workflow_remove}(
      p_owner => 'upkeep',
      p_correlation => ${workflow.id}::text,
      p_ids => ${cut.length === 0 ? null : cut.map(({ id }) => id)}::uuid[],
      p_lanes => ${names.workflow_hold_lanes}(p_correlation => ${workflow.id}::text),
      p_joins => 0)`)
}

async function deleteWorkflow(names: Names, tx: Executor, id: string): Promise<void> {
  await tx.run(sql`/* workflows.cut_join_entries */
    delete from ${names.workflow_join_entries}
    where join_id in (
      select j.id
      from ${names.workflow_joins} as j
      where j.correlation_id = ${id}::text)`)
  for (const table of [
    'workflow_joins',
    'workflow_branches',
    'workflow_undos',
    'workflow_signals',
    'workflow_activity',
    'workflows',
  ] as const)
    await tx.run(sql`/* workflows.cut_rows */
      delete from ${names[table]}
      where correlation_id = ${id}::text`)
}

/** Open workflows that have started one which is deleted, whether that was dispatched or not. */
async function readParentsOfRemoved(database: Database, names: Names, position: number): Promise<string[]> {
  const rows = await database.run<{ parent: string }>(sql`/* workflows.cut_parents */
    select distinct e.headers -> 'workflow' ->> 'parent' as parent
    from ${names.events} as e
    join ${names.workflows} as w on w.correlation_id = e.headers -> 'workflow' ->> 'parent'
    where e.position > ${position}::bigint
      and w.open > 0
      and not exists (
        select
        from ${names.events} as before
        where before.correlation_id = e.correlation_id
          and before.position <= ${position}::bigint)`)
  return rows.map(row => row.parent)
}
