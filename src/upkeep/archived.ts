/**
 * Deleting the events of streams that were archived long ago. A stream goes as a whole, or not yet: it stays as long as
 * - a consumer, a rebuild or a handler that is catching up has not read its last event,
 * - one of its events has an open dead letter,
 * - one of its events belongs to a workflow that is not over, that a dead letter or an undo may take up again, or that another
 *   one waits for.
 *
 * Its row stays as a tombstone, so that its versions never begin anew; its snapshots and aliases go. (An alias that is asked
 * for later stands for a new stream.) The mark and the first events go in one transaction, under the lock of the row:
 * nothing can be appended any more; the rest goes in chunks, the oldest versions first.
 */
import { removeSnapshots } from '../aggregates/snapshot.ts'
import { consumerNames } from '../consumers/schema.ts'
import type { Executor } from '../database/database.ts'
import type { InTurn, PruneOptions } from '../database/prune.ts'
import { sql } from '../database/sql.ts'
import type { Log } from '../events/log.ts'
import { removeEvents, tombstoneStreams } from '../events/streams/remove.ts'
import { workflowNames } from '../workflows/schema.ts'
import { slowest } from './slowest.ts'

export interface ArchivedReport {
  streams: number
  events: number
}

/** Streams looked at together, and events deleted in one transaction. */
const page = 100
const chunk = 1_000

export async function pruneArchived(
  log: Log,
  options: PruneOptions & { readonly inTurn: InTurn },
): Promise<ArchivedReport> {
  const { olderThanMs, dryRun = false, signal, inTurn, onChunk } = options
  const report: ArchivedReport = { streams: 0, events: 0 }
  if (olderThanMs === Number.POSITIVE_INFINITY) return report
  for (let after = ''; !signal?.aborted; ) {
    const names = await oldStreams(log, olderThanMs, after)
    const last = names.at(-1)
    if (last === undefined) break
    after = last
    if (dryRun) {
      const free = await freeStreams(log, log.database, names, olderThanMs)
      report.streams += free.length
      report.events += await countEvents(log, free)
      continue
    }
    let free: string[] = []
    const isOurs = await inTurn(async tx => {
      free = await takeStreams(log, tx, names, olderThanMs)
      return free.length
    })
    if (isOurs === undefined) break
    let count = free.length === 0 ? 0 : chunk
    while (count === chunk && !signal?.aborted) {
      count = (await inTurn(tx => removeEvents(log, free, chunk, tx))) ?? 0
      report.events += count
      if (count > 0) onChunk?.(count)
    }
    report.streams += free.length
  }
  return report
}

/** By name, those that still have events. */
async function oldStreams({ database, names }: Log, olderThanMs: number, after: string): Promise<string[]> {
  const rows = await database.run<{ stream: string }>(sql`/* upkeep.archived */
    select s.stream
    from ${names.streams} as s
    where s.archived_at < ${names.clock}(s.archived_at) - make_interval(secs => ${olderThanMs}::float8 / 1000)
      and s.stream > ${after}::text
      and exists (
        select
        from ${names.events} as e
        where e.stream = s.stream)
    order by s.stream
    limit ${page}::integer`)
  return rows.map(row => row.stream)
}

/** Of these streams, those that nobody needs any more. */
async function freeStreams(
  log: Log,
  executor: Executor,
  streams: readonly string[],
  olderThanMs: number,
): Promise<string[]> {
  const names = { ...log.names, ...consumerNames(log), ...workflowNames(log) }
  const reached = (await slowest(log, executor))?.position ?? null
  const rows = await executor.run<{ stream: string }>(sql`/* upkeep.free_streams */
    select s.stream
    from ${names.streams} as s
    where s.stream = any(${streams}::text[])
      and s.archived_at < ${names.clock}(s.archived_at) - make_interval(secs => ${olderThanMs}::float8 / 1000)
      and (${reached}::bigint is null or ${reached}::bigint >= (
        select e.position
        from ${names.events} as e
        where e.stream = s.stream
        order by e.version desc
        limit 1))
      and not exists (
        select
        from ${names.dead_letters} as d
        where d.stream = s.stream
          and d.state in ('open', 'retrying'))
      and not exists (
        select
        from ${names.events} as e
        where e.stream = s.stream
          and (
            exists (
              select
              from ${names.workflows} as w
              where w.correlation_id = e.correlation_id
                and w.open > 0)
            or exists (
              select
              from ${names.dead_letters} as d
              where d.correlation_id = e.correlation_id
                and d.state in ('open', 'retrying'))
            or exists (
              select
              from ${names.workflow_undos} as u
              where u.correlation_id = e.correlation_id
                and u.state = 'recorded')
            or exists (
              select
              from ${names.workflow_waits} as c
              where c.child = e.correlation_id)))
    order by s.stream`)
  return rows.map(row => row.stream)
}

/** Locks them, looks again, and marks them: from then on they are nobody's. Those that are being written are left. */
async function takeStreams(log: Log, tx: Executor, streams: readonly string[], olderThanMs: number): Promise<string[]> {
  const locked = await tx.run<{ stream: string }>(sql`/* upkeep.lock_streams */
    select stream
    from ${log.names.streams}
    where stream = any(${streams}::text[])
    order by stream
    for update skip locked`)
  const free = await freeStreams(
    log,
    tx,
    locked.map(row => row.stream),
    olderThanMs,
  )
  await tombstoneStreams(log, free, tx)
  await removeSnapshots(
    log,
    free.map(stream => ({ stream })),
    tx,
  )
  return free
}

async function countEvents({ database, names }: Log, streams: readonly string[]): Promise<number> {
  const [row] = await database.runArrays(sql`/* upkeep.count_events */
    select count(*)
    from ${names.events}
    where stream = any(${streams}::text[])`)
  return Number(row![0])
}
