/** Reading documents as they were, where every version is stored. */
import { InvalidOption } from '../core/errors.ts'
import { describe } from '../core/options.ts'
import { decodeCursor, type Page, type PageOptions, pageOf } from '../core/page.ts'
import { type Identifier, sql } from '../database/sql.ts'
import { checkExpected, checkId } from './body.ts'
import { type CallOptions, type CollectionBase, prepared } from './collection.ts'
import { type StoredDocument, toDocument } from './read.ts'
import { runRead } from './run.ts'

/** One version of a document; the last one of a document that was deleted for good has no data. */
export type DocumentVersion<Doc = unknown> = Omit<StoredDocument<Doc>, 'data'> & { readonly data: Doc | undefined }

/** At most `limit` versions, 1000 unless it says otherwise. */
export interface HistoryOptions extends CallOptions, PageOptions {}

/** The versions of a document, oldest first. */
export async function readHistory(
  collection: CollectionBase,
  id: string,
  options: HistoryOptions = {},
): Promise<Page<DocumentVersion>> {
  checkId(id)
  const history = historyOf(collection)
  const { limit = 1000 } = options
  const [after] = options.after === undefined ? [0] : (decodeCursor(options.after, 1) as [number])
  if (!Number.isSafeInteger(limit) || limit < 1) {
    const reason = `The option "limit" of history is ${describe(limit)}. It must be a whole number from 1 on.`
    throw new InvalidOption({ option: 'limit', reason })
  }
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
    limit ${limit + 1}::bigint`,
  )
  return pageOf(
    rows.map(row => toVersion(collection, row)),
    limit,
    last => [last.version],
  )
}

/** The document as it was at a time, or at a version; undefined if it was not there then. */
export async function getEarlier(
  collection: CollectionBase,
  id: string,
  when: { readonly at: Date } | { readonly version: number },
  options: CallOptions = {},
): Promise<StoredDocument | undefined> {
  checkId(id)
  const history = historyOf(collection)
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

function historyOf(collection: CollectionBase): Identifier {
  if (collection.historyTable !== undefined) return collection.historyTable
  const reason = `Collection "${collection.name}" stores only the newest version of each document. Define it with { history: true }.`
  throw new InvalidOption({ option: 'history', reason })
}

function toVersion(collection: CollectionBase, row: readonly unknown[]): DocumentVersion {
  if (row[1] !== null) return toDocument(collection, row)
  const { data: _, ...rest } = toDocument({ ...collection, options: {} }, row)
  return { ...rest, data: undefined }
}

function timeText(at: Date): string {
  if (at instanceof Date && !Number.isNaN(at.getTime())) return at.toISOString()
  const reason = `The option "at" of getAt is ${describe(at)}. It must be a valid Date.`
  throw new InvalidOption({ option: 'at', reason })
}
