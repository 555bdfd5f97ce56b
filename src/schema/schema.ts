/**
 * The schema: everything of a store lives in one schema of the database, and this folder makes it, extends it and
 * checks it.
 *
 *     migrations       the library's own tables: numbered, checksummed, never changed once released
 *     functions        in their current text: replaced where the schema has a lower revision
 *     TableRegistry    tables that users' collections and projections declare: compared with the existing ones
 *            │
 *            ▼  makePlan: the missing objects, as statements
 *          plan() ──────────────► shown                      check(): was it changed since?
 *          sync() ──under a lock─► run, all or nothing
 *
 *     missing ──sync──► current ──a newer library, a new declaration──► outdated ──sync──► current
 *                          └──a newer library's breaking migration──► newer: refused
 *
 * Guarantees:
 * - After a sync the plan has no steps, and a second sync changes nothing.
 * - A sync makes objects of the library again that were dropped, where no data can be lost by it; every other damage is a
 *   problem in the plan (`mend.ts`).
 * - Many processes may sync at once: one does, the others wait and find nothing to do. One connection is enough.
 * - An index that a table with rows lacks is built while writers write, on a server with a second connection.
 * - Nothing is dropped, narrowed or rewritten unasked; an object that cannot be added is a problem in the plan, not a
 *   failure.
 * - No triggers, no rules, no foreign key that leaves the schema; every table has a primary key.
 * - Any name can be that of the schema, except those that PostgreSQL reserves. No `search_path` is relied on.
 *
 * What can fail: a sync that was interrupted has changed nothing, except that indexes may be built or half built; the
 * next one continues from there. `SchemaNewer`, `SchemaDrift` (a migration that was applied had another text),
 * `SequenceBehind` (rows were copied without their sequence) and, where nothing may be changed, `SchemaMissing` and
 * `SchemaOutdated` refuse the store.
 *
 * Deliberately not here: going back (restore a backup instead), and partitions.
 */

import { InvalidName } from '../core/errors.ts'
import { refuseUnknownOptions } from '../core/options.ts'
import type { Database, Transaction } from '../database/database.ts'
import { identifier, sql } from '../database/sql.ts'
import { type CheckResult, checkSchema, refuseSequenceBehind } from './check.ts'
import type { Step } from './difference.ts'
import { SchemaMissing, SchemaOutdated, TenancyNeeded } from './errors.ts'
import { functionName, glanceAtHistory, type History, refuseForeignHistory } from './history.ts'
import { migrate, type SyncOptions, syncOptionNames } from './migrate.ts'
import { migrationName } from './migration.ts'
import type { Library } from './part.ts'
import { makePlan, type Plan, planTables, type Target } from './plan.ts'
import type { TableRegistry } from './table.ts'

export interface Schema {
  readonly name: string
  /** The steps that a sync would run now, without running them. */
  plan(): Promise<Plan>
  /** Brings the schema up to date and returns the plan that it ran: an empty one if nothing was missing. */
  sync(options?: SyncOptions): Promise<Plan>
  /** Compares the schema with its migrations and declarations. */
  check(): Promise<CheckResult>
  /** Whether the store can be used, at the cost of one query, or two if there are declared tables. */
  state(): Promise<SchemaState>
  /** Drops the schema with everything in it, also objects of other programs. The store cannot be used afterwards. */
  drop(): Promise<{ readonly tables: number }>
  /** Makes sure that the store can be used, or says why not. */
  ensure(mode: MigrateMode, options?: SyncOptions & { readonly isAlone?: boolean }): Promise<void>
}

export interface SchemaState {
  readonly status: 'missing' | 'outdated' | 'current'
  /** The objects that a sync would make: `migration 3 (append)`, `function append_one`, `table customers`. */
  readonly pending: readonly string[]
}

/** `auto`: sync if needed. `check`: refuse if a sync is needed. `manual`: do not even look. */
export type MigrateMode = 'auto' | 'check' | 'manual'

export interface SchemaOptions {
  readonly schema: string
  readonly tables: TableRegistry
  /** The library's own objects: `library` of `src/parts.ts`. */
  readonly library: Library
  /** Called with each step that a sync has run. */
  readonly onStep?: ((step: Step) => void) | undefined
}

export function openSchema(database: Database, options: SchemaOptions): Schema {
  const { schema, library, tables, onStep } = options
  checkSchemaName(schema)
  // Tables may be declared at any time, so each call reads the present declarations.
  const concurrently = database.engine === 'postgres' && database.maxConnections > 1
  const target = (): Target => ({ schema, library, tables: tables.list(), concurrently })

  const look = async (): Promise<SchemaState & Pick<History, 'numbers' | 'needsTenants'>> => {
    const history = await glanceAtHistory(database, schema, library)
    refuseForeignHistory(history, schema, library)
    const declared = history.hasStore ? (await planTables(database, target())).steps.map(step => step.object) : []
    const own = [...history.pending.map(migrationName), ...history.outdated.map(functionName)]
    const pending = [...own, ...new Set(declared)]
    const { numbers, needsTenants } = history
    const status = !history.hasStore ? 'missing' : pending.length > 0 ? 'outdated' : 'current'
    return { status, pending, numbers, needsTenants }
  }

  const sync = async (given: SyncOptions = {}): Promise<Plan> => {
    refuseUnknownOptions('store.schema.sync', given, syncOptionNames)
    const plan = await makePlan(database, target())
    if (plan.steps.length === 0) return plan
    const onProgress: SyncOptions['onProgress'] = progress => {
      onStep?.(progress.step)
      given.onProgress?.(progress)
    }
    return migrate(database, target, { ...given, onProgress })
  }

  return {
    name: schema,
    plan: () => makePlan(database, target()),
    sync,
    check: () => checkSchema(database, target()),
    state: async () => {
      const { status, pending } = await look()
      return { status, pending }
    },
    drop: () => dropSchema(database, schema),
    async ensure(mode, { isAlone = false, ...given } = {}) {
      if (mode === 'manual') return
      const { status, pending, numbers, needsTenants } = await look()
      if (isAlone && needsTenants) throw new TenancyNeeded({ schema })
      if (status === 'missing' && mode === 'check') throw new SchemaMissing({ schema })
      if (status === 'outdated' && mode === 'check') throw new SchemaOutdated({ schema, pending: [...pending] })
      if (status !== 'current') await sync(given)
      // Rows come into an embedded database only through the store.
      if (status !== 'missing' && database.engine === 'postgres')
        await refuseSequenceBehind(database, schema, library, numbers)
    },
  }
}

function checkSchemaName(schema: string): void {
  identifier(schema)
  if (schema.startsWith('pg_') || schema === 'information_schema')
    throw new InvalidName({ what: 'Schema', given: schema, reason: 'is a name that PostgreSQL reserves' })
}

/** Refused if the schema has no store in it: it belongs to another program then. */
async function dropSchema(database: Database, schema: string): Promise<{ readonly tables: number }> {
  const work = async (tx: Transaction): Promise<{ readonly tables: number }> => {
    const [row] = await tx.run<{ tables: number; store: boolean }>(sql`/* schema.contents */
      select count(*)::integer as tables,
        coalesce(bool_or(table_name = 'migrations'), false) as store
      from information_schema.tables
      where table_schema = ${schema}::text
        and table_type = 'BASE TABLE'`)
    if (!row!.store) throw new SchemaMissing({ schema })
    await tx.run(sql`/* schema.drop */
      drop schema ${identifier(schema)} cascade`)
    return { tables: row!.tables }
  }
  return database.transaction(work, { changesTables: true })
}
