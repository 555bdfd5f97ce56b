/** A schema per test, and a way to do to it what people do by hand. */
import { beforeAll } from 'vitest'
import type { Database } from '../../src/database/database.ts'
import { identifier } from '../../src/database/sql.ts'
import { library } from '../../src/parts.ts'
import type { Migration } from '../../src/schema/migration.ts'
import type { SqlFunction } from '../../src/schema/plpgsql.ts'
import { openSchema, type Schema } from '../../src/schema/schema.ts'
import { type DeclaredTable, TableRegistry } from '../../src/schema/table.ts'
import { freshSchema, openDatabase } from '../support/engines.ts'

export interface Fixture {
  readonly database: Database
  readonly name: string
  readonly schema: Schema
  readonly tables: TableRegistry
  /** The same schema as a program with other migrations, functions or declarations sees it. */
  as(program: Program): Schema
  /** Runs SQL in which `~events` stands for the schema's table of that name. */
  byHand<R extends object = Record<string, unknown>>(text: string): Promise<R[]>
}

interface Program {
  readonly migrations?: readonly Migration[]
  readonly functions?: readonly SqlFunction[]
  readonly tables?: readonly DeclaredTable[]
}

export const { migrations, functions } = library

/** Opens the engine's database before the tests of a file. */
export function useDatabase(): { make(name?: string): Fixture } {
  let database: Database
  beforeAll(async () => {
    database = await openDatabase()
  })
  return { make: name => makeFixture(database, name) }
}

export function makeFixture(database: Database, name: string = freshSchema()): Fixture {
  const tables = new TableRegistry()
  return {
    database,
    name,
    tables,
    schema: openSchema(database, { schema: name, tables, library }),
    as({ tables = [], ...objects }) {
      const registry = new TableRegistry()
      for (const table of tables) registry.register(table)
      return openSchema(database, { schema: name, tables: registry, library: { ...library, ...objects } })
    },
    byHand<R extends object>(text: string) {
      const named = text.replace(/~(\w+)/g, (_, object: string) => identifier(name, object).quoted)
      return database.transaction(tx => tx.query<R>(named))
    },
  }
}
