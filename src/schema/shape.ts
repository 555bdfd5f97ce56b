/**
 * The objects that the migrations make, each as a line of text: what `expected.ts` holds and `check` compares.
 *
 * The expected shape is read from a freshly migrated database and written into `expected.ts`, and a test on every
 * engine holds the two equal. So the migrations stay the one source, and checking a store takes neither the right to
 * make a second schema nor an engine of its own. Only the bodies of functions come from the migrations at run time,
 * because they carry the schema's name.
 */
import { createHash } from 'node:crypto'
import type { Executor } from '../database/database.ts'
import { identifier } from '../database/sql.ts'
import { type FoundObject, type FoundTable, readObjects, readTables } from './catalogue.ts'
import { type Migration, renderMigration } from './migration.ts'

export interface SchemaShape {
  readonly tables: Readonly<Record<string, TableShape>>
  readonly sequences: Readonly<Record<string, string>>
  readonly functions: Readonly<Record<string, string>>
}

interface TableShape {
  readonly columns: Readonly<Record<string, string>>
  readonly indexes: Readonly<Record<string, string>>
}

/** What the catalogue says about the objects of the names that a shape has. */
export interface FoundShape {
  readonly tables: ReadonlyMap<string, FoundTable>
  readonly objects: readonly FoundObject[]
}

export async function readShape(executor: Executor, schema: string, names: SchemaShape): Promise<FoundShape> {
  const [tables, sequences, functions] = [names.tables, names.sequences, names.functions].map(Object.keys)
  return {
    tables: await readTables(executor, schema, tables!),
    objects: await readObjects(executor, schema, { sequences: sequences!, functions: functions! }),
  }
}

export function shapeOf({ tables, objects }: FoundShape): SchemaShape {
  const definitions = (kind: FoundObject['kind']): [string, string][] =>
    objects.filter(object => object.kind === kind).map(object => [object.name, object.definition])
  return {
    tables: Object.fromEntries([...tables].map(([name, table]) => [name, tableShape(table)])),
    sequences: Object.fromEntries(definitions('sequence')),
    functions: Object.fromEntries(definitions('function')),
  }
}

/** The hash of each function's body as the migrations write it for this schema, by the function's name. */
export function bodyHashes(migrations: readonly Migration[], schema: string): Map<string, string> {
  const hashes = new Map<string, string>()
  const prefix = identifier(schema).quoted
  for (const statement of migrations.flatMap(migration => renderMigration(migration, schema))) {
    const head = /^create (?:or replace )?function /.exec(statement)?.[0]
    if (head === undefined || !statement.startsWith(prefix, head.length)) continue
    const name = /^\."([^"]+)"/.exec(statement.slice(head.length + prefix.length))?.[1]
    const body = /\nas (E?)'([\s\S]*)'$/.exec(statement)
    if (name !== undefined && body !== null) hashes.set(name, sha256(unquote(body[2]!, body[1] === 'E')))
  }
  return hashes
}

function tableShape({ columns, indexes }: FoundTable): TableShape {
  const columnText = (column: FoundTable['columns'][number]): string =>
    `${column.type}${column.nullable ? '' : ' not null'}${column.default === null ? '' : ` default ${column.default}`}`
  const indexText = (index: FoundTable['indexes'][number]): string =>
    `${index.primaryKey !== null ? 'primary key ' : index.unique ? 'unique ' : ''}${index.definition}`
  return {
    columns: Object.fromEntries(columns.map(column => [column.name, columnText(column)])),
    indexes: Object.fromEntries(indexes.map(index => [index.name, indexText(index)])),
  }
}

/** The text that a migration's `literal` was given. */
function unquote(quoted: string, escaped: boolean): string {
  const single = quoted.replaceAll("''", "'")
  return escaped ? single.replaceAll('\\\\', '\\') : single
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex')
}
