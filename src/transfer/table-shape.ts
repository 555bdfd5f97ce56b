/**
 * A table as it can be made again elsewhere: read from the catalogue, and written as the statements that make it.
 *
 * The library's own tables are made by its migrations. Of the tables that programs declare (documents, read models)
 * only the catalogue of the source knows all of them, so a copy is made from the catalogue.
 */
import type { Executor } from '../database/database.ts'
import { identifier, literal, sql } from '../database/sql.ts'
import { type FoundTable, readTables } from '../schema/catalogue.ts'
import { NotExportable } from './export/errors.ts'

export interface TableShape {
  readonly name: string
  readonly columns: readonly ColumnShape[]
  readonly primaryKey: { readonly name: string; readonly columns: readonly string[] }
  readonly indexes: readonly IndexShape[]
  /** `fillfactor=80`. */
  readonly storage: readonly string[]
}

export interface ColumnShape {
  readonly name: string
  readonly type: string
  readonly nullable: boolean
  readonly default: string | null
  /** True if `default` is the expression that the column is generated from. Such a column is not copied. */
  readonly generated: boolean
}

export interface IndexShape {
  readonly name: string
  readonly unique: boolean
  /** `btree (stream, version)`. */
  readonly definition: string
  readonly comment: string | null
}

/** Shapes by the name of their table. */
export type Shapes = ReadonlyMap<string, TableShape>

/** All tables of a schema by name, without the table of migrations. Refuses a table that could not be made again. */
export async function readShapes(executor: Executor, schema: string): Promise<TableShape[]> {
  const rows = await executor.run<{ name: string; storage: string[] }>(sql`/* export.tables */
    select c.relname::text as name, to_jsonb(coalesce(c.reloptions, '{}')) as storage
    from pg_class as c
    join pg_namespace as n on n.oid = c.relnamespace
    where n.nspname = ${schema}::text
      and c.relkind in ('r', 'p', 'f')
      and c.relname not in ('migrations', 'counters')
    order by c.relname collate "C"`)
  const found = await readTables(
    executor,
    schema,
    rows.map(row => row.name),
  )
  return rows.map(({ name, storage }) => exportableShape(schema, found.get(name)!, storage))
}

function exportableShape(schema: string, table: FoundTable, storage: readonly string[]): TableShape {
  const refuse = (reason: string): never => {
    throw new NotExportable({ schema, object: `table "${table.name}"`, reason })
  }
  if (table.kind !== 'table' && table.kind !== 'unlogged table') refuse(`is a ${table.kind}`)
  const unusual = table.columns.find(column => !builtInType.test(column.type))
  if (unusual !== undefined) refuse(`has a column "${unusual.name}" of type ${unusual.type}`)
  if (table.columns.some(column => column.default?.includes('nextval(') === true)) refuse('draws from a sequence')
  return shapeOf(table, storage) ?? refuse('has no primary key')
}

/** A type of PostgreSQL's own, as the catalogue writes it. */
const builtInType = /^[a-z][a-z0-9 ]*(\(\d+(,-?\d+)?\))?( with(out)? time zone)?(\[\])*( collate (\w+|"[^"]+"))?$/

/** Undefined for a table without a primary key. */
export function shapeOf(table: FoundTable, storage: readonly string[]): TableShape | undefined {
  const { name, columns } = table
  const indexes = table.indexes.filter(index => index.valid)
  const key = indexes.find(index => index.primaryKey !== null)
  if (key === undefined) return undefined
  return {
    name,
    columns,
    storage,
    primaryKey: { name: key.name, columns: key.primaryKey! },
    indexes: indexes
      .filter(index => index !== key)
      .map(({ name, unique, definition, comment }) => ({ name, unique, definition, comment })),
  }
}

/** The columns that are copied: all that are not generated. */
export function storedColumns({ columns }: Pick<TableShape, 'columns'>): string[] {
  return columns.filter(column => !column.generated).map(column => column.name)
}

/** Makes the table with its primary key, and without the indexes, which would make it slower to fill. */
export function tableText(schema: string, { name, columns, primaryKey, storage }: TableShape): string {
  const keys = primaryKey.columns.map(column => identifier(column).quoted)
  const lines = [
    ...columns.map(columnText),
    `constraint ${identifier(primaryKey.name)} primary key (${keys.join(', ')})`,
  ]
  const options = storage.length === 0 ? '' : ` with (${storage.join(', ')})`
  return `create table ${identifier(schema, name)} (\n  ${lines.join(',\n  ')}\n)${options}`
}

function columnText({ name, type, nullable, generated, ...column }: ColumnShape): string {
  const origin = generated ? ` generated always as (${column.default}) stored` : ` default ${column.default}`
  return `${identifier(name)} ${type}${nullable ? '' : ' not null'}${column.default === null ? '' : origin}`
}

/** With the comment of each index, by which a later sync recognises the index as the declared one. */
export function indexTexts(schema: string, table: Pick<TableShape, 'name' | 'indexes'>): string[] {
  return table.indexes.flatMap(({ name, unique, definition, comment }) => {
    const kind = unique ? 'unique index' : 'index'
    const made = `create ${kind} ${identifier(name)} on ${identifier(schema, table.name)} using ${definition}`
    return comment === null ? [made] : [made, `comment on index ${identifier(schema, name)} is ${literal(comment)}`]
  })
}

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

/** One statement that changes the schema and is run once. The server refuses a text with two. */
export async function runDdl(executor: Executor, text: string): Promise<void> {
  await executor.run({ label: 'export.make', text, values: [], unprepared: true })
}
