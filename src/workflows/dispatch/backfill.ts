/**
 * Backfill: a new handler that begins in the past is given the log from there, in order, until it has caught up with
 * the dispatcher; from then on the dispatcher serves it. The switch happens under the dispatcher's row, so no event is
 * skipped and none is given twice.
 */
import type { Transaction } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import { readPage } from '../../events/read/page.ts'
import type { WorkflowHints } from '../hints.ts'
import { changeRoutes, lockDispatcher, type Route, type RouteRow, routeOf } from '../routes.ts'
import { workflowNames } from '../schema.ts'
import { type DispatchParts, dispatch } from './dispatch.ts'

const pageSize = 500

/** One page for each handler that is behind; returns how many events were read. Any worker may do it, the first one does. */
export async function backfill(parts: DispatchParts, hints: WorkflowHints): Promise<number> {
  const { log } = parts
  const waiting = await log.database.run<{ id: number }>(sql`/* workflows.behind */
    select id
    from ${workflowNames(log).workflow_routes}
    where backfill_position is not null
      and retired_at is null
    order by id`)
  let count = 0
  for (const { id } of waiting)
    count += await log.database.transaction(async tx => {
      const read = await backfillPage(parts, tx, id)
      if (read > 0) tx.afterCommit(() => hints.ready())
      return read
    })
  return count
}

async function backfillPage(parts: DispatchParts, tx: Transaction, id: number): Promise<number> {
  const { log } = parts
  const { workflow_routes } = workflowNames(log)
  // The dispatcher's row before the route's: the order in which a registration locks them, too.
  const { checkpoint } = await lockDispatcher(log, tx)
  const [row] = await tx.run<RouteRow & { backfill_position: number }>(sql`/* workflows.behind_route */
    select id, handler, version, kind, to_jsonb(types) as types, start_position, definition,
      paused_at is not null as paused, backfill_position
    from ${workflow_routes}
    where id = ${id}::integer
      and backfill_position is not null
    for update skip locked`)
  if (row === undefined) return 0
  const after = row.backfill_position
  const route: Route = { ...routeOf(row), startPosition: after }
  const filter = route.types === undefined ? {} : { types: route.types }
  const page = await readPage(log, { filter, after, to: checkpoint, limit: pageSize }, tx)
  if (page.events.length > 0) {
    const signal = new AbortController().signal
    // Run inline, it could overtake executions of the same workflow that are queued: it is queued, too.
    const queued: Route = { ...route, kind: route.kind === 'inline' ? 'ordered' : route.kind }
    await dispatch(parts, page.events, [queued], { tx, signal, faults: page.faults }, true)
  }
  const isDone = page.reached >= checkpoint
  await tx.run(sql`/* workflows.backfilled */
    update ${workflow_routes}
    set backfill_position = ${isDone ? null : page.reached}::bigint,
      start_position = ${page.reached}::bigint
    where id = ${id}::integer`)
  if (isDone) await changeRoutes(log, tx)
  return Math.max(1, page.events.length)
}
