/**
 * Declared tables: described as plain data by the parts that need them (collections, projection tables), made and
 * extended by `sync`, never by hand-written migrations, because users change them from one deployment to the next.
 *
 * Only three things of a declaration get into SQL text: names, quoted by `identifier`; types, from the list below; and
 * `TrustedSql`, which is made from source text alone. So a declaration may hold names that users chose.
 */
import { InvalidOption } from '../core/errors.ts'
import { Identifier, identifier } from '../database/sql.ts'
import { expected } from './expected.ts'

export interface DeclaredTable {
  readonly name: string
  readonly columns: readonly DeclaredColumn[]
  readonly primaryKey: readonly string[]
  readonly indexes?: readonly DeclaredIndex[] | undefined
  /** How full pages are packed, 10 to 100: less leaves room for rows that change often. */
  readonly fillfactor?: number | undefined
}

export interface DeclaredColumn {
  readonly name: string
  readonly type: ColumnType
  /** Default false. */
  readonly nullable?: boolean | undefined
  readonly default?: TrustedSql | undefined
  /** Maintained by PostgreSQL from the other columns of the row. Only an empty table can get one later. */
  readonly generated?: TrustedSql | undefined
}

export interface DeclaredIndex {
  readonly name: string
  /** Columns by name; expressions as they stand between the parentheses, `(data->>'email')`. */
  readonly columns: readonly (string | TrustedSql)[]
  readonly unique?: boolean | undefined
  /** Default btree. */
  readonly method?: 'btree' | 'gin' | 'gist' | 'brin' | 'hash' | undefined
  readonly where?: TrustedSql | undefined
  readonly include?: readonly string[] | undefined
}

type ColumnType = ScalarType | `${ScalarType}[]` | 'text collate "C"' | `numeric(${number},${number})`

type ScalarType = keyof typeof catalogueTypes

/** The types a column may have, and their names in the catalogue. */
const catalogueTypes = {
  bigint: 'bigint',
  integer: 'integer',
  text: 'text',
  jsonb: 'jsonb',
  timestamptz: 'timestamp with time zone',
  boolean: 'boolean',
  uuid: 'uuid',
  numeric: 'numeric',
  'double precision': 'double precision',
  tsvector: 'tsvector',
} as const

/** SQL that the library itself has written. */
export class TrustedSql {
  readonly text: string
  constructor(text: string) {
    this.text = text
  }
}

/** Source text and quoted identifiers, nothing else: a value has no way in. */
export function trustedSql(strings: TemplateStringsArray, ...names: readonly Identifier[]): TrustedSql {
  if (!names.every(name => name instanceof Identifier)) throw new TypeError('trustedSql takes identifiers only')
  return new TrustedSql(String.raw({ raw: strings }, ...names))
}

/** The type as the catalogue gives it; undefined if it is not one of the list. */
export function catalogueType(type: string): string | undefined {
  if (type === 'text collate "C"' || /^numeric\(\d{1,4},\d{1,4}\)$/.test(type)) return type
  const scalar = type.replace(/\[\]$/, '')
  if (!Object.hasOwn(catalogueTypes, scalar)) return undefined
  return catalogueTypes[scalar as ScalarType] + type.slice(scalar.length)
}

/** The tables that the parts of one store have declared. */
export class TableRegistry {
  readonly #tables = new Map<string, DeclaredTable>()
  /** Tables and indexes share one space of names in a schema. */
  readonly #owners = new Map<string, string>(reservedNames().map(name => [name, 'the store itself']))

  readonly #readModels = new Set<string>()

  /** Declaring the same table again changes nothing; another one under its name is refused. */
  register(table: DeclaredTable, { isReadModel = false }: { isReadModel?: boolean } = {}): void {
    this.#declare(table)
    if (isReadModel) this.#readModels.add(table.name)
  }

  /** Whether a projection writes this table, so that no other code may. */
  isReadModel(name: string): boolean {
    return this.#readModels.has(name)
  }

