/**
 * Waits for the end of child workflows. A child does not know who waits for it, and whether it is settled depends on two rows
 * and the log: so workers look, after each hint that something was done, at those that may be.
 */
import { consumerNames } from '../../consumers/schema.ts'
import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { dispatcherName } from '../routes.ts'
import { workflowNames } from '../schema.ts'
import { readStatuses } from '../status.ts'
import type { ChildStatus } from './children.ts'
import { wakeWaiting } from './waits.ts'

interface ChildWait {
  readonly execution: string
  readonly name: string
  readonly child: string
  readonly correlation_id: string
}

const mostAtOnce = 200

/** How these workflows are, in this order; undefined for those that are not settled. */
export async function childStatuses(
  log: Log,
  executor: Executor,
  children: readonly string[],
): Promise<(ChildStatus | undefined)[]> {
  if (children.length === 0) return []
  return (await readStatuses(log, children, executor)).map(status => {
    const { correlationId, state, deadLetters, lastType, reason } = status
    return status.isSettled ? { correlationId, state, deadLetters, lastType, reason } : undefined
  })
}

/** Lets those go on whose child has settled; returns how many executions do. */
export async function answerChildWaits(log: Log): Promise<number> {
  const waits = await log.database.run<ChildWait>(sql`/* workflows.settled_children */
    select w.execution, w.name, w.child, w.correlation_id
    from ${workflowNames(log).workflow_waits} as w
    left join ${workflowNames(log).workflows} as c on c.correlation_id = w.child
    where w.child is not null
      and coalesce(c.open, 0) = 0
      and not exists (
        select
        from ${log.names.events} as e
        where e.correlation_id = w.child
          and e.position > coalesce((
            select d.checkpoint
            from ${consumerNames(log).consumers} as d
            where d.name = ${dispatcherName}::text), 0))
    order by w.correlation_id
    limit ${mostAtOnce}::integer`)
  let woken = 0
  for (const correlationId of new Set(waits.map(wait => wait.correlation_id))) {
    const own = waits.filter(wait => wait.correlation_id === correlationId)
    woken += await log.database.transaction(tx => answerParent(log, tx, correlationId, own))
  }
  return woken
}

/** All that are waited for in one workflow, under its row. */
async function answerParent(
  log: Log,
  tx: Executor,
  correlationId: string,
  waits: readonly ChildWait[],
): Promise<number> {
  await tx.run(sql`/* workflows.lock */
    select correlation_id
    from ${workflowNames(log).workflows}
    where correlation_id = ${correlationId}::text
    for update`)
  const statuses = await childStatuses(
    log,
    tx,
    waits.map(({ child }) => child),
  )
  const settled = waits.flatMap((wait, at) => (statuses[at] === undefined ? [] : [{ ...wait, status: statuses[at] }]))
  if (settled.length === 0) return 0
  const executions = settled.map(({ execution }) => execution)
  await tx.run(sql`/* workflows.answer_child */
    with answered as (
      select *
      from unnest(
        ${executions}::uuid[],
        ${settled.map(({ name }) => name)}::text[],
        ${settled.map(({ status }) => JSON.stringify(status))}::text[]) as u(execution, name, status)),
    ended as (
      update ${workflowNames(log).workflow_steps} as s
      set state = 'done',
        result = a.status::jsonb
      from answered as a
      where s.execution = a.execution
        and s.kind = 'child'
        and s.name = a.name
        and s.state = 'waiting')
    delete from ${workflowNames(log).workflow_waits} as w
    using answered as a
    where w.execution = a.execution
      and w.kind = 'child'
      and w.name = a.name`)
  return wakeWaiting(log, tx, executions)
}
