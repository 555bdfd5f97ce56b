/**
 * The history of documents: every version, where a collection stores them.
 *
 *     write ──► withVersions · withDeletion ──► one statement: the document, and its version in the history
 *     history(id), getAt(id, …) ◄── the history table
 *
 * Guarantees:
 * - The statement that writes a version also stores it in the history: neither exists without the other.
 * - The history has every version, the newest too. To store only the replaced ones, a statement would have to read the row
 *   before it writes, and an upsert does not: it would replace a row unseen that was inserted meanwhile.
 * - The deletion of a document is a version, too, one without a body; a document that is made again continues from that
 *   version.
 *
 * What can fail: a collection that stores only the newest versions has no history to read.
 */
import { InvalidOption } from '../core/errors.ts'
import { describe, refuseUnknownOptions } from '../core/options.ts'
import {
  decodeCursor,
  encodeCursor,
  maxPageBytes,
  type Page,
  type PageOptions,
  pageOf,
  pageOptionNames,
} from '../core/page.ts'
import { Identifier, type Statement, sql } from '../database/sql.ts'
import { moment } from '../schema/clock.sql.ts'
import { checkExpected, checkId } from './body.ts'
import { type CallOptions, type OpenCollection, prepared } from './collection.ts'
import { runRead } from './execute.ts'
import { documentMeasures, type StoredDocument, toDocument } from './read.ts'
import { isCutShort, tooLarge, withSizes } from './size.ts'

/** One version of a document; the last one of a document that was deleted for good has no data. */
export type DocumentVersion<Doc = unknown> = Omit<StoredDocument<Doc>, 'data'> & { readonly data: Doc | undefined }

/** `limit`: the most versions of one page, which ends earlier after 8 MiB. Default 1000. */
export interface HistoryOptions extends CallOptions, PageOptions {}

/** The versions of a document, oldest first. */
export async function readHistory(
  collection: OpenCollection,
  id: string,
  options: HistoryOptions = {},
): Promise<Page<DocumentVersion>> {
  checkId(id)
  refuseUnknownOptions('history', options, ['tx', 'signal', ...pageOptionNames])
  const history = historyOf(collection)
  const { limit = 1000 } = options
  const [after] = options.after === undefined ? [0] : (decodeCursor(options.after, 1) as [number])
  if (!Number.isSafeInteger(limit) || limit < 1) {
    const reason = `The option "limit" of history is ${describe(limit)}. It must be a whole number from 1 on.`
    throw new InvalidOption({ option: 'limit', reason })
  }
  const executor = await prepared(collection, options)
  const versions: DocumentVersion[] = []
  let isCut = false
  // The database measures all versions that it reads, also those that no longer fit, so it reads few before many.
  for (let wanted = 101, left = maxPageBytes; versions.length <= limit && !isCut; wanted *= 4) {
    const asked = Math.min(wanted, limit + 1 - versions.length)
    const { label, text, values } = sql`/* documents.history */
      select id, body, version, created_at, updated_at, created_by, updated_by, deleted_at
      from ${history}
      where id = ${id}::text
        and version > ${versions.at(-1)?.version ?? after}::bigint
      order by version
      limit ${asked}::bigint`
    const measured = withSizes(label, text, documentMeasures, Math.max(1, left))
    const rows = await runRead(collection, executor, { label, text: measured, values })
    versions.push(...rows.map(row => toVersion(collection, row)))
    left -= Number(rows.at(-1)?.at(-2) ?? 0)
    isCut = isCutShort(rows) || (left <= 0 && rows.length === asked && versions.length <= limit)
    if (rows.length < asked) break
  }
  return isCut
    ? { items: versions, next: encodeCursor([versions.at(-1)!.version]) }
    : pageOf(versions, limit, last => [last.version])
}

/** The document as it was at a time, or at a version; undefined if it did not exist then. */
export async function getEarlier(
  collection: OpenCollection,
  id: string,
  when: { readonly at: Date } | { readonly version: number },
  options: CallOptions = {},
): Promise<StoredDocument | undefined> {
  checkId(id)
  refuseUnknownOptions('getAt', when, ['at', 'version'])
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

function historyOf(collection: OpenCollection): Identifier {
  if (collection.historyTable !== undefined) return collection.historyTable
  const reason = `Collection "${collection.name}" stores only the newest version of each document. Define it with { history: true }.`
  throw new InvalidOption({ option: 'history', reason })
}

function toVersion(collection: OpenCollection, row: readonly unknown[]): DocumentVersion {
  if (row[1] !== null || tooLarge(row, documentMeasures.length) !== undefined) return toDocument(collection, row)
  const { data: _, ...rest } = toDocument({ ...collection, options: {} }, row)
  return { ...rest, data: undefined }
}

function timeText(at: Date): string {
  if (at instanceof Date && !Number.isNaN(at.getTime())) return at.toISOString()
  const reason = `The option "at" of getAt is ${describe(at)}. It must be a valid Date.`
  throw new InvalidOption({ option: 'at', reason })
}

/** Completes an insert or update of `d`: it returns the id and version of each row, and stores the versions. */
export function withVersions(collection: OpenCollection, statement: Statement): Statement {
  const { historyTable } = collection
  const { label, text } = statement
  if (historyTable === undefined) return { ...statement, text: `${text}\n    returning d.id, d.version` }
  return {
    ...statement,
    text: `/* ${label} */
    with written as (
      ${text}
      returning ${columns.map(column => `d.${column}`).join(', ')}
    ), stored as (
      insert into ${historyTable} (${columns.join(', ')})
      select ${columns.join(', ')}
      from written
    )
    select id, version
    from written`,
  }
}

/** Completes a delete of `d`: the deletion is a version, too, one without a body. */
export function withDeletion(collection: OpenCollection, statement: Statement, userId: string | null): Statement {
  const { historyTable } = collection
  const { label, text, values } = statement
  if (historyTable === undefined) return { label, text: `${text}\n    returning d.id, d.version`, values }
  return {
    label,
    text: `/* ${label} */
    with written as (
      ${text}
      returning d.id, d.version, d.created_at, d.created_by
    ), stored as (
      insert into ${historyTable} (id, version, created_at, created_by, updated_at, updated_by, deleted_at)
      select id, version + 1, created_at, created_by, moment.at, $${values.length + 1}::text, moment.at
      from written
      cross join ${moment(collection.clock)}
    )
    select id, version
    from written`,
    values: [...values, userId],
  }
}

/** The version of a new document: 1, or the one after the last of its history. `id` is SQL for the id. */
export function firstVersion({ historyTable }: OpenCollection, id: string): Identifier {
  if (historyTable === undefined) return one
  return new Identifier(`(select coalesce(max(h.version), 0) + 1 from ${historyTable} as h where h.id = ${id})`)
}

const one = new Identifier('1')

/** The columns of a version, in the history as in the collection. */
const columns = ['id', 'version', 'created_at', 'created_by', 'updated_at', 'updated_by', 'deleted_at', 'body']
