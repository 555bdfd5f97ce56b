/** A table as it can be made again elsewhere: described from the catalogue, and as the statements that make it. */
import { identifier, literal } from '../database/sql.ts'
import type { FoundTable } from '../schema/catalogue.ts'

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
  /** Then `default` is what it is generated from, and rows that are copied do not have it. */
  readonly generated: boolean
}

export interface IndexShape {
  readonly name: string
  readonly unique: boolean
  /** `btree (stream, version)`. */
  readonly definition: string
  readonly comment: string | null
}

/** Undefined if it has no primary key. */
export function shapeOf(table: FoundTable, storage: readonly string[]): TableShape | undefined {
  const { name, columns } = table
  const indexes = table.indexes.filter(index => index.valid)
  const key = indexes.find(index => index.primaryKey !== null)
  if (key === undefined) return undefined
  return {
    ...{ name, columns, storage },
    primaryKey: { name: key.name, columns: key.primaryKey! },
    indexes: indexes
      .filter(index => index !== key)
      .map(({ name, unique, definition, comment }) => ({ name, unique, definition, comment })),
  }
}

/** The columns that rows are copied with. */
export function storedColumns({ columns }: Pick<TableShape, 'columns'>): string[] {
  return columns.filter(column => !column.generated).map(column => column.name)
}

/** Makes the table with its primary key, and nothing that would slow its filling down. */
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

/** The stamp in an index's comment tells a later sync that it is the declared one. */
export function indexTexts(schema: string, table: Pick<TableShape, 'name' | 'indexes'>): string[] {
  return table.indexes.flatMap(({ name, unique, definition, comment }) => {
    const kind = unique ? 'unique index' : 'index'
    const made = `create ${kind} ${identifier(name)} on ${identifier(schema, table.name)} using ${definition}`
    return comment === null ? [made] : [made, `comment on index ${identifier(schema, name)} is ${literal(comment)}`]
  })
}
