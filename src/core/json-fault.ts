/**
 * The rules: what JSON would not hold as it was meant, and what the database would refuse.
 *
 * The careful walk, beside the quick one in `json.ts`: it knows the way to where it is, and so can tell a cycle from
 * mere depth and name the place of a fault. It looks at what `JSON.stringify` would look at: own enumerable keys, the
 * result of `toJSON`, the value inside a boxed one. It ends after `maxBytes` values at the latest.
 */
import { textFault } from './name.ts'

/** The first thing wrong with the value, if there is one; 'too large' when the text must be longer than `maxBytes`. */
export function findFault(value: unknown, maxDepth: number, maxBytes: number): Fault | 'too large' | undefined {
  const search: Search = { maxDepth, ancestors: [], left: maxBytes }
  const fault = searchValue(converted(value, ''), search)
  if (search.left < 0) return 'too large'
  fault?.keys.reverse()
  return fault
}

export interface Fault {
  /** What follows the name of the place in a sentence. */
  readonly reason: string
  /** The way there from the root. */
  readonly keys: (string | number)[]
}

interface Search {
  readonly maxDepth: number
  readonly ancestors: object[]
  left: number
}

function searchValue(value: unknown, search: Search): Fault | undefined {
  search.left -= typeof value === 'string' ? value.length + 2 : 1
  if (search.left < 0) return undefined
  switch (typeof value) {
    case 'boolean':
      return undefined
    case 'string':
      return faultOf(textFault(value))
    case 'number':
      return faultOf(Number.isFinite(value) ? undefined : `is ${value}, which JSON cannot hold`)
    case 'object':
      return value === null ? undefined : searchObject(value, search)
    case 'undefined':
      return faultOf('is undefined: use null, or leave the property out')
    case 'bigint':
      return faultOf('is a BigInt, which JSON cannot hold: store it as text')
    default:
      return faultOf(`is a ${typeof value}, which is not data`)
  }
}

function searchObject(value: object, search: Search): Fault | undefined {
  const { ancestors } = search
  if (value instanceof Number || value instanceof String || value instanceof Boolean || value instanceof Number) {
    return searchValue(value.valueOf(), search)
  }
  if (isInvalidDate(value)) return faultOf('is an invalid Date')
  if (ancestors.includes(value)) return faultOf('refers back to a value that contains it')
  if (ancestors.length === search.maxDepth) return faultOf(`is nested deeper than ${search.maxDepth} levels`)

  ancestors.push(value)
  const fault = Array.isArray(value) ? searchArray(value, search) : searchKeys(value, search)
  ancestors.pop()
  return fault
}

function searchArray(items: readonly unknown[], search: Search): Fault | undefined {
  for (let i = 0; i < items.length && search.left >= 0; i++) {
    const fault = searchValue(converted(items[i], String(i)), search)
    if (fault !== undefined) return within(fault, i)
  }
  return undefined
}

function searchKeys(value: object, search: Search): Fault | undefined {
  const keys = Object.keys(value)
  if (keys.length === 0 && kindOf(value) !== 'Object') {
    return faultOf(`is of kind ${kindOf(value)}, which JSON would write as {}`)
  }
  for (const key of keys) {
    const child = converted((value as Record<string, unknown>)[key], key)
    if (child === undefined) continue
    search.left -= key.length + 3
    const wrongKey = textFault(key)
    const fault = wrongKey === undefined ? searchValue(child, search) : faultOf(`has a name that ${wrongKey}`)
    if (fault !== undefined) return within(fault, key)
    if (search.left < 0) return undefined
  }
  return undefined
}

/** The value that is written in place of this one; an invalid Date (JSON: null) stays one, to be found. */
function converted(value: unknown, key: string): unknown {
  if (typeof value !== 'object' || value === null || isInvalidDate(value)) return value
  const { toJSON } = value as { toJSON?: unknown }
  return typeof toJSON === 'function' ? toJSON.call(value, key) : value
}

function isInvalidDate(value: object): boolean {
  return kindOf(value) === 'Date' && Number.isNaN((value as Date).getTime())
}

/** The built-in kind of an object, also of one from another realm; 'Object' for plain ones and instances of classes. */
function kindOf(value: object): string {
  return Object.prototype.toString.call(value).slice(8, -1)
}

function faultOf(reason: string | undefined): Fault | undefined {
  return reason === undefined ? undefined : { reason, keys: [] }
}

function within(fault: Fault, key: string | number): Fault {
  fault.keys.push(key)
  return fault
}
