/**
 * What happens to events and streams when the log is cut at a position (`transfer/backup/cut-log.ts`).
 *
 * - Events after the position are deleted, the last ones first, and each transaction adapts their streams: the log is
 *   consistent after every one of them.
 * - A stream has the version that its events give it. One without events is deleted. One whose tombstone was deleted is
 *   open again.
 * - Idempotency keys of appends that were deleted, also in part, are deleted; so are the records of imports that have stored
 *   anything since.
 */
import type { Executor } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import type { LogNames } from './log.ts'
import { tombstoneType } from './streams/streams.ts'

/** How many events one call of `cutEvents` deletes at most. */
export const eventsPerCut = 1_000

/** To be called before the events are deleted, since it looks for keys and imports by their events. */
export async function cutKeysAndImports(names: LogNames, tx: Executor, position: number): Promise<void> {
  await tx.run(sql`/* events.cut_keys */
    delete from ${names.idempotency_keys} as k
    where exists (
      select
      from unnest(k.event_ids) as i(id)
      join ${names.events} as e on e.event_id = i.id
      where e.position > ${position}::bigint)`)
  // An import does not know its positions, so the time of the first event that is deleted decides.
  await tx.run(sql`/* events.cut_imports */
    delete from ${names.imports}
    where updated_at >= (
      select min(created_at)
      from ${names.events}
      where position > ${position}::bigint)`)
}

export interface CutStreams {
  readonly events: number
  /** The streams that events were deleted from, with the version that each has now. */
  readonly streams: readonly string[]
  readonly versions: readonly number[]
}

/** Deletes the last events after the position, up to `eventsPerCut`, and adapts their streams. */
export async function cutEvents(names: LogNames, tx: Executor, position: number): Promise<CutStreams> {
  const rows = await tx.run<{
    stream: string
    version: number
    count: number
    ended: boolean
  }>(sql`/* events.cut */
    with cut as (
      delete from ${names.events}
      where position in (
        select e.position
        from ${names.events} as e
        where e.position > ${position}::bigint
        order by e.position desc
        limit ${eventsPerCut}::integer)
      returning stream, version, type)
    select stream, min(version) - 1 as version, count(*) as count, bool_or(type = ${tombstoneType}::text) as ended
    from cut
    group by stream`)
  const streams = rows.map(row => row.stream)
  const versions = rows.map(row => row.version)
  if (rows.length > 0) {
    await tx.run(sql`/* events.cut_streams */
      update ${names.streams} as s
      set version = u.version,
        archived_at = case when u.ended and s.archived_at = s.tombstoned_at then null else s.archived_at end,
        reason = case when u.ended and s.archived_at = s.tombstoned_at then null else s.reason end,
        tombstoned_at = case when u.ended then null else s.tombstoned_at end
      from unnest(${streams}::text[], ${versions}::bigint[], ${rows.map(row => row.ended)}::boolean[])
        as u(stream, version, ended)
      where s.stream = u.stream`)
    await tx.run(sql`/* events.cut_empty_streams */
      delete from ${names.streams}
      where stream = any(${streams}::text[])
        and version = 0`)
  }
  return { events: rows.reduce((sum, row) => sum + row.count, 0), streams, versions }
}
