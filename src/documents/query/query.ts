/**
 * Queries over the documents of a collection.
 *
 *     customers.query()
 *       .where(c => and(eq(c.active, true), contains(c.tags, ['vip'])))
 *       .orderBy(c => c.name)
 *       .page(1, 25)
 *
 *     field ─► condition ─┐
 *              order ─────┼─► state ─► rows, group ─► statement ─► run ─► documents, selections, groups
 *              include ───┘     │                                   └──► the index advisor
 *                               └─► compile: the statement is kept, only its parameters change
 *
 * A query is a value: every step gives a new one, and it can be run again and again. What its conditions mean is said
 * in `condition.ts`. Guarantees:
 * - Nothing that a user gave is part of a statement's text but names of fields, and these are quoted as literals.
 * - What a document is like never makes a query fail, only its outcome.
 * - A query gives the same with and without indexes, on every engine. Without `orderBy` whole results come in no
 *   particular order; pages and iteration then go by the id.
 * - Soft-deleted documents are left out unless they are asked for, included ones too.
 * - Conditions, orders and selections see bodies as they are stored; upcasters are for whole documents.
 *
 * Iterating reads page after page, so memory stays flat; what is written meanwhile may or may not be seen, but no
 * document that stays as it is is missed or comes twice. Use a repeatable-read transaction for one moment in time.
 *
 * What can fail: `InvalidQuery` before anything is sent, or when the database refuses a regular expression.
 */
import { throwIfAborted } from '../../core/lifecycle.ts'
import type { Page, PageOptions } from '../../core/page.ts'
import { type IndexAdvice, openAdvisor } from '../advisor.ts'
import type { CallOptions, CollectionBase } from '../collection.ts'
import { layoutOf } from '../indexes.ts'
import type { StoredDocument } from '../read.ts'
import { tellDocuments } from '../run.ts'
import { Parameters } from './bind.ts'
import { type Condition, checked } from './condition.ts'
import { type BookmarkTypes, decodeCursor, encodeCursor } from './cursor.ts'
import { InvalidQuery, NotOne } from './errors.ts'
import {
  documentScope,
  type Field,
  fieldsOf,
  type MetaFields,
  metaFields,
  type Path,
  placeIn,
  type ValueFrom,
} from './field.ts'
import { type Figure, type GroupQuery, type GroupRow, groupQuery, type Keys } from './group.ts'
import { type Layout, rowColumn } from './layout.ts'
import {
  type Bookmark,
  bookmarkOf,
  bookmarkTypes,
  type Direction,
  type OrderAs,
  type OrderOptions,
  orderKey,
  partsAfter,
  type TextPath,
} from './order.ts'
import { startWriting } from './render.ts'
import { toRow, wholeNumber, widthOf, writeCount, writeSelect } from './rows.ts'
import { executorFor, runExplain, runQuery } from './run.ts'
import { everything, type QuerySource, type QueryState, renderFrom, write } from './state.ts'

export interface Query<Doc, Row = StoredDocument<Doc>> extends AsyncIterable<Row> {
  /** Only documents that meet the condition, and those of earlier `where`. */
  where(condition: Condition | ((c: Field<Doc>, meta: MetaFields) => Condition)): Query<Doc, Row>
  /** Order by a field; further calls decide between documents that are equal so far. */
  orderBy(field: (c: Field<Doc>, meta: MetaFields) => TextPath, options?: Direction | OrderOptions): Query<Doc, Row>
  orderBy<T>(field: (c: Field<Doc>, meta: MetaFields) => Path<T>, options: OrderAs<NoInfer<T>>): Query<Doc, Row>
  limit(count: number): Query<Doc, Row>
  offset(count: number): Query<Doc, Row>
  /** Soft-deleted documents, too. */
  includeDeleted(): Query<Doc, Row>
  /** Soft-deleted documents alone. */
  onlyDeleted(): Query<Doc, Row>
  /** Only these fields. What is missing comes as null. */
  select<S extends Selection<Doc>>(fields: S): Query<Doc, Selected<S>>
  /** The related documents of each, as `included`, in the same round trip. */
  include<const N extends string, Other, Many extends boolean = false>(
    name: N,
    others: Queryable<Other> | Query<Other>,
    options: IncludeOptions<Doc, Other, Many>,
  ): Query<Doc, WithIncluded<Row, N, Other, Many>>
  /** Groups of documents that have the same in these fields, and what comes of each. */
  groupBy<K extends Keys<Doc>, A extends Record<string, Figure<unknown>>>(
    keys: K,
    figures: (c: Field<Doc>, meta: MetaFields) => A,
  ): GroupQuery<GroupRow<K, A>>

