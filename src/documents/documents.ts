/**
 * Documents: JSON bodies under an id, in tables of their own, with versions.
 *
 *     collection ─► table            a declared table each; made on demand where the store may, by schema.sync() where not
 *         │
 *         ├─ read, history           by id; as they are, as they were
 *         ├─ write, update, patch    one document: one statement (update: a row lock, your function, a write)
 *         ├─ write-many, bulk,       many: one set-based statement, with an outcome for each
 *         │  batch, import
 *         └─ query/                  everything that does not start from an id
 *
 *     (none) ──insert, put──► live ──softDelete──► soft-deleted ──restore, put──► live
 *                              └────────────delete────────┴──► (none)
 *
 * Guarantees:
 * - Every write makes the next version, from 1, and says which; with `expected` it takes effect at that version only.
 * - Not there (`DocumentNotFound`), soft-deleted (`DocumentDeleted`) and at another version (`DocumentConflict`, with
 *   the actual one) are three different answers. Only a `put` without `expected` revives what was soft-deleted, `restore`
 *   is the other way; nothing is ever written to a document that stays hidden.
 * - A body is checked before it is sent, so that what reads back is what was meant. Bodies are objects.
 * - Where a history is kept, the statement that writes a version also keeps it: neither exists without the other.
 * - A bulk call is all or nothing, unless `partial` asks for what can be done.
 * - Writers of many documents lock them in the order of their ids, as projections do.
 *
 * What can fail: a table that is not there is `CollectionNotSynced`, naming the call that makes it; tables are made
 * before, never inside, a transaction. After a lost connection (`ConnectionLost`) a write may or may not have happened:
 * read the version, or write with `expected`, which cannot happen twice.
 *
 * After a document was deleted for good the next one of its id starts again at version 1, unless its history is kept.
 */
import { identifier } from '../database/sql.ts'
import { type CollectionBase, type CollectionOptions, type DocumentParts, makeReady } from './collection.ts'
import { checkCollectionName, collectionTable, historyName, historyTable } from './table.ts'

/** Opens collections: `store.documents<Customer>('customers', options)`. */
export type Documents = <Doc extends object = Record<string, unknown>>(
  name: string,
  options?: CollectionOptions<Doc>,
) => Collection<Doc>

export interface Collection<Doc extends object = Record<string, unknown>> extends CollectionBase {
  /** Makes sure that its tables are there. Only needed before its first use inside a transaction. */
  ready(): Promise<void>
}

export function openDocuments(parts: DocumentParts): Documents {
  return <Doc extends object>(name: string, options: CollectionOptions<Doc> = {}) => {
    const base = openCollection(parts, name, options as unknown as CollectionOptions)
    return { ...base, ready: () => makeReady(base) }
  }
}

function openCollection(parts: DocumentParts, name: string, given: CollectionOptions): CollectionBase {
  checkCollectionName(name)
  const { name: schema } = parts.schema
  const tableName = given.table === undefined ? name : checkCollectionName(given.table)
  const readOnly = given.readOnly === true || parts.tables.isReadModel(tableName)
  const options = readOnly ? { ...given, readOnly } : given
  const declared = readOnly ? [] : [collectionTable(tableName, options)]
  if (!readOnly && options.history === true) declared.push(historyTable(tableName))
  for (const table of declared) parts.tables.register(table)
  return {
    ...{ name, tableName, options, parts, declared },
    table: identifier(schema, tableName),
    historyTable: options.history === true && !readOnly ? identifier(schema, historyName(tableName)) : undefined,
    state: { isReady: declared.length === 0, looking: undefined },
  }
}
