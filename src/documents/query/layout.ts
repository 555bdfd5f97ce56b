/** The columns of the table that a query reads, and the indexes that make it quick. */
import { nearestName } from '../../core/name.ts'
import { identifier } from '../../database/sql.ts'
import { InvalidQuery } from '../errors.ts'
import { metaColumns, pathKey, placeKey } from './expression.ts'
import { documentScope, type Place } from './field.ts'
import type { Kind, ParameterType } from './operand.ts'
import type { SearchFields } from './search.ts'

export interface Layout {
  /** Generated columns, by the field they hold. */
  readonly columns: ReadonlyMap<string, string>
  /** The fields with an ordered index. */
  readonly ordered: ReadonlySet<string>
  /** Paths with an index on their content; the whole body is the empty path. */
  readonly containing: ReadonlySet<string>
  readonly search: SearchFields
  /** The columns of a table of rows; undefined for a table of documents, whose fields are in the body. */
  readonly row: RowLayout | undefined
}

export interface RowLayout {
  readonly columns: ReadonlyMap<string, RowColumn>
  /** The columns of the primary key, in its order. */
  readonly key: readonly string[]
}

export interface RowColumn {
  /** 'json' for one that has fields of its own. */
  readonly kind: ColumnKind
  readonly type: ParameterType | 'jsonb'
  /** Whether its text goes by its bytes anyway. */
  readonly isBytewise: boolean
}

export type ColumnKind = Kind | 'time' | 'json'

/** A column, and the place inside of it. */
export interface FoundColumn extends RowColumn {
  readonly sql: string
  /** Empty unless the column holds JSON. */
  readonly path: readonly string[]
}

/** The kind of a column by its type in the database. */
export function rowColumn(type: string): RowColumn {
  const isBytewise = type === 'text collate "C"'
  if (isBytewise || type === 'text') return { kind: 'text', type: 'text', isBytewise }
  const [kind, sent] = columnTypes[type] ?? []
  if (kind === undefined || sent === undefined) throw new TypeError(`a column of type ${type} cannot be queried`)
  return { kind, type: sent, isBytewise }
}

const columnTypes: Readonly<Record<string, readonly [ColumnKind, ParameterType]>> = {
  uuid: ['text', 'uuid'],
  boolean: ['boolean', 'boolean'],
  integer: ['number', 'bigint'],
  bigint: ['number', 'bigint'],
  numeric: ['number', 'numeric'],
  'double precision': ['number', 'double precision'],
  timestamptz: ['time', 'timestamptz'],
  jsonb: ['json', 'jsonb'],
}

/** The column that holds a place: one that every document has next to its body, or one of a row. */
export function columnOf(place: Place, layout: Layout, prefix: string, collection: string): FoundColumn | undefined {
  const { row } = layout
  if (place.meta !== undefined) {
    if (row !== undefined) throw new InvalidQuery({ collection, reason: 'rows have columns and nothing else' })
    const { column, kind } = metaColumns[place.meta]
    return { sql: `${prefix}${column}`, kind, type: metaTypes[kind], isBytewise: place.meta === 'id', path: [] }
  }
  if (row === undefined || place.scope !== documentScope) return undefined
  const [name, ...path] = place.path
  const column = name === undefined ? undefined : row.columns.get(name)
  if (name === undefined || column === undefined) throw unknownColumn(row, name, collection)
  if (path.length > 0 && column.kind !== 'json')
    throw new InvalidQuery({ collection, reason: `column ${JSON.stringify(name)} has no fields: it is not JSON` })
  return { ...column, sql: `${prefix}${identifier(name)}`, path }
}

const metaTypes = { text: 'text', number: 'bigint', boolean: 'boolean', time: 'timestamptz' } as const

function unknownColumn({ columns }: RowLayout, name: string | undefined, collection: string): Error {
  if (name === undefined)
    return new InvalidQuery({ collection, reason: 'a condition is about a column, not about the row' })
  const nearest = nearestName(name, columns.keys())
  const hint =
    nearest === undefined ? `its columns are ${[...columns.keys()].join(', ')}` : `did you mean "${nearest}"?`
  return new InvalidQuery({ collection, reason: `there is no column ${JSON.stringify(name)}: ${hint}` })
}

/** The primary key, with its types: every order ends with it. */
export function keyColumns({ row }: Layout): readonly { readonly sql: string; readonly type: ParameterType }[] {
  if (row === undefined) return documentKey
  return row.key.map(name => ({ sql: identifier(name).quoted, type: row.columns.get(name)!.type as ParameterType }))
}

const documentKey = [{ sql: 'id', type: 'text' }] as const

export function columnFor({ columns }: Layout, place: Pick<Place, 'path'>, kind: Kind): string | undefined {
  return columns.get(placeKey({ path: place.path }, kind))
}

export function isOrdered({ ordered }: Layout, place: Pick<Place, 'path' | 'isLower'>, kind: Kind): boolean {
  return ordered.has(placeKey(place, kind))
}

export function hasContaining({ containing }: Layout, path: readonly string[]): boolean {
  return containing.has(pathKey(path))
}
