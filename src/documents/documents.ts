/**
 * Documents: JSON bodies under an id, in tables of their own, with versions.
 *
 *     collection ─► table            declared; made on demand where the store may change the schema, else by schema.sync()
 *         │
 *         ├─ read, history           by id: the newest version, or an earlier one
 *         ├─ write, patch/           one document: one statement (update: a row lock, your function, a write)
 *         ├─ write-many, bulk,       many documents: one statement, with an outcome for each
 *         │  batch, import
 *         └─ query/                  documents by their content; the rows of table projections, too
 *
 *     (none) ──insert, put──► live ──softDelete──► soft-deleted ──restore, put──► live
 *                              └────────────delete────────┴──► (none)
 *
 * Guarantees:
 * - Every write makes the next version, from 1, and returns it; with `expected` it takes effect at that version only.
 * - A missing document (`DocumentNotFound`), a soft-deleted one (`DocumentDeleted`) and one at another version
 *   (`DocumentConflict`, with the actual version) are three different errors. Only `restore`, and a `put` without `expected`,
 *   make a soft-deleted document visible again; nothing is written to a document that stays hidden.
 * - A body is checked before it is sent, so that it is read back as it was given. Bodies are objects.
 * - With `history`, the statement that writes a version also stores it in the history: neither exists without the other.
 * - A bulk call writes all or nothing, unless it is `partial`.
 * - Writers of many documents lock them in the order of their ids, as projections do.
 *
 * What can fail: a missing table is `CollectionNotSynced`, which names the call that makes it; tables are never made inside a
 * transaction. After a lost connection (`ConnectionLost`) a write may or may not have happened: read the version, or write
 * with `expected`, which cannot happen twice.
 *
 * After a document was deleted for good, the next one of its id starts at version 1 again, unless it has a history.
 */
import type { Awaitable } from '../core/core.ts'
import { nameOf } from '../core/definition.ts'
import { InvalidOption } from '../core/errors.ts'
import { optionNames, refuseUnknownOptions, refusingUnknownOptions } from '../core/options.ts'
import type { Page, PageOptions } from '../core/page.ts'
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
  type Collection,
  type CollectionOptions,
  collectionOf,
  type DocumentParts,
  makeReady,
  type OpenCollection,
  openCollection,
  type WriteOptions,
  withCollection,
} from './collection.ts'
import { type DocumentVersion, getEarlier, type HistoryOptions, readHistory } from './history.ts'
import { type ImportedDocument, type ImportOptions, type ImportProgress, importDocuments } from './import.ts'
import { type CollectionDescription, listCollections } from './list-collections.ts'
import { mergeDocument, patchDocument, patchDocuments } from './patch/apply.ts'
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
import {
  deleteDocument,
  type ExpectedOptions,
  insertDocument,
  putDocument,
  restoreDocument,
  softDeleteDocument,
  updateDocument,
} from './write.ts'

/**
 * The documents of a projection, which alone writes them.
 *
 * @example
 * ```ts
 * const read: ReadDocuments<{ cents: number }> = store.documents(orders)
 * await read.get('order-1')
 * ```
 */
export interface ReadDocuments<in out Doc extends object = Record<string, unknown>> {
  /** The name of the collection, or of the projection. */
  readonly name: string
  get(id: string, options?: CallOptions): Promise<StoredDocument<Doc> | undefined>
  /** The existing ones, by id, in the order of the given ids: one query. */
  getMany(ids: readonly string[], options?: CallOptions): Promise<Map<string, StoredDocument<Doc>>>
  exists(id: string, options?: CallOptions): Promise<boolean>
  count(options?: CallOptions): Promise<number>
  /** Looks for documents by their content. */
  query(): Query<Doc>
  /** The same with a first condition: `query().where(…)`. */
  where(condition: Condition | ((c: Field<Doc>, meta: MetaFields) => Condition)): Query<Doc>
}

/**
 * The documents of a collection.
 *
 * @example
 * ```ts
 * const visit = (all: Documents<Customer>, id: string) => all.patch(id, { visits: 5 })
 * await visit(store.documents(customers), 'c-1')
 * ```
 */
export interface Documents<in out Doc extends object = Record<string, unknown>> {
  readonly name: string
  /** Makes sure that its tables exist. Only needed before its first use inside a transaction. */
  ready(): Promise<void>

