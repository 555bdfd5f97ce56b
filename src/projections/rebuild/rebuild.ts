/**
 * Rebuilding a read model from the log.
 *
 *     with tables   new tables are filled, catch up, and replace the old ones, which are read until then: `shadow.ts`
 *     with `reset`  emptied and filled again in place, marked `rebuilding`; `waitFor` waits: `in-place.ts`
 *     with neither  refused: applying the log a second time would count every event twice
 *
 *     rebuild ──► shadow · in-place ──► build: catch up with the log ──► switch: one transaction
 *
 * Guarantees:
 * - The result is that of a fresh build, whatever is appended meanwhile.
 * - A rebuild that was interrupted, by a signal or a crash, is resumed by the next call if the code is the same; `restart`
 *   discards it. It starts at the beginning of the log, or at the position given as `from`.
 * - While it runs it holds a lease, so that a second one is refused (`RebuildRunning`).
 *
 * A rebuild is *pending* where the log was cut at a position that the projection had passed: its read model shows events that
 * no longer exist. Its row says so, and the first process that has its code rebuilds it before it applies anything else.
 */

import { ensureConsumer } from '../../consumers/consumer.ts'
import { change } from '../../consumers/operator.ts'
import { consumerNames } from '../../consumers/schema.ts'
import { elapsedMs } from '../../core/host.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { projectionConsumer } from '../consumer.ts'
import { RebuildImpossible } from '../errors.ts'
import type { Projection } from '../projection.ts'
import type { RebuildOptions, RebuildParts } from './build.ts'
import { rebuildInPlace } from './in-place.ts'
import { rebuildIntoShadow } from './shadow.ts'

export interface Rebuilt {
  /** The position that the read model has reached. */
  readonly position: number
  /** Events applied by this call. */
  readonly events: number
  readonly durationMs: number
}

export async function rebuild(
  parts: RebuildParts,
  projection: Projection,
  options: RebuildOptions = {},
): Promise<Rebuilt> {
  const { consumers, prepare } = parts
  const { log } = consumers
  const startedAt = elapsedMs()
  log.database.refuseInsideTransaction('rebuild')
  if (projection.lifecycle === 'live')
    throw new RebuildImpossible({ projection: projection.name, reason: 'it is live and stores nothing' })
  await prepare(projection)
  await ensureConsumer(log, projectionConsumer(log, projection, prepare))
  const build =
    projection.tables.length > 0
      ? await rebuildIntoShadow(parts, projection, options)
      : await rebuildInPlace(parts, projection, options)
  consumers.wake.changed()
  const outcome = { schema: log.schema, projection: projection.name, position: build.checkpoint, events: build.events }
  log.telemetry.log.info(outcome, 'A projection was rebuilt.')
  return { position: build.checkpoint, events: build.events, durationMs: elapsedMs() - startedAt }
}

/** Runs the rebuild that is pending, if there is one. A log is cut while no process uses it, so one look per store is enough. */
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
