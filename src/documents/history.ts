/** Reading documents as they were, where every version is kept. */
import { InvalidOption } from '../core/errors.ts'
import { type Identifier, sql } from '../database/sql.ts'
import { checkExpected, checkId } from './body.ts'
import { type CallOptions, type CollectionBase, prepared } from './collection.ts'
import { type StoredDocument, toDocument } from './read.ts'
import { runRead } from './run.ts'

/** One version of a document; the last one of a document that was deleted for good has no data. */
export type DocumentVersion<Doc = unknown> = Omit<StoredDocument<Doc>, 'data'> & { readonly data: Doc | undefined }

export interface HistoryOptions extends CallOptions {
  /** The versions after this one. Default: from the first. */
  readonly after?: number | undefined
  /** Default 1000. */
  readonly limit?: number | undefined
}

/** The versions of a document, oldest first. */
export async function readHistory(
  collection: CollectionBase,
  id: string,
  options: HistoryOptions = {},
): Promise<DocumentVersion[]> {
  checkId(id)
  const history = keptHistory(collection)
  const { after = 0, limit = 1000 } = options
  if (!Number.isSafeInteger(limit) || limit < 1)
    throw new InvalidOption({ option: 'limit', reason: `must be a whole number from 1 on, not ${limit}` })
  const executor = await prepared(collection, options)
  const rows = await runRead(
    collection,
    executor,
    sql`/* documents.history */
    select id, body, version, created_at, updated_at, created_by, updated_by, deleted_at
    from ${history}
    where id = ${id}::text
      and version > ${after}::bigint
    order by version
    limit ${limit}::bigint`,
  )
  return rows.map(row => toVersion(collection, row))
}

/** The document as it was at a time, or at a version; undefined if it was not there then. */
export async function getEarlier(
  collection: CollectionBase,
  id: string,
  when: { readonly at: Date } | { readonly version: number },
  options: CallOptions = {},
): Promise<StoredDocument | undefined> {
  checkId(id)
  const history = keptHistory(collection)
  const executor = await prepared(collection, options)
  const [row] = await runRead(
    collection,
    executor,
    'at' in when
      ? sql`/* documents.as_of */
          select id, body, version, created_at, updated_at, created_by, updated_by, deleted_at
          from ${history}
          where id = ${id}::text
            and date_trunc('milliseconds', updated_at) <= ${timeText(when.at)}::timestamptz
          order by version desc
          limit 1`
      : sql`/* documents.at_version */
          select id, body, version, created_at, updated_at, created_by, updated_by, deleted_at
          from ${history}
          where id = ${id}::text
            and version = ${checkExpected(when.version) ?? 0}::bigint`,
  )
  if (row === undefined || row[7] !== null) return undefined
  return toDocument(collection, row)
}

function keptHistory(collection: CollectionBase): Identifier {
  if (collection.historyTable !== undefined) return collection.historyTable
  const reason = `collection ${collection.name} keeps none; declare it with { history: true }`
  throw new InvalidOption({ option: 'history', reason })
}

function toVersion(collection: CollectionBase, row: readonly unknown[]): DocumentVersion {
  if (row[1] !== null) return toDocument(collection, row)
  const { data: _, ...rest } = toDocument({ ...collection, options: {} }, row)
  return { ...rest, data: undefined }
}

function timeText(at: Date): string {
  if (at instanceof Date && !Number.isNaN(at.getTime())) return at.toISOString()
  throw new InvalidOption({ option: 'at', reason: `must be a valid Date, not ${String(at)}` })
}
