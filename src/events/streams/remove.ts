/**
 * Events leave the log in two ways only: the events of a stream that was archived long ago, and all events beyond a
 * position, when a log that is not in use is cut. Everywhere else the log is append-only.
 *
 * Either way it is done in chunks, and the log is whole after each: a stream has the version of its last event. The
 * name of an archived stream stays taken, by a tombstone, so that its versions never begin anew.
 */
import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import { tombstoneType } from '../append/prepare.ts'
import type { Log, LogNames } from '../log.ts'

// ── Archived streams ─────────────────────────────────────────────────────────────────────────────────────────

/** Nothing can be appended to these streams from now on, and no alias stands for them. The caller has locked them. */
export async function tombstoneStreams({ names }: Log, streams: readonly string[], tx: Executor): Promise<void> {
  await tx.run(sql`/* streams.tombstone_archived */
    update ${names.streams} as s
    set tombstoned_at = coalesce(s.tombstoned_at, ${names.clock}(s.version))
    where s.stream = any(${streams}::text[])`)
  await tx.run(sql`/* streams.remove_aliases */
    delete from ${names.stream_aliases}
    where stream = any(${streams}::text[])`)
}

/** Deletes at most `limit` events of these streams, the oldest versions first; returns how many. */
export async function removeEvents(
  { names }: Log,
  streams: readonly string[],
  limit: number,
  tx: Executor,
): Promise<number> {
  const [row] = await tx.runArrays(sql`/* streams.remove_events */
    with old as materialized (
      select e.position
      from unnest(${streams}::text[]) as s(stream)
      cross join lateral (
        select o.position
        from ${names.events} as o
        where o.stream = s.stream
        order by o.version
        limit ${limit}::integer) as e
      limit ${limit}::integer),
    gone as (
      delete from ${names.events}
      where position in (select position from old)
      returning 1)
    select count(*)
    from gone`)
  return Number(row![0])
}

// ── A log that is cut ────────────────────────────────────────────────────────────────────────────────────────

export async function hasEventsBeyond(names: LogNames, position: number, executor: Executor): Promise<boolean> {
  const [row] = await executor.run<{ exists: boolean }>(sql`/* events.has_beyond */
    select exists (
      select
      from ${names.events}
      where position > ${position}::bigint) as exists`)
  return row!.exists
}

/** The idempotency keys of appends, and the progress of imports, that stored something beyond the position. */
export async function forgetBeyond(names: LogNames, position: number, tx: Executor): Promise<void> {
  // A key whose events are only in part beyond the position belongs to an append that is no longer whole.
  await tx.run(sql`/* events.forget_keys */
    delete from ${names.idempotency_keys} as k
    where exists (
      select
      from unnest(k.event_ids) as i(id)
      join ${names.events} as e on e.event_id = i.id
      where e.position > ${position}::bigint)`)
  // An import does not know its positions: those that have stored anything since the first event that is deleted.
  await tx.run(sql`/* events.forget_imports */
    delete from ${names.imports}
    where updated_at >= (
      select min(created_at)
      from ${names.events}
      where position > ${position}::bigint)`)
}

export interface CutStream {
  readonly stream: string
  /** Its version afterwards; 0 if the stream was deleted. */
  readonly version: number
  /** How many of its events were deleted. */
  readonly count: number
}

/** Deletes the last events, at most `limit`, and lowers the versions of their streams. */
export async function removeLastEvents(
  names: LogNames,
  position: number,
  limit: number,
  tx: Executor,
): Promise<readonly CutStream[]> {
  const rows = await tx.run<CutStream & { ended: boolean }>(sql`/* events.remove_last */
    with cut as (
      delete from ${names.events}
      where position in (
        select e.position
        from ${names.events} as e
        where e.position > ${position}::bigint
        order by e.position desc
        limit ${limit}::integer)
      returning stream, version, type)
    select stream, min(version) - 1 as version, count(*)::integer as count,
      bool_or(type = ${tombstoneType}::text) as ended
    from cut
    group by stream`)
  if (rows.length === 0) return rows
  const streams = rows.map(row => row.stream)
  await tx.run(sql`/* streams.cut */
    update ${names.streams} as s
    set version = u.version,
      archived_at = case when u.ended and s.archived_at = s.tombstoned_at then null else s.archived_at end,
      reason = case when u.ended and s.archived_at = s.tombstoned_at then null else s.reason end,
      tombstoned_at = case when u.ended then null else s.tombstoned_at end
    from unnest(${streams}::text[], ${rows.map(row => row.version)}::bigint[], ${rows.map(row => row.ended)}::boolean[])
      as u(stream, version, ended)
    where s.stream = u.stream`)
  await tx.run(sql`/* streams.remove_empty */
    delete from ${names.streams}
    where stream = any(${streams}::text[])
      and version = 0`)
  return rows
}
