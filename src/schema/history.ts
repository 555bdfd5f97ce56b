/**
 * The numbered part of a schema: which migrations it has had, against those this library knows.
 *
 * The table that remembers them is made like any other step of a plan, and so is the row of each: the SQL of a plan
 * run by hand leaves the same schema behind as `sync` does.
 */

import type { Executor } from '../database/database.ts'
import { DatabaseFailed } from '../database/errors.ts'
import { identifier, sql } from '../database/sql.ts'
import type { Step } from './difference.ts'
import { SchemaDrift, SchemaNewer } from './errors.ts'
import { checksum, type Migration, renderMigration } from './migration.ts'
import { migrationName } from './migrations.ts'

interface AppliedMigration {
  readonly id: number
  readonly name: string
  readonly checksum: string
  readonly breaking: boolean
}

export interface History {
  /** Whether there is a schema of the name; without one there is no store in it either. */
  readonly hasSchema: boolean
  /** Whether the table of migrations is there. */
  readonly hasStore: boolean
  readonly pending: readonly Migration[]
  /** Had another text when they were applied. */
  readonly changed: readonly AppliedMigration[]
  /** Applied by a newer library. Those that are not breaking may be worked with. */
  readonly unknown: readonly AppliedMigration[]
}

/** Reads in steps that cannot fail for a missing table, since a failed statement would end a transaction. */
export async function readHistory(executor: Executor, schema: string, known: readonly Migration[]): Promise<History> {
  const [found] = await executor.run<{ has_schema: boolean; has_store: boolean }>(sql`/* schema.exists */
    select
      exists (
        select from pg_namespace
        where nspname = ${schema}::text) as has_schema,
      exists (
        select from pg_class as c
        join pg_namespace as n on n.oid = c.relnamespace
        where n.nspname = ${schema}::text
          and c.relname = 'migrations') as has_store`)
  const hasStore = found?.has_store === true
  const applied = hasStore ? await readApplied(executor, schema) : []
  return { ...compare(applied, known), hasSchema: found?.has_schema === true, hasStore }
}

/** The same with one query where there is a store already; not inside a transaction. */
export async function glanceAtHistory(
  executor: Executor,
  schema: string,
  known: readonly Migration[],
): Promise<History> {
  try {
    return { ...compare(await readApplied(executor, schema), known), hasSchema: true, hasStore: true }
  } catch (error) {
    if (!(error instanceof DatabaseFailed) || error.sqlState !== undefinedTable) throw error
    return { ...compare([], known), hasSchema: false, hasStore: false }
  }
}

/** Nothing may be changed, and no store opened, on top of a history that is not this library's. */
export function refuseForeignHistory(history: History, schema: string, known: readonly Migration[]): void {
  if (history.changed.length > 0) {
    const problems = history.changed.map(each => `${migrationName(each)} had another text when it was applied`)
    throw new SchemaDrift({ schema, problems })
  }
  const breaking = history.unknown.filter(each => each.breaking).map(each => each.id)
  if (breaking.length > 0) {
    throw new SchemaNewer({ schema, found: Math.max(...breaking), known: Math.max(0, ...known.map(each => each.id)) })
  }
}

/** All that the pending migrations take, from the schema itself to the row that remembers each. */
export function historySteps(history: Omit<History, 'changed' | 'unknown'>, schema: string): Step[] {
  const steps: Step[] = []
  if (!history.hasSchema) {
    const text = `create schema if not exists ${identifier(schema).quoted}`
    steps.push({ kind: 'schema', object: `schema ${schema}`, reason: 'there is none', sql: text })
  }
  if (!history.hasStore) {
    const [text] = renderMigration(memory, schema)
    steps.push({ kind: 'schema', object: 'table migrations', reason: 'it remembers what was applied', sql: text! })
  }
  for (const migration of history.pending) {
    for (const text of [...renderMigration(migration, schema), ...renderMigration(remember(migration), schema)]) {
      steps.push({ kind: 'migration', object: migrationName(migration), reason: 'not applied yet', sql: text })
    }
  }
  return steps
}

const undefinedTable = '42P01'
const undefinedColumn = '42703'

const memory: Migration = {
  id: 0,
  name: 'migrations',
  breaking: true,
  statements: ({ name }) => [
    `create table ${name('migrations')} (
  applied_at timestamptz not null default now(),
  id integer primary key,
  breaking boolean not null,
  name text not null,
  checksum text not null
)`,
  ],
}

function remember(migration: Migration): Migration {
  const statement: Migration['statements'] = ({ name, literal }) => [
    `insert into ${name('migrations')} (id, name, checksum, breaking)
values (${migration.id}, ${literal(migration.name)}, ${literal(checksum(migration))}, ${migration.breaking})`,
  ]
  return { ...migration, statements: statement }
}

async function readApplied(executor: Executor, schema: string): Promise<AppliedMigration[]> {
  try {
    return await executor.run<AppliedMigration>(sql`/* schema.migrations */
      select id, name, checksum, breaking
      from ${identifier(schema, 'migrations')}
      order by id`)
  } catch (error) {
    if (!(error instanceof DatabaseFailed) || error.sqlState !== undefinedColumn) throw error
    throw new SchemaDrift({ schema, problems: ['its table "migrations" belongs to somebody else'] }, error)
  }
}

function compare(applied: readonly AppliedMigration[], known: readonly Migration[]) {
  const appliedById = new Map(applied.map(each => [each.id, each]))
  const knownById = new Map(known.map(each => [each.id, each]))
  return {
    pending: known.filter(each => !appliedById.has(each.id)),
    changed: applied.filter(each => {
      const migration = knownById.get(each.id)
      return migration !== undefined && checksum(migration) !== each.checksum
    }),
    unknown: applied.filter(each => !knownById.has(each.id)),
  }
}
