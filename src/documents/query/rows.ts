/** The rows of a query: which columns it asks for, and what is made of them. */

import { type StoredDocument, toDocument } from '../read.ts'
import { InvalidQuery } from './errors.ts'
import { jsonAt, metaColumns } from './expression.ts'
import type { MetaFields, Place } from './field.ts'
import { renderIncluded, takeIncluded } from './include.ts'
import { cursorColumns, type Part, renderOrder, renderPart } from './order.ts'
import type { Writing } from './render.ts'
import { type QuerySource, type QueryState, renderFrom, type Written, write } from './state.ts'

const documentColumns = ['id', 'body', 'version', 'created_at', 'updated_at', 'created_by', 'updated_by', 'deleted_at']

export interface SelectOptions {
  /** Ask for what a cursor needs, too. */
  readonly marked?: boolean | undefined
  /** Order by the id at least. */
  readonly ordered?: boolean | undefined
  /** Only this part of the documents. */
  readonly part?: Part | undefined
}

/** The statement that reads the rows of a query. */
export function writeSelect(source: QuerySource, state: QueryState, options: SelectOptions = {}): Written {
  return write(source, writing => {
    const { order, limit, cap, offset } = state
    const columns = [...rowColumns(state, writing), ...state.included.map(each => renderIncluded(each, writing))]
    if (options.marked === true) columns.push('d.id', ...cursorColumns(order, writing))
    const more = options.part === undefined ? [] : [renderPart(order, options.part, writing)]
    let text = `/* documents.query */\n  select ${columns.join(', ')}\n  ${renderFrom(source, state, writing, more)}`
    if (order.length > 0 || options.ordered === true)
      text += `\n  order by ${renderOrder(order, writing, options.part?.has)}`
    if (limit !== undefined || cap < Number.POSITIVE_INFINITY) {
      const most = (given: unknown): number => Math.min(cap, checkWhole('limit', given))
      text += `\n  limit ${writing.binder.bind(limit ?? cap, 'bigint', most)}`
    }
    if (offset !== undefined) text += `\n  offset ${writing.binder.bind(offset, 'bigint', wholeNumber('offset'))}`
    return text
  })
}

export function writeCount(source: QuerySource, state: QueryState): Written {
  return write(source, writing => `/* documents.count */\n  select count(*)\n  ${renderFrom(source, state, writing)}`)
}

function rowColumns({ selected }: QueryState, { prefix }: Writing): string[] {
  if (selected === undefined) return documentColumns.map(column => prefix + column)
  return [...selected.values()].map(({ path, meta }) =>
    meta === undefined ? jsonAt(`${prefix}body`, path) : prefix + metaColumns[meta].column,
  )
}

/** How many columns the row itself has, without those of a cursor. */
export function widthOf({ selected, included }: QueryState): number {
  return (selected?.size ?? documentColumns.length) + included.length
}

/** What a row stands for. */
export function toRow({ collection }: QuerySource, state: QueryState, row: readonly unknown[]): unknown {
  const { selected, included } = state
  const own = selected === undefined ? toDocument(collection, row) : toSelection(selected, row)
  if (included.length === 0) return own
  const first = selected?.size ?? documentColumns.length
  const found = included.map((each, i) => [each.name, takeIncluded(each, row[first + i])] as const)
  return { ...(own as StoredDocument), included: Object.fromEntries(found) }
}

function toSelection(selected: ReadonlyMap<string, Place>, row: readonly unknown[]): Record<string, unknown> {
  const made: [string, unknown][] = []
  let i = 0
  for (const [name, { meta }] of selected) made.push([name, metaValue(meta, row[i++])])
  return Object.fromEntries(made)
}

/** A version is a bigint in the database, and fits a number for as long as anybody writes. */
function metaValue(meta: keyof MetaFields | undefined, value: unknown): unknown {
  return meta === 'version' ? Number(value) : value
}

export function wholeNumber(what: string): (given: unknown) => number {
  return given => checkWhole(what, given)
}

function checkWhole(what: string, given: unknown): number {
  if (typeof given === 'number' && Number.isSafeInteger(given) && given >= 0) return given
  throw new InvalidQuery({ reason: `${what} is ${String(given)}, and must be a whole number from 0` })
}
