/**
 * Rebuilding a read model from the log.
 *
 *     with tables   new ones are filled beside the old, catch up, and are switched in; the old ones serve until then
 *     with `reset`  emptied and filled again in place, marked `rebuilding`; `waitFor` waits
 *     with neither  refused: applying the log a second time would count everything twice
 *
 * A rebuild that was cut off, by a signal or a crash, goes on where it was when it is called again, if the code is the
 * same; `restart` begins anew. It starts from the beginning of the log, or at the position given as `startFrom`. While it runs it has a lease of its own, so a second one is refused.
 */

import { ensureConsumer } from '../../consumers/consumer.ts'
import type { Consumers } from '../../consumers/consumers.ts'
import { putAside, takeOver } from '../../consumers/operator.ts'
import { type Lease, newOwner, release, take } from '../../consumers/row.ts'
import { TimedOut } from '../../core/errors.ts'
import { sleep } from '../../core/lifecycle.ts'
import { type Backoff, delay } from '../../core/retry.ts'
import { identifier } from '../../database/sql.ts'
import { projectionConsumer, shadowConsumer, shadowName } from '../consume.ts'
import { RebuildImpossible, RebuildRunning } from '../errors.ts'
import type { Projection } from '../projection.ts'
import { shadowOf } from '../table.ts'
import {
  type Build,
  beginBuild,
  catchUp,
  isLocked,
  type RebuildOptions,
  type RebuildParts,
  report,
  stateOf,
} from './build.ts'
import { refuseDependents } from './grants.ts'
import { rebuildInPlace } from './in-place.ts'
import { beginShadow } from './shadow.ts'
import { switchTables, TailFailed } from './switch.ts'

export interface Rebuilt {
  /** What the read model has now applied. */
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
  const startedAt = performance.now()
  log.database.refuseInsideTransaction('rebuild')
  if (projection.lifecycle === 'live')
    throw new RebuildImpossible({ projection: projection.name, reason: 'it is live and stores nothing' })
  await prepare(projection)
  await ensureConsumer(log, projectionConsumer(log, projection, prepare))
  const build =
    projection.tables.length > 0
      ? await rebuildBeside(parts, projection, options)
      : await rebuildInPlace(parts, projection, options)
  consumers.wake.changed()
  const told = { schema: log.schema, projection: projection.name, position: build.checkpoint, events: build.events }
  log.telemetry.log.info(told, 'a projection was rebuilt')
  return { position: build.checkpoint, events: build.events, durationMs: performance.now() - startedAt }
}

async function rebuildBeside(
  { consumers }: RebuildParts,
  projection: Projection,
  options: RebuildOptions,
): Promise<Build> {
  const { log } = consumers
  const { signal, onProgress } = options
  for (const { declared } of projection.tables)
    await refuseDependents(log.database, projection.name, identifier(log.schema, declared.name))
  await beginShadow(log, projection, options.restart ?? false)
  const consumer = shadowConsumer(log, projection)
  const lease = await take(log, shadowName(projection), newOwner(log), consumer.leaseMs)
  if (typeof lease === 'string') throw new RebuildRunning({ projection: projection.name })
  try {
    const build = beginBuild({ consumers, consumer, lease, from: lease, signal, onProgress })
    await catchUp(build)
    await gatherStatistics(consumers, projection)
    await switchWhenPossible(build, projection, lease, options)
    return build
  } catch (error) {
    await putAside(log, lease).catch(() => {})
    throw error
  }
}

const waits: Backoff = { baseMs: 50, factor: 2, maxMs: 5_000, jitter: 0.5 }
const mostFailures = 10

/** Catches up again before each try: meanwhile others went on writing. */
async function switchWhenPossible(
  build: Build,
  projection: Projection,
  lease: Lease,
  { signal, switchMs = 600_000 }: RebuildOptions,
): Promise<void> {
  const { log } = build.consumers
  const until = performance.now() + switchMs
  let failures = 0
  for (let attempt = 1; ; attempt++) {
    await catchUp(build)
    report(build, 'switching', build.checkpoint)
    const isInline = (await stateOf(build.consumers.log, projection.name)) === 'inline'
    // Nothing is begun any more that would be in the way.
    const held = isInline ? undefined : await takeOver(log, projection.name, build.consumer.leaseMs)
    try {
      const done = await switchTables({ log, projection, shadow: build.consumer, lease, signal, isInline })
      build.checkpoint = done.position
      build.events += done.events
      return
    } catch (error) {
      if (held !== undefined) await release(log, [held]).catch(() => {})
      build.consumers.wake.changed()
      if (error instanceof TailFailed) {
        if (++failures > mostFailures) throw error.cause ?? error
      } else if (!isLocked(error)) throw error
      if (performance.now() > until)
        throw new TimedOut({ what: `Getting the locks to switch "${projection.name}"`, timeoutMs: switchMs }, error)
      await sleep(delay(waits, attempt), { signal })
    }
  }
}

/** The first to read the new tables should not be the one to find out how large they are. */
async function gatherStatistics({ log }: Consumers, { tables }: Projection): Promise<void> {
  for (const { declared } of tables) {
    const name = identifier(log.schema, shadowOf(declared).name)
    await log.database.run({
      label: 'projections.analyze',
      text: `/* projections.analyze */ analyze ${name}`,
      values: [],
    })
  }
}
