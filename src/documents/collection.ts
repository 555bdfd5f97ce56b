/**
 * A collection: its definition, its form in one store, and the making of its tables.
 *
 *     const customers = defineCollection<Customer>('customers', { indexes: ['address.city'], search: ['name'] })
 *
 * A function that writes a statement for a collection begins with `prepared(collection, options)`: it returns the
 * executor of the statement, once the table is known to exist. Where the store may change the schema the table is made
 * on the spot, in a transaction of its own; inside a transaction, and where the store may not, a missing table is an
 * error that names the call which makes it. The table of a projection is made by the projection: while it is missing,
 * an empty relation stands in its place, so that a projection that never ran reads as empty.
 */

import type { StandardSchemaV1 } from '@standard-schema/spec'
import { throwIfAborted } from '../core/abort.ts'
import type { ObjectAsJson } from '../core/as-json.ts'
import type { Clock } from '../core/clock.ts'
import type { Definition } from '../core/definition.ts'
import { InvalidOption } from '../core/errors.ts'
import type { Ids } from '../core/id.ts'
import { nearestName } from '../core/name.ts'
import { describe, refuseUnknownOptions } from '../core/options.ts'
import type { Database, Executor } from '../database/database.ts'
import { Identifier, identifier, sql } from '../database/sql.ts'
import type { AnyTransaction } from '../database/transaction.ts'
import type { Step } from '../schema/difference.ts'
import { planTables } from '../schema/plan.ts'
import type { Schema } from '../schema/schema.ts'
import type { DeclaredTable, TableRegistry } from '../schema/table.ts'
import type { Telemetry } from '../telemetry/telemetry.ts'
import { CollectionNotFound, CollectionNotSynced, CollectionReadOnly } from './errors.ts'
import type { IndexingOptions } from './indexes.ts'
import { checkCollectionName, collectionTable, historyName, historyTable } from './table.ts'

/** The parts that all collections of a store share. */
export interface DocumentParts {
  readonly database: Database
  readonly schema: Schema
  readonly tables: TableRegistry
  readonly clock: Clock
  readonly ids: Ids
  readonly telemetry: Telemetry
  /** Whether a projection of this name is registered. */
  isProjection(name: string): boolean
  /** Whether a missing table may be made on demand. */
  readonly syncs: boolean
  /** Runs our statements in a transaction of the store's or of the user's. */
  executorOf(tx: AnyTransaction): Executor
  /** The largest body of one document, in bytes. Default 16 MiB. */
  readonly maxDocumentBytes?: number | undefined
}

/** A collection as it is defined, for any number of stores. */
export interface Collection<out Doc extends object = object> extends Definition<'collection'> {
  /** Absent at run time: it carries the type. */
  readonly '~document'?: Doc | undefined
  readonly options: CollectionOptions
}

export interface CollectionOptions<Doc extends object = Record<string, unknown>> extends IndexingOptions<Doc> {
  /** Checks documents when they are written. The value it returns is not used: the given document is stored. */
  readonly schema?: StandardSchemaV1<Doc> | undefined
  /** Turns a stored body into today's shape, each time one is read. */
  readonly upcast?: ((stored: unknown) => Doc) | undefined
  /** Stores every version, for `getAt` and `history`. Default false. */
  readonly history?: boolean | undefined
  /** The table, if it is not called like the collection. */
  readonly table?: string | undefined
  /** True refuses writes and declares no table: for tables that other code writes. Default false. */
  readonly readOnly?: boolean | undefined
}

const optionNames = [
  ...['schema', 'upcast', 'history', 'table', 'readOnly'],
  ...['gin', 'indexes', 'columns', 'search'],
]

/**
 * Defines a collection: `store.documents(customers)` reads and writes its documents.
 *
 * @example
 * ```ts
 * const suppliers = defineCollection<{ name: string; city: string }>('suppliers', { indexes: ['city'] })
 * await store.documents(suppliers).put('s-1', { name: 'Tea & Co', city: 'Leeds' })
 * ```
 */
export function defineCollection<Doc extends object = Record<string, unknown>>(
  name: string,
  options: CollectionOptions<Doc> = {},
): CollectionFor<ObjectAsJson<Doc>> {
  const given = Object.freeze({ ...options }) as unknown as CollectionOptions
  checkCollection(name, given)
  return Object.freeze({ kind: 'collection', name, options: given }) satisfies Collection as CollectionFor<
    ObjectAsJson<Doc>
  >
}

