/** A query over one table: the steps, each of which gives a new query, and the ways to read its results. */

import { throwIfAborted } from '../../core/abort.ts'
import { isRillflowError } from '../../core/errors.ts'
import { refuseUnknownOptions } from '../../core/options.ts'
import { maxPageBytes, type PageOptions, pageOptionNames } from '../../core/page.ts'
import type { CallOptions } from '../collection.ts'
import { InvalidQuery, NotOne } from '../errors.ts'
import { reportDocuments } from '../execute.ts'
import { isCutShort, tooLarge } from '../size.ts'
import { type Condition, checked } from './condition.ts'
import { type BookmarkTypes, decodeCursor, encodeCursor } from './cursor.ts'
import { documentScope, type Field, fieldsOf, type MetaFields, metaFields, type Path, placeIn } from './field.ts'
import { type GroupQuery, type GroupRow, type GroupValue, groupQuery, type Keys } from './group.ts'
import { Parameters } from './operand.ts'
import {
  type Bookmark,
  bookmarkOf,
  bookmarkTypes,
  type Direction,
  type OrderOptions,
  orderKeys,
  partsAfter,
} from './order.ts'
import type {
  CountedPage,
  IncludeOptions,
  NumberedPage,
  Query,
  Queryable,
  Selected,
  Selection,
  WithIncluded,
} from './query.ts'
import { startWriting } from './render.ts'
import { callOptionNames, executorFor, runExplain, runQuery } from './run.ts'
import { toRow, wholeNumber, widthOf, writeCount, writeSelect } from './select.ts'
import { everything, type QuerySource, type QueryState, renderFrom, write } from './state.ts'

/** The source and the state of a query, for code that writes other statements from it. */
export function internalsOf(query: object): { source: QuerySource; state: QueryState } {
  if (query instanceof TableQuery) return query
  throw new InvalidQuery({ reason: 'this is not a query that documents or rows have given' })
}

export function notOne({ collection }: QuerySource, found: 'none' | 'several'): Error {
  return new NotOne({ collection: collection.name, found })
}

const defaultPageSize = 200
const defaultLimit = 100

/** The database measures all rows that it reads, also those that no longer fit, so it reads few before many. */
const firstRead = 101

export class TableQuery<Doc, Row> implements Query<Doc, Row> {
  readonly source: QuerySource
  readonly state: QueryState

  constructor(source: QuerySource, state: QueryState) {
    this.source = source
    this.state = state
  }

