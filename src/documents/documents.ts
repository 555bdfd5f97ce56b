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
import type { Awaitable } from '../core/core.ts'
import { identifier } from '../database/sql.ts'
import type { IndexAdvice } from './advisor.ts'
import { type DocumentBatch, openBatch } from './batch.ts'
import {
  type BulkOptions,
  type BulkOutcome,
  type ChangedDocument,
  deleteDocuments,
  type NewDocument,
  putDocuments,
  updateDocuments,
} from './bulk.ts'
import {
  type CallOptions,
  type CollectionBase,
  type CollectionOptions,
  type DocumentParts,
  makeReady,
  type WriteOptions,
} from './collection.ts'
import { type DocumentVersion, getEarlier, type HistoryOptions, readHistory } from './history.ts'
import { type ImportedDocument, type ImportOptions, type ImportProgress, importDocuments } from './import.ts'
import { mergeDocument, patchDocument, patchDocuments } from './patch/document.ts'
import type { MergePatch, Patch } from './patch/patch.ts'
import type { Condition } from './query/condition.ts'
import type { Field, MetaFields } from './query/field.ts'
import { openQueries, type Query } from './query/query.ts'
import {
  countDocuments,
  documentExists,
  getDocument,
  getDocuments,
  type ReadOptions,
  type StoredDocument,
} from './read.ts'
import { checkCollectionName, collectionTable, historyName, historyTable } from './table.ts'
import { updateDocument } from './update.ts'
import {
  deleteDocument,
  type ExpectedOptions,
  insertDocument,
  putDocument,
  restoreDocument,
  softDeleteDocument,
} from './write.ts'

/** Opens collections: `store.documents<Customer>('customers', options)`, or one that was defined for several stores. */
export interface Documents {
  <Doc extends object = Record<string, unknown>>(name: string, options?: CollectionOptions<Doc>): Collection<Doc>
  <Doc extends object>(definition: CollectionDefinition<Doc>): Collection<Doc>
}

/** What a collection is, in whichever store. */
export interface CollectionDefinition<in out Doc extends object = Record<string, unknown>> {
  readonly name: string
  readonly options: CollectionOptions<Doc>
}

/** `const customers = defineCollection<Customer>('customers', options)`, then `store.documents(customers)` in each store. */
export function defineCollection<Doc extends object = Record<string, unknown>>(
  name: string,
  options: CollectionOptions<Doc> = {},
): CollectionDefinition<Doc> {
  return { name: checkCollectionName(name), options }
}

export interface Collection<in out Doc extends object = Record<string, unknown>> extends CollectionBase {
  /** Makes sure that its tables are there. Only needed before its first use inside a transaction. */
  ready(): Promise<void>

  get(id: string, options?: ReadOptions): Promise<StoredDocument<Doc> | undefined>
  /** Those that are there, by id, in the order they were asked for: one query. */
  getMany(ids: readonly string[], options?: ReadOptions): Promise<Map<string, StoredDocument<Doc>>>
  exists(id: string, options?: ReadOptions): Promise<boolean>
  count(options?: ReadOptions): Promise<number>

  /** Makes a document; `DocumentExists` if there is one. Returns its version. */
  insert(id: string, data: Doc, options?: WriteOptions): Promise<number>
  /** Makes a document under a new id, a UUIDv7. */
  insert(data: Doc, options?: WriteOptions): Promise<{ id: string; version: number }>
  /** Makes or replaces a document, also a soft-deleted one; with `expected` replaces one of that version. */
  put(id: string, data: Doc, options?: ExpectedOptions): Promise<number>
  /** Replaces a document by what `change` makes of it, with a lock on it meanwhile. */
  update(id: string, change: (data: Doc) => Awaitable<Doc>, options?: ExpectedOptions): Promise<number>
  /** Changes some fields of a document: `{ 'profile.name': 'Alicia', visits: increment(1) }`. */
  patch(id: string, patch: Patch<Doc>, options?: ExpectedOptions): Promise<number>
  /** Changes some fields of every document that meets a condition; all or none. Returns how many. */
  patchMany(
    condition: Condition | ((c: Field<Doc>, meta: MetaFields) => Condition),
    patch: Patch<Doc>,
    options?: WriteOptions,
  ): Promise<number>
  /** Changes some fields of a document by a JSON Merge Patch (RFC 7396): null takes a field away. */
  merge(id: string, patch: MergePatch<Doc>, options?: ExpectedOptions): Promise<number>
  /** Deletes a document for good, soft-deleted or not. False if there was none. */
  delete(id: string, options?: ExpectedOptions): Promise<boolean>
  /** Hides a document until it is restored, or put. */
  softDelete(id: string, options?: ExpectedOptions): Promise<number>
  restore(id: string, options?: ExpectedOptions): Promise<number>

