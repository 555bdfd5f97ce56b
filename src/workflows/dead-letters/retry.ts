/**
 * Retries of dead letters that operators have requested. A retry is the same execution again, for the newest version of the
 * handler, because a fixed handler usually is a new version. In one transaction, under the rows of their workflows, a dead
 * letter changes from open to retrying and its execution is queued; a second worker finds nothing left to do.
 *
 * The outcome of the execution decides: completed, the dead letter is closed; failed, it is open again. If the worker dies,
 * another takes over, as with every execution.
 */

import { handlerOfRow } from '../../consumers/dead-letters/owner.ts'
import { type Requested, type TakenForExecution, takeForExecutions } from '../../consumers/dead-letters/row.ts'
import { consumerNames } from '../../consumers/schema.ts'
import type { Transaction } from '../../database/database.ts'
import { fragment, sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { enqueue, lockWorkflows, type NewExecution } from '../dispatch/enqueue.ts'
import { recountBranches } from '../joins/joins.ts'
import { type Route, type RouteRow, routeOf } from '../routes.ts'
import { workflowNames } from '../schema.ts'
import { forgetCalls } from '../steps/stored-calls.ts'
import { laneOf } from '../work/lanes.ts'

/** The most that are queued in one transaction. */
const maxAtOnce = 100

/**
 * Queues the retries that are due, of the handlers of these routes; returns how many, and when the next one is due. Those of a
 * retired handler wait until it is resumed.
 */
export async function retryDeadLetters(
  log: Log,
  owner: string,
  routes: readonly number[],
): Promise<{ readonly count: number; readonly nextInMs: number | undefined }> {
  const due = await log.database.run<Requested>(sql`/* workflows.requested_retries */
    select d.consumer, d.event_id, d.correlation_id
    from ${consumerNames(log).dead_letters} as d
    where d.consumer in (
        select 'handler:' || r.handler
        from ${workflowNames(log).workflow_routes} as r
        where r.id = any(${routes}::integer[])
          and exists (
            select
            from ${workflowNames(log).workflow_routes} as newer
            where newer.handler = r.handler
              and newer.retired_at is null))
      and d.retry_at <= ${log.names.clock}(d.retry_at)
      and d.state = 'open'
      and d.execution is not null
    order by d.position
    limit ${maxAtOnce}::integer`)
  const count = due.length === 0 ? 0 : await log.database.transaction(tx => retry(log, tx, owner, due))
  // Later ones, which were requested at a rate.
  const [next] = await log.database.run<{ next_in: number | null }>(sql`/* workflows.next_retry */
    select (extract(epoch from min(d.retry_at) - ${log.names.clock}(min(d.retry_at))) * 1000)::float8 as next_in
    from ${consumerNames(log).dead_letters} as d
    where d.consumer in (
        select 'handler:' || r.handler
        from ${workflowNames(log).workflow_routes} as r
        where r.id = any(${routes}::integer[])
          and exists (
            select
            from ${workflowNames(log).workflow_routes} as newer
            where newer.handler = r.handler
              and newer.retired_at is null))
      and d.retry_at > ${log.names.clock}(d.retry_at)
      and d.state = 'open'`)
  return { count, nextInMs: typeof next?.next_in === 'number' ? next.next_in + 1 : undefined }
}

async function retry(log: Log, tx: Transaction, owner: string, due: readonly Requested[]): Promise<number> {
  await lockWorkflows(
    log,
    tx,
    due.map(({ correlation_id: correlationId }) => correlationId),
  )
  const newest = await newestRoutes(log, tx, due)
  const taken = await take(
    log,
    tx,
    due.filter(({ consumer }) => newest.has(consumer)),
  )
  const retried = taken.filter(({ state }) => state === 'retrying')
  for (const { consumer, event_id: eventId, state } of taken)
    if (state !== 'retrying')
      log.telemetry.log.info(
        { schema: log.schema, handler: handlerOfRow(consumer), eventId },
        'A retry was dropped, because its workflow is over.',
      )
  const edited = retried.filter(({ is_edited: isEdited }) => isEdited)
  await forgetCalls(
    log,
    tx,
    edited.map(({ execution }) => execution),
  )
  const executions = retried.map(letter => executionOf(letter, newest.get(letter.consumer)!))
  // Their branches are open again.
  const joined = await recountBranches(log, tx, owner, executions, 1)
  await enqueue(log, tx, owner, [...executions, ...joined])
  return executions.length
}

async function newestRoutes(log: Log, tx: Transaction, due: readonly Requested[]): Promise<Map<string, Route>> {
  const rows = await tx.run<RouteRow & { consumer: string }>(sql`/* workflows.newest_routes */
    select distinct on (handler) 'handler:' || handler as consumer, id, handler, version, kind,
      to_jsonb(types) as types, start_position, paused_at is not null as paused, definition
    from ${workflowNames(log).workflow_routes}
    where 'handler:' || handler = any(${[...new Set(due.map(({ consumer }) => consumer))]}::text[])
      and retired_at is null
    order by handler, version desc`)
  return new Map(rows.map(row => [row.consumer, routeOf(row)]))
}

/** Those that are still requested. Of a workflow that was cancelled or undone meanwhile, only the request is withdrawn. */
async function take(log: Log, tx: Transaction, due: readonly Requested[]): Promise<TakenForExecution[]> {
  const isOver = fragment`exists (
        select
        from ${workflowNames(log).workflows} as w
        where w.correlation_id = d.correlation_id
          and w.state <> 'active')`
  const isRunning = fragment`exists (
        select
        from ${workflowNames(log).workflow_executions} as x
        where x.id = d.execution)`
  return takeForExecutions(log, due, { isOver, isRunning }, tx)
}

function executionOf(letter: TakenForExecution, { id: route, definition, kind }: Route): NewExecution {
  const { position, execution, correlation_id: correlationId } = letter
  const isLaned = definition.ordered && !definition.keyed
  return {
    ...{ id: execution, position, route, correlationId, isRetry: true, isUnkeyed: definition.keyed },
    lane: isLaned ? laneOf(handlerOfRow(letter.consumer), correlationId) : undefined,
    // The execution of a join has the id of the join.
    joinId: kind === 'join' ? execution : undefined,
  }
}
