/**
 * A numbered step of the history of the tables. Once released it never changes: its checksum is stored with it, and a
 * different text under the same number is an error.
 */
import { createHash } from 'node:crypto'
import { nameIn } from './plpgsql.ts'

export interface Migration {
  readonly id: number
  readonly name: string
  /** Whether a library that does not know this step must refuse to work with a schema that has it. */
  readonly breaking: boolean
  /** In the order they run; `~orders` is the schema's table of that name. */
  readonly statements: readonly string[]
}

/** The statements of a migration for one schema. */
export function renderMigration(migration: Migration, schema: string): readonly string[] {
  return migration.statements.map(statement => nameIn(schema, statement))
}

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
