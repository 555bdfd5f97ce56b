/**
 * Document projections: events folded into documents, in memory, a batch at a time.
 *
 *     defineDocumentProjection('orders', {
 *       events,
 *       lifecycle: 'inline',
 *       initial: () => ({ status: 'placed', cents: 0 }),
 *       evolve: {
 *         OrderPlaced: (order, { data }) => ({ ...order, cents: data.cents }),
 *         OrderCancelled: () => null,                                             deletes it
 *       },
 *     })
 *
 * A document belongs to one stream, unless `identity` names other ids: then events of many streams change it. However
 * many events a batch has, its documents are read once and written once, so the cost is that of the documents, not of
 * the events. Its version is that of the stream, or with `identity` the number of events folded.
 *
 * A live one stores nothing: its stream is folded when it is read, so the answer is never behind.
 */

import type { ReadStored } from '../aggregates/projected.ts'
import type { AsJson } from '../core/as-json.ts'
import { isPromise } from '../core/core.ts'
import { checkDefinition } from '../core/definition.ts'
import { InvalidOption, isRillflowError } from '../core/errors.ts'
import { encodeJson } from '../core/json.ts'
import { nameFault } from '../core/name.ts'
import { describe } from '../core/options.ts'
import type { Executor } from '../database/database.ts'
import { type Identifier, sql } from '../database/sql.ts'
import type { IndexingOptions } from '../documents/indexes.ts'
import { collectionTable } from '../documents/table.ts'
import { byBytes } from '../events/append/send.ts'
import type {
  EventKey,
  EventMap,
  EventsCarried,
  RecordedEvent,
  RecordedEventAt,
  UntypedEvents,
} from '../events/definition.ts'
import type { Log } from '../events/log.ts'
import { InvalidProjectionValue } from './errors.ts'
import {
  type ApplyContext,
  checkLifecycle,
  commonParts,
  handlerFor,
  handlersOf,
  type Projection,
  type ProjectionOptions,
} from './projection.ts'
import { tableNames, versionTables } from './table.ts'

/** A document projection, as it was defined. `store.documents(projection)` reads it. */
export interface DocumentProjection<Doc = unknown, M extends EventMap = never> extends Projection<M> {
  /** Absent at run time: it carries the type to where documents are read. */
  readonly '~document'?: Doc | undefined
  /** The name of its table for `ctx.table`. */
  readonly documentTable: string
  /** The indexes of its table, as its queries need to know them. */
  readonly indexing: IndexingOptions
  /** Reads the stored document of one stream; undefined where documents belong to many, or none is stored. */
  readonly readStored: ReadStored | undefined
}

export interface DocumentProjectionDefinition<M extends EventMap, Doc, Type extends string>
  extends ProjectionOptions<M>,
    Pick<IndexingOptions<NonNullable<NoInfer<Doc>> & object>, 'gin' | 'indexes' | 'columns' | 'search'> {
  /** A document before its first event. One that begins with nothing: `() => null as Order | null`. */
  readonly initial: (id: string) => Doc
  /**
   * Returns the document after an event, null to delete it: a function for each type of event, or one for all events.
   */
  readonly evolve: EvolveDocument<NoInfer<M>, Doc, Type>
  /** The ids of the documents an event is about; undefined for none. Default: the name of its stream. */
  readonly identity?: ((event: RecordedEvent<NoInfer<M>>) => string | readonly string[] | undefined) | undefined
  /** The most events folded at once. Default 2000. */
  batchSize?: number | undefined
  /** The table. Default: the name, with `_` for `-`. */
  readonly table?: string | undefined
}

/**
 * By type, where `'*'` is for types that have no function of their own; or one function for all. The function types are
 * inside of a conditional: TypeScript would otherwise take a literal such as 'paid' for any text, while it still infers
 * the document. A `Date` in it is text when the next event comes, as it is everywhere after it was stored.
 */
export type EvolveDocument<M extends EventMap, Doc, Type extends string> = [Type] extends [never]
  ? [Doc] extends [infer D]
    ? (document: AsJson<D>, event: RecordedEvent<M>) => D | AsJson<D> | null
    : never
  : {
      readonly [T in Type]: [Doc] extends [infer D]
        ? (document: AsJson<D>, event: RecordedEventAt<M, T>) => D | AsJson<D> | null
        : never
    }

