/**
 * The indexes, generated columns and search fields that a collection declares.
 *
 *     defineCollection<Customer>('customers', {
 *       indexes: [
 *         'name',
 *         { path: 'email', unique: true },
 *         { path: 'age', as: 'number' },
 *         { paths: ['address.city', { path: 'name', lower: true }], where: { active: true } },
 *         { path: 'tags', method: 'gin' },
 *       ],
 *       columns: [{ path: 'score', as: 'number' }],
 *       search: ['name', 'notes'],
 *     })
 *
 * An index reads a field as text unless `as` says otherwise, and serves the comparisons with such operands. A document in
 * which the field is something else, or missing, is indexed as null: that never makes a write fail, and `unique` does
 * not concern it. Of a text only its beginning is indexed; where that is unique, the rest goes in as a digest.
 *
 * PostgreSQL computes a column from the body, so it always matches the body. It is made with the table only: adding one
 * later would rewrite every row under a lock.
 */

import { createHash } from 'node:crypto'
import { InvalidOption } from '../core/errors.ts'
import { textFault } from '../core/name.ts'
import { refuseUnknownInside } from '../core/options.ts'
import { identifier } from '../database/sql.ts'
import { type DeclaredColumn, type DeclaredIndex, TrustedSql } from '../schema/table.ts'
import type { Condition } from './query/condition.ts'
import { jsonAt, lowered, pathKey, placeKey, short, shortLength, typedAt } from './query/expression.ts'
import { documentScope, fieldsOf, type MetaFields, metaFields, type UntypedField } from './query/field.ts'
import { filterFrom } from './query/filter.ts'
import type { Layout } from './query/layout.ts'
import type { Kind } from './query/operand.ts'
import { literals } from './query/operand.ts'
import { renderCondition, startWriting } from './query/render.ts'
import { checkLanguage, defaultLanguage, type SearchFields, vectorOf } from './query/search.ts'

export interface IndexingOptions<Doc extends object = Record<string, unknown>> {
  /** False leaves out the index on the whole body, which serves `eq` and `contains` on all fields. Default true. */
  readonly gin?: boolean | undefined
  readonly indexes?: readonly CollectionIndex<PathsOf<Doc>>[] | undefined
  /** Fields that are also columns of their own: for reports in SQL, and for fields that most queries read. */
  readonly columns?: readonly CollectionColumn<PathsOf<Doc>>[] | undefined
  /** The fields for `search(c, …)`, and their language. Default english. */
  readonly search?:
    | readonly PathsOf<Doc>[]
    | { readonly fields: readonly PathsOf<Doc>[]; readonly language?: string | undefined }
    | undefined
}

/** A field; an index on one field; or an index on several fields in their order. */
export type CollectionIndex<P extends string = string> = P | FieldIndex<P> | CompoundIndex<P>

export interface FieldIndex<P extends string = string> extends IndexField<P>, IndexOptions {
  /** 'gin' indexes the content of an array or object, for `contains`. Default 'btree'. */
  readonly method?: 'btree' | 'gin' | undefined
}

export interface CompoundIndex<P extends string = string> extends IndexOptions {
  readonly paths: readonly (P | IndexField<P>)[]
}

export interface IndexField<P extends string = string> {
  readonly path: P
  /** Default 'text'. */
  readonly as?: Kind | undefined
  /** Index it in lower case, for `eq(lower(c.email), …)`. Default false. */
  readonly lower?: boolean | undefined
}

export interface IndexOptions {
  /** No two documents may have the same, soft-deleted ones included. Default false. */
  readonly unique?: boolean | undefined
  /** Index only these documents, for queries that ask for the same: a filter, `{ active: true }`, or a condition. */
  readonly where?: Readonly<Record<string, unknown>> | ((c: UntypedField, meta: MetaFields) => Condition) | undefined
  /** Default: made of the table and the fields. */
  readonly name?: string | undefined
}

/** A field that is also a column. */
export type CollectionColumn<P extends string = string> =
  | P
  | {
      readonly path: P
      /** Default 'text'. */
      readonly as?: Kind | undefined
      /** Default: made of the field. */
      readonly name?: string | undefined
    }

/** The names of the fields of a document, with dots between. Only two levels are checked: so errors stay readable. */
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

/** An index with all its options. */
export interface PlainIndex
  extends Required<Omit<IndexOptions, 'where' | 'name'>>,
    Pick<IndexOptions, 'where' | 'name'> {
  readonly parts: readonly IndexField[]
  readonly method: 'btree' | 'gin'
}

const indexNames = ['path', 'paths', 'as', 'lower', 'method', 'unique', 'where', 'name']

/** The indexes of a collection, all in one form. */
export function indexesIn({ indexes = [] }: Pick<IndexingOptions, 'indexes'>): PlainIndex[] {
  return indexes.map(given => {
    const index: FieldIndex | CompoundIndex = typeof given === 'string' ? { path: given } : given
    refuseUnknownInside('a collection', 'indexes', index, indexNames)
    const { unique = false, where, name } = index
    if (!('paths' in index)) return { parts: [index], method: index.method ?? 'btree', unique, where, name }
    for (const part of index.paths) refuseUnknownInside('a collection', 'indexes', part, ['path', 'as', 'lower'])
    const parts = index.paths.map(part => (typeof part === 'string' ? { path: part } : part))
    return { parts, method: 'btree', unique, where, name }
  })
}

