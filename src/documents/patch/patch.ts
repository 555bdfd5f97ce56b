/**
 * Patches: changes of some fields of a document; the other fields stay as they are.
 *
 *     { 'profile.name': 'Alicia', visits: increment(1), tags: append('vip'), 'lines[0].price': 12 }
 *
 *     patch ──► tree: one node per path ──► render: an SQL expression for the new body, and conditions ──► apply: one statement
 *
 * A path names object keys with dots, and array elements with brackets (`lines[0]`) or, where there is an array, also with
 * dots (`lines.0`). Parents that are missing, or null, are made: arrays for brackets, objects for dots. A plain value sets the
 * field. `merge` takes a JSON Merge Patch (RFC 7396) instead.
 *
 * Guarantees:
 * - Every operation reads the document as it was before the patch, whatever the order in which they are written. Two
 *   operations never change the same place: such a patch is refused.
 * - The patch takes effect as a whole, at one version, or not at all.
 * - No value becomes part of a statement's text.
 *
 * What can fail: `InvalidPatch` before anything is sent; `PatchMismatch` where the document does not fit (a text to increment,
 * an element beyond the end of its array): then nothing is written.
 */
import { InvalidPatch } from '../errors.ts'

/**
 * The changes by path; a plain value sets the field.
 *
 * @example
 * ```ts
 * const visited: Patch<Customer> = { visits: increment(1) }
 * ```
 */
export type Patch<Doc> = { readonly [P in PathOf<Doc>]?: PatchOf<ValueAt<Doc, P>> }

type PatchOf<T> = T | Operation<T>

/**
 * An operation on one field; made by the functions below.
 *
 * @example
 * ```ts
 * const grow: Operation = increment(1)
 * ```
 */
export interface Operation<in T = never> {
  readonly '~patch': Operate
  /** Absent at run time: it carries the type of the field. */
  readonly '~field'?: (value: T) => void
}

export type Operate =
  | { readonly kind: 'set'; readonly value: unknown }
  | { readonly kind: 'unset' }
  | { readonly kind: 'increment'; readonly by: number }
  | { readonly kind: 'append'; readonly values: readonly unknown[] }
  | { readonly kind: 'insert'; readonly at: number; readonly values: readonly unknown[] }
  | { readonly kind: 'remove'; readonly values: readonly unknown[] }
  | { readonly kind: 'rename'; readonly to: string }

/**
 * Sets the field to a value, like the plain value itself.
 *
 * @example
 * ```ts
 * await store.documents(customers).patch('c-1', { name: set('Ada L.') })
 * ```
 */
export function set<T>(value: T): Operation<T> {
  return operation({ kind: 'set', value })
}

/**
 * Removes the field, or the element from its array.
 *
 * @example
 * ```ts
 * await store.documents(customers).patch('c-1', { city: unset() })
 * ```
 */
export function unset(): Operation<unknown> {
  return operation({ kind: 'unset' })
}

/**
 * Adds to a number; a missing one counts as 0. Exact for decimals: 0.1 and 0.2 make 0.3.
 *
 * @example
 * ```ts
 * await store.documents(customers).patch('c-1', { visits: increment(1) })
 * ```
 */
export function increment(by = 1): Operation<number | null | undefined> {
  if (!Number.isFinite(by)) throw new InvalidPatch({ path: 'increment', reason: `cannot add ${String(by)}` })
  return operation({ kind: 'increment', by })
}

/**
 * Adds elements at the end of an array; a missing array is made.
 *
 * @example
 * ```ts
 * await store.documents(customers).patch('c-1', { tags: append('vip') })
 * ```
 */
export function append<T>(...values: T[]): Operation<readonly T[] | null | undefined> {
  return operation({ kind: 'append', values })
}

/**
 * Inserts elements into an array, before the one at `at`.
 *
 * @example
 * ```ts
 * await store.documents(customers).patch('c-1', { tags: insert(0, 'first') })
 * ```
 */
export function insert<T>(at: number, ...values: T[]): Operation<readonly T[] | null | undefined> {
  if (!Number.isSafeInteger(at) || at < 0)
    throw new InvalidPatch({ path: 'insert', reason: `needs a whole number from 0 on, not ${String(at)}` })
  return operation({ kind: 'insert', at, values })
}

/**
 * Removes every element of an array that equals one of these.
 *
 * @example
 * ```ts
 * await store.documents(customers).patch('c-1', { tags: remove('vip') })
 * ```
 */
export function remove<T>(...values: T[]): Operation<readonly T[] | null | undefined> {
  return operation({ kind: 'remove', values })
}

/**
 * Renames a field. A field that has the new name is replaced; a missing field is not renamed.
 *
 * @example
 * ```ts
 * await store.documents(customers).patch('c-1', { city: rename('town') })
 * ```
 */
export function rename(to: string): Operation<unknown> {
  return operation({ kind: 'rename', to })
}

/**
 * A JSON Merge Patch (RFC 7396): objects are merged, null removes a field, any other value replaces it.
 *
 * @example
 * ```ts
 * const moved: MergePatch<Customer> = { city: 'York' }
 * ```
 */
export type MergePatch<T> = T extends readonly unknown[]
  ? T
  : T extends object
    ? { readonly [K in keyof T]?: MergePatch<T[K]> | null }
    : T

export function operationOf(value: unknown): Operate {
  const operate = typeof value === 'object' && value !== null && operations.has(value) ? value : undefined
  return operate === undefined ? { kind: 'set', value } : (operate as Operation)['~patch']
}

function operation<T>(operate: Operate): Operation<T> {
  const made = Object.freeze({ '~patch': operate })
  operations.add(made)
  return made
}

/** Recognized by identity, so that no data is ever taken for an operation. */
const operations = new WeakSet<object>()

// ── Paths ────────────────────────────────────────────────────────────────────────────────────────────────────────

type Leaf = string | number | boolean | number | symbol | Date | null | undefined
type Depth = [never, 0, 1, 2, 3, 4]

/** The paths into a document, five levels deep. */
export type PathOf<T, D extends number = 5> = [D] extends [never] ? never : PathOfEach<NonNullable<T>, D>

type PathOfEach<T, D extends number> = T extends Leaf
  ? never
  : T extends readonly (infer Item)[]
    ? `${number}` | `[${number}]` | Below<`${number}` | `[${number}]`, Item, D>
    : { [K in keyof T & string]: K | Below<K, T[K], D> }[keyof T & string]

type Below<K extends string, T, D extends number> = Joined<K, PathOf<T, Depth[D]>>
type Joined<K extends string, P> = P extends string ? (P extends `[${string}` ? `${K}${P}` : `${K}.${P}`) : never

/** The type of the value at a path. */
export type ValueAt<T, P extends string> = P extends `${infer Head}.${infer Rest}`
  ? ValueAt<ValueAt<T, Head>, Rest>
  : P extends `${infer Head}[${string}]`
    ? ElementOf<Head extends '' ? T : ValueAt<T, Head>>
    : KeyOf<NonNullable<T>, P>

type ElementOf<T> = NonNullable<T> extends readonly (infer Item)[] ? Item : unknown
type KeyOf<T, K extends string> = T extends readonly (infer Item)[] ? Item : K extends keyof T ? T[K] : never
