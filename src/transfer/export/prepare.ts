/** The schema that an import goes into: made by the ordinary migrations, or there already and without rows. */

import type { Transaction } from '../../database/database.ts'
import { identifier, sql } from '../../database/sql.ts'
import { toRillflowError } from '../../database/sqlstate.ts'
import { hasRows } from '../../schema/catalogue.ts'
import { readHistory } from '../../schema/history.ts'
import { lockKey } from '../../schema/migrate.ts'
import type { Library } from '../../schema/part.ts'
import { makePlan } from '../../schema/plan.ts'
import { SchemaNotEmpty } from './errors.ts'

/** Leaves the schema with exactly these objects of the library, without rows of others, and held against others until the end. */
export async function prepareSchema(tx: Transaction, schema: string, library: Library): Promise<void> {
  await tx.run(sql`/* archive.lock */
    select pg_advisory_xact_lock(${lockKey(schema)}::bigint)`)
  const tables = await tx.run<{ name: string }>(sql`/* archive.occupied */
    select c.relname::text as name
    from pg_class as c
    join pg_namespace as n on n.oid = c.relnamespace
    where n.nspname = ${schema}::text
      and c.relkind in ('r', 'p', 'f', 'v', 'm')
    order by c.relkind, c.relname collate "C"`)
  if (tables.length > 0)
    await refuseOccupied(
      tx,
      schema,
      library,
      tables.map(({ name }) => name),
    )
  await migrateWithin(tx, schema, library)
}

/** Makes what is missing of the library, as a part of the transaction. */
export async function migrateWithin(tx: Transaction, schema: string, library: Library): Promise<void> {
  const { steps } = await makePlan(tx, { schema, library, tables: [] })
  for (const step of steps)
    await tx.query(step.sql).catch(error => {
      throw toRillflowError(error, step.object)
    })
}

/** The tables that migrations themselves put rows into. */
export const filledByMigrations: readonly string[] = ['migrations', 'inline_changes']

async function refuseOccupied(
  tx: Transaction,
  schema: string,
  library: Library,
  names: readonly string[],
): Promise<void> {
  const refuse = (reason: string): never => {
    throw new SchemaNotEmpty({ schema, reason })
  }
  const history = await readHistory(tx, schema, library)
  if (!history.hasStore) refuse(`has a table "${names[0]}"`)
  if (history.pending.length > 0 || history.changed.length > 0 || history.unknown.length > 0)
    refuse('has a store of another version')
  // Whoever wants to write waits, and finds what was imported.
  const quoted = names.map(name => identifier(schema, name).quoted)
  await tx.query(`lock table ${quoted.join(', ')} in exclusive mode`).catch(error => {
    throw toRillflowError(error, 'archive.hold')
  })
  for (const name of names)
    if (!filledByMigrations.includes(name) && (await hasRows(tx, schema, name))) refuse(`has rows in table "${name}"`)
}
