/**
 * The library's own objects in a schema: which migrations it has had and which revision of each function it has,
 * against those that this library brings.
 *
 *     migrations   in their table, by number and checksum: missing ones are run, in order, once
 *     functions    in the catalogue, by the revision in their body: a lower one is replaced, a higher one is left
 *
 * The table of migrations is made like any other step of a plan, and so is the row of each: the SQL of a plan run by
 * hand leaves the same schema behind as `sync` does.
 */

import type { Executor } from '../database/database.ts'
import { DatabaseFailed } from '../database/errors.ts'
import { identifier, literal, sql } from '../database/sql.ts'
import type { Step } from './difference.ts'
import { NumbersUnsafe, SchemaDrift, SchemaNewer } from './errors.ts'
import { checksum, type Migration, migrationName, renderMigration } from './migration.ts'
import { hasCitus, needsTenants, numbersOf } from './numbers.ts'
import type { Library } from './part.ts'
import type { Numbers, SqlFunction } from './plpgsql.ts'

interface AppliedMigration {
  readonly id: number
  readonly name: string
  readonly checksum: string
  readonly breaking: boolean
}

export interface History {
  /** How the schema draws its numbers; of one that is to be made, how it will. */
  readonly numbers: Numbers
  /** Whether the database has Citus, where only counters are right. */
  readonly hasCitus: boolean
  /** Whether a store without tenants is refused here. */
  readonly needsTenants: boolean
  /** Whether there is a schema of the name; without one there is no store in it either. */
  readonly hasSchema: boolean
  /** Whether the table of migrations exists. */
  readonly hasStore: boolean
  readonly pending: readonly Migration[]
  /** Had another text when they were applied. */
  readonly changed: readonly AppliedMigration[]
  /** Applied by a newer library. Those that are not breaking may be worked with. */
  readonly unknown: readonly AppliedMigration[]
  /** Missing, or of a lower revision. */
  readonly outdated: readonly SqlFunction[]
  /** The names of functions that a newer library has replaced by a higher revision. */
  readonly newer: readonly string[]
}

/** Reads in steps that cannot fail for a missing table, since a failed statement would end a transaction. */
export async function readHistory(executor: Executor, schema: string, library: Library): Promise<History> {
  const [found] = await executor.run<{
    has_schema: boolean
    has_store: boolean
    numbers: Numbers
  }>(sql`/* schema.exists */
    select
      ${numbersOf(schema)} as numbers,
      exists (
        select from pg_namespace
        where nspname = ${schema}::text) as has_schema,
      exists (
        select from pg_class as c
        join pg_namespace as n on n.oid = c.relnamespace
        where n.nspname = ${schema}::text
          and c.relname = 'migrations') as has_store`)
  const hasStore = found?.has_store === true
  const made = hasStore ? await readMade(executor, schema, library) : { ...nothingMade, numbers: found!.numbers }
  return { ...compare(made, library), hasSchema: found?.has_schema === true, hasStore }
}

/** The same with one query where there is a store already; not inside a transaction. */
export async function glanceAtHistory(executor: Executor, schema: string, library: Library): Promise<History> {
  try {
    return { ...compare(await readMade(executor, schema, library), library), hasSchema: true, hasStore: true }
  } catch (error) {
    if (!(error instanceof DatabaseFailed) || error.sqlState !== undefinedTable) throw error
    const [kind] = await executor.run<Pick<Made, 'numbers' | 'has_citus' | 'needs_tenants'>>(sql`/* schema.kind */
      select ${numbersOf(schema)} as numbers, ${hasCitus} as has_citus, ${needsTenants} as needs_tenants`)
    return { ...compare({ ...nothingMade, ...kind! }, library), hasSchema: false, hasStore: false }
  }
}

/** Nothing may be changed, and no store opened, on top of a history that is not this library's. */
export function refuseForeignHistory(history: History, schema: string, library: Library): void {
  if (history.hasCitus && history.numbers === 'announced') throw new NumbersUnsafe({ schema })
  if (history.changed.length > 0) {
    const problems = history.changed.map(each => `${migrationName(each)} had another text when it was applied`)
    throw new SchemaDrift({ schema, problems })
  }
  const breaking = history.unknown.filter(each => each.breaking).map(each => each.id)
  if (breaking.length > 0) {
    const known = Math.max(0, ...library.migrations.map(each => each.id))
    throw new SchemaNewer({ schema, found: Math.max(...breaking), known })
  }
}

