/**
 * A rebuild that a projection owes: the log was cut at a position it had passed, so its read model tells of events that are
 * no more. Its row says so, and it is paid before anything else is applied, by whoever has the code.
 */

import { change } from '../../consumers/operator.ts'
import { consumerNames } from '../../consumers/schema.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import type { Projection } from '../projection.ts'
import type { RebuildParts } from './build.ts'
import { rebuild } from './rebuild.ts'

/** A log is cut while nobody uses it, so one look per store is enough. */
export function owedRebuilds(parts: RebuildParts): (projection: Projection, signal?: AbortSignal) => Promise<void> {
  const { log } = parts.consumers
  const settled = new WeakSet<Projection>()
  return async (projection, signal) => {
    if (settled.has(projection)) return
    if (await owesRebuild(log, projection.name)) {
      await rebuild(parts, projection, { signal })
      await change(log, [projection.name], { definition: { rebuild: undefined }, keepsHolder: true }, log.database)
    }
    settled.add(projection)
  }
}

async function owesRebuild(log: Log, name: string): Promise<boolean> {
  const rows = await log.database.runArrays(sql`/* projections.owed */
    select 1
    from ${consumerNames(log).consumers}
    where name = ${name}::text
      and definition ->> 'rebuild' = 'pending'`)
  return rows.length > 0
}
