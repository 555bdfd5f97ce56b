/** The statement that reads the results of a query: its columns, and the results made of them. */
import { identifier } from '../../database/sql.ts'
import { InvalidQuery } from '../errors.ts'
import { documentMeasures, documentTooLarge, type StoredDocument, toDocument, withoutValue } from '../read.ts'
import { withSizes } from '../size.ts'
import { jsonAt } from './expression.ts'
import type { MetaFields, Place } from './field.ts'
import { renderIncluded, takeIncluded } from './include.ts'
import type { Layout } from './layout.ts'
import { cursorColumns, type Part, renderOrder, renderPart } from './order.ts'
import { columnIn, renderFound, type Writing } from './render.ts'
import { type QuerySource, type QueryState, renderFrom, type Written, write } from './state.ts'

const documentColumns = ['id', 'body', 'version', 'created_at', 'updated_at', 'created_by', 'updated_by', 'deleted_at']

export interface SelectOptions {
  /** Also select the values of a cursor. */
  readonly marked?: boolean | undefined
  /** Order by the primary key, if there is no other order. */
  readonly ordered?: boolean | undefined
  /** Only this part of the documents. */
  readonly part?: Part | undefined
  /** Also select the sizes of the rows, and no more rows than so many bytes. */
  readonly maxBytes?: number | undefined
}

/** The statement that reads the rows of a query. */
export function writeSelect(source: QuerySource, state: QueryState, options: SelectOptions = {}): Written {
  return write(source, writing => {
    const { order, limit, cap, offset } = state
    const columns = [...selectedColumns(state, writing), ...state.included.map(each => renderIncluded(each, writing))]
    if (options.marked === true) columns.push(...cursorColumns(order, writing))
    const more = options.part === undefined ? [] : [renderPart(order, options.part, writing)]
    let text = `/* ${source.label}.query */\n  select ${columns.join(', ')}\n  ${renderFrom(source, state, writing, more)}`
    if (order.length > 0 || options.ordered === true)
      text += `\n  order by ${renderOrder(order, writing, options.part?.has)}`
    if (limit !== undefined || cap < Number.POSITIVE_INFINITY) {
      const capped = (given: unknown): number => Math.min(cap, checkWhole('limit', given))
      text += `\n  limit ${writing.binder.bind(limit ?? cap, 'bigint', capped)}`
    }
    if (offset !== undefined) text += `\n  offset ${writing.binder.bind(offset, 'bigint', wholeNumber('offset'))}`
    if (options.maxBytes === undefined) return text
    const measured = [...measuredColumns(source, state), ...columns.slice(widthOf(source, state)).map(() => false)]
    return withSizes(`${source.label}.query`, text, measured, options.maxBytes)
  })
}

export function writeCount(source: QuerySource, state: QueryState): Written {
  return write(
    source,
    writing => `/* ${source.label}.count */\n  select count(*)\n  ${renderFrom(source, state, writing)}`,
  )
}

function selectedColumns({ selected }: QueryState, writing: Writing): string[] {
  const { prefix, layout } = writing
  if (selected === undefined) return columnNames(layout).map(column => prefix + column)
  return [...selected.values()].map(place => {
    if (place.found !== undefined) return renderFound(place, place.found, writing)
    const column = columnIn(place, writing)
    if (column === undefined) return jsonAt(`${prefix}body`, place.path)
    return column.path.length === 0 ? column.sql : jsonAt(column.sql, column.path)
  })
}

/** The columns of a whole document, or of a whole row. */
function columnNames({ row }: Layout): readonly string[] {
  return row === undefined ? documentColumns : [...row.columns.keys()].map(name => identifier(name).quoted)
}

/** How many columns the row itself has, without those of a cursor. */
export function widthOf({ layout }: QuerySource, { selected, included }: QueryState): number {
  return (selected?.size ?? columnNames(layout).length) + included.length
}

/** Of each column of the row itself, whether it may be large: JSON, and text. */
function measuredColumns({ layout }: QuerySource, { selected, included }: QueryState): boolean[] {
  const own =
    selected !== undefined
      ? [...selected.values()].map(({ meta, found }) => meta === undefined && found === undefined)
      : layout.row === undefined
        ? documentMeasures
        : [...layout.row.columns.values()].map(({ type }) => type === 'jsonb' || type === 'text')
  return [...own, ...included.map(() => true)]
}

/** The result that a row of the statement stands for. `bytes` is the size of one that is too large to be read. */
export function toRow(
  source: QuerySource,
  state: QueryState,
  row: readonly unknown[],
  bytes?: number | undefined,
): unknown {
  const { collection, layout } = source
  if (bytes !== undefined) return toLargeRow(source, state, row, bytes)
  const { selected, included } = state
  const own =
    selected !== undefined
      ? toSelection(selected, row)
      : layout.row === undefined
        ? toDocument(collection, row.slice(0, documentColumns.length))
        : Object.fromEntries([...layout.row.columns.keys()].map((name, i) => [name, row[i]]))
  if (included.length === 0) return own
  const first = selected?.size ?? documentColumns.length
  const found = included.map((each, i) => [each.name, takeIncluded(each, row[first + i])] as const)
  return { ...(own as StoredDocument), included: Object.fromEntries(found) }
}

/** All that it has but its JSON and texts, which throw where they are used. */
function toLargeRow(source: QuerySource, state: QueryState, row: readonly unknown[], bytes: number): unknown {
  const { selected, included } = state
  const { collection, layout } = source
  const isDocument = selected === undefined && layout.row === undefined
  const names = isDocument
    ? documentColumns.map(name => (name === 'body' ? 'data' : name))
    : [...(selected?.keys() ?? layout.row!.columns.keys())]
  const id = isDocument ? (row[0] as string) : ''
  const known = toRow({ ...source, collection: { ...collection, options: {} } }, { ...state, included: [] }, row)
  const missing = names.filter((_, i) => measuredColumns(source, state)[i])
  if (included.length > 0) missing.push('included')
  const kept = Object.entries(known as object).filter(([name]) => !missing.includes(name))
  const large = Object.fromEntries([...kept, ...(isDocument ? [['tooLarge', bytes]] : [])])
  return missing.reduce((made, name) => withoutValue(made, name, () => documentTooLarge(collection, id, bytes)), large)
}

function toSelection(selected: ReadonlyMap<string, Place>, row: readonly unknown[]): Record<string, unknown> {
  const made: [string, unknown][] = []
  let i = 0
  for (const [name, { meta }] of selected) made.push([name, metaValue(meta, row[i++])])
  return Object.fromEntries(made)
}

/** A version is a bigint in the database, and small enough for a number. */
function metaValue(meta: keyof MetaFields | undefined, value: unknown): unknown {
  return meta === 'version' ? Number(value) : value
}

export function wholeNumber(what: string): (given: unknown) => number {
  return given => checkWhole(what, given)
}

function checkWhole(what: string, given: unknown): number {
  if (typeof given === 'number' && Number.isSafeInteger(given) && given >= 0) return given
  throw new InvalidQuery({ reason: `${what} is ${String(given)}, and must be a whole number from 0 on` })
}
