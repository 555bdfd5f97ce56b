/**
 * Cuts a log at a position, in a store that is not in use: one that was just restored or imported.
 *
 *     idempotency keys, imports ─► workflows ─► dead letters, deliveries ─► consumers ─► events and streams, from the end
 *
 * Afterwards the log ends with the event at the position, and its consumers agree with it:
 * - Events after the position are deleted, and their streams, keys and snapshots with them (`events/streams/remove.ts`).
 * - Subscriptions, processors, snapshotters and the dispatcher continue from the position.
 * - Projections that had passed it need a rebuild: a runner does it before it applies anything new; an inline projection
 *   is rebuilt when it is registered.
 * - Workflows are deleted, cancelled or left alone (`workflows/cut.ts`).
 * - Documents stay as they are: the store does not know which document belongs to which event.
 * - The sequence stays above every position it ever gave out: positions never go back.
 *
 * Each step is one or more transactions, every step may be repeated, and events are deleted last. So after an
 * interruption the cut is simply started again.
 */
import { removeSnapshots } from '../../aggregates/snapshot.ts'
import { removeBeyond as removeDeadLetters } from '../../consumers/dead-letters/row.ts'
import { moveAllBack } from '../../consumers/operator.ts'
import { throwIfAborted } from '../../core/abort.ts'
import type { Executor } from '../../database/database.ts'
import { logNames } from '../../events/log.ts'
import { forgetBeyond, hasEventsBeyond, removeLastEvents } from '../../events/streams/remove.ts'
import { removeBeyond as removeDeliveries } from '../../subscriptions/save.ts'
import { type CutWorkflows, cutWorkflows } from '../../workflows/cut.ts'
import type { StoreLocation } from '../transfer.ts'

export interface CutOptions {
  signal?: AbortSignal | undefined
  /** Called with the number of events that were deleted so far. */
  onProgress?: ((events: number) => void) | undefined
}

export interface CutResult extends CutWorkflows {
  /** How many events were after the position. */
  readonly events: number
  /** The projections that need a rebuild. */
  readonly projections: readonly string[]
}

const eventsPerChunk = 1_000
const limits = { timeoutMs: 10 * 60_000 }

export async function cutLog(
  { database, schema }: StoreLocation,
  position: number,
  { signal, onProgress }: CutOptions = {},
): Promise<CutResult> {
  const names = logNames(schema)
  const log = { schema, names }
  const run = async <T>(work: (tx: Executor) => Promise<T>): Promise<T> => {
    throwIfAborted(signal)
    return database.transaction(work, limits)
  }
  await run(tx => forgetBeyond(names, position, tx))
  const workflows = await cutWorkflows(database, schema, position, run)
  const projections = await run(async tx => {
    await removeDeadLetters(log, position, tx)
    await removeDeliveries(log, position, tx)
    return moveAllBack(log, position, await hasEventsBeyond(names, position, tx), tx)
  })
  let events = 0
  for (let count = eventsPerChunk; count === eventsPerChunk; ) {
    count = await run(async tx => {
      const streams = await removeLastEvents(names, position, eventsPerChunk, tx)
      await removeSnapshots(log, streams, tx)
      return streams.reduce((sum, stream) => sum + stream.count, 0)
    })
    events += count
    if (count > 0) onProgress?.(events)
  }
  return { events, projections, ...workflows }
}
