/**
 * The objects of the library itself, each as a line of text, as `expected.ts` holds them and `check` compares them.
 *
 * The expected shape is read from a new schema and written into `expected.ts`, and a test on every engine holds the two
 * equal. So tables and functions are written once, and checking a store takes neither the right to make a second schema
 * nor an engine of its own. Only the bodies of functions are rendered at run time, because they carry the schema's
 * name.
 */
import { createHash } from 'node:crypto'
import type { Executor } from '../database/database.ts'
import { type FoundObject, type FoundTable, readObjects, readTables } from './catalogue.ts'
import type { Numbers, SqlFunction } from './plpgsql.ts'

export interface SchemaShape {
  readonly tables: Readonly<Record<string, TableShape>>
  readonly sequences: Readonly<Record<string, string>>
  readonly functions: Readonly<Record<string, string>>
}

export interface TableShape {
  readonly columns: Readonly<Record<string, string>>
  readonly indexes: Readonly<Record<string, string>>
}

/** The objects of a shape, as the catalogue describes them. */
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

/** The hash of each function's body as this library writes it for this schema, by the function's name. */
export function bodyHashes(functions: readonly SqlFunction[], schema: string, numbers: Numbers): Map<string, string> {
  return new Map(functions.map(each => [each.name, sha256(each.body(schema, numbers))]))
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

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex')
}
