/**
 * A rebuild that is pending: the log was cut at a position that the projection had passed, so its read model shows events
 * that no longer exist. The row of the projection says so, and the first process that has its code rebuilds it, before it
 * applies anything else.
 */

import { change } from '../../consumers/operator.ts'
import { consumerNames } from '../../consumers/schema.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import type { Projection } from '../projection.ts'
import type { RebuildParts } from './build.ts'
import { rebuild } from './rebuild.ts'

/** A log is cut while no process uses it, so one look per store is enough. */
export function pendingRebuilds(parts: RebuildParts): (projection: Projection, signal?: AbortSignal) => Promise<void> {
  const { log } = parts.consumers
  const seen = new WeakSet<Projection>()
  return async (projection, signal) => {
    if (seen.has(projection)) return
    if (await hasPendingRebuild(log, projection.name)) {
      await rebuild(parts, projection, { signal })
      await change(log, [projection.name], { definition: { rebuild: undefined }, keepsHolder: true }, log.database)
    }
    seen.add(projection)
  }
}

async function hasPendingRebuild(log: Log, name: string): Promise<boolean> {
  const rows = await log.database.runArrays(sql`/* projections.pending */
    select 1
    from ${consumerNames(log).consumers}
    where name = ${name}::text
      and definition ->> 'rebuild' = 'pending'`)
  return rows.length > 0
}
