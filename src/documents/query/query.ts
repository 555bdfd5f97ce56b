/**
 * Queries over the documents of a collection, or of a projection, and over the rows of a table projection.
 *
 *     customers.where(c => and(eq(c.active, true), contains(c.tags, ['vip']))).orderBy(c => c.name).page({ limit: 25 })
 *     store.rows(sales).where(row => gt(row.cents, 10_000)).orderBy(row => row.cents, 'desc').limit(5).toArray()
 *
 *     field ─► condition ─┐
 *              order ─────┼─► state ─► select, group ─► statement ─► run ─► documents, rows, selections, groups
 *              include ───┘     │                                   └──► the index advisor
 *                               └─► compile: the statement is written once, and run with other parameters each time
 *
 * A query is a value: every step gives a new one, and it can be run again and again. `condition.ts` says what each condition
 * means. Fields of documents are places in a JSON body, whose type is known only when a query runs; columns of rows have
 * types (`layout.ts`).
 *
 * Guarantees:
 * - Only names of fields become part of a statement's text, quoted as literals. Values are always parameters.
 * - A document of an unexpected shape never makes a query fail: it meets the condition, or does not.
 * - A query gives the same result with and without indexes, on every engine. Without `orderBy`, whole results have no
 *   particular order; pages and iteration then go by the primary key.
 * - Soft-deleted documents are returned only by `includeDeleted` and `onlyDeleted`; this holds for included ones, too.
 * - Conditions, orders and selections see bodies as they are stored; `upcast` is for whole documents.
 * - Iteration reads page after page, of at most so many documents and so many bytes, so memory stays flat. Documents that change meanwhile may or may not be seen; one that
 *   does not change is neither missed nor returned twice. (Use a repeatable-read transaction for one moment in time.)
 *
 * - A document that is too large to be read does not hide the others: it comes with `tooLarge`, and its `data` throws.
 *
 * What can fail: `InvalidQuery` before anything is sent, or when the database refuses a regular expression; `InvalidCursor`;
 * `NotOne`.
 */
import type { Page, PageOptions } from '../../core/page.ts'
import { type IndexAdvice, openAdvisor } from '../advisor.ts'
import type { CallOptions, OpenCollection } from '../collection.ts'
import { layoutOf } from '../indexes.ts'
import type { StoredDocument } from '../read.ts'
import type { Condition } from './condition.ts'
import type { Field, MetaFields, Path, ValueFrom } from './field.ts'
import type { GroupQuery, GroupRow, GroupValue, Keys } from './group.ts'
import { type Layout, rowColumn } from './layout.ts'
import type { Direction, OrderFor, OrderOptions } from './order.ts'
import { everything, type QuerySource } from './state.ts'
import { TableQuery } from './table-query.ts'

/**
 * A query of documents: conditions, order, limits and pages, put together call by call.
 *
 * @example
 * ```ts
 * const newest: Query<Customer> = store.documents(customers).query().orderBy(c => c.visits, 'desc').limit(10)
 * await newest.toArray()
 * ```
 */
