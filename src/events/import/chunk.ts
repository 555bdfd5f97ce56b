/**
 * Storing one chunk of an import: one transaction that locks its streams, draws positions, copies, commits.
 */

import { isRillflowError } from '../../core/errors.ts'
import { retry } from '../../core/retry.ts'
import type { Transaction } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import { sqlStateOf, uniqueViolation } from '../../database/sqlstate.ts'
import { moment } from '../../schema/clock.sql.ts'
import { DuplicateEventId, ImportBypassesInline, ImportMismatch, StreamArchived, StreamTombstoned } from '../errors.ts'
import { type Log, whereLogIs } from '../log.ts'

export interface Chunk {
  readonly events: readonly ImportLine[]
  /** Of the whole source up to the end of this chunk. */
  readonly digest: string
}

export interface ImportLine {
  readonly stream: string
  readonly type: string
  readonly id: string
  /** The columns after position and version. */
  readonly line: string
  readonly createdAt: string | undefined
}

const columns = [
  'position',
  'version',
  'stream',
  'event_id',
  'type',
  'schema_version',
  'data',
  'headers',
  'correlation_id',
  'causation_id',
  'user_id',
  'created_at',
]

/** Returns the last position drawn. `before` is the progress of the import under this name until now. */
export async function storeChunk(log: Log, chunk: Chunk, name: string | undefined, before: number): Promise<number> {
  const store = (): Promise<number> =>
    log.database.transaction(tx => storeIn(log, tx, chunk, name, before), { timeoutMs: 120_000 })
  try {
    return await retry(store, { retries: 5, when: error => isRillflowError(error, 'serialization_failed') })
  } catch (error) {
    if (sqlStateOf((error as Error).cause) !== uniqueViolation) throw error
    throw new DuplicateEventId({ eventIds: await takenIds(log, chunk) }, error)
  }
}

async function storeIn(
  log: Log,
  tx: Transaction,
  chunk: Chunk,
  name: string | undefined,
  before: number,
): Promise<number> {
  await refuseInline(log, tx, chunk)
  if (name !== undefined) await advance(log, tx, name, before, chunk)
  const versions = await takeStreams(log, tx, chunk)
  const drawing = tx.run<{ positions: string }>(sql`/* events.import_draw */
    select ${log.names.draw}(p_count => ${chunk.events.length}::integer)::text as positions`)
  const reading = tx.run<{ now: string }>(sql`/* events.import_moment */
    select moment.at::text as now
    from ${moment(log.names.clock)}`)
  const [[drawn], [read]] = await Promise.all([drawing, reading])
  const { now } = read!
  const positions = drawn!.positions.slice(1, -1).split(',')
  let rows = ''
  chunk.events.forEach(({ stream, line, createdAt }, at) => {
    const version = versions.get(stream)! + 1
    versions.set(stream, version)
    rows += `${positions[at]}\t${version}\t${line}\t${createdAt ?? now}\n`
  })
  await tx.copyIn(log.names.events.quoted, columns, rows)
  return Number(positions.at(-1)!)
}

/** Locks the chunk's streams, adds its events to their versions, and returns the versions before. */
async function takeStreams(log: Log, tx: Transaction, chunk: Chunk): Promise<Map<string, number>> {
  const counts = new Map<string, number>()
  for (const { stream } of chunk.events) counts.set(stream, (counts.get(stream) ?? 0) + 1)
  const versions = await lockStreams(log, tx, [...counts.keys()])
  const missing = [...counts.keys()].filter(stream => !versions.has(stream))
  if (missing.length > 0) {
    // A new stream is written once, with the version it will have.
    const made = await tx.runArrays(sql`/* events.import_create_streams */
      insert into ${log.names.streams} (stream, version, created_at)
      select u.stream, u.version, ${log.names.clock}(u.stream)
      from unnest(${missing}::text[], ${missing.map(stream => counts.get(stream)!)}::bigint[]) as u(stream, version)
      order by u.stream collate "C"
      on conflict do nothing
      returning stream`)
    const own = new Set(made.map(([stream]) => stream as string))
    // Another transaction made these in the meantime.
    const others = missing.filter(stream => !own.has(stream))
    for (const [stream, version] of await lockStreams(log, tx, others)) versions.set(stream, version)
  }
  const moved = [...versions.keys()]
  if (moved.length > 0)
    await tx.run(sql`/* events.import_streams */
      update ${log.names.streams} as s
      set version = u.version
      from unnest(
        ${moved}::text[],
        ${moved.map(stream => versions.get(stream)! + counts.get(stream)!)}::bigint[]) as u(stream, version)
      where s.stream = u.stream`)
  for (const stream of missing) if (!versions.has(stream)) versions.set(stream, 0)
  return versions
}

/** Locks those that exist, in the order in which every transaction locks streams. */
async function lockStreams(log: Log, tx: Transaction, streams: readonly string[]): Promise<Map<string, number>> {
  if (streams.length === 0) return new Map()
  const rows = await tx.runArrays(sql`/* events.import_lock_streams */
    select stream, version, archived_at is not null, tombstoned_at is not null
    from ${log.names.streams}
    where stream = any(${streams}::text[])
    order by stream
    for update`)
  for (const [stream, , archived, tombstoned] of rows as [string, number, boolean, boolean][]) {
    if (tombstoned) throw new StreamTombstoned({ stream })
    if (archived) throw new StreamArchived({ stream })
  }
  return new Map((rows as [string, number][]).map(([stream, version]) => [stream, Number(version)]))
}

/** No projection becomes inline until the chunk is committed: reading the table holds the barrier. */
async function refuseInline(log: Log, tx: Transaction, chunk: Chunk): Promise<void> {
  const [inline] = await tx.run<{ name: string }>(sql`/* events.import_inline */
    select name
    from ${log.names.inline_projections}
    where types is null
      or types && ${[...new Set(chunk.events.map(({ type }) => type))]}::text[]
    order by name
    limit 1`)
  if (inline !== undefined) throw new ImportBypassesInline({ projection: inline.name })
}

/** Updates the progress of the import; zero rows mean that another process runs the same import. */
async function advance(log: Log, tx: Transaction, name: string, before: number, chunk: Chunk): Promise<void> {
  const moved = await tx.run(sql`/* events.import_advance */
    insert into ${log.names.imports} as known (name, events, digest, updated_at)
    select ${name}::text, ${before + chunk.events.length}::bigint, ${chunk.digest}::text, ${log.names.clock}(one.id)
    from ${whereLogIs(log)}
    on conflict (name) do update
      set events = excluded.events, digest = excluded.digest, updated_at = excluded.updated_at
      where known.events = ${before}::bigint
    returning name`)
  if (moved.length === 0) throw new ImportMismatch({ importName: name, imported: before })
}

async function takenIds(log: Log, chunk: Chunk): Promise<string[]> {
  const ids = chunk.events.map(({ id }) => id)
  const rows = await log.database.run<{ event_id: string }>(sql`/* events.import_taken */
    select event_id
    from ${log.names.events}
    where event_id = any(${ids}::uuid[])
    limit 10`)
  if (rows.length > 0) return rows.map(row => row.event_id)
  return ids.filter((id, at) => ids.indexOf(id) !== at).slice(0, 10)
}
