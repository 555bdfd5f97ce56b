/**
 * Compares declared tables with the existing ones: a step for each missing object, a problem for each decision that
 * only a person may take.
 *
 * Invariant: after its steps have run, the same comparison gives no steps. So a step is planned only where running it
 * makes the difference go away, and an index only when the columns it needs are there or planned. Nothing is dropped,
 * narrowed or rewritten: another type, key or definition, and columns that are not declared (an older process may still
 * write them) are reported and left alone. The one exception is an index that PostgreSQL itself has marked invalid: no
 * query uses it, so it is built anew.
 */
import type { FoundColumn, FoundIndex, FoundTable } from './catalogue.ts'
import { type Difference, join, nothing, problem } from './difference.ts'
import { catalogueType, type DeclaredColumn, type DeclaredIndex, type DeclaredTable, indexesOf } from './table.ts'
import { addColumn, createIndex, createTable, dropIndex, indexStamp, stampIndex } from './table-sql.ts'

/** The known state of the schema: its relations by name, and which tables hold rows. */
export interface Surroundings {
  readonly schema: string
  readonly found: ReadonlyMap<string, FoundTable>
  readonly filled: ReadonlySet<string>
  /** Whether indexes of tables with rows are built while writers write. */
  readonly concurrently: boolean
}

export function diffTable(table: DeclaredTable, around: Surroundings): Difference {
  const there = around.found.get(table.name)
  if (there === undefined) return diffMissingTable(table, around)
  if (!there.kind.endsWith('table')) {
    return problem('table_changed', `table ${table.name}`, `is: ${there.kind}`, 'rename or drop it, then sync')
  }
  const columns = table.columns.map(column => diffColumn(table, column, there, around))
  const unmet = table.columns.filter((column, i) => {
    const type = there.columns.find(each => each.name === column.name)?.type
    return type === undefined ? columns[i]!.steps.length === 0 : type !== catalogueType(column.type)
  })
  return join([
    ...columns,
    diffExtraColumns(table, there),
    diffPrimaryKey(table, there),
    ...indexesOf(table).map(index => diffIndex(table, index, unmet, around)),
  ])
}

/** Whether the steps depend on there being rows: a column that every row must have is missing, or an index. */
export function dependsOnRows(table: DeclaredTable, there: FoundTable | undefined): boolean {
  const isBuilt = (index: DeclaredIndex): boolean =>
    there?.indexes.some(each => each.name === index.name && each.valid) === true
  if (there?.kind.endsWith('table') === true && !indexesOf(table).every(isBuilt)) return true
  return (
    there !== undefined &&
    table.columns.some(column => !has(there, column) && (isDemanding(column) || column.generated !== undefined))
  )
}

function diffMissingTable(table: DeclaredTable, around: Surroundings): Difference {
  const object = `table ${table.name}`
  const made = { kind: 'table', object, reason: 'it is declared', sql: createTable(around.schema, table) } as const
  return join([{ steps: [made], problems: [] }, ...indexesOf(table).map(index => diffIndex(table, index, [], around))])
}

function diffColumn(table: DeclaredTable, column: DeclaredColumn, there: FoundTable, around: Surroundings): Difference {
  const object = `column ${table.name}.${column.name}`
  const found = there.columns.find(each => each.name === column.name)
  if (found !== undefined) return compareColumn(object, column, found)
  if (isDemanding(column) && around.filled.has(table.name)) {
    const fix = 'declare it nullable or with a default, or add and fill it by hand'
    return problem('column_missing', object, 'has no value for the existing rows', fix)
  }
  if (column.generated !== undefined && around.filled.has(table.name)) {
    const fix = 'leave it out and index the field instead; or add it by hand, which rewrites the table under a lock'
    return problem('column_missing', object, 'is generated, and there are rows already', fix)
  }
  const text = addColumn(around.schema, table, column)
  return { steps: [{ kind: 'column', object, reason: 'it is declared', sql: text }], problems: [] }
}

