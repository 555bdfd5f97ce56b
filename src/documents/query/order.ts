/** The order of the results of a query, and the results after a given one. */
import { refuseUnknownOptions } from '../../core/options.ts'
import { InvalidQuery } from '../errors.ts'
import { short } from './expression.ts'
import type { Path, Place } from './field.ts'
import { columnFor, isOrdered, keyColumns, type Layout } from './layout.ts'
import type { Binder, Kind, ParameterType } from './operand.ts'
import { columnIn, isIndexed, readAs, renderFound, timeOf, type Writing } from './render.ts'

export type Direction = 'asc' | 'desc'

export interface OrderOptions {
  /**
   * How a field of a document is read; a value of another kind counts as missing. Default: as what it is. Texts (which
   * dates are, too) come before numbers, and numbers before booleans; a field with an index on numbers is read as one.
   */
  readonly as?: Kind | undefined
  /** Default 'asc'; of a `rank` 'desc'. */
  readonly direction?: Direction | undefined
  /** The place of documents without the field. Default: last, and with 'desc' first. */
  readonly nulls?: 'first' | 'last' | undefined
}

/** The options for a field that holds a `T`. */
export type OrderFor<T> = OrderOptions & {
  readonly as?: (unknown extends T ? Kind : KindOf<NonNullable<T>>) | undefined
}

/** A field that holds text, which is how the fields of groups are read by default. */
export type TextPath = Path<string | Date | null | undefined>

/** For a field of a group that holds something else: `as` is required, because at run time its type is not known. */
export type OrderAs<T> = OrderOptions & { readonly as: unknown extends T ? Kind : KindOf<NonNullable<T>> }

type KindOf<T> = T extends string | Date ? 'text' : T extends number ? 'number' : T extends boolean ? 'boolean' : never

export interface OrderKey {
  readonly place: Place
  readonly as: Kind
  readonly direction: Direction
  readonly nulls: 'first' | 'last'
}

/** The key of a group, which is read as one kind. */
export function orderKey(place: Place, given: Direction | OrderOptions = {}): OrderKey {
  return keyFor(place, given, 'asc', (typeof given === 'string' ? undefined : given.as) ?? 'text')
}

/** The keys of one `orderBy`: one for each kind that the field may be of. */
export function orderKeys(place: Place, given: Direction | OrderOptions = {}, layout: Layout): OrderKey[] {
  const as = typeof given === 'string' ? undefined : given.as
  const usual = place.found === undefined ? 'asc' : 'desc'
  return (as === undefined ? kindsOf(place, layout) : [as]).map(kind => keyFor(place, given, usual, kind))
}

function keyFor(place: Place, given: Direction | OrderOptions, usual: Direction, as: Kind): OrderKey {
  if (typeof given === 'object') refuseUnknownOptions('orderBy', given, ['as', 'direction', 'nulls'])
  const { direction = usual, nulls } = typeof given === 'string' ? { direction: given } : given
  if (!kinds.includes(as)) refuse(`orderBy cannot read a field as ${JSON.stringify(as)}`)
  if (direction !== 'asc' && direction !== 'desc') refuse(`orderBy has no direction ${JSON.stringify(direction)}`)
  const missing = nulls ?? (direction === 'asc' ? 'last' : 'first')
  if (missing !== 'first' && missing !== 'last') refuse(`nulls come 'first' or 'last', not ${JSON.stringify(nulls)}`)
  return { place, as, direction, nulls: missing }
}

const kinds: readonly Kind[] = ['text', 'number', 'boolean']

/** A column has its own kind. An index on numbers can only be used if the order begins with numbers. */
function kindsOf(place: Place, layout: Layout): readonly Kind[] {
  if (layout.row !== undefined || place.meta !== undefined || place.isLower === true) return ['text']
  if (place.found !== undefined) return ['number']
  const isDeclared = (kind: Kind): boolean =>
    isOrdered(layout, place, kind) || columnFor(layout, place, kind) !== undefined
  const declared = kinds.filter(isDeclared)
  return declared.length === 0 || declared.includes('text') ? kinds : declared
}

function refuse(reason: string): never {
  throw new InvalidQuery({ reason })
}

/** One key of an order, in SQL. */
interface Sorted {
  readonly value: string
  /** The beginning of it, if there is an index on that. */
  readonly short: string | undefined
  readonly type: ParameterType
  readonly key: OrderKey
}

function sorted(key: OrderKey, writing: Writing): Sorted {
  const { place } = key
  if (place.found !== undefined)
    return { value: renderFound(place, place.found, writing), short: undefined, type: 'double precision', key }
  const time = timeOf(place, writing)
  if (time !== undefined) return { value: time, short: undefined, type: 'timestamptz', key }
  const column = columnIn(place, writing)
  const kind = column === undefined || column.kind === 'json' || column.kind === 'time' ? key.as : column.kind
  // The column itself, so that an index on it gives the order.
  if (writing.layout.row !== undefined && column !== undefined && place.isLower !== true)
    if (column.kind === 'number' || column.isBytewise)
      return { value: column.sql, short: undefined, type: column.type, key }
  const value = readAs(place, kind, writing)!
  const isShort = kind === 'text' && isIndexed(place, kind, writing)
  return { value, short: isShort ? short(value) : undefined, type: kind === 'number' ? 'numeric' : kind, key }
}

/**
 * `order by …`; the primary key decides between results that are equal otherwise. Where all results have the first key, the
 * place of nulls does not matter, and the order is written as that of an index.
 */
