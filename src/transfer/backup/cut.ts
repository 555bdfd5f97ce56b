/**
 * Cutting a log at a position, for a store that nobody uses meanwhile: one that was just restored or imported.
 *
 *     idempotency keys ─► workflows ─► dead letters, deliveries ─► consumers ─► events and streams, from the end
 *
 * Afterwards the log is what it was when its last event was the one at the position, and what follows it says so:
 * - Events above are gone; streams have the versions that their events give them, those without any are gone, and one whose
 *   tombstone was cut away is open again. Snapshots of later versions, keys of appends that were cut, and the marks of
 *   imports since then are gone.
 * - Subscriptions, processors, snapshotters and the dispatcher go on from the position.
 * - Projections that had passed it owe a rebuild: a daemon does it before it applies anything new; an inline one does it when
 *   it is registered.
 * - Workflows: see `workflows/cut.ts`.
 * - Documents are as they were: there is no telling which of them belongs to which event.
 * - The sequence stays where it was, above everything it ever gave out: positions never go back.
 *
 * Each step is a transaction, or several; all can be done again, and events go last. So a cut that was interrupted is
 * simply begun anew.
 */

import { removeSnapshots } from '../../aggregates/snapshot.ts'
import { removeBeyond as removeDeadLetters } from '../../consumers/dead-letters/row.ts'
import { moveAllBack } from '../../consumers/operator.ts'
import { throwIfAborted } from '../../core/lifecycle.ts'
import type { Database, Executor } from '../../database/database.ts'
import { logNames } from '../../events/log.ts'
import { forgetBeyond, hasEventsBeyond, removeLastEvents } from '../../events/streams/remove.ts'
import { removeBeyond as removeDeliveries } from '../../subscriptions/save.ts'
import { type CutWorkflows, cutWorkflows } from '../../workflows/cut.ts'

export interface CutOptions {
  signal?: AbortSignal | undefined
  /** Told how many events have gone so far. */
  onProgress?: ((events: number) => void) | undefined
}

export interface CutLog extends CutWorkflows {
  /** How many events were above the position. */
  readonly events: number
  /** The projections that owe a rebuild. */
  readonly projections: readonly string[]
}

const chunk = 1_000
const limits = { timeoutMs: 10 * 60_000 }

export async function cutLog(
  database: Database,
  schema: string,
  position: number,
  { signal, onProgress }: CutOptions = {},
): Promise<CutLog> {
  const names = logNames(schema)
  const log = { schema, names }
  const inOne = async <T>(work: (tx: Executor) => Promise<T>): Promise<T> => {
    throwIfAborted(signal)
    return database.transaction(work, limits)
  }
  await inOne(tx => forgetBeyond(names, position, tx))
  const workflows = await cutWorkflows(database, schema, position, inOne)
  const projections = await inOne(async tx => {
    await removeDeadLetters(log, position, tx)
    await removeDeliveries(log, position, tx)
    return moveAllBack(log, position, await hasEventsBeyond(names, position, tx), tx)
  })
  let events = 0
  for (let count = chunk; count === chunk; ) {
    count = await inOne(async tx => {
      const streams = await removeLastEvents(names, position, chunk, tx)
      await removeSnapshots(log, streams, tx)
      return streams.reduce((sum, stream) => sum + stream.count, 0)
    })
    events += count
    if (count > 0) onProgress?.(events)
  }
  return { events, projections, ...workflows }
}