  /** Upserts in one statement; all or none. */
  putMany(items: readonly NewDocument<Doc>[], options?: BulkOptions): Promise<BulkOutcome[]>
  /** Replaces documents that are there; all or none. */
  updateMany(items: readonly ChangedDocument<Doc>[], options?: BulkOptions): Promise<BulkOutcome[]>
  /** Deletes for good, or softly; all or none. */
  deleteMany(
    items: readonly (string | { readonly id: string; readonly expected?: number | undefined })[],
    options?: BulkOptions & { readonly soft?: boolean | undefined },
  ): Promise<BulkOutcome[]>
  /** Loads many documents fast, in chunks. Not atomic as a whole. */
  importMany(
    source: Iterable<ImportedDocument<Doc>> | AsyncIterable<ImportedDocument<Doc>>,
    options?: ImportOptions,
  ): Promise<ImportProgress>
  /** Gathers changes, to be written together. Holds 10 000 of them unless told otherwise. */
  batch(options?: { readonly maxChanges?: number | undefined }): DocumentBatch<Doc>

  /** Looks for documents by what is in them. */
  query(): Query<Doc>
  /** Indexes that the queries run so far would have used, the most worthwhile first. */
  adviseIndexes(): IndexAdvice[]

  /** The versions of a document, oldest first. Needs `history: true`. */
  history(id: string, options?: HistoryOptions): Promise<DocumentVersion<Doc>[]>
  /** A document as it was at a time or at a version. Needs `history: true`. */
  getAt(
    id: string,
    when: { readonly at: Date } | { readonly version: number },
    options?: CallOptions,
  ): Promise<StoredDocument<Doc> | undefined>
}

export function openDocuments(parts: DocumentParts): Documents {
  const open = (first: string | CollectionDefinition<never>, second: object = {}): unknown => {
    const { name, options } = typeof first === 'object' ? first : { name: first, options: second }
    return withMethods(declareCollection(parts, name, options as CollectionOptions))
  }
  return open as Documents
}

function withMethods<Doc extends object>(base: CollectionBase): Collection<Doc> {
  const { ids } = base.parts
  const insertNew = async (data: unknown, options?: WriteOptions): Promise<{ id: string; version: number }> => {
    const id = ids.next()
    return { id, version: await insertDocument(base, id, data, options) }
  }
  return {
    ...base,
    ready: () => makeReady(base),
    ...openQueries<Doc>(base),
    get: (id, options) => getDocument(base, id, options) as Promise<StoredDocument<Doc> | undefined>,
    getMany: (wanted, options) => getDocuments(base, wanted, options) as Promise<Map<string, StoredDocument<Doc>>>,
    exists: (id, options) => documentExists(base, id, options),
    count: options => countDocuments(base, options),
    insert: ((first: unknown, second?: unknown, third?: WriteOptions) =>
      typeof first === 'object' && first !== null
        ? insertNew(first, second as WriteOptions)
        : insertDocument(base, first as string, second, third)) as Collection<Doc>['insert'],
    put: (id, data, options) => putDocument(base, id, data, options),
    update: (id, change, options) => updateDocument(base, id, change as (data: never) => unknown, options),
    patch: (id, patch, options) => patchDocument(base, id, patch, options),
    patchMany: (condition, patch, options) => patchDocuments(base, condition as Condition, patch, options),
    merge: (id, patch, options) => mergeDocument(base, id, patch, options),
    delete: (id, options) => deleteDocument(base, id, options),
    softDelete: (id, options) => softDeleteDocument(base, id, options),
    restore: (id, options) => restoreDocument(base, id, options),
    putMany: (items, options) => putDocuments(base, items, options),
    updateMany: (items, options) => updateDocuments(base, items, options),
    deleteMany: (items, options) => deleteDocuments(base, items, options),
    importMany: (source, options) => importDocuments(base, source, options),
    batch: ({ maxChanges = 10_000 } = {}) => openBatch<Doc>(base, maxChanges),
    history: (id, options) => readHistory(base, id, options) as Promise<DocumentVersion<Doc>[]>,
    getAt: (id, when, options) => getEarlier(base, id, when, options) as Promise<StoredDocument<Doc> | undefined>,
  }
}

function declareCollection(parts: DocumentParts, name: string, given: CollectionOptions): CollectionBase {
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
    clock: identifier(schema, 'clock'),
    historyTable: options.history === true && !readOnly ? identifier(schema, historyName(tableName)) : undefined,
    state: { isReady: declared.length === 0, looking: undefined },
  }
}
