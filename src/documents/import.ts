/**
 * Loading many documents fast, by COPY.
 *
 * The source is divided into chunks, each one transaction. The import as a whole is **not** atomic: when it fails, the chunks
 * before the failing one stay. Existing documents are refused (by default), kept or replaced.
 */

import { throwIfAborted } from '../core/abort.ts'
import { InvalidOption, isRillflowError } from '../core/errors.ts'
import { describe } from '../core/options.ts'
import { copyField } from '../database/copy-text.ts'
import type { Transaction } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import { refusedRow, uniqueViolation, withoutShard } from '../database/sqlstate.ts'
import { moment } from '../schema/clock.sql.ts'
import { checkedBody, checkId, checkUserId } from './body.ts'
import { type OpenCollection, preparedToWrite } from './collection.ts'
import { DocumentExists } from './errors.ts'
import { writeError } from './execute.ts'
import { type Change, writeDocuments } from './write-many.ts'

export interface ImportOptions {
  /** The action for ids that have a document already. Default 'refuse'. */
  readonly existing?: 'refuse' | 'keep' | 'replace' | undefined
  /** Documents per transaction, at most 10 000. Default 5000. */
  readonly chunkSize?: number | undefined
  readonly userId?: string | undefined
  readonly onProgress?: ((progress: ImportProgress) => void) | undefined
  readonly signal?: AbortSignal | undefined
}

export interface ImportProgress {
  /** The number of documents read from the source. */
  readonly documents: number
  /** The number of these that were written. */
  readonly written: number
}

export interface ImportedDocument<Doc = unknown> {
  /** Default: a new UUIDv7. */
  readonly id?: string | undefined
  readonly data: Doc
}

type Source = Iterable<ImportedDocument> | AsyncIterable<ImportedDocument>
type Ready = Change & { readonly body: string }

export async function importDocuments(
  collection: OpenCollection,
  source: Source,
  options: ImportOptions = {},
): Promise<ImportProgress> {
  const { chunkSize = 5000, existing = 'refuse', signal } = options
  if (!Number.isInteger(chunkSize) || chunkSize < 1 || chunkSize > 10_000) {
    const reason = `The option "chunkSize" of importMany is ${describe(chunkSize)}. It must be a whole number from 1 to 10000.`
    throw new InvalidOption({ option: 'chunkSize', reason })
  }
  if (!['refuse', 'keep', 'replace'].includes(existing)) {
    const reason = `The option "existing" of importMany is ${describe(existing)}. It must be 'refuse', 'keep' or 'replace'.`
    throw new InvalidOption({ option: 'existing', reason })
  }
  const userId = checkUserId(options.userId)
  await preparedToWrite(collection, { signal })
  const progress = { documents: 0, written: 0 }
  for await (const chunk of chunksOf(collection, source, chunkSize)) {
    throwIfAborted(signal)
    progress.written += await storeChunk(collection, chunk, existing, userId)
    progress.documents += chunk.length
    options.onProgress?.({ ...progress })
  }
  return progress
}

async function* chunksOf(
  collection: OpenCollection,
  source: Source,
  chunkSize: number,
): AsyncGenerator<Ready[], void, undefined> {
  let chunk: Ready[] = []
  let bytes = 0
  for await (const { id: given, data } of source) {
    const id = given === undefined ? collection.parts.ids.next() : checkId(given)
    const body = await checkedBody(collection, id, data)
    chunk.push({ kind: 'put', id, body })
    bytes += body.length
    if (chunk.length < chunkSize && bytes < maxBytes) continue
    yield chunk
    chunk = []
    bytes = 0
  }
  if (chunk.length > 0) yield chunk
}

const maxBytes = 8 * 1024 * 1024

async function storeChunk(
  collection: OpenCollection,
  chunk: readonly Ready[],
  existing: 'refuse' | 'keep' | 'replace',
  userId: string | null,
): Promise<number> {
  const { database } = collection.parts
  if (existing === 'replace') {
    const latest = [...new Map(chunk.map(change => [change.id, change])).values()]
    return (await writeDocuments(database, collection, latest, { userId })).length
  }
  return database.transaction(async tx => {
    const wanted = existing === 'keep' ? await newOnes(collection, tx, chunk) : chunk
    const ids = wanted.map(({ id }) => id).sort()
    const twice = ids.find((id, i) => ids[i - 1] === id)
    if (twice !== undefined) throw new DocumentExists({ collection: collection.name, id: twice, version: 1 })
    await copyChunk(collection, tx, wanted, userId)
    return wanted.length
  })
}

/** The documents whose ids are new; of several with one id, the first. */
async function newOnes(collection: OpenCollection, tx: Transaction, chunk: readonly Ready[]): Promise<Ready[]> {
  const rows = await tx.runArrays(sql`/* documents.import_known */
    select id
    from ${collection.table}
    where id = any(${chunk.map(({ id }) => id)}::text[])`)
  const known = new Set(rows.map(row => row[0] as string))
  return chunk.filter(({ id }) => !known.has(id) && known.add(id))
}

/** Versions begin at 1. A history may know an id from before: there the usual statement continues its versions. */
async function copyChunk(
  collection: OpenCollection,
  tx: Transaction,
  chunk: readonly Ready[],
  userId: string | null,
): Promise<void> {
  if (chunk.length === 0) return
  if (collection.historyTable !== undefined) {
    const outcomes = await writeDocuments(
      tx,
      collection,
      chunk.map(change => ({ ...change, kind: 'insert' })),
      { userId },
    )
    const taken = outcomes.find(({ outcome }) => outcome === 'exists' || outcome === 'deleted')
    if (taken !== undefined)
      throw new DocumentExists({ collection: collection.name, id: taken.id, version: taken.version ?? 1 })
    return
  }
  const [row] = await tx.run<{ now: string }>(sql`/* documents.import_time */
    select moment.at::text as now
    from ${moment(collection.clock)}`)
  const actor = copyField(userId ?? undefined)
  const lines = chunk.map(
    ({ id, body }) => `1\t${row!.now}\t${row!.now}\t${copyField(id)}\t${actor}\t${actor}\t${copyField(body)}\n`,
  )
  const columns = ['version', 'created_at', 'updated_at', 'id', 'created_by', 'updated_by', 'body']
  try {
    await tx.copyIn(collection.table.quoted, columns, lines.join(''))
  } catch (error) {
    throw takenError(collection, error) ?? writeError(collection, error, [])
  }
}

/** COPY stops at the first id that exists already, and names it. */
function takenError(collection: OpenCollection, error: unknown): Error | undefined {
  if (!isRillflowError(error, 'database_failed')) return undefined
  if ((error as unknown as { sqlState: string }).sqlState !== uniqueViolation) return undefined
  const { constraint, detail } = refusedRow(error.cause)
  const key = `${collection.tableName}_pkey`
  if (constraint !== key && withoutShard(constraint) !== key) return undefined
  const id = /\)=\((.*)\)/s.exec(detail)?.[1] ?? ''
  return new DocumentExists({ collection: collection.name, id, version: 1 }, error)
}