/** `infer`, so that the type of the documents is never taken from where the definition is used. */
type CollectionFor<Doc extends object> = [Doc] extends [infer D extends object] ? Collection<D> : never

/** Finds the faults of a definition, also in its indexes. */
function checkCollection(name: string, options: CollectionOptions): void {
  checkCollectionName(name)
  if (typeof options !== 'object' || options === null) {
    const reason = `The options of collection "${name}" are ${describe(options)}. Give an object, or nothing.`
    throw new InvalidOption({ option: 'options', reason })
  }
  refuseUnknownOptions(`Collection "${name}"`, options, optionNames)
  collectionTable(options.table === undefined ? name : checkCollectionName(options.table), options)
}

/** A collection in one store, without the type of its documents. */
export interface OpenCollection {
  readonly name: string
  readonly tableName: string
  /** The table; for one that a projection has not made yet, an empty relation with its columns. */
  readonly table: Identifier
  /** The function of the schema that reads the time. */
  readonly clock: Identifier
  /** Every version that was written; undefined if only the newest is stored. */
  readonly historyTable: Identifier | undefined
  /** The tables that have to be in the schema; empty for a collection that only reads. */
  readonly declared: readonly DeclaredTable[]
  /** The columns of a table that a projection makes; undefined for every other. */
  readonly readModel: readonly { readonly name: string; readonly type: string }[] | undefined
  readonly options: CollectionOptions
  readonly parts: DocumentParts
  readonly state: CollectionState
}

export interface CollectionState {
  /** Whether the tables are known to exist. */
  isReady: boolean
  /** Whether the table of a projection was missing at the last look. */
  isMissing: boolean
  /** The look at the schema that is running. */
  looking: Promise<void> | undefined
}

/** The collection in one store; its tables are declared, and made when they are first needed. */
export function openCollection(parts: DocumentParts, name: string, given: CollectionOptions): OpenCollection {
  checkCollection(name, given)
  const { name: schema } = parts.schema
  const tableName = given.table ?? name
  const readOnly = given.readOnly === true || parts.tables.isReadModel(tableName)
  const options = readOnly ? { ...given, readOnly } : given
  const declared = readOnly ? [] : [collectionTable(tableName, options)]
  const keepsHistory = !readOnly && options.history === true
  if (keepsHistory) declared.push(historyTable(tableName))
  for (const table of declared) parts.tables.register(table)
  return {
    ...{ name, tableName, options, parts, declared, readModel: undefined },
    table: identifier(schema, tableName),
    clock: identifier(schema, 'clock'),
    historyTable: keepsHistory ? identifier(schema, historyName(tableName)) : undefined,
    state: { isReady: declared.length === 0 && given.readOnly !== true, isMissing: false, looking: undefined },
  }
}

/** The table of a projection, to be read as a collection. */
export function openReadModel(
  parts: DocumentParts,
  name: string,
  declared: DeclaredTable,
  options: IndexingOptions = { gin: false },
): OpenCollection {
  const table = identifier(parts.schema.name, declared.name)
  const columns = declared.columns.map(column => `null::${column.type} as ${identifier(column.name)}`)
  const empty = new Identifier(`(select ${columns.join(', ')} where false)`)
  const state: CollectionState = { isReady: false, isMissing: true, looking: undefined }
  return {
    ...{ name, tableName: declared.name, parts, declared: [], historyTable: undefined, state },
    readModel: declared.columns,
    clock: identifier(parts.schema.name, 'clock'),
    options: { ...options, readOnly: true },
    get table() {
      return state.isMissing ? empty : table
    },
  }
}

/** The options of every call on documents. */
export interface CallOptions {
  /** Runs inside this transaction: one of the store's, or a `pg` client with an open transaction of yours. */
  readonly tx?: AnyTransaction | undefined
  readonly signal?: AbortSignal | undefined
}

export interface WriteOptions extends CallOptions {
  /** The user on whose behalf it is written: read back as `createdBy` and `updatedBy`. */
  readonly userId?: string | undefined
}

