/**
 * Loading many events fast, by COPY.
 *
 * The source is cut into chunks; each is one transaction that locks its streams, announces, draws positions, copies and
 * commits, so that readers never wait for more than one chunk. The import as a whole is **not** atomic: when it fails,
 * what came before the failing chunk stays. Under a name it is resumable: count and digest of what was stored are
 * committed with each chunk, and a source given again under that name is skipped, and compared, up to there.
 */
import { createHash, type Hash } from 'node:crypto'
import {
  DuplicateEventId,
  ImportMismatch,
  InvalidEvent,
  InvalidOption,
  isRillflowError,
  StreamArchived,
  StreamTombstoned,
} from '../core/errors.ts'
import { jsonable } from '../core/json.ts'
import { throwIfAborted } from '../core/lifecycle.ts'
import { checkName } from '../core/name.ts'
import { retry } from '../core/retry.ts'
import { copyField } from '../database/copy-text.ts'
import type { Transaction } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import { sqlStateOf, uniqueViolation } from '../database/sqlstate.ts'
import type { NewEventOf } from './definition.ts'
import type { Log } from './log.ts'
import { type CheckedEvent, checkEvent } from './prepare.ts'

export interface ImportOptions {
  /** Makes the import resumable: the same source under the same name goes on where it stopped. */
  name?: string | undefined
  /** Events per transaction, at most 10 000. Default 5000. */
  chunkSize?: number | undefined
  onProgress?: ((progress: ImportProgress) => void) | undefined
  signal?: AbortSignal | undefined
}

export interface ImportProgress {
  /** Events of the source dealt with, those of an earlier run included. */
  readonly events: number
  /** Of these, stored by an earlier run. */
  readonly resumed: number
  /** The last position drawn; 0n if nothing was stored yet. */
  readonly position: bigint
  readonly eventsPerSecond: number
}

export interface ImportedEvent extends NewEventOf<string, unknown> {
  readonly stream: string
  /** Kept if given; default: the time of the import. */
  readonly createdAt?: Date | undefined
}

type Source = AsyncIterable<ImportedEvent> | Iterable<ImportedEvent>

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
const maxChunk = 10_000
const maxChunkBytes = 8 * 1024 * 1024
const turnMs = 2

export async function importEvents(
  log: Log,
  source: Source,
  options: ImportOptions,
  onChunk: () => void,
): Promise<ImportProgress> {
  const chunkSize = options.chunkSize ?? 5000
  if (!Number.isInteger(chunkSize) || chunkSize < 1 || chunkSize > maxChunk)
    throw new InvalidOption({ option: 'chunkSize', reason: `must be from 1 to ${maxChunk}, not ${chunkSize}` })
  if (options.name !== undefined) checkName('Import', options.name)
  const resumed = await storedBefore(log, options.name)
  const started = performance.now()
  let done = resumed.events
  let position = 0n
  let storing: Promise<void> = Promise.resolve()
  const progress = (): ImportProgress =>
    jsonable({
      events: done,
      resumed: resumed.events,
      position,
      eventsPerSecond: Math.round((done - resumed.events) / ((performance.now() - started) / 1000 || 1)),
    })

  const store = async (chunk: Chunk): Promise<void> => {
    position = await storeChunk(log, chunk, options.name, done)
    done += chunk.events.length
    log.telemetry.count('events_imported_total', chunk.events.length)
    onChunk()
    options.onProgress?.(progress())
  }

  try {
    // The next chunk is gathered and encoded while the database stores this one.
    for await (const chunk of chunksOf(log, source, chunkSize, options, resumed)) {
      await storing
      throwIfAborted(options.signal)
      storing = store(chunk)
      storing.catch(() => {})
    }
  } finally {
    // Also when the source failed: what is under way is done before the caller hears of it.
    await storing
  }
  return progress()
}

interface Chunk {
  readonly events: readonly ImportLine[]
  /** Of the whole source up to the end of this chunk. */
  readonly digest: string
}

interface ImportLine {
  readonly stream: string
  readonly id: string
  /** The columns after position and version. */
  readonly line: string
  readonly createdAt: string | undefined
}

async function* chunksOf(
  log: Log,
  source: Source,
  chunkSize: number,
  options: ImportOptions,
  resumed: { events: number; digest: string },
): AsyncGenerator<Chunk, void, undefined> {
  const hash = options.name === undefined ? undefined : createHash('sha256')
  const checks: Promise<void>[] = []
  let skipped = 0
  let bytes = 0
  let events: ImportLine[] = []
  let turnedAt = performance.now()
  for await (const event of source) {
    throwIfAborted(options.signal)
    // A source that never waits would keep the event loop, and with it the chunk that is just being stored.
    if (performance.now() - turnedAt > turnMs) {
      await new Promise(setImmediate)
      turnedAt = performance.now()
    }
    const checked = checkEvent(log, event, {}, checks)
    const stream = checkName('Stream', event.stream)
    hash?.update(`${stream}\0${checked.type}\0${checked.data}\n`)
    if (skipped < resumed.events) {
      if (++skipped === resumed.events) refuseOther(options.name, resumed, hash)
      continue
    }
    events.push({ stream, id: checked.id, line: copyLine(stream, checked), createdAt: timeOf(event) })
    bytes += checked.bytes
    if (events.length < chunkSize && bytes < maxChunkBytes) continue
    await Promise.all(checks.splice(0))
    yield { events, digest: digestOf(hash) }
    events = []
    bytes = 0
  }
  if (skipped < resumed.events) throw new ImportMismatch({ importName: options.name!, imported: resumed.events })
  await Promise.all(checks)
  if (events.length > 0) yield { events, digest: digestOf(hash) }
}

