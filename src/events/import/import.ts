/**
 * Loading many events fast, by COPY.
 *
 * The source is cut into chunks; each is one transaction that locks its streams, announces, draws positions, copies and
 * commits, so that readers never wait for more than one chunk. The import as a whole is **not** atomic: when it fails,
 * the chunks before the failing one stay. Under a name it is resumable: the count and the digest of the stored events
 * are committed with each chunk, and a source that is given again under that name is compared and skipped up to there.
 */

import { createHash, type Hash } from 'node:crypto'
import { throwIfAborted } from '../../core/abort.ts'
import { InvalidEvent, InvalidOption } from '../../core/errors.ts'
import { elapsedMs, nextTurn } from '../../core/host.ts'
import { checkName } from '../../core/name.ts'
import { describe, optionNames, refuseUnknownOptions } from '../../core/options.ts'
import { copyField } from '../../database/copy-text.ts'
import { sql } from '../../database/sql.ts'
import { type CheckedEvent, checkEvent } from '../append/prepare.ts'
import type { NewEventOf } from '../definition.ts'
import { ImportMismatch } from '../errors.ts'
import type { Log } from '../log.ts'
import { type Chunk, type ImportLine, storeChunk } from './chunk.ts'

export interface ImportOptions {
  /** Makes the import resumable: the same source under the same name continues where it stopped. */
  name?: string | undefined
  /** Events per transaction, at most 10 000. Default 5000. */
  chunkSize?: number | undefined
  onProgress?: ((progress: ImportProgress) => void) | undefined
  signal?: AbortSignal | undefined
}

const importOptionNames: readonly string[] = optionNames<ImportOptions>({
  ...{ name: true, chunkSize: true, onProgress: true, signal: true },
})

export interface ImportProgress {
  /** Events of the source so far, including those of an earlier run. */
  readonly events: number
  /** Of these, stored by an earlier run. */
  readonly resumed: number
  /** The last position drawn; 0 if nothing was stored yet. */
  readonly position: number
  readonly eventsPerSecond: number
}

/**
 * An event for `store.events.import`, which may have its own time and id.
 *
 * @example
 * ```ts
 * const old: ImportedEvent = { stream: 'order-1', type: 'OrderPlaced', data: { customer: 'Ada', cents: 1 } }
 * ```
 */
export interface ImportedEvent extends NewEventOf<string, unknown> {
  readonly stream: string
  /** Kept if given; default: the time of the import. */
  readonly createdAt?: Date | undefined
}

type Source = AsyncIterable<ImportedEvent> | Iterable<ImportedEvent>

const maxChunk = 10_000
const maxChunkBytes = 8 * 1024 * 1024
const turnMs = 2
/** A smaller import changes no plan. */
const manyEvents = 1_000

export async function importEvents(
  log: Log,
  source: Source,
  options: ImportOptions,
  onChunk: () => void,
): Promise<ImportProgress> {
  refuseUnknownOptions('store.events.import', options, importOptionNames)
  const chunkSize = options.chunkSize ?? 5000
  if (!Number.isInteger(chunkSize) || chunkSize < 1 || chunkSize > maxChunk)
    throw new InvalidOption({
      option: 'chunkSize',
      reason: `The option "chunkSize" of import is ${describe(chunkSize)}. It must be a whole number from 1 to ${maxChunk}.`,
    })
  if (options.name !== undefined) checkName('Import', options.name)
  const resumed = await storedBefore(log, options.name)
  const started = elapsedMs()
  let done = resumed.events
  let position = 0
  let storing: Promise<void> = Promise.resolve()
  const progress = (): ImportProgress => ({
    events: done,
    resumed: resumed.events,
    position,
    eventsPerSecond: Math.round((done - resumed.events) / ((elapsedMs() - started) / 1000 || 1)),
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
    // Also when the source failed: the chunk that is being stored ends before the caller is answered.
    await storing
  }
  if (done - resumed.events >= manyEvents) await analyze(log)
  return progress()
}

/** A table that has grown much gets its statistics at once: the server itself looks about once a minute. */
async function analyze(log: Log): Promise<void> {
  for (const { quoted } of [log.names.events, log.names.streams])
    await log.database
      .run({ label: 'events.analyze', text: `/* events.analyze */ analyze ${quoted}`, values: [], unprepared: true })
      // A role that does not own the tables gets a warning of the server. The events are stored in any case.
      .catch(error => log.telemetry.log.warn({ schema: log.schema, error }, 'The tables could not be analyzed.'))
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
  let turnedAt = elapsedMs()
  for await (const event of source) {
    throwIfAborted(options.signal)
    // A source that never waits would keep the event loop, and with it the chunk that is being stored.
    if (elapsedMs() - turnedAt > turnMs) {
      await nextTurn()
      turnedAt = elapsedMs()
    }
    const checked = checkEvent(log, event?.stream, event, {}, checks)
    const stream = checkName('Stream', event.stream)
    hash?.update(`${stream}\0${checked.type}\0${checked.data}\n`)
    if (skipped < resumed.events) {
      if (++skipped === resumed.events) refuseOther(options.name, resumed, hash)
      continue
    }
    events.push({
      stream,
      type: checked.type,
      id: checked.id,
      line: copyLine(stream, checked),
      createdAt: timeOf(event),
    })
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

async function storedBefore(log: Log, name: string | undefined): Promise<{ events: number; digest: string }> {
  if (name === undefined) return { events: 0, digest: '' }
  const [row] = await log.database.run<{ events: number; digest: string }>(sql`/* events.import_state */
    select events, digest
    from ${log.names.imports}
    where name = ${name}::text`)
  return row === undefined ? { events: 0, digest: '' } : { events: Number(row.events), digest: row.digest }
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
