/**
 * A numbered step of the schema's history. Once released it never changes: its checksum is stored with it, and a
 * different text under the same number is an error.
 */
import { createHash } from 'node:crypto'
import { identifier, literal } from '../database/sql.ts'

export interface Migration {
  readonly id: number
  readonly name: string
  /** Whether a library that does not know this step must refuse to work with a schema that has it. */
  readonly breaking: boolean
  /** One statement per entry. */
  statements(quote: Quote): readonly string[]
}

/** How names and texts get into a migration, whatever the schema is called. */
export interface Quote {
  /** A table, sequence or function of the schema. */
  name(object: string): string
  /** A string, e.g. a function's body: dollar quotes would end early in a schema with dollars in its name. */
  literal(text: string): string
}

/** The statements of a migration for one schema. */
export function renderMigration(migration: Migration, schema: string): readonly string[] {
  return migration.statements({ name: object => identifier(schema, object).quoted, literal })
}

/** Independent of the schema it is rendered for. */
export function checksum(migration: Migration): string {
  const hash = createHash('sha256')
  for (const statement of renderMigration(migration, 'rillflow')) hash.update(statement).update('\0')
  return hash.digest('hex')
}
