/**
 * One collection as the parts of this folder see it: its table, its options and what its statements run on.
 *
 * Whoever writes a statement for a collection starts with `prepared(collection, tx)`: it gives back what runs the
 * statement, once the table is known to be there. Where the store may change the schema the table is made on the spot,
 * in a transaction of its own; inside a transaction, and where the store may not, a missing table is an error that names
 * the call which makes it.
 */
import type { StandardSchemaV1 } from '@standard-schema/spec'
import type { Clock } from '../core/clock.ts'
import type { Ids } from '../core/id.ts'
import { throwIfAborted } from '../core/lifecycle.ts'
import type { Database, Executor } from '../database/database.ts'
import type { Identifier } from '../database/sql.ts'
import type { AnyTransaction } from '../database/transaction.ts'
import type { Step } from '../schema/difference.ts'
import { planTables } from '../schema/plan.ts'
import type { Schema } from '../schema/schema.ts'
import type { DeclaredTable, TableRegistry } from '../schema/table.ts'
import type { Telemetry } from '../telemetry/telemetry.ts'
import { CollectionNotSynced, CollectionReadOnly } from './errors.ts'
import type { IndexingOptions } from './indexes.ts'

/** What all collections of a store share. */
export interface DocumentParts {
  readonly database: Database
  readonly schema: Schema
  readonly tables: TableRegistry
  readonly clock: Clock
  readonly ids: Ids
  readonly telemetry: Telemetry
  /** Whether a missing table may be made on demand. */
  readonly syncs: boolean
  /** Runs our statements in a transaction of the store's or of the user's. */
  executorOf(tx: AnyTransaction): Executor
  /** The largest body of one document, in bytes. Default 16 MiB. */
  readonly maxDocumentBytes?: number | undefined
}

export interface CollectionOptions<Doc extends object = Record<string, unknown>> extends IndexingOptions<Doc> {
  /** Checks documents when they are written; what it would make of them is thrown away. */
  readonly schema?: StandardSchemaV1<Doc> | undefined
  /** Turns a body as it is stored into the shape of today, each time one is read. */
  readonly upcast?: ((stored: unknown) => Doc) | undefined
  /** Keeps every version, for `at` and `history`. Default false. */
  readonly history?: boolean | undefined
  /** The table, if it is not called like the collection: that of a projection's version, for example. */
  readonly table?: string | undefined
  /** True refuses writes and declares no table: for read models, which their projections write. Default false. */
  readonly readOnly?: boolean | undefined
}

/** A collection without its methods, and without the type of its documents, which only those have. */
export interface CollectionBase {
  readonly name: string
  readonly tableName: string
  readonly table: Identifier
  /** Every version that was written; undefined if none are kept. */
  readonly historyTable: Identifier | undefined
  /** What has to be in the schema; empty for a collection that only reads. */
  readonly declared: readonly DeclaredTable[]
  readonly options: CollectionOptions
  readonly parts: DocumentParts
  readonly state: CollectionState
}

export interface CollectionState {
  /** Whether the tables are known to be there. */
  isReady: boolean
  /** The look at the schema that is under way. */
  looking: Promise<void> | undefined
}

/** What every call on documents takes. */
export interface CallOptions {
  /** Run inside this transaction: one of the store's, or a `pg` client with an open transaction of yours. */
  readonly tx?: AnyTransaction | undefined
  readonly signal?: AbortSignal | undefined
}

export interface WriteOptions extends CallOptions {
  /** Who writes: kept as `createdBy` and `updatedBy`. */
  readonly userId?: string | undefined
}

/** What runs the statements of one call, once the tables are there. */
export async function prepared(collection: CollectionBase, options: CallOptions = {}): Promise<Executor> {
  throwIfAborted(options.signal)
  const { parts, state } = collection
  const executor = options.tx === undefined ? parts.database : parts.executorOf(options.tx)
  if (!state.isReady) await makeReady(collection, options.tx === undefined ? undefined : executor)
  return executor
}

/** The same for a call that writes. */
export async function preparedToWrite(collection: CollectionBase, options: CallOptions): Promise<Executor> {
  const { name, tableName, options: declared, parts } = collection
  if (declared.readOnly === true || parts.tables.isReadModel(tableName))
    throw new CollectionReadOnly({ collection: name })
  return prepared(collection, options)
}

/** Looks whether the tables are there, and makes them if the store may. */
export async function makeReady(collection: CollectionBase, within?: Executor): Promise<void> {
  const { name, parts, state } = collection
  if (within !== undefined) {
    const { steps, missing } = await lookFor(collection, within)
    if (missing.length > 0) throw new CollectionNotSynced({ collection: name, missing, isInside: true })
    // Indexes that are missing are made by the first use outside of a transaction.
    state.isReady = steps.length === 0 || !parts.syncs
    return
  }
  parts.database.refuseInsideTransaction(`the first use of collection ${name}`)
  state.looking ??= look(collection).finally(() => {
    state.looking = undefined
  })
  await state.looking
}

async function look(collection: CollectionBase): Promise<void> {
  const { name, parts, state } = collection
  const { steps, missing, lacking } = await lookFor(collection, parts.database)
  const unmet = parts.syncs ? lacking : missing
  if (unmet.length > 0) throw new CollectionNotSynced({ collection: name, missing: unmet, isInside: false })
  if (steps.length > 0 && parts.syncs) await parts.schema.sync()
  state.isReady = true
}

interface Found {
  readonly steps: readonly Step[]
  /** Tables and columns. Without an index a query is slow, and `schema.check()` tells of it; without these it fails. */
  readonly missing: string[]
  /** Those of them that a sync does not make, as a generated column of a table with rows. */
  readonly lacking: string[]
}

async function lookFor({ parts, declared }: CollectionBase, executor: Executor): Promise<Found> {
  if (declared.length === 0) return { steps: [], missing: [], lacking: [] }
  const target = { schema: parts.schema.name, tables: declared }
  const { steps, problems } = await planTables(executor, target)
  const lacking = problems.filter(each => each.kind === 'column_missing').map(each => each.object)
  const made = steps.filter(step => step.kind !== 'index').map(step => step.object)
  return { steps, missing: [...new Set([...made, ...lacking])], lacking }
}