  get(id: string, options?: ReadOptions): Promise<StoredDocument<Doc> | undefined>
  /** The existing ones, by id, in the order of the given ids: one query. */
  getMany(ids: readonly string[], options?: ReadOptions): Promise<Map<string, StoredDocument<Doc>>>
  exists(id: string, options?: ReadOptions): Promise<boolean>
  count(options?: ReadOptions): Promise<number>

  /** Makes a document; `DocumentExists` if there is one. Returns its version. */
  insert(id: string, data: Doc, options?: WriteOptions): Promise<number>
  /** Makes a document under a new id, a UUIDv7. */
  insert(data: Doc, options?: WriteOptions): Promise<{ id: string; version: number }>
  /** Makes or replaces a document, also a soft-deleted one; with `expected` replaces one of that version. */
  put(id: string, data: Doc, options?: ExpectedOptions): Promise<number>
  /** Replaces a document by the result of `change`, and holds a lock on it meanwhile. */
  update(id: string, change: (data: Doc) => Awaitable<Doc>, options?: ExpectedOptions): Promise<number>
  /** Changes some fields of a document: `{ 'profile.name': 'Alicia', visits: increment(1) }`. */
  patch(id: string, patch: Patch<Doc>, options?: ExpectedOptions): Promise<number>
  /** Changes some fields of every document that meets a condition; all or none. Returns how many. */
  patchMany(
    condition: Condition | ((c: Field<Doc>, meta: MetaFields) => Condition),
    patch: Patch<Doc>,
    options?: WriteOptions,
  ): Promise<number>
  /** Changes some fields of a document by a JSON Merge Patch (RFC 7396): null removes a field. */
  merge(id: string, patch: MergePatch<Doc>, options?: ExpectedOptions): Promise<number>
  /** Deletes a document for good, soft-deleted or not. False if there was none. */
  delete(id: string, options?: ExpectedOptions): Promise<boolean>
  /** Hides a document until it is restored, or put. */
  softDelete(id: string, options?: ExpectedOptions): Promise<number>
  restore(id: string, options?: ExpectedOptions): Promise<number>

  /** Upserts in one statement; all or none. */
  putMany(items: readonly NewDocument<Doc>[], options?: BulkOptions): Promise<BulkOutcome[]>
  /** Replaces existing documents; all or none. */
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
  /** Gathers changes, to be written together. It holds at most `maxChanges`; default 10 000. */
  batch(options?: { readonly maxChanges?: number | undefined }): DocumentBatch<Doc>

  /** Looks for documents by their content. */
  query(): Query<Doc>
  /** The same with a first condition: `query().where(…)`. */
  where(condition: Condition | ((c: Field<Doc>, meta: MetaFields) => Condition)): Query<Doc>
  /** Indexes that the queries run so far would have used, the most worthwhile first. */
  adviseIndexes(): IndexAdvice[]

  /** The versions of a document, oldest first. Needs `history: true`. */
  history(id: string, options?: HistoryOptions): Promise<Page<DocumentVersion<Doc>>>
  /** A document as it was at a time or at a version. Needs `history: true`. */
  getAt(
    id: string,
    when: { readonly at: Date } | { readonly version: number },
    options?: CallOptions,
  ): Promise<StoredDocument<Doc> | undefined>
}

/** The collections of one store. */
export interface Collections {
  /** The documents of a collection, by its definition or by its name. The same definition gives the same handle. */
  documents(collection: string | Collection, options?: CollectionOptions): Documents
  /** Declares the tables of a collection, so that a sync makes them. */
  register(collection: Collection): void
  /** Whether a collection of this name was opened or registered. */
  has(name: string): boolean
  /** By name: those that were opened here, and all tables that have the columns of a collection. */
  list(options?: PageOptions): Promise<Page<CollectionDescription>>
  /** The collection of a definition, of a name, or of a handle of this store. */
  find(collection: string | Collection | { readonly name: string }): OpenCollection
}

