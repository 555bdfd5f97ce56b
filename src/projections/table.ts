/**
 * The tables of a projection: declared with its code, made by `schema.sync()`, named in it through `ctx.table()`.
 *
 *     table('order_totals', { columns: { customer: 'text', total: 'numeric' }, primaryKey: ['customer'] })
 *
 * The name that a handler uses is not the name in the database: version 2 of a projection has tables of its own
 * (`order_totals_v2`), and while it is rebuilt the new ones stand beside the old (`order_totals__rebuild`). Every name
 * that may be needed one day is checked when the projection is defined, because PostgreSQL cuts longer ones silently.
 */
import { InvalidName, InvalidOption } from '../core/errors.ts'
import { nearestName } from '../core/nearest.ts'
import { type Identifier, identifier, literal } from '../database/sql.ts'
import { type DeclaredColumn, type DeclaredIndex, type DeclaredTable, indexesOf, TrustedSql } from '../schema/table.ts'

export type ColumnType = DeclaredColumn['type']

export interface ColumnOptions {
  readonly type: ColumnType
  /** Default false. */
  readonly nullable?: boolean | undefined
  /** What a row gets that is inserted without it. */
  readonly default?: string | number | boolean | undefined
}

export interface TableOptions<C extends string = string> {
  readonly columns: Readonly<Record<C, ColumnType | ColumnOptions>>
  readonly primaryKey: readonly NoInfer<C>[]
  readonly indexes?: readonly (readonly NoInfer<C>[] | IndexOptions<NoInfer<C>>)[] | undefined
  /** How full pages are packed, 10 to 100: less leaves room for rows that change often. */
  readonly fillfactor?: number | undefined
}

export interface IndexOptions<C extends string = string> {
  readonly columns: readonly C[]
  readonly unique?: boolean | undefined
  readonly method?: DeclaredIndex['method']
}

/** Declares a table; its indexes are named after it and their columns. */
export function table<C extends string>(name: string, options: TableOptions<C>): DeclaredTable {
  const columns = Object.entries<ColumnType | ColumnOptions>(options.columns).map(([column, given]) =>
    declareColumn(column, typeof given === 'string' ? { type: given } : given),
  )
  const indexes = (options.indexes ?? []).map((given): DeclaredIndex => {
    const index: IndexOptions = Array.isArray(given) ? { columns: given } : (given as IndexOptions)
    return { ...index, name: `${name}_${index.columns.join('_')}` }
  })
  return { name, columns, primaryKey: options.primaryKey, indexes, fillfactor: options.fillfactor }
}

function declareColumn(name: string, { type, nullable, default: fallback }: ColumnOptions): DeclaredColumn {
  if (fallback === undefined) return { name, type, nullable }
  return { name, type, nullable, default: new TrustedSql(literal(String(fallback))) }
}

/** A table of one projection: what its code calls it, and what stands in the database. */
export interface ProjectionTable {
  readonly name: string
  readonly declared: DeclaredTable
}

/** The tables of one version of a projection. */
export function versionTables(tables: readonly DeclaredTable[], version: number): ProjectionTable[] {
  const suffix = version === 1 ? '' : `_v${version}`
  const names = tables.map(each => each.name)
  const twice = names.find((name, i) => names.indexOf(name) < i)
  if (twice !== undefined) throw new InvalidOption({ option: 'tables', reason: `has ${JSON.stringify(twice)} twice` })
  return tables.map(each => {
    const declared = suffixed(each, suffix)
    for (const name of [`${declared.name}_pkey`, ...indexesOf(declared).map(index => index.name)]) checkRoom(name)
    return { name: each.name, declared }
  })
}

/** The same table, to be filled beside the first one. */
export function shadowOf(declared: DeclaredTable): DeclaredTable {
  return suffixed(declared, shadowSuffix)
}

/** Where the code of a projection finds its tables. */
export type TableNames = (name: string) => Identifier

/** Names as they stand in the schema; a projection that declares no tables may name any. */
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
    const hint = nearest === undefined ? `it has ${[...known.keys()].join(', ')}` : `did you mean "${nearest}"`
    const reason = `${JSON.stringify(name)} is no table of projection "${projection.name}"; ${hint}`
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
