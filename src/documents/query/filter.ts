/**
 * Conditions from requests: a JSON value is turned into a condition.
 *
 *     where(filterFrom({ 'address.city': 'Paris', age: { $gte: 18 }, $or: [{ tier: 'pro' }, { tags: { $contains: ['vip'] } }] }))
 *
 * Names of fields become quoted literals, and values become parameters. The size and the depth are limited, and names with a
 * meaning in JavaScript, such as `__proto__`, are refused. `fields` lists the fields that a request may use; by default all.
 *
 * What can fail: `InvalidFilter`, which names the place in the JSON value.
 */
import { isRillflowError } from '../../core/errors.ts'
import { textFault } from '../../core/name.ts'
import { checkWhole } from '../../core/options.ts'
import { InvalidFilter } from '../errors.ts'
import {
  and,
  Condition,
  contains,
  eq,
  exists,
  gt,
  gte,
  isIn,
  isNull,
  like,
  lt,
  lte,
  ne,
  not,
  or,
  regex,
  startsWith,
} from './condition.ts'
import { documentScope, fieldAt, type Path } from './field.ts'
import { jsonText } from './operand.ts'
import { checkedPattern } from './render.ts'

/** The limits of a filter from a request. */
export interface FilterOptions {
  /** The paths that may be used. Default: all. */
  readonly fields?: readonly string[] | undefined
  /** Allow `$regex`. A regular expression can take the database a long time. Default false. */
  readonly regex?: boolean | undefined
  /** The limit of comparisons. Default 50. */
  readonly maxConditions?: number | undefined
  /** How long the query may take on a server before it is cancelled with `StatementCancelled`. Default 5000. */
  readonly timeoutMs?: number | undefined
}

const limits = { conditions: 50, depth: 8, list: 1000, text: 10_000, pattern: 200, steps: 16, timeoutMs: 5_000 }
const forbidden: readonly string[] = ['__proto__', 'constructor', 'prototype']

/**
 * The condition that a JSON value describes.
 *
 * @example
 * ```ts
 * const fromRequest = filterFrom({ visits: { $gte: 1 } }, { fields: ['visits', 'city'] })
 * const found = await store.documents(customers).where(fromRequest).toArray()
 * ```
 */
export function filterFrom(json: unknown, options: FilterOptions = {}): Condition {
  const reading: Reading = { options, left: options.maxConditions ?? limits.conditions }
  const { timeoutMs = limits.timeoutMs } = options
  checkWhole('timeoutMs', timeoutMs, 1, 2 ** 31 - 1)
  return new Condition(readFilter(json, '$', limits.depth, reading).test, timeoutMs)
}

interface Reading {
  readonly options: FilterOptions
  left: number
}

function readFilter(json: unknown, path: string, depth: number, reading: Reading): Condition {
  if (depth === 0) refuse(path, `is nested deeper than ${limits.depth} levels`)
  if (!isPlain(json)) refuse(path, 'must be an object of fields and operands')
  const conditions = Object.keys(json).map(key => {
    const inside = `${path}.${key.slice(0, 80)}`
    const value = json[key]
    if (key === '$and' || key === '$or') return readList(key, value, inside, depth, reading)
    if (key === '$not') return not(readFilter(value, inside, depth - 1, reading))
    if (key.startsWith('$')) refuse(inside, 'is not an operator here; use $and, $or or $not')
    return readField(key, value, inside, reading)
  })
  return conditions.length === 1 ? conditions[0]! : and(...conditions)
}

function readList(key: '$and' | '$or', value: unknown, path: string, depth: number, reading: Reading): Condition {
  if (!Array.isArray(value)) refuse(path, 'must be an array of filters')
  const parts = value.map((each, i) => readFilter(each, `${path}[${i}]`, depth - 1, reading))
  return key === '$and' ? and(...parts) : or(...parts)
}

function readField(name: string, value: unknown, path: string, reading: Reading): Condition {
  const field = fieldOf(name, path, reading.options)
  if (!isPlain(value)) return count(reading, path, () => readTest(field, '$eq', value, path, reading.options))
  const names = Object.keys(value)
  if (names.length === 0) refuse(path, 'has no operator')
  const tests = names.map(each =>
    count(reading, path, () => readTest(field, each, value[each], `${path}.${each.slice(0, 80)}`, reading.options)),
  )
  return tests.length === 1 ? tests[0]! : and(...tests)
}