function compareColumn(object: string, column: DeclaredColumn, found: FoundColumn): Difference {
  const wanted = words(catalogueType(column.type)!, column.nullable === true, originOf(column))
  const actual = words(
    found.type,
    found.nullable,
    found.generated ? 'generated' : found.default !== null ? 'default' : '',
  )
  if (wanted === actual) return nothing
  const fix = 'change the declaration back, or alter the column by hand'
  return problem('column_changed', object, `is ${actual}, declared is ${wanted}`, fix)
}

function diffExtraColumns(table: DeclaredTable, there: FoundTable): Difference {
  const declared = new Set(table.columns.map(column => column.name))
  const extra = there.columns.filter(column => !declared.has(column.name))
  const fix = 'drop it by hand once nothing uses it, or declare it'
  return join(extra.map(({ name }) => problem('column_extra', `column ${table.name}.${name}`, 'is not declared', fix)))
}

function diffPrimaryKey(table: DeclaredTable, there: FoundTable): Difference {
  const wanted = table.primaryKey.join(', ')
  const actual = there.indexes.find(index => index.primaryKey !== null)?.primaryKey?.join(', ') ?? 'nothing'
  if (actual === wanted) return nothing
  const fix = 'change the declaration back, or the key by hand'
  const difference = `is on ${actual}, declared is ${wanted}`
  return problem('primary_key_changed', `table ${table.name}`, `its primary key ${difference}`, fix)
}

function diffIndex(
  table: DeclaredTable,
  index: DeclaredIndex,
  unmet: readonly DeclaredColumn[],
  around: Surroundings,
): Difference {
  const object = `index ${index.name}`
  const there = around.found.get(table.name)?.indexes.find(each => each.name === index.name)
  if (there?.valid === true) return compareIndex(object, index, there)
  const other = there === undefined ? around.found.get(index.name) : undefined
  if (other !== undefined) {
    const conflict = `is the name of another ${other.kind}`
    return problem('index_missing', object, conflict, 'rename or drop that one, then sync')
  }
  const needed = unmet.filter(column => mayUse(index, column.name)).map(column => column.name)
  if (needed.length > 0) {
    const missing = `may need column ${needed.join(', ')}, which is missing or of another type`
    return problem('index_missing', object, missing, 'fix the column first, then sync')
  }
  const reason = there === undefined ? 'it is declared' : 'it exists, but is invalid'
  const isAlone = around.concurrently && around.filled.has(table.name)
  const texts = there === undefined ? [] : [dropIndex(around.schema, index, isAlone)]
  texts.push(createIndex(around.schema, table, index, isAlone), stampIndex(around.schema, index))
  const locksWriters = !isAlone && around.filled.has(table.name)
  const step = { kind: 'index', object, reason, ...(isAlone ? { isAlone } : {}) } as const
  return { steps: texts.map(text => ({ ...step, sql: text, ...(locksWriters ? { locksWriters } : {}) })), problems: [] }
}

function compareIndex(object: string, index: DeclaredIndex, there: FoundIndex): Difference {
  if (there.comment === indexStamp(index)) return nothing
  const difference = `is ${there.unique ? 'unique ' : ''}${there.definition}, and was not made from the present declaration`
  return problem('index_changed', object, difference, 'drop it and sync, or change the declaration back')
}

/** The columns of an expression are not known, so it may use any. */
function mayUse(index: DeclaredIndex, column: string): boolean {
  return [...index.columns, ...(index.include ?? []), index.where].some(
    part => part === column || (typeof part === 'object' && part !== null),
  )
}

function isDemanding(column: DeclaredColumn): boolean {
  return column.nullable !== true && column.default === undefined
}

function originOf(column: DeclaredColumn): Origin {
  return column.generated !== undefined ? 'generated' : column.default !== undefined ? 'default' : ''
}

type Origin = 'generated' | 'default' | ''

function has(there: FoundTable, column: DeclaredColumn): boolean {
  return there.columns.some(each => each.name === column.name)
}

/** The default itself is not compared: PostgreSQL rewrites it, and it concerns no existing row. */
function words(type: string, nullable: boolean, origin: Origin): string {
  const suffixes = { generated: ', generated', default: ' with a default', '': '' }
  return `${type}${nullable ? '' : ' not null'}${suffixes[origin]}`
}
