/** The meaning of conditions and orders, in plain JavaScript over plain values. */
import { Buffer } from 'node:buffer'

export type Json = string | number | boolean | null | readonly Json[] | { readonly [key: string]: Json }
export type Kind = 'text' | 'number' | 'boolean'

export type Spec =
  | { readonly op: 'and'; readonly of: readonly Spec[] }
  | { readonly op: 'or'; readonly of: readonly Spec[] }
  | { readonly op: 'not'; readonly of: Spec }
  | { readonly op: 'eq' | 'ne'; readonly path: string; readonly value: Json }
  | { readonly op: 'gt' | 'gte' | 'lt' | 'lte'; readonly path: string; readonly value: string | number }
  | { readonly op: 'between'; readonly path: string; readonly from: string | number; readonly to: string | number }
  | { readonly op: 'isIn'; readonly path: string; readonly values: readonly Scalar[] }
  | { readonly op: 'isNull' | 'exists'; readonly path: string }
  | { readonly op: 'contains'; readonly path: string; readonly value: Json }
  | { readonly op: 'startsWith' | 'like'; readonly path: string; readonly value: string }
  | { readonly op: 'lowerEq'; readonly path: string; readonly value: string }
  | { readonly op: 'elemMatch'; readonly path: string; readonly of: Spec }

export type Scalar = string | number | boolean | null

export interface Order {
  readonly path: string
  readonly as: Kind
  readonly direction: 'asc' | 'desc'
  readonly nulls: 'first' | 'last'
}

export function meets(spec: Spec, value: Json): boolean {
  switch (spec.op) {
    case 'and':
      return spec.of.every(each => meets(each, value))
    case 'or':
      return spec.of.some(each => meets(each, value))
    case 'not':
      return !meets(spec.of, value)
    case 'elemMatch': {
      const list = valueAt(value, spec.path)
      return Array.isArray(list) && list.some(element => meets(spec.of, element as Json))
    }
    default:
      return meetsAt(spec, valueAt(value, spec.path) ?? null)
  }
}

function meetsAt(spec: Exclude<Spec, { of: unknown }>, found: Json): boolean {
  switch (spec.op) {
    case 'eq':
      return isEqual(found, spec.value)
    case 'ne':
      return !isEqual(found, spec.value)
    case 'gt':
      return (compare(found, spec.value) ?? 0) > 0
    case 'gte':
      return (compare(found, spec.value) ?? -1) >= 0
    case 'lt':
      return (compare(found, spec.value) ?? 0) < 0
    case 'lte':
      return (compare(found, spec.value) ?? 1) <= 0
    case 'between':
      return (compare(found, spec.from) ?? -1) >= 0 && (compare(found, spec.to) ?? 1) <= 0
    case 'isIn':
      return spec.values.some(each => isEqual(found, each))
    case 'isNull':
      return found === null
    case 'exists':
      return found !== null
    case 'contains':
      return holds(found, spec.value)
    case 'startsWith':
      return typeof found === 'string' && found.startsWith(spec.value)
    case 'like':
      return typeof found === 'string' && likePattern(spec.value).test(found)
    case 'lowerEq':
      return typeof found === 'string' && lowerAscii(found) === lowerAscii(spec.value)
  }
}

/** Undefined if the path does not exist; an element of an array by its index. */
function valueAt(value: Json, path: string): Json | undefined {
  let at: unknown = value
  for (const step of path === '' ? [] : path.split('.')) {
    if (typeof at !== 'object' || at === null) return undefined
    if (Array.isArray(at) && !/^\d+$/.test(step)) return undefined
    at = (at as Record<string, unknown>)[step]
  }
  return at as Json | undefined
}

/** Undefined if the two have different types. */
function compare(a: Json, b: Json): number | undefined {
  if (typeof a === 'number' && typeof b === 'number') return a - b
  if (typeof a === 'string' && typeof b === 'string') return byBytes(a, b)
  return undefined
}

export function byBytes(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b))
}

function isEqual(a: Json, b: Json): boolean {
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return a === b
  if (Array.isArray(a) !== Array.isArray(b)) return false
  const [left, right] = [Object.entries(a), Object.entries(b)]
  return left.length === right.length && left.every(([key, each]) => key in b && isEqual(each, (b as never)[key]))
}

function holds(whole: Json, part: Json): boolean {
  if (typeof part !== 'object' || part === null) return isEqual(whole, part)
  if (typeof whole !== 'object' || whole === null || Array.isArray(whole) !== Array.isArray(part)) return false
  if (Array.isArray(part)) return part.every(each => (whole as readonly Json[]).some(other => holds(other, each)))
  return Object.entries(part).every(([key, each]) => key in whole && holds((whole as never)[key], each))
}

function likePattern(pattern: string): RegExp {
  const source = pattern.replaceAll(/\\.|[%_]|[.*+?^${}()|[\]]/gsu, each => {
    if (each === '%') return '.*'
    if (each === '_') return '.'
    return each.startsWith('\\') ? each[1]!.replace(/[.*+?^${}()|[\]\\]/, '\\$&') : `\\${each}`
  })
  return new RegExp(`^${source}$`, 'su')
}

function lowerAscii(text: string): string {
  return text.replaceAll(/[A-Z]/g, each => each.toLowerCase())
}

/** The ids in the requested order; equal ones by their id. */
export function ordered(
  documents: ReadonlyMap<string, Json>,
  ids: readonly string[],
  orders: readonly Order[],
): string[] {
  return [...ids].sort((a, b) => {
    for (const order of orders) {
      const way = compareBy(order, documents.get(a)!, documents.get(b)!)
      if (way !== 0) return way
    }
    return byBytes(a, b)
  })
}

function compareBy({ path, as, direction, nulls }: Order, a: Json, b: Json): number {
  const [left, right] = [typed(valueAt(a, path), as), typed(valueAt(b, path), as)]
  if (left === undefined || right === undefined) {
    if (left === right) return 0
    return (left === undefined) === (nulls === 'first') ? -1 : 1
  }
  const way = typeof left === 'string' ? byBytes(left, right as string) : Number(left) - Number(right)
  return direction === 'asc' ? way : -way
}

function typed(value: Json | undefined, as: Kind): Scalar | undefined {
  const isOfKind = typeof value === (as === 'text' ? 'string' : as)
  return isOfKind ? (value as Scalar) : undefined
}