/** All missing objects of the library: the schema itself, migrations with their rows, functions. */
export function historySteps(
  history: Omit<History, 'hasCitus' | 'needsTenants' | 'changed' | 'unknown' | 'newer'>,
  schema: string,
): Step[] {
  const { numbers } = history
  const steps: Step[] = []
  if (!history.hasSchema) {
    const text = `create schema if not exists ${identifier(schema).quoted}`
    steps.push({ kind: 'schema', object: `schema ${schema}`, reason: 'there is none', sql: text })
  }
  if (!history.hasStore) {
    const [text] = renderMigration(memory, schema, numbers)
    steps.push({
      kind: 'schema',
      object: 'table migrations',
      reason: 'it records which migrations were applied',
      sql: text!,
    })
  }
  for (const migration of history.pending) {
    const remembered = renderMigration(remember(migration), schema, 'announced')
    for (const text of [...renderMigration(migration, schema, numbers), ...remembered]) {
      steps.push({ kind: 'migration', object: migrationName(migration), reason: 'not applied yet', sql: text })
    }
  }
  for (const each of history.outdated) {
    const step = { object: functionName(each), reason: `revision ${each.revision} is needed` } as const
    steps.push({ kind: 'function', ...step, sql: each.create(schema, numbers) })
  }
  return steps
}

/** The steps for a schema that has nothing of the library yet. */
export function emptyHistory(library: Library, numbers: Numbers): History {
  return { ...compare({ ...nothingMade, numbers }, library), hasSchema: false, hasStore: false }
}

/** As it is called in plans, errors and the log: `function append_one`. */
export function functionName({ name }: Pick<SqlFunction, 'name'>): string {
  return `function ${name}`
}

const undefinedTable = '42P01'
const undefinedColumn = '42703'

const memory: Migration = {
  id: 0,
  name: 'migrations',
  breaking: true,
  statements: [
    `create table ~migrations (
  applied_at timestamptz not null default now(),
  id integer primary key,
  breaking boolean not null,
  name text not null,
  checksum text not null
)`,
  ],
}

function remember(migration: Migration): Migration {
  const { id, name, breaking } = migration
  const statement = `insert into ~migrations (id, name, checksum, breaking)
values (${id}, ${literal(name)}, ${literal(checksum(migration))}, ${breaking})`
  return { ...migration, statements: [statement] }
}

/** The existing objects of the library: applied migrations, and the revision of each function by its name. */
interface Made {
  readonly numbers: Numbers
  readonly has_citus: boolean
  readonly needs_tenants: boolean
  readonly migrations: readonly AppliedMigration[]
  readonly revisions: Readonly<Record<string, number>>
}

const nothingMade: Made = {
  numbers: 'announced',
  has_citus: false,
  needs_tenants: false,
  migrations: [],
  revisions: {},
}

/**
 * In two queries at once, since every opening of a store asks them; never in one, because the rows of the schema and the
 * catalogue may be on different servers. A body without a revision counts as revision 0.
 */
async function readMade(executor: Executor, schema: string, library: Library): Promise<Made> {
  const applied = executor.run<AppliedMigration>(sql`/* schema.migrations */
    select id, name, checksum, breaking
    from ${identifier(schema, 'migrations')}
    order by id`)
  const catalogue = executor.run<Omit<Made, 'migrations'>>(sql`/* schema.functions */
    select
      ${numbersOf(schema)} as numbers,
      ${hasCitus} as has_citus,
      ${needsTenants} as needs_tenants,
      (select coalesce(json_object_agg(f.name, f.revision), '{}')
        from (
          select p.proname as name,
            max(coalesce(substring(p.prosrc from '^[[:space:]]*-- revision ([0-9]+)')::integer, 0)) as revision
          from pg_proc as p
          join pg_namespace as n on n.oid = p.pronamespace
          where n.nspname = ${schema}::text
            and p.proname = any(${library.functions.map(each => each.name)}::text[]::name[])
          group by p.proname) as f) as revisions`)
  try {
    const [migrations, [found]] = await Promise.all([applied, catalogue])
    return { ...found!, migrations }
  } catch (error) {
    await Promise.allSettled([applied, catalogue])
    if (!(error instanceof DatabaseFailed) || error.sqlState !== undefinedColumn) throw error
    throw new SchemaDrift({ schema, problems: ['its table "migrations" belongs to another program'] }, error)
  }
}

function compare(made: Made, library: Library) {
  const appliedById = new Map(made.migrations.map(each => [each.id, each]))
  const knownById = new Map(library.migrations.map(each => [each.id, each]))
  const revision = ({ name }: SqlFunction): number => made.revisions[name] ?? 0
  return {
    numbers: made.numbers,
    hasCitus: made.has_citus,
    needsTenants: made.needs_tenants,
    pending: library.migrations.filter(each => !appliedById.has(each.id)),
    changed: made.migrations.filter(each => {
      const migration = knownById.get(each.id)
      return migration !== undefined && checksum(migration) !== each.checksum
    }),
    unknown: made.migrations.filter(each => !knownById.has(each.id)),
    outdated: library.functions.filter(each => revision(each) < each.revision),
    newer: library.functions.filter(each => revision(each) > each.revision).map(each => each.name),
  }
}