export function openCollections(parts: DocumentParts): Collections {
  const byDefinition = new WeakMap<Collection, Documents>()
  const byName = new Map<string, Documents>()
  /** Those that can be written: their names must not be those of projections. */
  const names = new Map<string, Documents>()

  const documents = (given: string | Collection, options?: CollectionOptions): Documents => {
    if (typeof given === 'string') {
      // Without options of its own, a name stands for the definition that was given before.
      const known = options === undefined ? (byName.get(given) ?? names.get(given)) : undefined
      if (known !== undefined) return known
      const opened = open(given, options ?? {})
      if (options === undefined) byName.set(given, opened)
      return opened
    }
    let found = byDefinition.get(given)
    if (found === undefined) {
      refuseProjection(given.name)
      found = open(given.name, given.options)
      byDefinition.set(given, found)
    }
    return found
  }
  const open = (name: string, options: CollectionOptions): Documents => {
    const base = openCollection(parts, name, options)
    const opened = documentsOf<Record<string, unknown>>(base)
    if (base.options.readOnly !== true && !names.has(name)) names.set(name, opened)
    return opened
  }
  const refuseProjection = (name: string): void => {
    if (!parts.isProjection(name)) return
    const reason = `Collection "${name}" has the name of a projection. Give one of them another name; documents(projection) reads the projection's documents.`
    throw new InvalidOption({ option: 'name', reason })
  }
  return {
    documents,
    register: collection => void documents(collection),
    has: name => names.has(name),
    list: (options = {}) => listCollections(parts, names, options),
    find(given) {
      const base = collectionOf(typeof given === 'string' || 'kind' in given ? documents(given) : given)
      if (base !== undefined && base.parts === parts) return base
      const reason = `Collection "${nameOf(given)}" belongs to another store. Open it with documents() of the store of this session.`
      throw new InvalidOption({ option: 'collection', reason })
    },
  }
}

/** The calls on one collection. */
export function documentsOf<Doc extends object>(base: OpenCollection): Documents<Doc> {
  const { ids } = base.parts
  const insertNew = async (data: unknown, options?: WriteOptions): Promise<{ id: string; version: number }> => {
    const id = ids.next()
    return { id, version: await insertDocument(base, id, data, options) }
  }
  const { query, adviseIndexes } = openQueries<Doc>(base)
  const documents: Documents<Doc> = {
    name: base.name,
    ready: () => makeReady(base),
    query,
    where: condition => query().where(condition),
    adviseIndexes,
    get: (id, options) => getDocument(base, id, options) as Promise<StoredDocument<Doc> | undefined>,
    getMany: (wanted, options) => getDocuments(base, wanted, options) as Promise<Map<string, StoredDocument<Doc>>>,
    exists: (id, options) => documentExists(base, id, options),
    count: options => countDocuments(base, options),
    insert: (async (first: unknown, second?: unknown, third?: WriteOptions) => {
      const isNew = typeof first === 'object' && first !== null
      const options = isNew ? (second as WriteOptions | undefined) : third
      refuseUnknownOptions('documents.insert', options ?? {}, writtenAny)
      return isNew ? insertNew(first, options) : insertDocument(base, first as string, second, options)
    }) as Documents<Doc>['insert'],
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
    batch(options = {}) {
      refuseUnknownOptions('documents.batch', options, ['maxChanges'])
      return openBatch<Doc>(base, options.maxChanges ?? 10_000)
    },
    history: (id, options) => readHistory(base, id, options) as Promise<Page<DocumentVersion<Doc>>>,
    getAt: (id, when, options) => getEarlier(base, id, when, options) as Promise<StoredDocument<Doc> | undefined>,
  }
  return withCollection(refusingUnknownOptions('documents', documents, optionsOfCalls), base)
}

const read = optionNames<ReadOptions>({ tx: true, signal: true, includeDeleted: true })
const written = optionNames<ExpectedOptions>({ tx: true, signal: true, userId: true, expected: true })
const writtenAny = optionNames<WriteOptions>({ tx: true, signal: true, userId: true })
const bulk = optionNames<BulkOptions>({ tx: true, signal: true, userId: true, partial: true })
const imported = optionNames<ImportOptions>({
  ...{ existing: true, chunkSize: true, userId: true, onProgress: true, signal: true },
})
const optionsOfCalls = {
  ...({ get: [1, read], getMany: [1, read], exists: [1, read], count: [0, read] } as const),
  ...({ put: [2, written], update: [2, written], patch: [2, written], merge: [2, written] } as const),
  ...({ delete: [1, written], softDelete: [1, written], restore: [1, written], patchMany: [2, writtenAny] } as const),
  ...({ putMany: [1, bulk], updateMany: [1, bulk], deleteMany: [1, [...bulk, 'soft']] } as const),
  ...({ importMany: [1, imported], getAt: [2, ['tx', 'signal']] } as const),
}