  toArray(options?: CallOptions): Promise<Row[]>
  /** The first one, if there is any. */
  first(options?: CallOptions): Promise<Row | undefined>
  /** The only one; `NotOne` if there is none, or another. */
  one(options?: CallOptions): Promise<Row>
  /** The only one, if there is any; `NotOne` if there is another. */
  optional(options?: CallOptions): Promise<Row | undefined>
  /** How many there are, whatever `limit` and `offset` are. */
  count(options?: CallOptions): Promise<number>
  /** Whether there is any. */
  exists(options?: CallOptions): Promise<boolean>
  /** A page of at most `limit` (100), and `next` for the page after it: as quick for the thousandth as for the first. */
  page(options?: CallOptions & PageOptions): Promise<Page<Row>>
  /** Page `number`, from 1, of `size`, and how many there are in all. */
  pageNumber(number: number, size: number, options?: CallOptions): Promise<NumberedPage<Row>>
  /** Reads page after page. */
  iterate(options?: CallOptions & { readonly pageSize?: number | undefined }): AsyncIterable<Row>
  /** The plan of the statement; with `analyze` the statement is run for it. */
  explain(options?: CallOptions & { readonly analyze?: boolean | undefined }): Promise<string>
}

/**
 * The rows of a table projection, and queries over them: every step gives a new query. A column is read as its type says,
 * so an order needs no `as`. A missing value is null.
 */
export interface Rows<Row, Result = Row> extends AsyncIterable<Result> {
  /** Only rows that meet the condition, and those of earlier `where`. */
  where(condition: Condition | ((row: Field<Row>) => Condition)): Rows<Row, Result>
  /** Order by a column; further calls decide between rows that are equal so far. */
  orderBy(column: (row: Field<Row>) => Path<unknown>, options?: Direction | OrderOptions): Rows<Row, Result>
  limit(count: number): Rows<Row, Result>
  offset(count: number): Rows<Row, Result>
  /** Only these columns. */
  select<S extends RowSelection<Row>>(columns: S): Rows<Row, Selected<S>>
  /** Groups of rows that have the same in these columns, and values computed from each group. */
  groupBy<K extends RowSelection<Row>, A extends Record<string, Figure<unknown>>>(
    keys: K,
    figures: (row: Field<Row>) => A,
  ): GroupQuery<GroupRow<K, A>>

  toArray(options?: CallOptions): Promise<Result[]>
  /** The first one, if there is any. */
  first(options?: CallOptions): Promise<Result | undefined>
  /** The only one; `NotOne` if there is none, or another. */
  one(options?: CallOptions): Promise<Result>
  /** The only one, if there is any; `NotOne` if there is another. */
  optional(options?: CallOptions): Promise<Result | undefined>
  /** How many there are, whatever `limit` and `offset` are. */
  count(options?: CallOptions): Promise<number>
  /** Whether there is any. */
  exists(options?: CallOptions): Promise<boolean>
  /** A page of at most `limit` (100), and `next` for the page after it: as quick for the thousandth as for the first. */
  page(options?: CallOptions & PageOptions): Promise<Page<Result>>
  /** Page `number`, from 1, of `size`, and how many there are in all. */
  pageNumber(number: number, size: number, options?: CallOptions): Promise<NumberedPage<Result>>
  /** Reads page after page. */
  iterate(options?: CallOptions & { readonly pageSize?: number | undefined }): AsyncIterable<Result>
  /** The plan of the statement; with `analyze` the statement is run for it. */
  explain(options?: CallOptions & { readonly analyze?: boolean | undefined }): Promise<string>
}

export type RowSelection<Row> = Readonly<Record<string, (row: Field<Row>) => Path<unknown>>>

/** What can be queried: a collection. */
export interface Queryable<Doc> {
  query(): Query<Doc>
}

export type Selection<Doc> = Readonly<Record<string, (c: Field<Doc>, meta: MetaFields) => Path<unknown>>>

export type Selected<S> = { -readonly [K in keyof S]: ValueFrom<S[K]> }

export interface IncludeOptions<Doc, Other, Many extends boolean> {
  /** The field that holds an id, or a list of ids. */
  readonly from: (c: Field<Doc>, meta: MetaFields) => Path<string | readonly string[] | null | undefined>
  /** The field of the others that is equal to it. Default: their id. */
  readonly to?: ((other: Field<Other>, meta: MetaFields) => Path<string | null | undefined>) | undefined
  /** Whether to give all that there are, as an array. Default false: the first one, or undefined. */
  readonly many?: Many | undefined
}