/** The columns of a collection, all in one form. */
function columnsIn({ columns = [] }: Pick<IndexingOptions, 'columns'>): { path: string; as: Kind; name: string }[] {
  return columns.map(given => {
    refuseUnknownInside('a collection', 'columns', given, ['path', 'as', 'name'])
    const { path, as = 'text', name = plain(path) } = typeof given === 'string' ? { path: given } : given
    return { path, as, name }
  })
}

/** The columns and indexes of a collection's table, beyond those that every collection has. */
export function declareIndexes(
  table: string,
  options: IndexingOptions,
): { readonly columns: readonly DeclaredColumn[]; readonly indexes: readonly DeclaredIndex[] } {
  const layout = layoutOf(options)
  const indexes = indexesIn(options).map(each => declareIndex(table, each, layout))
  if (options.gin !== false)
    indexes.unshift({ name: `${table}_body`, method: 'gin', columns: [new TrustedSql('body jsonb_path_ops')] })
  if (layout.search.fields.length > 0)
    indexes.push({ name: `${table}_search`, method: 'gin', columns: [new TrustedSql(searchVector(layout.search))] })
  return { columns: columnsIn(options).map(declareColumn), indexes }
}

function searchVector({ fields, language }: SearchFields): string {
  return vectorOf(
    fields.map(path => typedAt('body', path, 'text')),
    language,
  )
}

/** The fields that an index is on, by its name; undefined if this collection has none of that name. */
export function indexedFields(table: string, options: IndexingOptions, name: string): string[] | undefined {
  const found = indexesIn(options).find(each => indexName(table, each) === name)
  return found?.parts.map(part => part.path)
}

/** The indexes and columns as the statements of queries need to know them. */
export function layoutOf(options: IndexingOptions): Layout {
  const columns = new Map<string, string>()
  const ordered = new Set<string>()
  const containing = new Set<string>(options.gin === false ? [] : [pathKey([])])
  for (const { path, as, name } of columnsIn(options)) columns.set(placeKey({ path: stepsOf(path) }, as), name)
  for (const { parts, method } of indexesIn(options)) {
    for (const { path, as = 'text', lower } of parts) {
      const steps = stepsOf(path)
      if (method === 'gin') containing.add(pathKey(steps))
      else ordered.add(placeKey({ path: steps, isLower: lower }, as))
    }
  }
  return { columns, ordered, containing, search: searchOf(options.search), row: undefined }
}

function searchOf(given: IndexingOptions['search']): SearchFields {
  refuseUnknownInside('a collection', 'search', given, ['fields', 'language'])
  const { fields, language = defaultLanguage } = given === undefined || isList(given) ? { fields: given ?? [] } : given
  return { fields: fields.map(stepsOf), language: checkLanguage(language) }
}

function isList(given: NonNullable<IndexingOptions['search']>): given is readonly string[] {
  return Array.isArray(given)
}

function declareIndex(table: string, given: PlainIndex, layout: Layout): DeclaredIndex {
  const name = indexName(table, given)
  const { parts, unique, method, where } = given
  if (parts.length === 0) refuse(name, 'has no fields. Give it at least one path')
  const texts = parts.filter(part => (part.as ?? 'text') === 'text')
  if (method === 'gin') {
    if (unique || parts.length > 1) refuse(name, 'is a gin index, which is on one field and never unique')
    return { name, method, columns: [new TrustedSql(`(${jsonAt('body', stepsOf(parts[0]!.path))}) jsonb_path_ops`)] }
  }
  if (texts.length > maxTexts) refuse(name, `is on more than ${maxTexts} texts, for which an entry has no room`)
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

function indexedValue({ path, as = 'text', lower = false }: IndexField, layout: Layout): string {
  const steps = stepsOf(path)
  const name = layout.columns.get(placeKey({ path: steps }, as))
  const value = name === undefined ? typedAt('body', steps, as) : identifier(name).quoted
  return lower && as === 'text' ? lowered(value) : value
}

/** Distinguishes long texts that begin alike. Never null, because null is never equal to null. */
function restOf(texts: readonly string[]): TrustedSql {
  const isLong = texts.map(text => `length(${text}) > ${shortLength}`).join(' or ')
  const all = texts.map(text => `coalesce(md5(${text}), '')`).join(' || ')
  return new TrustedSql(`(case when ${isLong} then md5(${all}) else '' end)`)
}

function declareColumn({ path, as, name }: { path: string; as: Kind; name: string }): DeclaredColumn {
  const type = as === 'text' ? 'text collate "C"' : as === 'number' ? 'numeric' : 'boolean'
  const generated = new TrustedSql(typedAt('body', stepsOf(path), as))
  return { name, type, nullable: true, generated }
}

/** Names that are too long for PostgreSQL end in a digest. */
function indexName(table: string, { name, parts, method }: PlainIndex): string {
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
  const fault =
    steps.length === 0 || steps.includes('')
      ? 'has an empty step'
      : steps.length > 32
        ? 'has more than 32 steps'
        : textFault(path)
  if (fault === undefined) return steps
  const reason = `The path ${JSON.stringify(path)} ${fault}. Write the names of fields with dots between them: 'address.city'.`
  throw new InvalidOption({ option: 'path', reason })
}

function refuse(name: string, reason: string): never {
  throw new InvalidOption({ option: 'indexes', reason: `Index ${JSON.stringify(name)} ${reason}.` })
}
