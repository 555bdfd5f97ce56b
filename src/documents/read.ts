/** Reading documents by id. */
import { sql } from '../database/sql.ts'
import { checkId, readBody } from './body.ts'
import { type CallOptions, type OpenCollection, prepared } from './collection.ts'
import { runRead, runRows } from './execute.ts'

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
  const [row] = await runRead(
    collection,
    executor,
    options.includeDeleted === true
      ? sql`/* documents.get_any */
          select body, version, created_at, updated_at, created_by, updated_by, deleted_at
          from ${collection.table} as d
          where id = ${id}::text`
      : sql`/* documents.get */
          select body, version, created_at, updated_at, created_by, updated_by
          from ${collection.table} as d
          where id = ${id}::text
            and deleted_at is null`,
  )
  return row === undefined ? undefined : toDocument(collection, [id, ...row])
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
  const rows = await runRead(
    collection,
    executor,
    sql`/* documents.get_many */
    select id, body, version, created_at, updated_at, created_by, updated_by, deleted_at
    from ${collection.table} as d
    where id = any(${ids}::text[])
      and (deleted_at is null or ${options.includeDeleted === true}::boolean)`,
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

/** A row of the columns as they are selected above. */
export function toDocument(collection: OpenCollection, row: readonly unknown[]): StoredDocument {
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

type Mutable<T> = { -readonly [K in keyof T]: T[K] }
type DocumentRow = [string, unknown, number, Date, Date, string | null, string | null, (Date | null)?]