export type WithIncluded<Row, N extends string, Other, Many extends boolean> = Omit<Row, 'included'> & {
  readonly included: (Row extends { readonly included: infer Before } ? Before : unknown) & {
    readonly [K in N]: Many extends true ? StoredDocument<Other>[] : StoredDocument<Other> | undefined
  }
}

export interface NumberedPage<Row> {
  readonly items: readonly Row[]
  /** How many there are in all. */
  readonly total: number
  readonly page: number
  readonly pages: number
}

/** Opens the queries of a collection. */
export function openQueries<Doc>(collection: CollectionBase): { query(): Query<Doc>; adviseIndexes(): IndexAdvice[] } {
  const { options } = collection
  const advisor = openAdvisor(collection)
  const source: QuerySource = {
    label: 'documents',
    collection,
    // A table that something else makes is known to have the columns that all have, and no others.
    layout: layoutOf(isDeclared(collection) ? options : { ...options, columns: undefined }),
    prepared: new Set(),
    noteRun: advisor.noteRun,
  }
  return { adviseIndexes: advisor.advise, query: () => new DocumentQuery<Doc, StoredDocument<Doc>>(source, everything) }
}

function isDeclared({ declared, readModel }: CollectionBase): boolean {
  return declared.length > 0 || readModel !== undefined
}

/** Opens the queries of a table of rows: `store.rows(sales)`. */
export function openRows<Row>(collection: CollectionBase, key: readonly string[]): Rows<Row> {
  const columns = new Map((collection.readModel ?? []).map(({ name, type }) => [name, rowColumn(type)]))
  const layout: Layout = { ...layoutOf({ gin: false }), row: { columns, key } }
  const source: QuerySource = { label: 'rows', collection, layout, prepared: new Set(), noteRun: () => {} }
  return new DocumentQuery<Row, Row>(source, everything) as unknown as Rows<Row>
}

function reportRead({ label, collection }: QuerySource, count: number): void {
  if (label === 'documents') tellDocuments(collection, 'read', 'documents.query', count)
}

/** What a query is about, for the parts that write statements of their own from it. */
export function internalsOf(query: object): { source: QuerySource; state: QueryState } {
  if (query instanceof DocumentQuery) return query
  throw new InvalidQuery({ reason: 'this is not a query of a collection' })
}

export function notOne({ collection }: QuerySource, found: 'none' | 'several'): Error {
  return new NotOne({ collection: collection.name, found })
}

const defaultPageSize = 200
const defaultLimit = 100

class DocumentQuery<Doc, Row> implements Query<Doc, Row> {
  readonly source: QuerySource
  readonly state: QueryState

  constructor(source: QuerySource, state: QueryState) {
    this.source = source
    this.state = state
  }

