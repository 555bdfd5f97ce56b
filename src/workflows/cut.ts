/**
 * What becomes of workflows when their log is cut. What a handler has done cannot be taken back, and what it remembers of it
 * is deleted when it is done, so no workflow can be put into the state it was in at an earlier position. Therefore:
 * - One that began above the position is gone, as if it had never been.
 * - One that began before, and had events above, is cancelled if anything of it was open, with a reason that says so. If
 *   nothing was, it is settled with the events it has left: what its handlers did stays done, what they emitted above the
 *   position is gone and not emitted again.
 * - One that has started a workflow which is gone is cancelled if anything of it is open: it would wait for nothing.
 * - All others go on as they were. Schedules are as they were, too.
 */
import type { Database, Executor } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import { logNames } from '../events/log.ts'
import { dispatcherName } from './routes.ts'
import { workflowNames } from './schema.ts'

export interface CutWorkflows {
  /** Workflows that began above the position. */
  readonly removedWorkflows: number
  /** Workflows that were under way, and are cancelled. */
  readonly cancelledWorkflows: number
}

type CutNames = ReturnType<typeof namesIn>

function namesIn(schema: string) {
  return { ...logNames(schema), ...workflowNames({ schema }) }
}

const page = 200

export async function cutWorkflows(
  database: Database,
  schema: string,
  position: number,
  inOne: <T>(work: (tx: Executor) => Promise<T>) => Promise<T>,
): Promise<CutWorkflows> {
  const names = namesIn(schema)
  const reason = `the log was cut at position ${position}`
  let removedWorkflows = 0
  let cancelledWorkflows = 0
  for (let after: string | null = ''; after !== null; ) {
    const flows: CutFlow[] = await database.run<CutFlow>(sql`/* upkeep.cut_workflows */
      select w.correlation_id as id, w.first_position > ${position}::bigint as is_new
      from ${names.workflows} as w
      where w.correlation_id > ${after}::text
        and exists (
          select
          from ${names.events} as e
          where e.correlation_id = w.correlation_id
            and e.position > ${position}::bigint)
      order by w.correlation_id
      limit ${page}::integer`)
    for (const flow of flows)
      await inOne(async tx => {
        const wasOpen = await cancel(names, tx, flow.id, reason)
        await removeExecutions(names, tx, flow, position)
        if (flow.is_new) await forget(names, tx, flow.id)
        if (flow.is_new) removedWorkflows++
        else if (wasOpen) cancelledWorkflows++
      })
    after = flows.length < page ? null : flows.at(-1)!.id
  }
  for (const parent of await parentsOfGone(database, names, position))
    await inOne(async tx => {
      if (await cancel(names, tx, parent, reason)) cancelledWorkflows++
    })
  await inOne(async tx => {
    await tx.run(sql`/* upkeep.cut_activity */
      delete from ${names.workflow_activity}
      where event_position > ${position}::bigint`)
    await tx.run(sql`/* upkeep.cut_routes */
      update ${names.workflow_routes}
      set start_position = least(start_position, ${position}::bigint),
        backfill_position = least(backfill_position, ${position}::bigint)
      where greatest(start_position, backfill_position) > ${position}::bigint`)
  })
  return { removedWorkflows, cancelledWorkflows }
}

interface CutFlow {
  readonly id: string
  readonly is_new: boolean
}

/** Returns whether anything of it was open. */
async function cancel(names: CutNames, tx: Executor, id: string, reason: string): Promise<boolean> {
  const open = await tx.run(sql`/* upkeep.cut_open */
    select
    from ${names.workflows}
    where correlation_id = ${id}::text
      and open > 0`)
  if (open.length === 0) return false
  const [row] = await tx.run<{ cancelled: boolean }>(sql`/* upkeep.cut_cancel */
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

/** Those of events that go; of a workflow that goes, all. What runs in a compensation is not cancelled above. */
async function removeExecutions(names: CutNames, tx: Executor, flow: CutFlow, position: number): Promise<void> {
  await tx.run(sql`/* upkeep.cut_executions */
    select ${names.workflow_remove}(
      p_owner => 'upkeep',
      p_correlation => ${flow.id}::text,
      p_ids => (
        select array_agg(x.id)
        from ${names.workflow_executions} as x
        where x.correlation_id = ${flow.id}::text
          and (${flow.is_new}::boolean or x.position > ${position}::bigint)),
      p_lanes => ${names.workflow_hold_lanes}(p_correlation => ${flow.id}::text),
      p_joins => 0)`)
}

/** All that tells of it. */
async function forget(names: CutNames, tx: Executor, id: string): Promise<void> {
  await tx.run(sql`/* upkeep.cut_join_entries */
    delete from ${names.workflow_join_entries}
    where join_id in (
      select j.id
      from ${names.workflow_joins} as j
      where j.correlation_id = ${id}::text)`)
  for (const table of [
    'workflow_joins',
    'workflow_branches',
    'workflow_undos',
    'workflow_activity',
    'workflows',
  ] as const)
    await tx.run(sql`/* upkeep.cut_traces */
      delete from ${names[table]}
      where correlation_id = ${id}::text`)
}

/** Workflows that have started one of which nothing is left, whether it was dispatched or not. */
async function parentsOfGone(database: Database, names: CutNames, position: number): Promise<string[]> {
  const rows = await database.run<{ parent: string }>(sql`/* upkeep.cut_parents */
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
