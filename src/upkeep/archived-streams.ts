/**
 * Deletes the events of streams that were archived long ago. A stream is deleted as a whole or not yet. It stays as long as
 * - a consumer, a rebuild, or a handler that is catching up has not read its last event,
 * - one of its events has an open dead letter,
 * - one of its events belongs to a workflow that is open, that an open dead letter or an undo may take up again, or that
 *   another workflow waits for.
 *
 * Its row stays as a tombstone; its snapshots and aliases are deleted. The mark is made under the lock of the row, then the
 * events are deleted in chunks, the oldest versions first (`events/streams/remove.ts`).
 */
import { removeSnapshots } from '../aggregates/snapshot.ts'
import { consumerPositions, hasOpenDeadLetter } from '../consumers/pending-work.ts'
import type { Executor } from '../database/database.ts'
import type { InTurn, PruneOptions } from '../database/prune.ts'
import { fragment, identifier, sql } from '../database/sql.ts'
import type { Log } from '../events/log.ts'
import { countEventsOf, lockStreams, readArchivedStreams, readFreeStreams } from '../events/retention.ts'
import { removeEvents, tombstoneStreams } from '../events/streams/remove.ts'
import { backfillPositions, needsWorkflowEvents } from '../workflows/pending-work.ts'

export interface ArchivedReport {
  streams: number
  events: number
}

const streamsPerPage = 100
const eventsPerChunk = 1_000

export async function pruneArchivedStreams(
  log: Log,
  options: PruneOptions & { readonly inTurn: InTurn },
): Promise<ArchivedReport> {
  const { names, database } = log
  const { olderThanMs, dryRun = false, signal, inTurn, onChunk } = options
  const report: ArchivedReport = { streams: 0, events: 0 }
  if (olderThanMs === Number.POSITIVE_INFINITY) return report
  for (let after = ''; !signal?.aborted; ) {
    const archived = await readArchivedStreams(log, { olderThanMs, after, limit: streamsPerPage })
    const last = archived.at(-1)
    if (last === undefined) break
    after = last
    if (dryRun) {
      const free = await readFree(log, database, archived, olderThanMs)
      report.streams += free.length
      report.events += await countEventsOf(names, database, free)
      continue
    }
    let free: string[] = []
    const isOurTurn = await inTurn(async tx => {
      free = await takeStreams(log, tx, archived, olderThanMs)
      return free.length
    })
    if (isOurTurn === undefined) break
    let count = free.length === 0 ? 0 : eventsPerChunk
    while (count === eventsPerChunk && !signal?.aborted) {
      count = (await inTurn(tx => removeEvents(log, free, eventsPerChunk, tx))) ?? 0
      report.events += count
      if (count > 0) onChunk?.(count)
    }
    report.streams += free.length
  }
  return report
}

/** Locks the streams, looks again, and marks those that are free. Streams that are being written are skipped. */
async function takeStreams(log: Log, tx: Executor, streams: readonly string[], olderThanMs: number): Promise<string[]> {
  const { names } = log
  const locked = await lockStreams(names, tx, streams)
  const free = await readFree(log, tx, locked, olderThanMs)
  await tombstoneStreams(log, free, tx)
  await removeSnapshots(
    log,
    free.map(stream => ({ stream })),
    tx,
  )
  return free
}

/** Of these streams, those that nothing needs. */
async function readFree(
  log: Log,
  executor: Executor,
  streams: readonly string[],
  olderThanMs: number,
): Promise<string[]> {
  const { names } = log
  const correlationId = identifier('e', 'correlation_id')
  const slowest = await readSlowest(log, executor)
  return readFreeStreams(names, executor, streams, {
    olderThanMs,
    readTo: slowest?.position,
    ofStream: hasOpenDeadLetter(log, 'stream', identifier('s', 'stream')),
    ofEvent: fragment`(
            ${needsWorkflowEvents(log, correlationId)}
            or ${hasOpenDeadLetter(log, 'correlation_id', correlationId)})`,
  })
}

/** The reader that is furthest behind: events after its position are needed. */
export interface SlowestReader {
  /** The consumer, or `handler <name>` for a handler that is still given earlier events. */
  readonly name: string
  readonly position: number
}

/** Also a consumer that is paused, stopped, or run nowhere. Undefined if nothing follows the log. */
export async function readSlowest(log: Log, executor: Executor = log.database): Promise<SlowestReader | undefined> {
  const [row] = await executor.run<SlowestReader & object>(sql`/* upkeep.slowest */
    select r.name, r.position
    from (${consumerPositions(log)}
      union all${backfillPositions(log)}) as r
    order by r.position, r.name
    limit 1`)
  return row
}
