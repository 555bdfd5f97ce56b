/**
 * Reading read models: `store.documents(orders)` and `store.rows(sales)`, whatever the lifecycle and the version.
 *
 *     stored   the table of the projection, read by the query language of documents; written by the projection alone
 *     live     the stream is folded now; there is nothing to query, so documents are read by id only
 *
 * Guarantees:
 * - A projection that never ran reads as empty.
 * - While a rebuild replaces the table, a reader sees the old one or the new one, each of them whole.
 * - Inside a transaction a reader sees the transaction's own writes.
 */
import type { ObjectAsJson } from '../core/as-json.ts'
import { InvalidOption } from '../core/errors.ts'
import { checkName } from '../core/name.ts'
import type { Page, PageOptions } from '../core/page.ts'
import type { Executor } from '../database/database.ts'
import {
  type Collection,
  type CollectionOptions,
  type DocumentParts,
  openReadModel,
  withCollection,
} from '../documents/collection.ts'
import { type Documents, documentsOf, type ReadDocuments } from '../documents/documents.ts'
import type { CollectionDescription } from '../documents/list-collections.ts'
import { openRows, type Rows } from '../documents/query/query.ts'
import type { StoredDocument } from '../documents/read.ts'
import type { EventMap, EventsAccepted, UntypedEvents } from '../events/definition.ts'
import type { Log } from '../events/log.ts'
import { readStream } from '../events/read/read.ts'
import { after, type DocumentProjection, type ProjectedDocument } from './document-projection.ts'
import type { Projection } from './projection.ts'
import type { TableProjection } from './table-projection.ts'

/** `store.documents`: the documents of a collection, or of a document projection. */
export interface OpenDocuments<M extends EventMap = UntypedEvents> {
  /** The documents of a collection. */
  <Doc extends object>(collection: Collection<Doc>): Documents<Doc>
  /** The documents of a projection, to be read. */
  <Doc extends object>(projection: DocumentProjection<Doc, EventsAccepted<M>>): ReadDocuments<ObjectAsJson<Doc>>
  /** The documents of a collection without a definition. */
  <Doc extends object = Record<string, unknown>>(
    name: string,
    options?: CollectionOptions<Doc>,
  ): Documents<ObjectAsJson<Doc>>
  /** The collections of the store by name, with their size and their indexes. */
  list(options?: PageOptions): Promise<Page<CollectionDescription>>
}

/** `store.rows`: the rows of a table projection. */
export type OpenRows<M extends EventMap = UntypedEvents> = <Row>(
  projection: TableProjection<Row, EventsAccepted<M>>,
) => Rows<Row>

export interface ReadModels {
  documents(projection: DocumentProjection): ReadDocuments
  rows(projection: TableProjection | string): Rows<unknown>
}

export interface ReadParts {
  readonly log: Log
  readonly documents: DocumentParts
  /** The projection that is registered under a name: its lifecycle is the one that holds. */
  registered(name: string): Projection | undefined
}

/** The same definition gives the same handle, so that its table is looked for once. */
export function openReadModels(parts: ReadParts): ReadModels {
  const documents = new WeakMap<DocumentProjection, ReadDocuments>()
  const rows = new WeakMap<TableProjection, Rows<unknown>>()
  const known = (name: string): Projection => {
    const found = parts.registered(name)
    if (found !== undefined) return found
    const reason = `There is no projection "${name}" in this store. Give the definition, or list it in "projections".`
    throw new InvalidOption({ option: 'projection', reason })
  }
  return {
    documents(projection) {
      const { name, lifecycle } = parts.registered(projection.name) ?? projection
      if (typeof projection.documentTable !== 'string') throw notOfKind(name, 'documents', 'defineDocumentProjection')
      if (lifecycle === 'live') return liveDocuments(parts, projection)
      const found = documents.get(projection) ?? storedDocuments(parts, projection)
      documents.set(projection, found)
      return found
    },
    rows(given) {
      const projection = (typeof given === 'string' ? known(given) : given) as TableProjection
      if (typeof projection.rowTable !== 'string') throw notOfKind(projection.name, 'rows', 'defineTableProjection')
      const found = rows.get(projection) ?? rowsOf(parts, projection)
      rows.set(projection, found)
      return found
    },
  }
}

function rowsOf({ documents }: ReadParts, { name, tables }: TableProjection): Rows<unknown> {
  const { declared } = tables[0]!
  return openRows(openReadModel(documents, name, declared), declared.primaryKey)
}

function notOfKind(name: string, what: string, by: string): Error {
  const reason = `Projection "${name}" has no ${what} to read. That is for projections made by ${by}.`
  return new InvalidOption({ option: 'projection', reason })
}

function storedDocuments({ documents }: ReadParts, projection: DocumentProjection): ReadDocuments {
  const base = openReadModel(documents, projection.name, projection.tables[0]!.declared, projection.indexing)
  const { name, get, getMany, exists, count, query, where } = documentsOf<Record<string, unknown>>(base)
  return withCollection({ name, get, getMany, exists, count, query, where }, base)
}

function liveDocuments(
  { log, documents: { database, executorOf } }: ReadParts,
  projection: DocumentProjection,
): ReadDocuments {
  const { name } = projection
  type Given = { readonly tx?: Parameters<typeof executorOf>[0] | undefined } | undefined
  const read = (id: string, given: Given): Promise<StoredDocument<Record<string, unknown>> | undefined> =>
    foldStream(log, given?.tx === undefined ? database : executorOf(given.tx), projection, id)
  const refuse = (): never => {
    const reason = `Projection "${name}" is live: its documents are folded when they are read, so they are read by id only. Make it 'async' or 'inline' to query them.`
    throw new InvalidOption({ option: 'lifecycle', reason })
  }
  return {
    name,
    get: read,
    async getMany(ids, options) {
      const found = new Map<string, StoredDocument<Record<string, unknown>>>()
      for (const id of ids) {
        const document = await read(id, options)
        if (document !== undefined) found.set(id, document)
      }
      return found
    },
    exists: async (id, options) => (await read(id, options)) !== undefined,
    count: async () => refuse(),
    query: refuse,
    where: refuse,
  }
}

/** The document that a stream folds to now. */
async function foldStream(
  log: Log,
  executor: Executor,
  projection: Projection,
  stream: string,
): Promise<StoredDocument<Record<string, unknown>> | undefined> {
  checkName('Stream', stream)
  const types = projection.filter.types === undefined ? undefined : new Set(projection.filter.types)
  let found: ProjectedDocument | undefined
  for await (const event of readStream(log, executor, stream, {})) {
    if (types !== undefined && !types.has(event.type)) continue
    found = after(found, projection.fold!(found?.body, event), event, false)
  }
  if (found?.body === undefined) return undefined
  const { body, ...known } = found
  return { id: stream, data: body as Record<string, unknown>, ...known }
}
