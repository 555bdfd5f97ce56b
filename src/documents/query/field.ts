/**
 * The fields of a document as a query names them: `c => c.address.city`.
 *
 * `c` stands for a document: a property of it stands for that field, and is typed like the field. It knows only its place,
 * which the operators read; so no name of a field is special, not even `then` or `constructor`.
 */
import { textFault } from '../../core/name.ts'
import { InvalidQuery } from '../errors.ts'

declare const valueType: unique symbol
const placeOf: unique symbol = Symbol('rillflow.place')

/** A place in a document that holds a `T`. */
export interface Path<out T> {
  readonly [valueType]: T
}

/**
 * A place in a document, and the places inside of it. (Not conditional itself: hovers then say `Field<Customer>`.)
 *
 * @example
 * ```ts
 * const isVip = (tags: Field<string>) => eq(tags, 'vip')
 * ```
 */
export type Field<T> = Path<T> & FieldsOf<T>

/** A place whose type is not known: any field may follow. */
export interface UntypedField extends Path<unknown> {
  readonly [name: string]: UntypedField
}

type FieldsOf<T> = unknown extends T
  ? UntypedField
  : [T] extends [Leaf]
    ? unknown
    : { readonly [K in KeysOf<T>]-?: Field<ValueAt<T, K>> }

type Leaf = string | number | boolean | Date | null | undefined

/** Of a union, the keys of all members: a document of another shape just lacks the field. */
export type KeysOf<T> = unknown extends T
  ? string | number
  : T extends Leaf
    ? never
    : T extends readonly unknown[]
      ? number
      : keyof T & (string | number)

export type ValueAt<T, K> = unknown extends T
  ? unknown
  : T extends readonly (infer E)[]
    ? E
    : T extends Leaf
      ? never
      : K extends keyof T
        ? T[K]
        : undefined

/** The type of a field when it is selected: null where it is missing. */
export type ValueFrom<F> = F extends (...args: never[]) => Path<infer T>
  ? undefined extends T
    ? Exclude<T, undefined> | null
    : T
  : never

/** The facts that the store itself has of each document. */
export interface MetaFields {
  readonly id: Path<string>
  readonly version: Path<number>
  readonly createdAt: Path<Date>
  readonly createdBy: Path<string | undefined>
  readonly updatedAt: Path<Date>
  readonly updatedBy: Path<string | undefined>
  readonly deletedAt: Path<Date | undefined>
}

/** Where a path begins: in a document, or in an element of one of its arrays. */
export class Scope {}

export interface Place {
  readonly scope: Scope
  readonly path: readonly string[]
  /** Set for a field that is not in the body but in a column of its own. */
  readonly meta?: keyof MetaFields | undefined
  readonly isLower?: boolean | undefined
  /** Set for a value that is computed from the words found in it. */
  readonly found?: FoundWords | undefined
}

/** How well a text fits words, or the part of it that has them. */
export interface FoundWords extends SearchOptions {
  readonly as: 'rank' | 'headline'
  readonly words: unknown
  /** The marks that a headline puts around each word that was found. */
  readonly mark?: readonly [string, string] | undefined
}

export interface SearchOptions {
  /** Default: that of the collection. */
  readonly language?: string | undefined
  /** The last word may be the beginning of one: 'red sho' finds red shoes. Default false. */
  readonly prefix?: boolean | undefined
}

const naming: ProxyHandler<{ [placeOf]: Place }> = {
  get(target, key) {
    if (key === placeOf) return target[placeOf]
    if (typeof key === 'symbol') return undefined
    const place = target[placeOf]
    if (place.meta !== undefined || place.isLower === true || place.found !== undefined) return undefined
    return fieldFor({ scope: place.scope, path: [...place.path, checkedStep(key)] })
  },
}

function checkedStep(step: string): string {
  const fault = textFault(step)
  if (fault !== undefined) throw new InvalidQuery({ reason: `the name of a field ${fault}` })
  return step
}

/** The body of the documents of a query. */
export const documentScope: Scope = new Scope()

export function fieldsOf<T>(scope: Scope): Field<T> {
  return fieldFor({ scope, path: [] }) as Field<T>
}

/** The field at the end of a path. */
export function fieldAt(scope: Scope, path: readonly string[]): Path<unknown> {
  return fieldFor({ scope, path })
}

const metaNames = ['id', 'version', 'createdAt', 'createdBy', 'updatedAt', 'updatedBy', 'deletedAt'] as const

export const metaFields: MetaFields = Object.fromEntries(
  metaNames.map(meta => [meta, fieldFor({ scope: documentScope, path: [], meta })]),
) as unknown as MetaFields

/**
 * A field by a number, or by a name that is known only at run time: `at(c.items, 0)`, `at(c.stock, city)`.
 *
 * @example
 * ```ts
 * const found = await store.documents(customers).where(c => eq(at(c.tags, 0), 'vip')).toArray()
 * ```
 */
export function at<T, K extends KeysOf<T>>(field: Path<T>, key: K): Field<ValueAt<T, K>> {
  const place = placeIn(field)
  return fieldFor({ ...place, path: [...place.path, checkedStep(String(key))] }) as Field<ValueAt<T, K>>
}

/**
 * The field in lower case; the operand is put in lower case, too.
 *
 * @example
 * ```ts
 * const found = await store.documents(customers).where(c => eq(lower(c.name), 'ada')).toArray()
 * ```
 */
export function lower<T extends string | null | undefined>(field: Path<T>): Path<string> {
  return fieldFor({ ...placeIn(field), isLower: true }) as unknown as Path<string>
}

/**
 * How well a document fits the words of a `search`: order by it, best first, or select it.
 *
 * @example
 * ```ts
 * const best = await store
 *   .documents(customers)
 *   .where(c => search(c, 'tea'))
 *   .orderBy(c => rank(c, 'tea'), 'desc')
 *   .toArray()
 * ```
 */
export function rank<T>(field: Path<T>, words: string, options: SearchOptions = {}): Path<number> {
  return fieldFor({ ...placeIn(field), found: { ...options, as: 'rank', words } }) as Path<number>
}

export interface HeadlineOptions extends SearchOptions {
  /** Put around each word that was found. Default `['<b>', '</b>']`; the text itself is not escaped for HTML. */
  readonly mark?: readonly [string, string] | undefined
}

/**
 * The part of a text in which the words of a `search` were found, to be selected.
 *
 * @example
 * ```ts
 * const found = await store
 *   .documents(customers)
 *   .where(c => search(c, 'tea'))
 *   .select({ part: c => headline(c.name, 'tea') })
 *   .toArray()
 * ```
 */
export function headline<T>(field: Path<T>, words: string, options: HeadlineOptions = {}): Path<string> {
  return fieldFor({ ...placeIn(field), found: { ...options, as: 'headline', words } }) as Path<string>
}

export function placeIn(field: unknown): Place {
  const place = typeof field === 'object' && field !== null ? (field as { [placeOf]?: Place })[placeOf] : undefined
  if (place === undefined) {
    const given = typeof field === 'object' ? 'an object' : `${typeof field} ${JSON.stringify(String(field))}`
    throw new InvalidQuery({ reason: `${given} is not a field; take fields from the function's argument: c => c.name` })
  }
  return place
}

function fieldFor(place: Place): Path<unknown> {
  return new Proxy({ [placeOf]: place }, naming) as unknown as Path<unknown>
}
