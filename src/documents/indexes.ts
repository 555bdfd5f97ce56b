/**
 * What makes the queries of a collection quick, as it declares it.
 *
 *     store.documents<Customer>('customers', {
 *       indexes: [
 *         index('email', { unique: true }),
 *         index({ path: 'age', as: 'number' }),
 *         index(['address.city', { path: 'name', lower: true }], { where: { active: true } }),
 *         index('tags', { method: 'gin' }),
 *       ],
 *       columns: [column('score', { as: 'number' })],
 *       search: ['name', 'notes'],
 *     })
 *
 * An index reads a field as text unless told otherwise, and serves the comparisons with such operands. A document in
 * which the field is something else, or missing, is indexed as null: that never makes a write fail, and `unique` does
 * not concern it. Of a text only its beginning is indexed; where that is unique, the rest goes in as a digest.
 *
 * A column is kept up by PostgreSQL from the body, so it is never out of step. It is made with the table only: adding
 * one later would rewrite every row under a lock.
 */
import { createHash } from 'node:crypto'
import { InvalidOption } from '../core/errors.ts'
import { textFault } from '../core/name.ts'
import { identifier } from '../database/sql.ts'
import { type DeclaredColumn, type DeclaredIndex, TrustedSql } from '../schema/table.ts'
import { literals } from './query/bind.ts'
import type { Condition } from './query/condition.ts'
import { jsonAt, lowered, pathKey, placeKey, short, shortLength, typedAt } from './query/expression.ts'
import { documentScope, fieldsOf, type MetaFields, metaFields, type UntypedField } from './query/field.ts'
import { filterFrom } from './query/filter.ts'
import type { Layout } from './query/layout.ts'
import type { Kind } from './query/operand.ts'
import { renderCondition, startWriting } from './query/render.ts'
import { checkLanguage, defaultLanguage, type SearchFields, vectorOf } from './query/search.ts'

export interface IndexingOptions<Doc extends object = Record<string, unknown>> {
  /** False leaves out the index on the whole body, which serves `eq` and `contains` on all fields. Default true. */
  readonly gin?: boolean | undefined
  readonly indexes?: readonly CollectionIndex<PathsOf<Doc>>[] | undefined
  /** Fields that are also kept as columns of their own. */
  readonly columns?: readonly CollectionColumn<PathsOf<Doc>>[] | undefined
  /** The fields for `search(c, …)`, and their language. Default english. */
  readonly search?:
    | readonly PathsOf<Doc>[]
    | { readonly fields: readonly PathsOf<Doc>[]; readonly language?: string | undefined }
    | undefined
}

/** The names of the fields of a document, with dots between. Two levels are checked, which keeps errors readable. */
export type PathsOf<T> = unknown extends T
  ? string
  : { [K in keyof T & string]-?: K | PathsBelow<K, NonNullable<T[K]>> }[keyof T & string]

type PathsBelow<K extends string, V> = unknown extends V
  ? `${K}.${string}`
  : V extends string | number | number | boolean | Date
    ? never
    : V extends readonly unknown[]
      ? `${K}.${number}` | `${K}.${number}.${string}`
      : { [L in keyof V & string]-?: `${K}.${L}` | `${K}.${L}.${string}` }[keyof V & string]

export interface CollectionIndex<out P extends string = string> {
  readonly parts: readonly IndexPart<P>[]
  readonly unique: boolean
  readonly method: 'btree' | 'gin'
  readonly where: IndexOptions['where']
  readonly name: string | undefined
}

interface IndexPart<P extends string = string> {
  readonly path: P
  /** Default 'text'. */
  readonly as?: Kind | undefined
  /** Index it in small letters, for `eq(lower(c.email), …)`. Default false. */
  readonly lower?: boolean | undefined
}

export interface IndexOptions {
  /** No two documents may have the same, soft-deleted ones included. Default false. */
  readonly unique?: boolean | undefined
  /** As what the field is read, if there is one. Default 'text'. */
  readonly as?: Kind | undefined
  /** 'gin' indexes what an array or object contains, for `contains`. Default 'btree'. */
  readonly method?: 'btree' | 'gin' | undefined
  /** Index only these documents, for queries that ask for the same: a filter, `{ active: true }`, or a condition. */
  readonly where?: Readonly<Record<string, unknown>> | ((c: UntypedField, meta: MetaFields) => Condition) | undefined
  /** Default: after the table and the fields. */
  readonly name?: string | undefined
}

/** An index on one field, or on several in this order. */
export function index<const P extends string>(
  fields: P | IndexPart<P> | readonly (P | IndexPart<P>)[],
  options: IndexOptions = {},
): CollectionIndex<P> {
  const { as, unique = false, method = 'btree', where, name } = options
  const given = (Array.isArray(fields) ? fields : [fields]) as (P | IndexPart<P>)[]
  const parts = given.map((part): IndexPart<P> => (typeof part === 'string' ? { path: part, as } : part))
  return { parts, unique, method, where, name }
}

export interface CollectionColumn<out P extends string = string> {
  readonly path: P
  readonly as: Kind
  readonly name: string
}

/** A field that is also kept as a column: for reports in SQL, and for fields that most queries read. */
export function column<const P extends string>(
  path: P,
  options: { readonly as?: Kind | undefined; readonly name?: string | undefined } = {},
): CollectionColumn<P> {
  return { path, as: options.as ?? 'text', name: options.name ?? plain(path) }
}