async function storeChunk(log: Log, chunk: Chunk, name: string | undefined, before: number): Promise<bigint> {
  const store = (): Promise<bigint> =>
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
): Promise<bigint> {
  if (name !== undefined) await advance(log, tx, name, before, chunk)
  const versions = await takeStreams(log, tx, chunk)
  const announced = tx.run(sql`/* events.import_announce */
    select ${log.names.announce}()`)
  const drawing = tx.run<{ positions: string; now: string }>(sql`/* events.import_positions */
    select
      array(
        select nextval(${log.names.events_position.quoted}::regclass)
        from generate_series(1, ${chunk.events.length}::integer))::text as positions,
      clock_timestamp()::text as now`)
  const [[drawn]] = await Promise.all([drawing, announced])
  const { now } = drawn!
  const positions = drawn!.positions.slice(1, -1).split(',')
  let rows = ''
  chunk.events.forEach(({ stream, line, createdAt }, at) => {
    const version = versions.get(stream)! + 1
    versions.set(stream, version)
    rows += `${positions[at]}\t${version}\t${line}\t${createdAt ?? now}\n`
  })
  await tx.copyIn(log.names.events.quoted, columns, rows)
  return BigInt(positions.at(-1)!)
}

/** Locks the chunk's streams, moves them on by its events, and gives the versions they had before. */
async function takeStreams(log: Log, tx: Transaction, chunk: Chunk): Promise<Map<string, number>> {
  const counts = new Map<string, number>()
  for (const { stream } of chunk.events) counts.set(stream, (counts.get(stream) ?? 0) + 1)
  const versions = await lockStreams(log, tx, [...counts.keys()])
  const missing = [...counts.keys()].filter(stream => !versions.has(stream))
  if (missing.length > 0) {
    // A new stream is written once, with the version it will have.
    const made = await tx.runArrays(sql`/* events.import_create_streams */
      insert into ${log.names.streams} (stream, version)
      select u.stream, u.version
      from unnest(${missing}::text[], ${missing.map(stream => counts.get(stream)!)}::bigint[]) as u(stream, version)
      order by u.stream collate "C"
      on conflict do nothing
      returning stream`)
    const own = new Set(made.map(([stream]) => stream as string))
    // Somebody else made these meanwhile.
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

/** Locks those that exist, in the order everybody locks in. */
async function lockStreams(log: Log, tx: Transaction, streams: readonly string[]): Promise<Map<string, number>> {
  if (streams.length === 0) return new Map()
  const rows = await tx.runArrays(sql`/* events.import_lock_streams */
    select stream, version, archived_at is not null, tombstoned_at is not null
    from ${log.names.streams}
    where stream = any(${streams}::text[])
    order by stream
    for update`)
  for (const [stream, , archived, tombstoned] of rows as [string, bigint, boolean, boolean][]) {
    if (tombstoned) throw new StreamTombstoned({ stream })
    if (archived) throw new StreamArchived({ stream })
  }
  return new Map((rows as [string, bigint][]).map(([stream, version]) => [stream, Number(version)]))
}

/** Moves the import's own mark; zero rows mean that another process is at the same import. */
async function advance(log: Log, tx: Transaction, name: string, before: number, chunk: Chunk): Promise<void> {
  const moved = await tx.run(sql`/* events.import_advance */
    insert into ${log.names.imports} as known (name, events, digest)
    values (${name}::text, ${before + chunk.events.length}::bigint, ${chunk.digest}::text)
    on conflict (name) do update
      set events = excluded.events, digest = excluded.digest, updated_at = excluded.updated_at
      where known.events = ${before}::bigint
    returning name`)
  if (moved.length === 0) throw new ImportMismatch({ importName: name, imported: before })
}

async function storedBefore(log: Log, name: string | undefined): Promise<{ events: number; digest: string }> {
  if (name === undefined) return { events: 0, digest: '' }
  const [row] = await log.database.run<{ events: bigint; digest: string }>(sql`/* events.import_state */
    select events, digest
    from ${log.names.imports}
    where name = ${name}::text`)
  return row === undefined ? { events: 0, digest: '' } : { events: Number(row.events), digest: row.digest }
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

function timeOf({ type, createdAt }: ImportedEvent): string | undefined {
  if (createdAt === undefined) return undefined
  if (createdAt instanceof Date && !Number.isNaN(createdAt.getTime())) return createdAt.toISOString()
  throw new InvalidEvent({ type, path: 'createdAt', reason: `is ${String(createdAt)}, not a valid Date` })
}

function copyLine(stream: string, event: CheckedEvent): string {
  const { id, type, schemaVersion, data, headers, correlationId, causationId, userId } = event
  const place = `${copyField(stream)}\t${id}\t${copyField(type)}\t${schemaVersion}`
  const context = `${copyField(correlationId)}\t${copyField(causationId)}\t${copyField(userId)}`
  return `${place}\t${copyField(data)}\t${copyField(headers)}\t${context}`
}

function digestOf(hash: Hash | undefined): string {
  return hash?.copy().digest('hex') ?? ''
}

function refuseOther(name: string | undefined, resumed: { events: number; digest: string }, hash?: Hash): void {
  if (digestOf(hash) !== resumed.digest) throw new ImportMismatch({ importName: name!, imported: resumed.events })
}