  #with(change: Partial<QueryState>): TableQuery<Doc, Row> {
    return new TableQuery(this.source, { ...this.state, ...change })
  }

  where(given: Condition | ((c: Field<Doc>, meta: MetaFields) => Condition)): Query<Doc, Row> {
    const condition = typeof given === 'function' ? given(fieldsOf(documentScope), metaFields) : given
    return this.#with({ conditions: [...this.state.conditions, checked(condition)] })
  }

  orderBy(
    field: (c: Field<Doc>, meta: MetaFields) => Path<unknown>,
    options?: Direction | OrderOptions,
  ): Query<Doc, Row> {
    const keys = orderKeys(placeIn(field(fieldsOf(documentScope), metaFields)), options, this.source.layout)
    return this.#with({ order: [...this.state.order, ...keys] })
  }

  limit(count: number): Query<Doc, Row> {
    return this.#with({ limit: count })
  }

  offset(count: number): Query<Doc, Row> {
    return this.#with({ offset: count })
  }

  includeDeleted(): Query<Doc, Row> {
    return this.#with({ deleted: 'included' })
  }

  onlyDeleted(): Query<Doc, Row> {
    return this.#with({ deleted: 'only' })
  }

  select<S extends Selection<Doc>>(fields: S): Query<Doc, Selected<S>> {
    const places = Object.entries(fields).map(
      ([name, take]) => [name, placeIn(take(fieldsOf(documentScope), metaFields))] as const,
    )
    if (places.length === 0) throw new InvalidQuery({ reason: 'select needs at least one field' })
    return new TableQuery(this.source, { ...this.state, selected: new Map(places) })
  }

  include<const N extends string, Other, Many extends boolean = false>(
    name: N,
    others: Queryable<Other> | Query<Other>,
    options: IncludeOptions<Doc, Other, Many>,
  ): Query<Doc, WithIncluded<Row, N, Other, Many>> {
    refuseUnknownOptions('include', options, ['from', 'to', 'many'])
    const { from, to, many } = options
    const other = internalsOf('query' in others ? others.query() : others)
    const local = placeIn(from(fieldsOf(documentScope), metaFields))
    const foreign = placeIn(to === undefined ? metaFields.id : to(fieldsOf(documentScope), metaFields))
    const { source, state } = other
    // One statement reads both, from the database and the schema of this one.
    if (source.collection.parts.database !== this.source.collection.parts.database)
      throw new InvalidQuery({ reason: 'include takes a collection of the same store, and of the same tenant' })
    if (state.selected !== undefined || state.included.length > 0 || state.limit !== undefined)
      throw new InvalidQuery({ reason: 'an included query may have where, includeDeleted and onlyDeleted only' })
    const included = [...this.state.included, { name, source, state, local, foreign, many: many === true }]
    return new TableQuery(this.source, { ...this.state, included })
  }

  groupBy<K extends Keys<Doc>, A extends Record<string, GroupValue<unknown>>>(
    keys: K,
    values: (c: Field<Doc>, meta: MetaFields) => A,
  ): GroupQuery<GroupRow<K, A>> {
    const { conditions, deleted } = this.state
    return groupQuery(this.source, { ...everything, conditions, deleted }, keys, values)
  }

  async toArray(options: CallOptions = {}): Promise<Row[]> {
    const { source, state } = this
    const executor = await executorFor(source, state, options)
    const ordered = state.offset !== undefined
    const read = (maxBytes?: number) =>
      runQuery(source, state, writeSelect(source, state, { ordered, maxBytes }), executor)
    // Inside a transaction the answer has ended the transaction.
    const rows = await read().catch(error => {
      if (!isRillflowError(error, 'result_too_large') || options.tx !== undefined) throw error
      return read(Number.MAX_SAFE_INTEGER)
    })
    reportRead(source, rows.length)
    const width = widthOf(source, state)
    return rows.map(row => toRow(source, state, row, tooLarge(row, width)) as Row)
  }

  async first(options?: CallOptions): Promise<Row | undefined> {
    const [row] = await this.#with({ cap: 1 }).toArray(options)
    return row
  }

  async one(options?: CallOptions): Promise<Row> {
    const row = await this.optional(options)
    if (row === undefined) throw notOne(this.source, 'none')
    return row
  }

  async optional(options?: CallOptions): Promise<Row | undefined> {
    const [row, other] = await this.#with({ cap: 2 }).toArray(options)
    if (other !== undefined) throw notOne(this.source, 'several')
    return row
  }

  async count(options: CallOptions = {}): Promise<number> {
    const { source, state } = this
    const executor = await executorFor(source, state, options)
    const [row] = await runQuery(source, state, writeCount(source, state), executor)
    return Number(row![0])
  }

  async exists(options: CallOptions = {}): Promise<boolean> {
    const { source, state } = this
    const executor = await executorFor(source, state, options)
    const written = write(
      source,
      writing => `/* ${source.label}.any */\n  select 1\n  ${renderFrom(source, state, writing)}\n  limit 1`,
    )
    return (await runQuery(source, state, written, executor)).length > 0
  }

  async pageNumber(number: number, size: number, options?: CallOptions): Promise<NumberedPage<Row>> {
    const page = wholeNumber('the number of a page')(number)
    if (page === 0 || wholeNumber('the size of a page')(size) === 0)
      throw new InvalidQuery({ reason: 'pages are counted from 1, and hold at least one document' })
    const offset = (page - 1) * size
    const rows = await this.#with({ limit: size, offset }).toArray(options)
    const isEnd = rows.length < size && (rows.length > 0 || page === 1)
    const total = isEnd ? offset + rows.length : await this.count(options)
    return { items: rows, total, page, pages: Math.ceil(total / size) }
  }

  async page(given: PageCall = {}): Promise<CountedPage<Row>> {
    refuseUnknownOptions('page', given, [...callOptionNames, ...pageOptionNames, 'total'])
    const { after, limit = defaultLimit, total = false, ...options } = given
    const { source, state } = this
    const { name } = source.collection
    if (wholeNumber('the limit of a page')(limit) === 0)
      throw new InvalidQuery({ reason: 'a page holds at least one document' })
    const mark = after === undefined ? undefined : decodeCursor(name, state.order, this.#bookmarkTypes(), after)
    // One more than asked for: its presence means that there is a next page.
    const { found, isCut } = await this.#readPage(mark, limit + 1, options)
    const rows = found.slice(0, limit)
    const last = rows.at(-1)
    const next =
      (isCut || found.length > limit) && last !== undefined ? encodeCursor(name, state.order, last.mark) : undefined
    const page = { items: rows.map(each => each.row), next }
    return (total ? { ...page, total: await this.count(options) } : page) as CountedPage<Row>
  }

  #bookmarkTypes(): BookmarkTypes {
    const { layout, collection } = this.source
    return bookmarkTypes(this.state.order, startWriting(new Parameters(), layout, collection.name, 'd.'))
  }

  async *iterate(given: IterateOptions = {}): AsyncGenerator<Row, void, undefined> {
    refuseUnknownOptions('iterate', given, [...callOptionNames, 'pageSize'])
    const { pageSize = defaultPageSize, ...options } = given
    const { limit = Number.POSITIVE_INFINITY } = this.state
    let left = limit as number
    let mark: Bookmark | undefined
    let fitting = firstRead
    while (left > 0) {
      throwIfAborted(options.signal)
      const size = Math.min(pageSize, left, fitting)
      const { found, isCut } = await this.#readAfter(mark, size, options)
      for (const { row } of found) yield row
      if (found.length < size && !isCut) return
      left -= found.length
      mark = found.at(-1)!.mark
      fitting = isCut ? 2 * found.length : 4 * fitting
    }
  }

  /** At most `size` results, and no more than a page has bytes. */
  async #readPage(mark: Bookmark | undefined, size: number, options: CallOptions): Promise<Found<Row>> {
    const page: Found<Row> = { found: [], bytes: 0, isCut: false }
    for (let wanted = firstRead; page.found.length < size && !page.isCut; wanted *= 4) {
      const asked = Math.min(wanted, size - page.found.length)
      const left = Math.max(1, maxPageBytes - page.bytes)
      const more = await this.#readAfter(page.found.at(-1)?.mark ?? mark, asked, options, left)
      page.found.push(...more.found)
      page.bytes += more.bytes
      page.isCut = more.isCut || (more.found.length === asked && page.found.length < size && page.bytes >= maxPageBytes)
      if (more.found.length < asked) break
    }
    return page
  }

  [Symbol.asyncIterator](): AsyncIterator<Row> {
    return this.iterate()
  }

  /** The results after a bookmark. `offset` applies to the first page only. */
  async #readAfter(
    mark: Bookmark | undefined,
    size: number,
    options: CallOptions,
    maxBytes: number = maxPageBytes,
  ): Promise<Found<Row>> {
    const { source, state } = this
    const executor = await executorFor(source, state, options)
    const width = widthOf(source, state)
    const found: Found<Row>['found'] = []
    let isCut = false
    let bytes = 0
    // An offset counts over all parts, so there is only one part then.
    const parts = mark === undefined && state.offset !== undefined ? [undefined] : partsAfter(state.order, mark)
    for (const part of parts) {
      if (found.length >= size || isCut) break
      const limited = { ...state, limit: size - found.length, offset: mark === undefined ? state.offset : undefined }
      const written = writeSelect(source, limited, {
        marked: true,
        ordered: true,
        part,
        maxBytes: Math.max(1, maxBytes - bytes),
      })
      const rows = await runQuery(source, state, written, executor)
      for (const row of rows) {
        const mark = bookmarkOf(row.slice(width, -3), source.layout)
        found.push({ row: toRow(source, state, row, tooLarge(row, row.length - 3)) as Row, mark })
      }
      isCut = isCutShort(rows)
      bytes += Number(rows.at(-1)?.at(-2) ?? 0)
    }
    reportRead(source, found.length)
    return { found, bytes, isCut }
  }

  async explain(given: ExplainOptions = {}): Promise<string> {
    refuseUnknownOptions('explain', given, [...callOptionNames, 'analyze'])
    const { analyze = false, ...options } = given
    const { source, state } = this
    const executor = await executorFor(source, state, options)
    const { text, parameters } = writeSelect(source, state, { ordered: state.offset !== undefined })
    const how = analyze ? 'analyze, buffers' : 'costs'
    const rows = await runExplain(source, `explain (${how}) ${text}`, parameters.values, executor)
    return rows.map(([line]) => line as string).join('\n')
  }
}

/** Results, how many bytes they have, and whether there are more that did not fit. */
interface Found<Row> {
  readonly found: { readonly row: Row; readonly mark: Bookmark }[]
  bytes: number
  isCut: boolean
}

type PageCall = CallOptions & PageOptions & { readonly total?: boolean | undefined }
type IterateOptions = CallOptions & { readonly pageSize?: number | undefined }
type ExplainOptions = CallOptions & { readonly analyze?: boolean | undefined }

function reportRead({ label, collection }: QuerySource, count: number): void {
  if (label === 'documents') reportDocuments(collection, 'read', 'documents.query', count)
}