/**
 * Defines a read model of documents: one for each stream, or for each key of `identity`, folded from events.
 *
 * @example
 * ```ts
 * const spending = defineDocumentProjection('spending', {
 *   events,
 *   initial: () => ({ cents: 0 }),
 *   evolve: { OrderPlaced: (sum, { data }) => ({ cents: sum.cents + data.cents }) },
 * })
 * ```
 */
export function defineDocumentProjection<
  M extends EventMap = UntypedEvents,
  Doc extends object | null = object,
  Type extends EventKey<NoInfer<M>> = EventKey<NoInfer<M>>,
>(
  name: string,
  definition: DocumentProjectionDefinition<M, Doc, Type>,
): DocumentProjection<NonNullable<Doc>, EventsCarried<M>> {
  checkDefinition('defineDocumentProjection', name, definition)
  const { initial, version = 1, table = name.replaceAll('-', '_') } = definition
  const identity = definition.identity as ((event: RecordedEvent) => string | readonly string[] | undefined) | undefined
  if (typeof initial !== 'function') {
    const reason = `Projection "${name}" needs a function as "initial", and has ${describe(initial)}. For documents that begin with nothing: initial: () => null.`
    throw new InvalidOption({ option: 'initial', reason })
  }
  const evolve: object = typeof definition.evolve === 'function' ? { '*': definition.evolve } : definition.evolve
  const handlers = handlersOf<Fold>(name, 'evolve', evolve)
  const fold = checkedFold(name, initial, handlers)
  const given = { ...definition, batchSize: definition.batchSize ?? defaultBatchSize }
  const { gin = false, indexes, columns, search } = definition as IndexingOptions
  const indexing: IndexingOptions = { gin, indexes, columns, search }
  const tables = versionTables([collectionTable(table, indexing)], version)
  const isStored = identity === undefined && definition.lifecycle !== 'live'
  return Object.freeze(
    checkLifecycle({
      ...commonParts(name, given, handlers, [
        'initial',
        'evolve',
        'identity',
        'table',
        'gin',
        'indexes',
        'columns',
        'search',
      ]),
      tables,
      documentTable: table,
      indexing,
      readStored: isStored ? readStored(schema => tableNames(schema, { name, tables })(table)) : undefined,
      reset: undefined,
      fold:
        identity === undefined
          ? (document: unknown, event: RecordedEvent) => fold(document, event, event.stream)
          : undefined,
      apply: (events: readonly RecordedEvent[], ctx: ApplyContext) =>
        applyToDocuments({ name, table, idsOf: idsBy(identity), fold, counts: identity !== undefined }, events, ctx),
    }),
  )
}

/**
 * More than other projections take at once: documents are read and written once a batch. Measured on 100,000 events, 10 a
 * document, in three interleaved rounds on a busy machine: twice as fast as batches of 500; 4000 gained nothing measurable.
 */
const defaultBatchSize = 2_000

type Fold = (document: unknown, event: RecordedEvent) => unknown

function idsBy(
  identity: ((event: RecordedEvent) => string | readonly string[] | undefined) | undefined,
): (event: RecordedEvent) => readonly string[] {
  if (identity === undefined) return event => [event.stream]
  return event => {
    const given = identity(event)
    if (given === undefined) return []
    return typeof given === 'string' ? [given] : [...new Set(given)]
  }
}

/** Returns the document after the event, undefined if there is none. */
function checkedFold(
  name: string,
  initial: (id: string) => unknown,
  handlers: ReadonlyMap<string, Fold>,
): (document: unknown, event: RecordedEvent, id: string) => unknown {
  return (document, event, id) => {
    const after = handlerFor(handlers, name, event)(document ?? initial(id), event)
    if (after === null) return undefined
    if (typeof after === 'object' && !isPromise(after as object)) return withTextDates(after, 4)
    const what = typeof after === 'object' ? 'a promise' : typeof after
    const reason = `is ${what} after ${event.type}: return the document, or null to delete it`
    throw new InvalidProjectionValue({ projection: name, path: `document ${JSON.stringify(id)}`, reason })
  }
}

