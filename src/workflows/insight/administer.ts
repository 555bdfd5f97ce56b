/**
 * What an operator does to a handler. It is stored, so it holds in all processes and after a restart. Whoever does it takes
 * the dispatcher's row: an event is dispatched before or after, as the handler was then.
 */

import { InvalidOption } from '../../core/errors.ts'
import { nearestName } from '../../core/nearest.ts'
import { checkWhole } from '../../core/whole.ts'
import type { Transaction } from '../../database/database.ts'
import { type Statement, sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { HandlerNotFound } from '../errors.ts'
import { changeRoutes, lockDispatcher } from '../routes.ts'
import { workflowNames } from '../schema.ts'

/** In all its versions: nothing of it is begun any more. What runs ends; events are still dispatched to it, and queue. */
export async function pauseHandler(log: Log, handler: string): Promise<void> {
  await change(
    log,
    handler,
    sql`/* workflows.pause_handler */
      update ${workflowNames(log).workflow_routes}
      set paused_at = coalesce(paused_at, ${log.names.clock}(paused_at))
      where handler = ${handler}::text
      returning id`,
  )
}

/** It goes on with what has queued. One that was retired is given events again, from now on. */
export async function resumeHandler(log: Log, handler: string): Promise<void> {
  await change(
    log,
    handler,
    sql`/* workflows.resume_handler */
      update ${workflowNames(log).workflow_routes}
      set paused_at = null,
        retired_at = null
      where handler = ${handler}::text
      returning id`,
  )
}

/**
 * It is given no more events: in all its versions, or in one of them, whose events then go to the newest that is left. What
 * is open is still run by whoever has its code.
 */
export async function retireHandler(log: Log, handler: string, version?: number | undefined): Promise<void> {
  if (version !== undefined) checkWhole('version', version, 1)
  await change(
    log,
    handler,
    sql`/* workflows.retire_handler */
      update ${workflowNames(log).workflow_routes}
      set retired_at = coalesce(retired_at, ${log.names.clock}(retired_at))
      where handler = ${handler}::text
        and (${version ?? null}::integer is null or version = ${version ?? null}::integer)
      returning id`,
    version,
  )
}

async function change(log: Log, handler: string, statement: Statement, version?: number): Promise<void> {
  await log.database.transaction(async tx => {
    await lockDispatcher(log, tx)
    if ((await tx.run(statement)).length === 0) throw await notFound(log, tx, handler, version)
    await changeRoutes(log, tx)
  })
}

async function notFound(log: Log, tx: Transaction, handler: string, version: number | undefined): Promise<Error> {
  const rows = await tx.run<{ handler: string; version: number }>(sql`/* workflows.known_handlers */
    select handler, version
    from ${workflowNames(log).workflow_routes}
    order by handler, version`)
  const versions = rows.filter(row => row.handler === handler).map(row => row.version)
  if (versions.length > 0)
    return new InvalidOption({
      option: 'version',
      reason: `of handler "${handler}" must be one of ${versions.join(', ')}, not ${version}`,
    })
  const nearest = nearestName(
    handler,
    rows.map(row => row.handler),
  )
  return new HandlerNotFound({ handler, nearest })
}