export function renderOrder(keys: readonly OrderKey[], writing: Writing, allHaveFirst: boolean = false): string {
  const parts = keys.flatMap((key, i) => {
    const { value, short } = sorted(key, writing)
    const way = i === 0 && allHaveFirst ? key.direction : `${key.direction} nulls ${key.nulls}`
    return short === undefined ? [`${value} ${way}`] : [`${short} ${way}`, `${value} ${way}`]
  })
  return [...parts, ...keyColumns(writing.layout).map(({ sql }) => `${writing.prefix}${sql} asc`)].join(', ')
}

/** The key of a row, and the values that it is ordered by, as text. */
export function cursorColumns(keys: readonly OrderKey[], writing: Writing): string[] {
  return [
    ...keyColumns(writing.layout).map(({ sql }) => `(${writing.prefix}${sql})::text`),
    ...keys.map(key => `(${sorted(key, writing).value})::text`),
  ]
}

/** The last result of a page, after which the next page begins. */
export interface Bookmark {
  readonly values: readonly (string | null)[]
  /** Its primary key. */
  readonly key: readonly string[]
}

/** The bookmark in the columns above. */
export function bookmarkOf(columns: readonly unknown[], layout: Layout): Bookmark {
  const size = keyColumns(layout).length
  return { key: columns.slice(0, size) as string[], values: columns.slice(size) as (string | null)[] }
}

/** Some of the documents of a query: those that have the first key of the order, or those that lack it. */
export interface Part {
  readonly has: boolean
  /** Only those after this one. */
  readonly mark: Bookmark | undefined
}

/**
 * The results after a bookmark, or all, are read in one or two parts that follow each other: those that have the first key,
 * and those that lack it. Together they would be a condition, or an order, that no index serves.
 */
export function partsAfter([first]: readonly OrderKey[], mark: Bookmark | undefined): (Part | undefined)[] {
  if (first === undefined) return [mark && { has: true, mark }]
  const isFirst = first.nulls === 'first'
  if (mark === undefined) {
    if (isFirst === (first.direction === 'desc')) return [undefined]
    return [
      { has: !isFirst, mark },
      { has: isFirst, mark },
    ]
  }
  const has = mark.values[0] !== null
  const part = { has, mark }
  return has === isFirst ? [part] : [part, { has: !has, mark: undefined }]
}

export function renderPart(keys: readonly OrderKey[], { has, mark }: Part, writing: Writing): string {
  const ordered = keys.map(key => sorted(key, writing))
  const [first] = ordered
  const value = mark?.values[0] ?? null
  if (first === undefined) return renderAfter(ordered, mark!, writing)
  const bound =
    value === null ? `${first.short ?? first.value} is ${has ? 'not ' : ''}null` : boundOf(first, value, writing)
  return mark === undefined ? bound : `${bound} and ${renderAfter(ordered, mark, writing)}`
}

function boundOf({ value, short: beginning, type, key }: Sorted, at: string, { binder }: Writing): string {
  const by = key.direction === 'asc' ? '>=' : '<='
  const operand = bound(binder, at, type)
  return beginning === undefined ? `${value} ${by} ${operand}` : `${beginning} ${by} ${short(operand)}`
}

/** By the first key in which they differ. */
function renderAfter(ordered: readonly Sorted[], mark: Bookmark, { binder, prefix, layout }: Writing): string {
  const same: string[] = []
  const ways: string[] = []
  for (const [i, each] of ordered.entries()) {
    const later = laterThan(each, mark.values[i]!, binder)
    if (later !== undefined) ways.push([...same, later].join(' and '))
    same.push(sameAs(each, mark.values[i]!, binder))
  }
  for (const [i, { sql, type }] of keyColumns(layout).entries()) {
    ways.push([...same, `${prefix}${sql} > ${binder.bind(mark.key[i], type, String)}`].join(' and '))
    if (i < mark.key.length - 1) same.push(`${prefix}${sql} = ${binder.bind(mark.key[i], type, String)}`)
  }
  return `(${ways.map(way => `(${way})`).join(' or ')})`
}

function laterThan({ value, type, key }: Sorted, at: string | null, binder: Binder): string | undefined {
  if (at === null) return key.nulls === 'last' ? undefined : `${value} is not null`
  const later = `${value} ${key.direction === 'asc' ? '>' : '<'} ${bound(binder, at, type)}`
  return key.nulls === 'last' ? `(${later} or ${value} is null)` : later
}

function sameAs({ value, type }: Sorted, at: string | null, binder: Binder): string {
  return at === null ? `${value} is null` : `${value} = ${bound(binder, at, type)}`
}

function bound(binder: Binder, at: string, type: Sorted['type']): string {
  return binder.bind(at, type, String)
}

/** Whether a value can be one of this type: a cursor is not trusted. */
export function fitsType(type: ParameterType, value: string): boolean {
  if (type === 'bigint') return /^-?\d{1,18}$/.test(value)
  if (type === 'numeric') return /^-?\d{1,400}(\.\d{1,400})?$/.test(value)
  if (type === 'double precision') return /^-?\d{1,400}(\.\d{1,400})?(e[+-]\d{1,3})?$/.test(value)
  if (type === 'boolean') return value === 'true' || value === 'false'
  if (type === 'uuid') return /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/.test(value)
  return type === 'text' || /^\d{4,6}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?[+-]\d\d(:\d\d){0,2}$/.test(value)
}

/** The types of the values of a bookmark. */
export function bookmarkTypes(
  keys: readonly OrderKey[],
  writing: Writing,
): { key: ParameterType[]; values: ParameterType[] } {
  return {
    key: keyColumns(writing.layout).map(({ type }) => type),
    values: keys.map(key => sorted(key, writing).type),
  }
}
