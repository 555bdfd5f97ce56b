/** The order of the documents of a query, and which of them come after a given one. */

import type { Binder } from './bind.ts'
import { InvalidQuery } from './errors.ts'
import { metaColumns, short } from './expression.ts'
import type { Path, Place } from './field.ts'
import type { Kind } from './operand.ts'
import { isIndexed, readAs, timeOf, type Writing } from './render.ts'

export interface OrderOptions {
  /** As what the field is read; what it is not counts as missing. Default 'text', which dates are, too. */
  readonly as?: Kind | undefined
  /** Default 'asc'. */
  readonly direction?: 'asc' | 'desc' | undefined
  /** Where documents without it come. Default: last, and with 'desc' first. */
  readonly nulls?: 'first' | 'last' | undefined
}

/** A field that holds text, which is what a field is read as if nothing else is said. */
export type TextPath = Path<string | Date | null | undefined>

/** For a field that holds something else: what it is has to be said, because only the compiler knows. */
export type OrderAs<T> = OrderOptions & { readonly as: unknown extends T ? Kind : KindOf<NonNullable<T>> }

type KindOf<T> = T extends string | Date ? 'text' : T extends number ? 'number' : T extends boolean ? 'boolean' : never

export interface OrderKey {
  readonly place: Place
  readonly as: Kind
  readonly direction: 'asc' | 'desc'
  readonly nulls: 'first' | 'last'
}

export function orderKey(place: Place, { as = 'text', direction = 'asc', nulls }: OrderOptions = {}): OrderKey {
  if (!['text', 'number', 'boolean'].includes(as)) refuse(`orderBy cannot read a field as ${JSON.stringify(as)}`)
  if (direction !== 'asc' && direction !== 'desc') refuse(`orderBy has no direction ${JSON.stringify(direction)}`)
  const missing = nulls ?? (direction === 'asc' ? 'last' : 'first')
  if (missing !== 'first' && missing !== 'last') refuse(`nulls come 'first' or 'last', not ${JSON.stringify(nulls)}`)
  return { place, as, direction, nulls: missing }
}

function refuse(reason: string): never {
  throw new InvalidQuery({ reason })
}

/** One key of an order, in SQL. */
interface Sorted {
  readonly value: string
  /** The beginning of it, if an index goes by that. */
  readonly short: string | undefined
  readonly type: 'text' | 'numeric' | 'boolean' | 'timestamptz'
  readonly key: OrderKey
}

function sorted(key: OrderKey, writing: Writing): Sorted {
  const { place } = key
  const time = timeOf(place, writing.prefix)
  if (time !== undefined) return { value: time, short: undefined, type: 'timestamptz', key }
  const meta = place.meta === undefined ? undefined : metaColumns[place.meta].kind
  const kind = meta === undefined || meta === 'time' ? key.as : meta
  const value = readAs(place, kind, writing)!
  const isShort = kind === 'text' && isIndexed(place, kind, writing)
  return { value, short: isShort ? short(value) : undefined, type: kind === 'number' ? 'numeric' : kind, key }
}

/**
 * `order by …`; the id decides between documents that are equal otherwise. Where all have the first key, it does not
 * matter where those without come, and the order is written as an index has it.
 */
export function renderOrder(keys: readonly OrderKey[], writing: Writing, allHaveFirst: boolean = false): string {
  const parts = keys.flatMap((key, i) => {
    const { value, short } = sorted(key, writing)
    const way = i === 0 && allHaveFirst ? key.direction : `${key.direction} nulls ${key.nulls}`
    return short === undefined ? [`${value} ${way}`] : [`${short} ${way}`, `${value} ${way}`]
  })
  return [...parts, `${writing.prefix}id asc`].join(', ')
}

/** The values that a cursor holds, as text. */
export function cursorColumns(keys: readonly OrderKey[], writing: Writing): string[] {
  return keys.map(key => `(${sorted(key, writing).value})::text`)
}

/** What a document is like that the next page begins after. */
export interface Bookmark {
  readonly values: readonly (string | null)[]
  readonly id: string
}

/** Some of the documents of a query: those that have the first key of the order, or those that lack it. */
export interface Part {
  readonly has: boolean
  /** Only those after this one. */
  readonly mark: Bookmark | undefined
}

/**
 * The documents after a bookmark, or all, are read in one or two parts that follow each other: those that have the first
 * key and those that lack it. Taken apart, because together they are a condition, or an order, that no index serves.
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
function renderAfter(ordered: readonly Sorted[], mark: Bookmark, { binder, prefix }: Writing): string {
  const same: string[] = []
  const ways: string[] = []
  for (const [i, each] of ordered.entries()) {
    const later = laterThan(each, mark.values[i]!, binder)
    if (later !== undefined) ways.push([...same, later].join(' and '))
    same.push(sameAs(each, mark.values[i]!, binder))
  }
  ways.push([...same, `${prefix}id > ${binder.bind(mark.id, 'text', String)}`].join(' and '))
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

/** Whether a value can be one of this key: a cursor is not trusted. */
export function fitsKey({ place, as }: OrderKey, value: string): boolean {
  const meta = place.meta === undefined ? undefined : metaColumns[place.meta].kind
  const kind = meta ?? as
  if (kind === 'number') return /^-?\d{1,400}(\.\d{1,400})?$/.test(value)
  if (kind === 'boolean') return value === 'true' || value === 'false'
  return kind === 'text' || /^\d{4,6}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?[+-]\d\d(:\d\d){0,2}$/.test(value)
}
