/**
 * Dropping a store: its schema, with everything in it. Refused if the schema has no store in it: it belongs to another
 * program then.
 */

import type { Database, Transaction } from '../database/database.ts'
import { identifier, sql } from '../database/sql.ts'
import { SchemaMissing } from './errors.ts'

export async function dropSchema(database: Database, schema: string): Promise<{ readonly tables: number }> {
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
