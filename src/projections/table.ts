/**
 * The tables of a projection: declared with its code, made by `schema.sync()`, named in it through `ctx.table()`.
 *
 *     tables: { order_totals: { columns: { customer: 'text', total: 'numeric' }, primaryKey: ['customer'] } }
 *
 * The name that a handler uses is not the name in the database: version 2 of a projection has tables of its own
 * (`order_totals_v2`), and a rebuild fills new ones next to the old (`order_totals__rebuild`). Every name that a
 * rebuild may need is checked when the projection is defined, because PostgreSQL cuts longer ones silently.
 */
import { InvalidName, InvalidOption } from '../core/errors.ts'
import { nearestName } from '../core/name.ts'
import { type Identifier, identifier, literal } from '../database/sql.ts'
import { type DeclaredColumn, type DeclaredIndex, type DeclaredTable, indexesOf, TrustedSql } from '../schema/table.ts'

export type ColumnType = DeclaredColumn['type']

/** Columns by name: a type, or a type with more to it. */
export type ColumnDefinitions = Readonly<Record<string, ColumnType | ColumnDefinition>>

export interface ColumnDefinition {
  readonly type: ColumnType
  /** Default false. */
  readonly nullable?: boolean | undefined
  /** The value of a row that is inserted without one. */
  readonly default?: string | number | boolean | undefined
}

/** Tables by name. */
export type TableDefinitions<Tables extends Readonly<Record<string, ColumnDefinitions>>> = {
  readonly [Name in keyof Tables]: TableDefinition<Tables[Name]>
}

export interface TableDefinition<Columns extends ColumnDefinitions = ColumnDefinitions> {
  readonly columns: Columns
  readonly primaryKey: readonly (keyof NoInfer<Columns> & string)[]
  readonly indexes?: readonly TableIndex<keyof NoInfer<Columns> & string>[] | undefined
  /** How full pages are packed, 10 to 100: less leaves room for rows that change often. */
  readonly fillfactor?: number | undefined
}

/** The columns of an index, or an index with more to it. */
export type TableIndex<Column extends string = string> =
  | readonly Column[]
  | {
      readonly columns: readonly Column[]
      readonly unique?: boolean | undefined
      readonly method?: DeclaredIndex['method']
    }

/** Declares a table; its indexes are named after it and their columns. */
export function declareTable(name: string, given: TableDefinition): DeclaredTable {
  const columns = Object.entries(given.columns).map(([column, type]) =>
    declareColumn(column, typeof type === 'string' ? { type } : type),
  )
  const indexes = (given.indexes ?? []).map((each): DeclaredIndex => {
    const index = 'columns' in each ? each : { columns: each }
    return { ...index, name: `${name}_${index.columns.join('_')}` }
  })
  return { name, columns, primaryKey: given.primaryKey, indexes, fillfactor: given.fillfactor }
}

function declareColumn(name: string, { type, nullable, default: fallback }: ColumnDefinition): DeclaredColumn {
  if (fallback === undefined) return { name, type, nullable }
  return { name, type, nullable, default: new TrustedSql(literal(String(fallback))) }
}

/** A table of one projection: the name its code uses, and the table in the database. */
export interface ProjectionTable {
  readonly name: string
  readonly declared: DeclaredTable
}

/** The tables of one version of a projection. */
export function versionTables(tables: readonly DeclaredTable[], version: number): ProjectionTable[] {
  const suffix = version === 1 ? '' : `_v${version}`
  return tables.map(each => {
    const declared = suffixed(each, suffix)
    for (const name of [`${declared.name}_pkey`, ...indexesOf(declared).map(index => index.name)]) checkRoom(name)
    return { name: each.name, declared }
  })
}

/** The same table under the name that a rebuild fills it by. */
export function shadowOf(declared: DeclaredTable): DeclaredTable {
  return suffixed(declared, shadowSuffix)
}

/** The names of a projection's tables, for its code. */
export type TableNames = (name: string) => Identifier

/** Names as they are in the schema; a projection that declares no tables may name any. */
export function tableNames(
  schema: string,
  projection: { readonly name: string; readonly tables: readonly ProjectionTable[] },
  change: (declared: DeclaredTable) => DeclaredTable = declared => declared,
): TableNames {
  const known = new Map(
    projection.tables.map(({ name, declared }) => [name, identifier(schema, change(declared).name)]),
  )
  return name => {
    const found = known.get(name)
    if (found !== undefined) return found
    if (known.size === 0) return identifier(schema, name)
    const nearest = nearestName(name, known.keys())
    const hint =
      nearest === undefined ? `Its tables are ${[...known.keys()].join(', ')}.` : `Did you mean "${nearest}"?`
    const reason = `Projection "${projection.name}" has no table ${JSON.stringify(name)}. ${hint}`
    throw new InvalidOption({ option: 'table', reason })
  }
}

const shadowSuffix = '__rebuild'

function suffixed(declared: DeclaredTable, suffix: string): DeclaredTable {
  if (suffix === '') return declared
  const indexes = indexesOf(declared).map(index => ({ ...index, name: `${index.name}${suffix}` }))
  return { ...declared, name: `${declared.name}${suffix}`, indexes }
}

function checkRoom(name: string): void {
  const room = 63 - shadowSuffix.length
  if (Buffer.byteLength(name) > room)
    throw new InvalidName({ what: 'Table or index', given: name, reason: `has more than ${room} bytes` })
}