  #with(change: Partial<QueryState>): DocumentQuery<Doc, Row> {
    return new DocumentQuery(this.source, { ...this.state, ...change })
  }

  where(given: Condition | ((c: Field<Doc>, meta: MetaFields) => Condition)): Query<Doc, Row> {
    const condition = typeof given === 'function' ? given(fieldsOf(documentScope), metaFields) : given
    return this.#with({ conditions: [...this.state.conditions, checked(condition)] })
  }

  orderBy(
    field: (c: Field<Doc>, meta: MetaFields) => Path<unknown>,
    options?: Direction | OrderOptions,
  ): Query<Doc, Row> {
    const key = orderKey(placeIn(field(fieldsOf(documentScope), metaFields)), options)
    return this.#with({ order: [...this.state.order, key] })
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
    if (places.length === 0) throw new InvalidQuery({ reason: 'select names no field' })
    return new DocumentQuery(this.source, { ...this.state, selected: new Map(places) })
  }

  include<const N extends string, Other, Many extends boolean = false>(
    name: N,
    others: Queryable<Other> | Query<Other>,
    { from, to, many }: IncludeOptions<Doc, Other, Many>,
  ): Query<Doc, WithIncluded<Row, N, Other, Many>> {
    const other = internalsOf('query' in others ? others.query() : others)
    const local = placeIn(from(fieldsOf(documentScope), metaFields))
    const foreign = placeIn(to === undefined ? metaFields.id : to(fieldsOf(documentScope), metaFields))
    const { source, state } = other
    if (state.selected !== undefined || state.included.length > 0 || state.limit !== undefined)
      throw new InvalidQuery({ reason: 'a query that is included takes only where, includeDeleted and onlyDeleted' })
    const included = [...this.state.included, { name, source, state, local, foreign, many: many === true }]
    return new DocumentQuery(this.source, { ...this.state, included })
  }

  groupBy<K extends Keys<Doc>, A extends Record<string, Figure<unknown>>>(
    keys: K,
    figures: (c: Field<Doc>, meta: MetaFields) => A,
  ): GroupQuery<GroupRow<K, A>> {
    const { conditions, deleted } = this.state
    return groupQuery(this.source, { ...everything, conditions, deleted }, keys, figures)
  }

  async toArray(options: CallOptions = {}): Promise<Row[]> {
    const { source, state } = this
    const executor = await executorFor(source, state, options)
    const written = writeSelect(source, state, { ordered: state.offset !== undefined })
    const rows = await runQuery(source, state, written, executor)
    reportRead(source, rows.length)
    return rows.map(row => toRow(source, state, row) as Row)
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

  async page({ after, limit = defaultLimit, ...options }: CallOptions & PageOptions = {}): Promise<Page<Row>> {
    const { source, state } = this
    const { name } = source.collection
    if (wholeNumber('the limit of a page')(limit) === 0)
      throw new InvalidQuery({ reason: 'a page holds at least one document' })
    const mark = after === undefined ? undefined : decodeCursor(name, state.order, this.#bookmarkTypes(), after)
    // One more than asked for: its presence means that there is a next page.
    const found = await this.#readAfter(mark, limit + 1, options)
    const rows = found.slice(0, limit)
    const last = rows.at(-1)
    const next = found.length > limit && last !== undefined ? encodeCursor(name, state.order, last.mark) : undefined
    return { items: rows.map(each => each.row), next }
  }

  #bookmarkTypes(): BookmarkTypes {
    const { layout, collection } = this.source
    return bookmarkTypes(this.state.order, startWriting(new Parameters(), layout, collection.name, 'd.'))
  }

  async *iterate({
    pageSize = defaultPageSize,
    ...options
  }: IterateOptions = {}): AsyncGenerator<Row, void, undefined> {
    const { limit = Number.POSITIVE_INFINITY } = this.state
    let left = limit as number
    let mark: Bookmark | undefined
    while (left > 0) {
      throwIfAborted(options.signal)
      const size = Math.min(pageSize, left)
      const found = await this.#readAfter(mark, size, options)
      for (const { row } of found) yield row
      if (found.length < size) return
      left -= size
      mark = found.at(-1)!.mark
    }
  }

  [Symbol.asyncIterator](): AsyncIterator<Row> {
    return this.iterate()
  }

  /** The next documents after one. `offset` concerns only the first of them. */
  async #readAfter(
    mark: Bookmark | undefined,
    size: number,
    options: CallOptions,
  ): Promise<{ row: Row; mark: Bookmark }[]> {
    const { source, state } = this
    const executor = await executorFor(source, state, options)
    const width = widthOf(source, state)
    const found: { row: Row; mark: Bookmark }[] = []
    // An offset counts over all parts, so there is only one then.
    const parts = mark === undefined && state.offset !== undefined ? [undefined] : partsAfter(state.order, mark)
    for (const part of parts) {
      if (found.length >= size) break
      const limited = { ...state, limit: size - found.length, offset: mark === undefined ? state.offset : undefined }
      const written = writeSelect(source, limited, { marked: true, ordered: true, part })
      for (const row of await runQuery(source, state, written, executor)) {
        found.push({ row: toRow(source, state, row) as Row, mark: bookmarkOf(row.slice(width), source.layout) })
      }
    }
    reportRead(source, found.length)
    return found
  }

  async explain({ analyze = false, ...options }: ExplainOptions = {}): Promise<string> {
    const { source, state } = this
    const executor = await executorFor(source, state, options)
    const { text, parameters } = writeSelect(source, state, { ordered: state.offset !== undefined })
    const how = analyze ? 'analyze, buffers' : 'costs'
    const rows = await runExplain(source, `explain (${how}) ${text}`, parameters.values, executor)
    return rows.map(([line]) => line as string).join('\n')
  }
}

type IterateOptions = CallOptions & { readonly pageSize?: number | undefined }
type ExplainOptions = CallOptions & { readonly analyze?: boolean | undefined }