/** What a collection's table has beyond the columns that all have. */
export function declareIndexes(
  table: string,
  options: IndexingOptions,
): { readonly columns: readonly DeclaredColumn[]; readonly indexes: readonly DeclaredIndex[] } {
  const layout = layoutOf(options)
  const indexes = (options.indexes ?? []).map(each => declareIndex(table, each, layout))
  if (options.gin !== false)
    indexes.unshift({ name: `${table}_body`, method: 'gin', columns: [new TrustedSql('body jsonb_path_ops')] })
  if (layout.search.fields.length > 0)
    indexes.push({ name: `${table}_search`, method: 'gin', columns: [new TrustedSql(vectorOf('body', layout.search))] })
  return { columns: (options.columns ?? []).map(declareColumn), indexes }
}

/** The fields that an index is on, by its name; undefined if it is none of this collection's. */
export function indexedFields(table: string, options: IndexingOptions, name: string): string[] | undefined {
  const found = (options.indexes ?? []).find(each => indexName(table, each) === name)
  return found?.parts.map(part => part.path)
}

/** The same, as the statements of queries need to know it. */
export function layoutOf(options: IndexingOptions): Layout {
  const columns = new Map<string, string>()
  const ordered = new Set<string>()
  const containing = new Set<string>(options.gin === false ? [] : [pathKey([])])
  for (const { path, as, name } of options.columns ?? []) columns.set(placeKey({ path: stepsOf(path) }, as), name)
  for (const { parts, method } of options.indexes ?? []) {
    for (const { path, as = 'text', lower } of parts) {
      const steps = stepsOf(path)
      if (method === 'gin') containing.add(pathKey(steps))
      else ordered.add(placeKey({ path: steps, isLower: lower }, as))
    }
  }
  return { columns, ordered, containing, search: searchOf(options.search) }
}

function searchOf(given: IndexingOptions['search']): SearchFields {
  const { fields, language = defaultLanguage } = given === undefined || isList(given) ? { fields: given ?? [] } : given
  return { fields: fields.map(stepsOf), language: checkLanguage(language) }
}

function isList(given: NonNullable<IndexingOptions['search']>): given is readonly string[] {
  return Array.isArray(given)
}

function declareIndex(table: string, given: CollectionIndex, layout: Layout): DeclaredIndex {
  const name = indexName(table, given)
  const { parts, unique, method, where } = given
  if (parts.length === 0) refuse(name, 'has no fields')
  const texts = parts.filter(part => (part.as ?? 'text') === 'text')
  if (method === 'gin') {
    if (unique || parts.length > 1) refuse(name, 'is a gin index: it is on one field, and not unique')
    return { name, method, columns: [new TrustedSql(`(${jsonAt('body', stepsOf(parts[0]!.path))}) jsonb_path_ops`)] }
  }
  if (texts.length > maxTexts) refuse(name, `is on more than ${maxTexts} texts, which an entry has no room for`)
  const columns = parts.map(part => {
    const value = indexedValue(part, layout)
    return new TrustedSql((part.as ?? 'text') === 'text' ? short(value) : value)
  })
  if (unique && texts.length > 0) columns.push(restOf(texts.map(part => indexedValue(part, layout))))
  const declared: DeclaredIndex = { name, columns, unique }
  if (where === undefined) return declared
  const condition =
    typeof where === 'function'
      ? where(fieldsOf<unknown>(documentScope), metaFields)
      : filterFrom(where, { regex: true })
  const writing = startWriting(literals, layout, table, '')
  return { ...declared, where: new TrustedSql(renderCondition(condition, writing)) }
}

const maxTexts = 5

function indexedValue({ path, as = 'text', lower = false }: IndexPart, layout: Layout): string {
  const steps = stepsOf(path)
  const name = layout.columns.get(placeKey({ path: steps }, as))
  const value = name === undefined ? typedAt('body', steps, as) : identifier(name).quoted
  return lower && as === 'text' ? lowered(value) : value
}

/** What sets long texts of the same beginning apart. Never null, because null is never equal to null. */
function restOf(texts: readonly string[]): TrustedSql {
  const isLong = texts.map(text => `length(${text}) > ${shortLength}`).join(' or ')
  const all = texts.map(text => `coalesce(md5(${text}), '')`).join(' || ')
  return new TrustedSql(`(case when ${isLong} then md5(${all}) else '' end)`)
}

function declareColumn({ path, as, name }: CollectionColumn): DeclaredColumn {
  const type = as === 'text' ? 'text collate "C"' : as === 'number' ? 'numeric' : 'boolean'
  const generated = new TrustedSql(typedAt('body', stepsOf(path), as))
  return { name, type, nullable: true, generated }
}

/** Names that are too long for PostgreSQL end in a digest. */
function indexName(table: string, { name, parts, method }: CollectionIndex): string {
  if (name !== undefined) return name
  const words = parts.map(({ path, as = 'text', lower }) =>
    [plain(path), ...(as === 'text' || method === 'gin' ? [] : [as]), ...(lower === true ? ['lower'] : [])].join('_'),
  )
  const full = [table, ...words, ...(method === 'gin' ? ['gin'] : [])].join('_')
  if (Buffer.byteLength(full) <= 63) return full
  return `${table}_${createHash('sha256').update(full).digest('hex').slice(0, 16)}`
}

function plain(path: string): string {
  return path.replaceAll(/[^\p{L}\p{N}_]/gu, '_')
}

/** The steps of a path written with dots. */
export function stepsOf(path: string): string[] {
  const steps = typeof path === 'string' ? path.split('.') : []
  const fault = steps.length === 0 || steps.includes('') ? 'has an empty step' : textFault(path)
  if (fault !== undefined || steps.length > 32)
    throw new InvalidOption({ option: `path ${JSON.stringify(path)}`, reason: fault ?? 'has more than 32 steps' })
  return steps
}

function refuse(name: string, reason: string): never {
  throw new InvalidOption({ option: `index ${JSON.stringify(name)}`, reason })
}