/** The executor of the statements of one call, once the tables exist. Statements are written after it, never before. */
export async function prepared(collection: OpenCollection, options: CallOptions = {}): Promise<Executor> {
  throwIfAborted(options.signal)
  const { parts, state } = collection
  const executor = options.tx === undefined ? parts.database : parts.executorOf(options.tx)
  if (state.isReady) return executor
  if (collection.readModel !== undefined) await lookForReadModel(collection, executor)
  else if (collection.declared.length === 0) await requireTable(collection, executor)
  else await makeReady(collection, options.tx === undefined ? undefined : executor)
  return executor
}

async function lookForReadModel(collection: OpenCollection, executor: Executor): Promise<void> {
  const { state } = collection
  state.isReady = await hasTable(collection, executor)
  state.isMissing = !state.isReady
}

/** A collection that only reads makes no table: it says which one there is not. */
async function requireTable(collection: OpenCollection, executor: Executor): Promise<void> {
  const { name, parts, state } = collection
  state.isReady = await hasTable(collection, executor)
  if (state.isReady) return
  const { name: schema } = parts.schema
  const rows = await executor.run<{ name: string }>(sql`/* documents.table_names */
    select c.relname::text as name
    from pg_class as c
    join pg_namespace as n on n.oid = c.relnamespace
    join pg_attribute as a on a.attrelid = c.oid
    where n.nspname = ${schema}::text
      and c.relkind = 'r'
      and a.attname = 'body'
    limit 1000`)
  const names = rows.map(row => row.name).filter(each => !each.includes('__'))
  throw new CollectionNotFound({ collection: name, schema, nearest: nearestName(name, names) })
}

async function hasTable({ parts, tableName }: OpenCollection, executor: Executor): Promise<boolean> {
  const table = identifier(parts.schema.name, tableName)
  const [row] = await executor.run<{ exists: boolean }>(sql`/* documents.has_table */
    select to_regclass(${table.quoted}::text) is not null as exists`)
  return row?.exists === true
}

/** The same for a call that writes. */
export async function preparedToWrite(collection: OpenCollection, options: CallOptions): Promise<Executor> {
  const { name, tableName, options: declared, parts } = collection
  if (declared.readOnly === true || parts.tables.isReadModel(tableName))
    throw new CollectionReadOnly({ collection: name })
  return prepared(collection, options)
}

/** Looks whether the tables exist, and makes them if the store may. */
export async function makeReady(collection: OpenCollection, within?: Executor): Promise<void> {
  const { name, parts, state } = collection
  if (within !== undefined) {
    const { steps, missing } = await lookFor(collection, within)
    if (missing.length > 0) throw new CollectionNotSynced({ collection: name, missing, isInside: true })
    // The first use outside of a transaction makes the indexes that are missing.
    state.isReady = steps.length === 0 || !parts.syncs
    return
  }
  parts.database.refuseInsideTransaction(`the first use of collection ${name}`)
  state.looking ??= look(collection).finally(() => {
    state.looking = undefined
  })
  await state.looking
}

async function look(collection: OpenCollection): Promise<void> {
  const { name, parts, state } = collection
  const { steps, missing, lacking } = await lookFor(collection, parts.database)
  const unmet = parts.syncs ? lacking : missing
  if (unmet.length > 0) throw new CollectionNotSynced({ collection: name, missing: unmet, isInside: false })
  if (steps.length > 0 && parts.syncs) await parts.schema.sync()
  state.isReady = true
}

interface Found {
  readonly steps: readonly Step[]
  /** Tables and columns. Without an index a query is slow, which `schema.check()` reports; without these it fails. */
  readonly missing: string[]
  /** Those of them that a sync does not make, such as a generated column of a table with rows. */
  readonly lacking: string[]
}

async function lookFor({ parts, declared }: OpenCollection, executor: Executor): Promise<Found> {
  if (declared.length === 0) return { steps: [], missing: [], lacking: [] }
  const target = { schema: parts.schema.name, tables: declared }
  const { steps, problems } = await planTables(executor, target)
  const lacking = problems.filter(each => each.kind === 'column_missing').map(each => each.object)
  const made = steps.filter(step => step.kind !== 'index').map(step => step.object)
  return { steps, missing: [...new Set([...made, ...lacking])], lacking }
}

const opened = new WeakMap<object, OpenCollection>()

/** Remembers which collection a handle is for. */
export function withCollection<Handle extends object>(handle: Handle, base: OpenCollection): Handle {
  opened.set(handle, base)
  return handle
}

/** The collection of a handle that `store.documents(…)` gave. */
export function collectionOf(handle: object): OpenCollection | undefined {
  return opened.get(handle)
}
