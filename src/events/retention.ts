/**
 * Old rows of the log: idempotency keys, and the events of streams that were archived or tombstoned long ago.
 *
 *     readArchivedStreams ─► lockStreams ─► readFreeStreams ─► tombstone, then delete in chunks (`streams/remove.ts`)
 *
 * Other folders decide which streams are still needed: they give conditions.
 */
import type { Database, Executor } from '../database/database.ts'
import type { OldRows } from '../database/prune.ts'
import { type Fragment, sql } from '../database/sql.ts'
import type { Log, LogNames } from './log.ts'

export function oldIdempotencyKeys({ names }: Pick<Log, 'names'>): OldRows {
  return {
    label: 'events.prune_keys',
    table: names.idempotency_keys,
    key: ['key'],
    clock: names.clock,
    later: names.later,
    where: 't.created_at < $1',
  }
}

/** The next archived streams by name that still have events. */
export async function readArchivedStreams(
  { database, names }: Pick<Log, 'database' | 'names'>,
  { olderThanMs, after, limit }: { olderThanMs: number; after: string; limit: number },
): Promise<string[]> {
  const rows = await database.run<{ stream: string }>(sql`/* events.archived_streams */
    select s.stream
    from ${names.streams} as s
    where s.archived_at < ${names.later}(${names.clock}(s.archived_at), -${olderThanMs}::float8)
      and s.stream > ${after}::text
      and exists (
        select
        from ${names.events} as e
        where e.stream = s.stream)
    order by s.stream
    limit ${limit}::integer`)
  return rows.map(row => row.stream)
}

/** Conditions that keep a stream `s`, or one of its events `e`, from being deleted. */
export interface StreamNeeds {
  readonly olderThanMs: number
  /** All consumers have read up to this position; undefined if there are none. */
  readonly readTo: number | undefined
  /** A condition on a stream `s`. */
  readonly ofStream: Fragment
  /** A condition on an event `e` of it. */
  readonly ofEvent: Fragment
}

/** Of these streams, those whose events may be deleted. */
export async function readFreeStreams(
  names: LogNames,
  executor: Executor,
  streams: readonly string[],
  { olderThanMs, readTo, ofStream, ofEvent }: StreamNeeds,
): Promise<string[]> {
  const rows = await executor.run<{ stream: string }>(sql`/* events.free_streams */
    select s.stream
    from ${names.streams} as s
    where s.stream = any(${streams}::text[])
      and s.archived_at < ${names.later}(${names.clock}(s.archived_at), -${olderThanMs}::float8)
      and (${readTo ?? null}::bigint is null or ${readTo ?? null}::bigint >= (
        select e.position
        from ${names.events} as e
        where e.stream = s.stream
        order by e.version desc
        limit 1))
      and not ${ofStream}
      and not exists (
        select
        from ${names.events} as e
        where e.stream = s.stream
          and ${ofEvent})
    order by s.stream`)
  return rows.map(row => row.stream)
}

/** Locks the streams that are not being written, returns the locked ones. */
export async function lockStreams(names: LogNames, tx: Executor, streams: readonly string[]): Promise<string[]> {
  const rows = await tx.run<{ stream: string }>(sql`/* events.lock_streams */
    select stream
    from ${names.streams}
    where stream = any(${streams}::text[])
    order by stream
    for update skip locked`)
  return rows.map(row => row.stream)
}

export async function countEventsOf(names: LogNames, database: Database, streams: readonly string[]): Promise<number> {
  const [row] = await database.run<{ count: number }>(sql`/* events.count_archived */
    select count(*) as count
    from ${names.events}
    where stream = any(${streams}::text[])`)
  return row!.count
}