/**
 * The next event of a batch, and of a live projection, finds dates as text, as it would find them stored. As deep as the
 * type says so. A value without dates is not copied.
 */
function withTextDates(value: unknown, depth: number): unknown {
  if (typeof value !== 'object' || value === null || depth === 0) return value
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? value : value.toJSON()
  let copy: Record<string, unknown> | undefined
  for (const key of Object.keys(value)) {
    const item = (value as Record<string, unknown>)[key]
    if (typeof item !== 'object' || item === null) continue
    const text = withTextDates(item, depth - 1)
    if (text === item) continue
    copy ??= (Array.isArray(value) ? [...value] : { ...value }) as Record<string, unknown>
    copy[key] = text
  }
  return copy ?? value
}

interface Folding {
  readonly name: string
  readonly table: string
  readonly idsOf: (event: RecordedEvent) => readonly string[]
  readonly fold: (document: unknown, event: RecordedEvent, id: string) => unknown
  /** Whether the version counts the events, instead of being the stream's. */
  readonly counts: boolean
}

async function applyToDocuments(folding: Folding, events: readonly RecordedEvent[], ctx: ApplyContext): Promise<void> {
  const { name, idsOf, fold, counts } = folding
  const work = events.map(event => {
    ctx.at(event)
    return { event, ids: idsOf(event) }
  })
  ctx.at(undefined)
  const ids = [...new Set(work.flatMap(each => each.ids))].sort(byBytes)
  if (ids.length === 0) return
  const table = ctx.tables(folding.table)
  const documents = await loadDocuments(ctx.tx, table, ids, ctx.isInline)

  for (const { event, ids } of work) {
    ctx.at(event)
    for (const id of ids) {
      const before = documents.get(id)
      documents.set(id, after(before, fold(before?.body, event, id), event, counts))
    }
  }
  ctx.at(undefined)
  await writeDocuments(ctx.tx, table, name, documents)
}

/** A dead letter that is retried comes after newer events: the version does not go back. */
export function after(
  before: ProjectedDocument | undefined,
  body: unknown,
  event: RecordedEvent,
  counts: boolean,
): ProjectedDocument {
  const known = before?.body === undefined ? undefined : before
  return {
    body,
    version: counts ? (known?.version ?? 0) + 1 : Math.max(known?.version ?? 0, event.version),
    createdAt: known?.createdAt ?? event.createdAt,
    createdBy: known === undefined ? event.userId : known.createdBy,
    updatedAt: event.createdAt,
    updatedBy: event.userId,
  }
}

// ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────
//
// Documents are in a table with the layout of a collection's, so that it can be read as one. One statement reads those
// of a batch, one writes them, one deletes.

export interface ProjectedDocument {
  /** Undefined: there is none. */
  readonly body: unknown
  readonly version: number
  readonly createdAt: Date
  readonly createdBy: string | undefined
  readonly updatedAt: Date
  readonly updatedBy: string | undefined
}

/**
 * The documents of these ids, which are sorted. Inline, other transactions may be folding into the same ones: the first
 * makes the row, so that there is one to lock also for a document that does not exist yet; all lock in one order.
 */
export async function loadDocuments(
  executor: Executor,
  documents: Identifier,
  ids: readonly string[],
  isInline: boolean,
): Promise<Map<string, ProjectedDocument>> {
  if (isInline)
    await executor.run(sql`/* projections.claim_documents */
      insert into ${documents} (version, created_at, updated_at, id, body)
      select 0, 'epoch', 'epoch', id, 'null'
      from unnest(${ids}::text[]) as wanted(id)
      order by id collate "C"
      on conflict do nothing`)
  const rows = await executor.runArrays(
    isInline
      ? sql`/* projections.lock_documents */
          select id, body, version, created_at, created_by, updated_at, updated_by
          from ${documents}
          where id = any(${ids}::text[])
          order by id
          for update`
      : sql`/* projections.load_documents */
          select id, body, version, created_at, created_by, updated_at, updated_by
          from ${documents}
          where id = any(${ids}::text[])`,
  )
  const loaded = new Map<string, ProjectedDocument>()
  for (const row of rows) {
    const [id, body, version, createdAt, createdBy, updatedAt, updatedBy] = row as DocumentRow
    const people = { createdBy: createdBy ?? undefined, updatedBy: updatedBy ?? undefined }
    loaded.set(id, { body: body ?? undefined, version, createdAt, updatedAt, ...people })
  }
  return loaded
}

