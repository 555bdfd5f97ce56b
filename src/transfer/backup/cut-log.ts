/**
 * Cuts a log at a position, in a store that is not in use: one that was just restored or imported.
 *
 *     idempotency keys, imports ─► workflows ─► dead letters, deliveries ─► consumers ─► events and streams, from the end
 *
 * Afterwards the log ends with the event at the position, and what follows the log agrees with it:
 * - Events after the position are deleted, and their streams, keys and snapshots with them (`events/cut.ts`).
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
import { deleteSnapshotsAbove } from '../../aggregates/snapshot.ts'
import { deleteDeadLettersAfter } from '../../consumers/dead-letters/delete.ts'
import { throwIfAborted } from '../../core/lifecycle.ts'
import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import { cutEvents, cutKeysAndImports, eventsPerCut } from '../../events/cut.ts'
import { type LogNames, logNames } from '../../events/log.ts'
import { deleteDeliveriesAfter } from '../../subscriptions/save.ts'
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

const limits = { timeoutMs: 10 * 60_000 }

export async function cutLog(
  { database, schema }: StoreLocation,
  position: number,
  { signal, onProgress }: CutOptions = {},
): Promise<CutResult> {
  const names = logNames(schema)
  const run = async <T>(work: (tx: Executor) => Promise<T>): Promise<T> => {
    throwIfAborted(signal)
    return database.transaction(work, limits)
  }
  await run(tx => cutKeysAndImports(names, tx, position))
  const workflows = await cutWorkflows(database, names, position, run)
  const projections = await run(async tx => {
    await deleteDeadLettersAfter(names, tx, position)
    await deleteDeliveriesAfter(names, tx, position)
    return moveConsumersBack(names, tx, position)
  })
  let events = 0
  for (let count = eventsPerCut; count === eventsPerCut; ) {
    count = await run(async tx => {
      const cut = await cutEvents(names, tx, position)
      await deleteSnapshotsAbove(names, tx, cut.streams, cut.versions)
      return cut.events
    })
    events += count
    if (count > 0) onProgress?.(events)
  }
  return { events, projections, ...workflows }
}

/** Returns the projections that need a rebuild. Their rows are marked so that a runner does it. */
async function moveConsumersBack(names: LogNames, tx: Executor, position: number): Promise<string[]> {
  // A rebuild that was interrupted begins anew: it makes its tables itself.
  await tx.run(sql`/* consumers.cut_rebuilds */
    delete from ${names.consumers}
    where kind = 'projection'
      and definition ? 'rebuilds'
      and checkpoint > ${position}::bigint`)
  const rows = await tx.run<{ name: string; kind: string }>(sql`/* consumers.cut */
    update ${names.consumers}
    -- Until it is rebuilt, a read model has applied nothing that could be waited for.
    set checkpoint = case when kind = 'projection' then 0 else ${position}::bigint end,
      definition = case
        when kind <> 'projection' then definition
        when state = 'rebuilding' then definition || '{"rebuild": "pending", "reset": "pending"}'
        else definition || '{"rebuild": "pending"}'
      end,
      attempts = 0,
      retry_at = null,
      owner = null,
      lease_until = null,
      last_error = null,
      progressed_at = clock_timestamp(),
      fence = nextval(${names.consumers_fence.quoted}::regclass)
    where checkpoint > ${position}::bigint
      -- An inline projection is applied with each append, so its checkpoint says nothing.
      or (state = 'inline' and exists (
        select
        from ${names.events}
        where position > ${position}::bigint))
    returning name, kind`)
  return rows.flatMap(row => (row.kind === 'projection' ? [row.name] : [])).sort()
}
