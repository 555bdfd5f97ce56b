/** Reading documents by id. */
import { isRillflowError } from '../core/errors.ts'
import type { Executor } from '../database/database.ts'
import { type Statement, sql } from '../database/sql.ts'
import { checkId, readBody } from './body.ts'
import { type CallOptions, type OpenCollection, prepared } from './collection.ts'
import { DocumentTooLarge } from './errors.ts'
import { runRead, runRows } from './execute.ts'
import { maxReadBytes, tooLarge, withSizes } from './size.ts'

/** A document, with its version, times and writers. */
export interface StoredDocument<Doc = unknown> {
  readonly id: string
  readonly data: Doc
  /** From 1; every write makes the next one. */
  readonly version: number
  readonly createdAt: Date
  readonly updatedAt: Date
  readonly createdBy?: string | undefined
  readonly updatedBy?: string | undefined
  /** Set on soft-deleted documents, which are returned only with `includeDeleted`. */
  readonly deletedAt?: Date | undefined
  /** The size of a document that is too large to be read, in bytes. Its `data` throws `DocumentTooLarge`. */
  readonly tooLarge?: number | undefined
}

export interface ReadOptions extends CallOptions {
  /** Also return documents that are soft-deleted. Default false. */
  readonly includeDeleted?: boolean | undefined
}

export async function getDocument(
  collection: OpenCollection,
  id: string,
  options: ReadOptions = {},
): Promise<StoredDocument | undefined> {
  checkId(id)
  const executor = await prepared(collection, options)
  // The id is known, so it is not selected: a column costs the driver more than the server.
  const statement =
    options.includeDeleted === true
      ? sql`/* documents.get_any */
          select body, version, created_at, updated_at, created_by, updated_by, deleted_at
          from ${collection.table} as d
          where id = ${id}::text`
      : sql`/* documents.get */
          select body, version, created_at, updated_at, created_by, updated_by
          from ${collection.table} as d
          where id = ${id}::text
            and deleted_at is null`
  const measured = documentMeasures.slice(1, options.includeDeleted === true ? undefined : -1)
  const [row] = await runRead(collection, executor, statement).catch(error =>
    readSized(collection, executor, options, statement, measured, error),
  )
  if (row === undefined) return undefined
  const bytes = tooLarge(row, measured.length)
  if (bytes !== undefined) throw documentTooLarge(collection, id, bytes)
  return toDocument(collection, [id, ...row.slice(0, measured.length)])
}

/** The documents that exist, by id. */
export async function getDocuments(
  collection: OpenCollection,
  ids: readonly string[],
  options: ReadOptions = {},
): Promise<Map<string, StoredDocument>> {
  for (const id of ids) checkId(id)
  const executor = await prepared(collection, options)
  if (ids.length === 0) return new Map()
  const statement = sql`/* documents.get_many */
    select id, body, version, created_at, updated_at, created_by, updated_by, deleted_at
    from ${collection.table} as d
    where id = any(${ids}::text[])
      and (deleted_at is null or ${options.includeDeleted === true}::boolean)`
  const rows = await runRead(collection, executor, statement).catch(error =>
    readSized(collection, executor, options, statement, documentMeasures, error),
  )
  const found = new Map(rows.map(row => [row[0] as string, toDocument(collection, row)]))
  // In the order of the ids that were given.
  return new Map(ids.flatMap(id => (found.has(id) ? [[id, found.get(id)!]] : [])))
}

export async function documentExists(
  collection: OpenCollection,
  id: string,
  options: ReadOptions = {},
): Promise<boolean> {
  checkId(id)
  const executor = await prepared(collection, options)
  const rows = await runRows(
    collection,
    executor,
    sql`/* documents.exists */
    select 1
    from ${collection.table} as d
    where id = ${id}::text
      and (deleted_at is null or ${options.includeDeleted === true}::boolean)`,
  )
  return rows.length > 0
}

export async function countDocuments(collection: OpenCollection, options: ReadOptions = {}): Promise<number> {
  const executor = await prepared(collection, options)
  const [row] = await runRows(
    collection,
    executor,
    sql`/* documents.count */
    select count(*)
    from ${collection.table} as d
    where deleted_at is null
      or ${options.includeDeleted === true}::boolean`,
  )
  return Number(row![0])
}

/** Which of the columns of a document are measured. */
export const documentMeasures: readonly boolean[] = [false, true, false, false, false, false, false, false]

/**
 * Reads again, without the bodies that no process can read, after an answer was too large. Inside a transaction the answer
 * has ended the transaction.
 */
async function readSized(
  collection: OpenCollection,
  executor: Executor,
  { tx }: CallOptions,
  { label, text, values }: Statement,
  measured: readonly boolean[],
  error: unknown,
): Promise<unknown[][]> {
  if (!isRillflowError(error, 'result_too_large') || tx !== undefined) throw error
  return runRead(collection, executor, { label, text: withSizes(label, text, measured), values })
}

export function documentTooLarge({ name }: OpenCollection, id: string, bytes: number): Error {
  return new DocumentTooLarge({ collection: name, id, bytes, maxBytes: maxReadBytes })
}

/** A row of the columns as they are selected above, and of those of `withSizes` if it has them. */
export function toDocument(collection: OpenCollection, row: readonly unknown[]): StoredDocument {
  const width = documentMeasures.length
  const bytes = row.length > width ? tooLarge(row, width) : undefined
  if (bytes !== undefined) return toLargeDocument(collection, row, bytes)
  const [id, body, version, createdAt, updatedAt, createdBy, updatedBy, deletedAt] = row as DocumentRow
  const document: Mutable<StoredDocument> = {
    id,
    data: readBody(collection, id, body),
    version: Number(version),
    createdAt,
    updatedAt,
  }
  if (createdBy !== null) document.createdBy = createdBy
  if (updatedBy !== null) document.updatedBy = updatedBy
  if (deletedAt) document.deletedAt = deletedAt
  return document
}

/** Everything but its data, which throws. */
function toLargeDocument(collection: OpenCollection, row: readonly unknown[], bytes: number): StoredDocument {
  const { data: _, ...document } = toDocument({ ...collection, options: {} }, row.slice(0, documentMeasures.length))
  return withoutValue({ ...document, tooLarge: bytes }, 'data', () =>
    documentTooLarge(collection, document.id, bytes),
  ) as StoredDocument
}

/** A property that throws where it is used. It is not among the keys, so that the rest can be copied and printed. */
export function withoutValue(target: object, name: string, makeError: () => Error): object {
  return Object.defineProperty(target, name, {
    get(): never {
      throw makeError()
    },
  })
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] }
type DocumentRow = [string, unknown, number, Date, Date, string | null, string | null, (Date | null)?]