function count(reading: Reading, path: string, make: () => Condition): Condition {
  if (reading.left-- === 0) refuse(path, 'exceeds the limit of comparisons')
  return make()
}

function fieldOf(name: string, path: string, { fields }: FilterOptions): Path<unknown> {
  const steps = name.split('.')
  const fault = textFault(name)
  if (fault !== undefined) refuse(path, `is a field whose name ${fault}`)
  if (fields !== undefined && !fields.includes(name)) refuse(path, 'is not one of the fields that may be used')
  if (steps.some(step => step === '' || forbidden.includes(step))) refuse(path, 'is not the name of a field')
  if (steps.length > limits.steps || name.length > 1000) refuse(path, 'is too long for the name of a field')
  return fieldAt(documentScope, steps)
}

type ReadTest = (field: Path<unknown>, value: unknown, path: string) => Condition

const tests: Readonly<Record<string, ReadTest>> = {
  $eq: (field, value, path) => eq(field, scalar(value, path)),
  $ne: (field, value, path) => ne(field, scalar(value, path)),
  $gt: (field, value, path) => gt(field, comparable(value, path)),
  $gte: (field, value, path) => gte(field, comparable(value, path)),
  $lt: (field, value, path) => lt(field, comparable(value, path)),
  $lte: (field, value, path) => lte(field, comparable(value, path)),
  $in: (field, value, path) => isIn(field, list(value, path)),
  $nin: (field, value, path) => not(isIn(field, list(value, path))),
  $exists: (field, value, path) => (flag(value, path) ? exists(field) : isNull(field)),
  $contains: (field, value, path) => contains(field, part(value, path)),
  $startsWith: (field, value, path) => startsWith(field, text(value, path)),
  $like: (field, value, path) => like(field, pattern(value, path)),
  $regex: (field, value, path) => regex(field, expression(value, path)),
}

function readTest(field: Path<unknown>, name: string, value: unknown, path: string, options: FilterOptions): Condition {
  const read = Object.hasOwn(tests, name) && (name !== '$regex' || options.regex === true) ? tests[name] : undefined
  if (read === undefined) refuse(path, `is not an operator; use ${Object.keys(tests).slice(0, -1).join(', ')}`)
  return read(field, value, path)
}

function scalar(value: unknown, path: string): string | number | boolean | null {
  if (value === null || typeof value === 'boolean') return value
  return comparable(value, path)
}

function comparable(value: unknown, path: string): string | number {
  if (typeof value === 'number' && Number.isFinite(value)) return value
  if (typeof value === 'string') return text(value, path)
  return refuse(path, 'must be text or a number')
}

function text(value: unknown, path: string): string {
  if (typeof value !== 'string') refuse(path, 'must be text')
  const fault = value.length > limits.text ? `is longer than ${limits.text}` : textFault(value)
  return fault === undefined ? value : refuse(path, fault)
}

function pattern(value: unknown, path: string): string {
  return asFilter(path, () => checkedPattern(shortText(value, path)))
}

/** A reference back to a group is what takes the database a time without bound. */
function expression(value: unknown, path: string): string {
  const given = shortText(value, path)
  return /\\[1-9]/.test(given) ? refuse(path, 'must not refer back to a group') : given
}

function shortText(value: unknown, path: string): string {
  const given = text(value, path)
  return given.length > limits.pattern ? refuse(path, `is longer than ${limits.pattern}`) : given
}

function list(value: unknown, path: string): (string | number | boolean | null)[] {
  if (!Array.isArray(value) || value.length > limits.list) refuse(path, `must be an array of at most ${limits.list}`)
  return value.map((each, i) => scalar(each, `${path}[${i}]`))
}

function flag(value: unknown, path: string): boolean {
  return typeof value === 'boolean' ? value : refuse(path, 'must be true or false')
}

function part(value: unknown, path: string): object {
  if (!Array.isArray(value) && !isPlain(value)) refuse(path, 'must be an array or an object')
  asFilter(path, () => jsonText(value))
  return value
}

function asFilter<T>(path: string, work: () => T): T {
  try {
    return work()
  } catch (error) {
    if (!isRillflowError(error, 'invalid_query')) throw error
    throw new InvalidFilter({ path, reason: (error as unknown as { reason: string }).reason }, error)
  }
}

function isPlain(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function refuse(path: string, reason: string): never {
  throw new InvalidFilter({ path, reason })
}
