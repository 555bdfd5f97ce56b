/** Reading documents by their ids. */
import { sql } from '../database/sql.ts'
import { checkId, readBody } from './body.ts'
import { type CallOptions, type CollectionBase, prepared } from './collection.ts'
import { runRead, runRows } from './run.ts'

/** A document and what is known about it. */
export interface StoredDocument<Doc = unknown> {
  readonly id: string
  readonly data: Doc
  /** From 1; every write makes the next. */
  readonly version: number
  readonly createdAt: Date
  readonly updatedAt: Date
  readonly createdBy?: string | undefined
  readonly updatedBy?: string | undefined
  /** Set if it is soft-deleted; such a one is only seen by who asks for it. */
  readonly deletedAt?: Date | undefined
}

export interface ReadOptions extends CallOptions {
  /** Also give a document that is soft-deleted. Default false. */
  readonly includeDeleted?: boolean | undefined
}

export async function getDocument(
  collection: CollectionBase,
  id: string,
  options: ReadOptions = {},
): Promise<StoredDocument | undefined> {
  checkId(id)
  const executor = await prepared(collection, options)
  // What is known anyway is not asked for: a column costs the driver more than the server.
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

/** Those that are there, by id. */
export async function getDocuments(
  collection: CollectionBase,
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
  // In the order they were asked for.
  return new Map(ids.flatMap(id => (found.has(id) ? [[id, found.get(id)!]] : [])))
}

export async function documentExists(
  collection: CollectionBase,
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

export async function countDocuments(collection: CollectionBase, options: ReadOptions = {}): Promise<number> {
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
export function toDocument(collection: CollectionBase, row: readonly unknown[]): StoredDocument {
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