type DocumentRow = [string, unknown, number, Date, string | null, Date, string | null]

/** Writes the documents that exist after the batch, and deletes the others. */
export async function writeDocuments(
  executor: Executor,
  table: Identifier,
  projection: string,
  documents: ReadonlyMap<string, ProjectedDocument>,
): Promise<void> {
  const live = [...documents].filter(([, document]) => document.body !== undefined)
  const gone = [...documents].filter(([, document]) => document.body === undefined).map(([id]) => id)
  for (const id of documents.keys()) checkId(projection, id)
  if (gone.length > 0)
    await executor.run(sql`/* projections.delete_documents */
      delete from ${table}
      where id = any(${gone}::text[])`)
  if (live.length === 0) return
  const column = <T>(take: (document: ProjectedDocument) => T): T[] => live.map(([, document]) => take(document))
  const bodies = live.map(([id, document]) => encodeBody(projection, id, document.body))
  await executor.run(sql`/* projections.write_documents */
    insert into ${table} (version, created_at, updated_at, id, created_by, updated_by, body)
    select version, created_at, updated_at, id, created_by, updated_by, body::jsonb
    from unnest(
      ${column(document => document.version)}::bigint[],
      ${column(document => document.createdAt.toISOString())}::timestamptz[],
      ${column(document => document.updatedAt.toISOString())}::timestamptz[],
      ${live.map(([id]) => id)}::text[],
      ${column(document => document.createdBy ?? null)}::text[],
      ${column(document => document.updatedBy ?? null)}::text[],
      ${bodies}::text[]) as document(version, created_at, updated_at, id, created_by, updated_by, body)
    on conflict (id) do update
    set version = excluded.version,
      created_at = excluded.created_at,
      updated_at = excluded.updated_at,
      deleted_at = null,
      created_by = excluded.created_by,
      updated_by = excluded.updated_by,
      body = excluded.body`)
}

function checkId(projection: string, id: string): void {
  const fault = typeof id === 'string' ? nameFault(id) : `is ${typeof id}`
  if (fault !== undefined)
    throw new InvalidProjectionValue({ projection, path: `document id ${JSON.stringify(id)}`, reason: fault })
}

const maxBytes = 64 * 1024 * 1024

function encodeBody(projection: string, id: string, body: unknown): string {
  try {
    return encodeJson(body, { what: 'document', root: 'body', maxBytes }).text
  } catch (error) {
    if (!isRillflowError(error, 'invalid_event')) throw error
    const { path, reason } = error as unknown as { path: string; reason: string }
    throw new InvalidProjectionValue({ projection, path: `document ${JSON.stringify(id)}, ${path}`, reason }, error)
  }
}

/** Reads the stored document of one stream, for an aggregate that folds the events after it. */
export function readStored(tableIn: (schema: string) => Identifier): ReadStored {
  const made = new WeakSet<Log>()
  return async (log, executor, stream) => {
    const table = tableIn(log.schema)
    if (!made.has(log)) {
      const [row] = await executor.run<{ exists: boolean }>(sql`/* projections.has_table */
        select to_regclass(${table.quoted}::text) is not null as exists`)
      if (row?.exists !== true) return undefined
      // A table that only a transaction sees may be gone with it.
      if (executor === log.database) made.add(log)
    }
    const [row] = await executor.run<{ body: unknown; version: number }>(sql`/* projections.stored */
      select body, version
      from ${table}
      where id = ${stream}::text
        and deleted_at is null
        and version > 0`)
    return row === undefined ? undefined : { state: row.body, version: row.version }
  }
}
