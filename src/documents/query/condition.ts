/**
 * Conditions on documents and rows. Each operator makes a plain value; nothing is sent before a query runs.
 *
 * A condition is either met or not; there is nothing between:
 * - A field that is missing is the same as one that is null: `isNull` is met by both, `exists` by neither.
 * - A field is read as the operand's kind. Text is never equal to, less or greater than a number, nor is a missing field
 *   than anything. So a document of another shape does not meet the condition, and never makes the query fail.
 * - `not(…)` is met by all documents that do not meet the condition, and `ne` is `not(eq)`: documents without the field meet
 *   both.
 * - Text is compared by code points. A Date stands for its ISO text, as JSON writes it: `2026-11-16T07:00:00.000Z`.
 */
import { InvalidQuery } from '../errors.ts'
import { type Field, fieldsOf, type Path, type Place, placeIn, Scope, type SearchOptions } from './field.ts'
import type { Comparable, Operand, Text } from './operand.ts'

export type Comparison = '=' | '<' | '<=' | '>' | '>='

/** Made by the operators only: a value that came as JSON is never taken for one. */
export class Condition {
  readonly test: Test
  /** How long a query with it may take, if it came from a request. */
  readonly budgetMs: number | undefined
  constructor(test: Test, budgetMs?: number) {
    this.test = test
    this.budgetMs = budgetMs
  }
}

export type Test =
  | { readonly op: 'all' | 'some'; readonly of: readonly Condition[] }
  | { readonly op: 'not'; readonly of: Condition }
  | { readonly op: 'compare'; readonly by: Comparison; readonly place: Place; readonly operand: unknown }
  | { readonly op: 'in'; readonly place: Place; readonly operands: unknown }
  | { readonly op: 'isNull'; readonly place: Place }
  | { readonly op: 'contains'; readonly place: Place; readonly operand: unknown }
  | { readonly op: 'startsWith' | 'like' | 'regex'; readonly place: Place; readonly operand: unknown }
  | { readonly op: 'elemMatch'; readonly place: Place; readonly scope: Scope; readonly of: Condition }
  | { readonly op: 'search'; readonly place: Place; readonly operand: unknown; readonly options: SearchOptions }

/**
 * Met by documents that meet every condition; with no conditions, by all documents.
 *
 * @example
 * ```ts
 * const found = await store.documents(customers).where(c => and(eq(c.city, 'Leeds'), gt(c.visits, 3))).toArray()
 * ```
 */
export function and(...conditions: readonly Condition[]): Condition {
  return new Condition({ op: 'all', of: conditions.map(checked) })
}

/**
 * Met by documents that meet at least one condition; with no conditions, by none.
 *
 * @example
 * ```ts
 * const found = await store.documents(customers).where(c => or(eq(c.city, 'Leeds'), isNull(c.city))).toArray()
 * ```
 */
export function or(...conditions: readonly Condition[]): Condition {
  return new Condition({ op: 'some', of: conditions.map(checked) })
}

/**
 * Met by documents that do not meet the condition.
 *
 * @example
 * ```ts
 * const found = await store.documents(customers).where(c => not(startsWith(c.name, 'A'))).toArray()
 * ```
 */
export function not(condition: Condition): Condition {
  return new Condition({ op: 'not', of: checked(condition) })
}

/**
 * Equal: a text, a number, true or false, null, or a whole array or object.
 *
 * @example
 * ```ts
 * const found = await store.documents(customers).where(c => eq(c.city, 'Leeds')).toArray()
 * ```
 */
export function eq<T>(field: Path<T>, value: NoInfer<Operand<T>>): Condition {
  return compare('=', field, value)
}

/**
 * Not equal, or missing.
 *
 * @example
 * ```ts
 * const found = await store.documents(customers).where(c => ne(c.city, 'Leeds')).toArray()
 * ```
 */
export function ne<T>(field: Path<T>, value: NoInfer<Operand<T>>): Condition {
  return not(compare('=', field, value))
}

/**
 * Greater than a number, a text or a time.
 *
 * @example
 * ```ts
 * const found = await store.documents(customers).where(c => gt(c.visits, 3)).toArray()
 * ```
 */
export function gt<T>(field: Path<T>, value: NoInfer<Comparable<T>>): Condition {
  return compare('>', field, value)
}

/**
 * Greater than a number, a text or a time, or equal to it.
 *
 * @example
 * ```ts
 * const found = await store.documents(customers).where(c => gte(c.visits, 3)).toArray()
 * ```
 */
export function gte<T>(field: Path<T>, value: NoInfer<Comparable<T>>): Condition {
  return compare('>=', field, value)
}

/**
 * Less than a number, a text or a time.
 *
 * @example
 * ```ts
 * const found = await store.documents(customers).where(c => lt(c.visits, 3)).toArray()
 * ```
 */
export function lt<T>(field: Path<T>, value: NoInfer<Comparable<T>>): Condition {
  return compare('<', field, value)
}

/**
 * Less than a number, a text or a time, or equal to it.
 *
 * @example
 * ```ts
 * const found = await store.documents(customers).where(c => lte(c.visits, 3)).toArray()
 * ```
 */
