/**
 * Far from the end of the log, the dispatcher passes over a part of it that concerns no workflow without reading it: what an
 * import has brought would otherwise be read, decoded and dropped event by event, while publishers wait behind it.
 *
 *     row locked ─► routes, as stored ─► an event that a route wants?  of a workflow that is there?
 *                                             │ one of both                    │ neither
 *                                             └──► the usual way               └──► checkpoint, in the same transaction
 *
 * Guarantee: nothing is passed over that would have been dispatched. A new route takes the row before it is added, so the
 * routes that are read here are those of the checkpoint that is stored here.
 */
import type { PassedOver, PassOver } from '../../consumers/consumer.ts'
import { save } from '../../consumers/row.ts'
import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { loadRoutes, lockDispatcher } from '../routes.ts'
import { workflowNames } from '../schema.ts'

export function passOverUnwanted(log: Log, { held, from, after, to }: PassOver): Promise<PassedOver | undefined> {
  return log.database.transaction(async tx => {
    await lockDispatcher(log, tx)
    const routes = await loadRoutes(log, tx)
    if (routes.some(({ types }) => types === undefined)) return undefined
    const types = new Set(routes.flatMap(route => route.types!.flatMap(type => log.upcasters.sourcesOf(type))))
    if (await isWanted(log, tx, [...types], after, to)) return undefined
    return save(log, held, { from, checkpoint: to }, tx)
  })
}

async function isWanted(log: Log, tx: Executor, types: readonly string[], after: number, to: number): Promise<boolean> {
  const [row] = await tx.run<{ wanted: boolean }>(sql`/* workflows.wanted_types */
    select exists (
      select
      from ${log.names.events}
      where position > ${after}::bigint
        and position <= ${to}::bigint
        and type = any(${types}::text[])) as wanted`)
  if (row!.wanted) return true
  // Events of a workflow count for it, also those that no handler wants.
  const [known] = await tx.run<{ concerned: boolean }>(sql`/* workflows.concerned */
    select exists (
      select
      from ${log.names.events} as e
      join ${workflowNames(log).workflows} as w on w.correlation_id = e.correlation_id
      where e.position > ${after}::bigint
        and e.position <= ${to}::bigint) as concerned`)
  return known!.concerned
}