export interface Query<Doc, Row = StoredDocument<Doc>> extends AsyncIterable<Row> {
  /** Only documents that meet the condition, and those of earlier `where`. */
  where(condition: Condition | ((c: Field<Doc>, meta: MetaFields) => Condition)): Query<Doc, Row>
  /** Order by a field, or by the `rank` of a search; further calls decide between documents that are equal so far. */
  orderBy<T>(
    field: (c: Field<Doc>, meta: MetaFields) => Path<T>,
    options?: Direction | OrderFor<NoInfer<T>>,
  ): Query<Doc, Row>
  limit(count: number): Query<Doc, Row>
  offset(count: number): Query<Doc, Row>
  /** Soft-deleted documents, too. */
  includeDeleted(): Query<Doc, Row>
  /** Soft-deleted documents alone. */
  onlyDeleted(): Query<Doc, Row>
  /** Only these fields. A missing field is null. */
  select<S extends Selection<Doc>>(fields: S): Query<Doc, Selected<S>>
  /** The related documents of each, as `included`, in the same round trip. */
  include<const N extends string, Other, Many extends boolean = false>(
    name: N,
    others: Queryable<Other> | Query<Other>,
    options: IncludeOptions<Doc, Other, Many>,
  ): Query<Doc, WithIncluded<Row, N, Other, Many>>
  /** Groups of documents that have the same in these fields, and values computed from each group. */
  groupBy<K extends Keys<Doc>, A extends Record<string, GroupValue<unknown>>>(
    keys: K,
    values: (c: Field<Doc>, meta: MetaFields) => A,
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
  /** A page of at most `limit` (100) and about 8 MiB, and `next` for the page after it: as quick for the thousandth as for the first. */
  page(options?: CallOptions & PageOptions): Promise<Page<Row>>
  /** The same, and how many there are in all. */
  page(options: CallOptions & PageOptions & { readonly total: true }): Promise<CountedPage<Row>>
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
  groupBy<K extends RowSelection<Row>, A extends Record<string, GroupValue<unknown>>>(
    keys: K,
    values: (row: Field<Row>) => A,
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
  /** The same, and how many there are in all. */
  page(options: CallOptions & PageOptions & { readonly total: true }): Promise<CountedPage<Result>>
  /** Page `number`, from 1, of `size`, and how many there are in all. */
  pageNumber(number: number, size: number, options?: CallOptions): Promise<NumberedPage<Result>>
  /** Reads page after page. */
  iterate(options?: CallOptions & { readonly pageSize?: number | undefined }): AsyncIterable<Result>
  /** The plan of the statement; with `analyze` the statement is run for it. */
  explain(options?: CallOptions & { readonly analyze?: boolean | undefined }): Promise<string>
}

export type RowSelection<Row> = Readonly<Record<string, (row: Field<Row>) => Path<unknown>>>

/** The target of a query: a collection. */
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
  /** Return all related documents, as an array. Default false: the first one, or undefined. */
  readonly many?: Many | undefined
}

export type WithIncluded<Row, N extends string, Other, Many extends boolean> = Omit<Row, 'included'> & {
  readonly included: (Row extends { readonly included: infer Before } ? Before : unknown) & {
    readonly [K in N]: Many extends true ? StoredDocument<Other>[] : StoredDocument<Other> | undefined
  }
}

export interface CountedPage<Row> extends Page<Row> {
  /** How many there are in all. */
  readonly total: number
}

export interface NumberedPage<Row> {
  readonly items: readonly Row[]
  /** How many there are in all. */
  readonly total: number
  readonly page: number
  readonly pages: number
}

/** Opens the queries of a collection. */
export function openQueries<Doc>(collection: OpenCollection): { query(): Query<Doc>; adviseIndexes(): IndexAdvice[] } {
  const { options } = collection
  const advisor = openAdvisor(collection)
  const source: QuerySource = {
    label: 'documents',
    collection,
    // A table that other code makes is known to have the columns that all have, and no others.
    layout: layoutOf(isDeclared(collection) ? options : { ...options, columns: undefined }),
    noteRun: advisor.noteRun,
  }
  return { adviseIndexes: advisor.advise, query: () => new TableQuery<Doc, StoredDocument<Doc>>(source, everything) }
}

function isDeclared({ declared, readModel }: OpenCollection): boolean {
  return declared.length > 0 || readModel !== undefined
}

/** Opens the queries of a table of rows: `store.rows(sales)`. */
export function openRows<Row>(collection: OpenCollection, key: readonly string[]): Rows<Row> {
  const columns = new Map((collection.readModel ?? []).map(({ name, type }) => [name, rowColumn(type)]))
  const layout: Layout = { ...layoutOf({ gin: false }), row: { columns, key } }
  const source: QuerySource = { label: 'rows', collection, layout, noteRun: () => {} }
  return new TableQuery<Row, Row>(source, everything) as unknown as Rows<Row>
}