export function lte<T>(field: Path<T>, value: NoInfer<Comparable<T>>): Condition {
  return compare('<=', field, value)
}

/**
 * From the first operand to the second, both included.
 *
 * @example
 * ```ts
 * const found = await store.documents(customers).where(c => between(c.visits, 1, 10)).toArray()
 * ```
 */
export function between<T>(field: Path<T>, from: NoInfer<Comparable<T>>, to: NoInfer<Comparable<T>>): Condition {
  return and(compare('>=', field, from), compare('<=', field, to))
}

/**
 * Equal to one of the values.
 *
 * @example
 * ```ts
 * const found = await store.documents(customers).where(c => isIn(c.city, ['Leeds', 'York'])).toArray()
 * ```
 */
export function isIn<T>(field: Path<T>, values: readonly NoInfer<Operand<T>>[]): Condition {
  return new Condition({ op: 'in', place: placeIn(field), operands: values })
}

/**
 * Missing, or null.
 *
 * @example
 * ```ts
 * const found = await store.documents(customers).where(c => isNull(c.city)).toArray()
 * ```
 */
export function isNull(field: Path<unknown>): Condition {
  return new Condition({ op: 'isNull', place: placeIn(field) })
}

/**
 * Neither missing nor null.
 *
 * @example
 * ```ts
 * const found = await store.documents(customers).where(c => exists(c.city)).toArray()
 * ```
 */
export function exists(field: Path<unknown>): Condition {
  return not(isNull(field))
}

/**
 * Of an array: has all these elements. Of an object: has these properties, with these values in them.
 *
 * @example
 * ```ts
 * const found = await store.documents(customers).where(c => contains(c.tags, ['vip'])).toArray()
 * ```
 */
export function contains<T>(field: Path<T>, part: NoInfer<Part<NonNullable<T>>>): Condition {
  return new Condition({ op: 'contains', place: placeIn(field), operand: part })
}

type Part<T> = unknown extends T
  ? object
  : T extends string | number | boolean | Date
    ? never
    : T extends readonly (infer E)[]
      ? readonly PartOf<E>[]
      : { readonly [K in keyof T]?: PartOf<T[K]> }

type PartOf<T> = T extends string | number | boolean | Date | null | undefined ? T : Part<T>

/**
 * A text that begins with the prefix; upper and lower case differ.
 *
 * @example
 * ```ts
 * const found = await store.documents(customers).where(c => startsWith(c.name, 'A')).toArray()
 * ```
 */
export function startsWith<T>(field: Path<T>, prefix: NoInfer<Text<T>>): Condition {
  return new Condition({ op: 'startsWith', place: placeIn(field), operand: prefix })
}

/**
 * `%` is any text, `_` any character; `\` before either takes it literally.
 *
 * @example
 * ```ts
 * const found = await store.documents(customers).where(c => like(c.name, 'A%')).toArray()
 * ```
 */
export function like<T>(field: Path<T>, pattern: NoInfer<Text<T>>): Condition {
  return new Condition({ op: 'like', place: placeIn(field), operand: pattern })
}

/**
 * A regular expression of PostgreSQL; `(?i)` at its start ignores case.
 *
 * @example
 * ```ts
 * const found = await store.documents(customers).where(c => regex(c.name, '(?i)^ada')).toArray()
 * ```
 */
export function regex<T>(field: Path<T>, pattern: NoInfer<Text<T>>): Condition {
  return new Condition({ op: 'regex', place: placeIn(field), operand: pattern })
}

/**
 * Of an array: one element meets the condition.
 *
 * @example
 * ```ts
 * const found = await store.documents(customers).where(c => elemMatch(c.tags, tag => startsWith(tag, 'v'))).toArray()
 * ```
 */
export function elemMatch<T>(field: Path<T>, condition: (element: Field<ElementOf<T>>) => Condition): Condition {
  const scope = new Scope()
  return new Condition({ op: 'elemMatch', place: placeIn(field), scope, of: checked(condition(fieldsOf(scope))) })
}

type ElementOf<T> = unknown extends T ? unknown : Extract<T, readonly unknown[]>[number]

/**
 * Full text: `search(c, 'red -shoes "exact words"')` searches the fields that the collection declares for it,
 * `search(c.notes, …)` that one. The default language is that of the collection. Order by `rank`, select a `headline`.
 *
 * @example
 * ```ts
 * const found = await store.documents(customers).where(c => search(c, 'tea -coffee')).toArray()
 * ```
 */
export function search<T>(field: Path<T>, words: string, options: SearchOptions = {}): Condition {
  return new Condition({ op: 'search', place: placeIn(field), operand: words, options })
}

function compare(by: Comparison, field: unknown, operand: unknown): Condition {
  return new Condition({ op: 'compare', by, place: placeIn(field), operand })
}

/** Refuses anything else: most likely a comparison of JavaScript, `c.total > 5`. */
export function checked(condition: Condition): Condition {
  if (!(condition instanceof Condition))
    throw new InvalidQuery({ reason: `a condition is ${typeof condition}; use the operators: gt(c.total, 5)` })
  return condition
}
