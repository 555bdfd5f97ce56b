/**
 * A numbered step of the history of the tables. Once released it never changes: its checksum is stored with it, and a
 * different text under the same number is an error.
 */
import { createHash } from 'node:crypto'
import { type Numbers, nameIn } from './plpgsql.ts'

export interface Migration {
  readonly id: number
  readonly name: string
  /** Whether a library that does not know this step must refuse to work with a schema that has it. */
  readonly breaking: boolean
  /** In the order they run; `~orders` is the schema's table of that name. */
  readonly statements: readonly string[]
}

/** The statements of a migration for one schema. */
export function renderMigration({ id, statements }: Migration, schema: string, numbers: Numbers): readonly string[] {
  if (numbers === 'announced') return statements.map(statement => nameIn(schema, statement))
  const made = id === 1 ? [countersTable] : []
  return [...made, ...statements.map(asCounter)].map(statement => nameIn(schema, statement))
}

/** A row of `counters` takes the place of a sequence. */
function asCounter(statement: string): string {
  const name = /^create sequence ~(\w+)/.exec(statement)?.[1]
  return name === undefined ? statement : `insert into ~counters (name, value) values ('${name}', 0)`
}

/** Only in a schema with counters, so it also says that the schema has them. */
const countersTable = `create table ~counters (
  value bigint not null,
  name text collate "C" primary key
) with (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)`

/** Independent of the schema it is rendered for. */
export function checksum(migration: Migration): string {
  const hash = createHash('sha256')
  for (const statement of migration.statements) hash.update(statement).update('\0')
  return hash.digest('hex')
}

/** As it is called in plans, errors and the log: `migration 3 (append)`. */
export function migrationName({ id, name }: Pick<Migration, 'id' | 'name'>): string {
  return `migration ${id} (${name})`
}
