/** The tables of a schema as an archive has them, and how they are made from that. */

import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import { type FoundTable, readTables } from '../../schema/catalogue.ts'
import { indexTexts, shapeOf, type TableShape, tableText } from '../table-shape.ts'
import { NotArchivable } from './errors.ts'

/** All of them, by name, without the table of migrations. One that could not be made again is refused. */
export async function readShapes(executor: Executor, schema: string): Promise<TableShape[]> {
  const rows = await executor.run<{ name: string; storage: string[] }>(sql`/* archive.tables */
    select c.relname::text as name, to_jsonb(coalesce(c.reloptions, '{}')) as storage
    from pg_class as c
    join pg_namespace as n on n.oid = c.relnamespace
    where n.nspname = ${schema}::text
      and c.relkind in ('r', 'p', 'f')
      and c.relname <> 'migrations'
    order by c.relname collate "C"`)
  const found = await readTables(
    executor,
    schema,
    rows.map(row => row.name),
  )
  return rows.map(({ name, storage }) => describe(schema, found.get(name)!, storage))
}

function describe(schema: string, table: FoundTable, storage: readonly string[]): TableShape {
  const refuse = (reason: string): never => {
    throw new NotArchivable({ schema, object: `table "${table.name}"`, reason })
  }
  if (table.kind !== 'table' && table.kind !== 'unlogged table') refuse(`is a ${table.kind}`)
  const strange = table.columns.find(column => !plainType.test(column.type))
  if (strange !== undefined) refuse(`has a column "${strange.name}" of type ${strange.type}`)
  if (table.columns.some(column => column.default?.includes('nextval(') === true)) refuse('draws from a sequence')
  return shapeOf(table, storage) ?? refuse('has no primary key')
}

/** A type of PostgreSQL's own, as the catalogue words it. */
const plainType = /^[a-z][a-z0-9 ]*(\(\d+(,-?\d+)?\))?( with(out)? time zone)?(\[\])*( collate (\w+|"[^"]+"))?$/

export async function makeTable(executor: Executor, schema: string, table: TableShape): Promise<void> {
  await runDdl(executor, tableText(schema, table))
}

export async function makeIndexes(
  executor: Executor,
  schema: string,
  table: Pick<TableShape, 'name' | 'indexes'>,
): Promise<void> {
  for (const text of indexTexts(schema, table)) await runDdl(executor, text)
}

/** One statement that is run once. */
export async function runDdl(executor: Executor, text: string): Promise<void> {
  await executor.run({ label: 'archive.make', text, values: [], unprepared: true })
}