  #declare(table: DeclaredTable): void {
    const known = this.#tables.get(table.name)
    if (known !== undefined && JSON.stringify(known) === JSON.stringify(table)) return
    if (known !== undefined) refuse(table, 'is declared already, with another shape')
    checkTable(table)
    const names = [table.name, `${table.name}_pkey`, ...indexesOf(table).map(index => index.name)]
    for (const [i, name] of names.entries()) {
      const owner = names.indexOf(name) < i ? `table ${table.name}` : this.#owners.get(name)
      if (owner !== undefined) refuse(table, `wants the name ${JSON.stringify(name)}, which belongs to ${owner}`)
    }
    for (const name of names) this.#owners.set(name, `table ${table.name}`)
    this.#tables.set(table.name, table)
  }

  list(): readonly DeclaredTable[] {
    return [...this.#tables.values()]
  }
}

export function indexesOf(table: DeclaredTable): readonly DeclaredIndex[] {
  return table.indexes ?? []
}

function reservedNames(): string[] {
  const indexes = Object.values(expected.tables).flatMap(table => Object.keys(table.indexes))
  return [...Object.keys(expected.tables), ...indexes, ...Object.keys(expected.sequences)]
}

function checkTable(table: DeclaredTable): void {
  const columns = table.columns.map(column => column.name)
  const named = [...table.primaryKey]
  identifier(table.name)
  for (const column of table.columns) checkColumn(table, column)
  if (new Set(columns).size < columns.length) refuse(table, 'has two columns of one name')
  if (table.primaryKey.length === 0) refuse(table, 'has no primary key')
  for (const index of indexesOf(table)) named.push(...checkIndex(table, index))
  const unknown = named.find(name => !columns.includes(name))
  if (unknown !== undefined) refuse(table, `has no column ${JSON.stringify(unknown)}, but a key or index of it`)
  const { fillfactor = 100 } = table
  if (!Number.isInteger(fillfactor) || fillfactor < 10 || fillfactor > 100)
    refuse(table, 'needs a whole fillfactor from 10 to 100')
}

function checkColumn(table: DeclaredTable, column: DeclaredColumn): void {
  identifier(column.name)
  const what = `has a column ${JSON.stringify(column.name)}`
  if (catalogueType(column.type) === undefined) refuse(table, `${what} of a type it cannot have: ${column.type}`)
  if (!isTrusted(column.default)) refuse(table, `${what} with a default that is not trusted SQL`)
  if (!isTrusted(column.generated)) refuse(table, `${what} generated from SQL that is not trusted`)
  if (column.generated !== undefined && (column.default !== undefined || column.nullable !== true))
    refuse(table, `${what} that is generated: it is nullable and has no default`)
  if (column.nullable === true && table.primaryKey.includes(column.name))
    refuse(table, `${what} that is part of the primary key and nullable`)
}

/** Returns the columns it names. */
function checkIndex(table: DeclaredTable, index: DeclaredIndex): string[] {
  identifier(index.name)
  const what = `has an index ${JSON.stringify(index.name)}`
  if (index.columns.length === 0) refuse(table, `${what} without columns`)
  if (!isTrusted(index.where)) refuse(table, `${what} with a condition that is not trusted SQL`)
  if (!methods.includes(index.method ?? 'btree')) refuse(table, `${what} of an unknown method: ${index.method}`)
  const named = index.columns.filter(column => typeof column === 'string')
  if (!index.columns.every(column => typeof column === 'string' || column instanceof TrustedSql))
    refuse(table, `${what} on something that is neither a column nor trusted SQL`)
  return [...named, ...(index.include ?? [])]
}

const methods: readonly string[] = ['btree', 'gin', 'gist', 'brin', 'hash']

/** An object of the same shape, read from a file or a request, is not enough. */
function isTrusted(given: TrustedSql | undefined): boolean {
  return given === undefined || given instanceof TrustedSql
}

function refuse(table: DeclaredTable, reason: string): never {
  throw new InvalidOption({ option: 'table', reason: `Table ${JSON.stringify(table.name)} ${reason}.` })
}
