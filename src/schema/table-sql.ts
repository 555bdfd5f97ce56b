/**
 * The SQL of a declared table: one statement each, one kind of change per `alter table`, so that it runs on every
 * kind of server as it stands.
 */
import { createHash } from 'node:crypto'
import { identifier } from '../database/sql.ts'
import type { DeclaredColumn, DeclaredIndex, DeclaredTable } from './table.ts'

export function createTable(schema: string, table: DeclaredTable): string {
  const lines = [...table.columns.map(columnText), `primary key (${columnList(table.primaryKey)})`]
  const storage = table.fillfactor === undefined ? '' : ` with (fillfactor = ${table.fillfactor})`
  return `create table ${identifier(schema, table.name)} (\n  ${lines.join(',\n  ')}\n)${storage}`
}

export function addColumn(schema: string, table: DeclaredTable, column: DeclaredColumn): string {
  return `alter table ${identifier(schema, table.name)}\n  add column ${columnText(column)}`
}

/** `concurrently` lets writers write meanwhile. */
export function createIndex(
  schema: string,
  table: DeclaredTable,
  index: DeclaredIndex,
  concurrently: boolean = false,
): string {
  const kind = `${index.unique === true ? 'unique index' : 'index'}${concurrently ? ' concurrently' : ''}`
  const on = `on ${identifier(schema, table.name)}`
  return `create ${kind} ${identifier(index.name)}\n  ${on}\n  ${indexText(index)}`
}

export function dropIndex(schema: string, index: DeclaredIndex, concurrently: boolean = false): string {
  return `drop index ${concurrently ? 'concurrently ' : ''}${identifier(schema, index.name)}`
}

export function stampIndex(schema: string, index: DeclaredIndex): string {
  return `comment on index ${identifier(schema, index.name)}\n  is '${indexStamp(index)}'`
}

/**
 * The mark left in an index's comment. PostgreSQL rewrites the expressions it is given, so the definition in the
 * catalogue cannot be compared with the declared one; the mark can, and it goes away with the index it was made for.
 */
export function indexStamp(index: DeclaredIndex): string {
  const text = `${index.unique === true ? 'unique ' : ''}${indexText(index)}`
  return `rillflow ${createHash('sha256').update(text).digest('hex').slice(0, 16)}`
}

function indexText({ method, columns, include, where }: DeclaredIndex): string {
  const keys = columns.map(column => (typeof column === 'string' ? identifier(column).quoted : column.text))
  const clauses = [`using ${method ?? 'btree'} (${keys.join(', ')})`]
  if (include !== undefined && include.length > 0) clauses.push(`include (${columnList(include)})`)
  if (where !== undefined) clauses.push(`where ${where.text}`)
  return clauses.join('\n  ')
}

function columnText(column: DeclaredColumn): string {
  const absence = column.nullable === true ? '' : ' not null'
  const fallback = column.default === undefined ? '' : ` default ${column.default.text}`
  const source = column.generated === undefined ? '' : ` generated always as (${column.generated.text}) stored`
  return `${identifier(column.name)} ${column.type}${absence}${fallback}${source}`
}

function columnList(names: readonly string[]): string {
  return names.map(name => identifier(name).quoted).join(', ')
}
