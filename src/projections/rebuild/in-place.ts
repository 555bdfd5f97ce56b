/**
 * Rebuilding a read model in place, for a projection without declared tables that can be emptied.
 *
 *     active ──taken over──► emptying ──reset, checkpoint back, one transaction──► rebuilding ──► filled ──► active
 *
 * Guarantees:
 * - The operator wins: a batch that is running is refused by its fence. No runner can take the lease meanwhile.
 * - A row that is `rebuilding` is filled as far as its checkpoint says; one that is `emptying` is as it was.
 *
 * What can fail: `reset` itself; a lock that another transaction holds, after 20 tries. The rebuild can then be resumed.
 */

import { closeRebuilt } from '../../consumers/dead-letters/row.ts'
import {
  abandonRebuild,
  completeRebuild,
  emptied,
  type TakenToRebuild,
  takeToRebuild,
} from '../../consumers/operator.ts'
import type { Lease } from '../../consumers/row.ts'
import { sleep } from '../../core/abort.ts'
import { type Backoff, delay } from '../../core/retry.ts'
import type { Log } from '../../events/log.ts'
import { inPlaceConsumer } from '../consumer.ts'
import { RebuildImpossible, RebuildRunning } from '../errors.ts'
import { type Projection, userContext } from '../projection.ts'
import { tableNames } from '../table.ts'
import {
  type Build,
  beginBuild,
  catchUp,
  isLocked,
  type RebuildOptions,
  type RebuildParts,
  startOfBuild,
  stateOf,
} from './build.ts'

const backoff: Backoff = { baseMs: 50, factor: 2, maxMs: 2_000, jitter: 0.5 }
const maxTries = 20

export async function rebuildInPlace(
  { consumers }: RebuildParts,
  projection: Projection,
  { signal, onProgress, restart = false }: RebuildOptions,
): Promise<Build> {
  const { log } = consumers
  if (projection.reset === undefined) {
    const reason =
      'it declares no tables and has no reset hook, so its events would be counted twice. Declare its tables, or give it a reset'
    throw new RebuildImpossible({ projection: projection.name, reason })
  }
  const consumer = inPlaceConsumer(log, projection)
  const taken = await takeForRebuild(log, projection.name, consumer.leaseMs, restart)
  try {
    const lease = taken.isEmptied ? taken.lease : await resetModel(log, projection, taken.lease, signal)
    const build = beginBuild({ consumers, consumer, lease, from: lease, signal, onProgress })
    await catchUp(build)
    await completeRebuild(log, lease)
    return build
  } catch (error) {
    await abandonRebuild(log, taken).catch(() => {})
    throw error
  }
}

async function takeForRebuild(log: Log, name: string, leaseMs: number, restart: boolean): Promise<TakenToRebuild> {
  const taken = await takeToRebuild(log, name, leaseMs, restart)
  if (taken !== undefined) return taken
  if ((await stateOf(log, name)) !== 'inline') throw new RebuildRunning({ projection: name })
  const reason =
    'it is inline and declares no tables, so there is nothing to fill while appends write it. Make it async first'
  throw new RebuildImpossible({ projection: name, reason })
}

/** Empties the read model and moves the checkpoint back, both or neither. Events that fail again become dead letters again. */
async function resetModel(
  log: Log,
  projection: Projection,
  lease: Lease,
  signal: AbortSignal | undefined,
): Promise<Lease> {
  const { timeoutMs } = projection.options
  const checkpoint = await startOfBuild(log, projection)
  for (let attempt = 1; ; attempt++) {
    try {
      await log.database.transaction(
        async tx => {
          const never = new AbortController().signal
          const tables = tableNames(log.schema, projection)
          const given = { tx, tables, attempt: 1, isReplay: false, isRebuild: true, isInline: false, at: () => {} }
          await projection.reset!(userContext(projection.name, { ...given, signal: signal ?? never }))
          await closeRebuilt(log, projection.name, tx)
          await emptied(log, lease, checkpoint, tx)
        },
        { timeoutMs, signal, lockTimeoutMs: 5_000, changesTables: true },
      )
      return { ...lease, checkpoint, attempts: 0 }
    } catch (error) {
      if (!isLocked(error) || attempt === maxTries) throw error
      await sleep(delay(backoff, attempt), { signal })
    }
  }
}
