/**
 * Groups of documents or rows. A group becomes one JSON object, of its keys and of the values computed from its members; so
 * `having` and `orderBy` are conditions and orders of documents, on that object.
 */

import { literal } from '../../database/sql.ts'
import type { CallOptions } from '../collection.ts'
import { InvalidQuery } from '../errors.ts'
import { type Condition, checked } from './condition.ts'
import { jsonAt, typedAt } from './expression.ts'
import {
  documentScope,
  type Field,
  fieldsOf,
  type MetaFields,
  metaFields,
  type Path,
  type Place,
  placeIn,
  Scope,
  type ValueFrom,
} from './field.ts'
import { columnOf } from './layout.ts'
import type { Kind } from './operand.ts'
import { type Direction, type OrderAs, type OrderKey, type OrderOptions, orderKey, type TextPath } from './order.ts'
import { columnIn, readAs, renderCondition, timeOf, type Writing } from './render.ts'
import { executorFor, runQuery } from './run.ts'
import { wholeNumber } from './select.ts'
import { type QuerySource, type QueryState, renderFrom, write } from './state.ts'

export type Keys<Doc> = Readonly<Record<string, (c: Field<Doc>, meta: MetaFields) => Path<unknown>>>

/** A value computed from the documents of a group. */
export class GroupValue<out R> {
  readonly name: 'count' | 'sum' | 'avg' | 'min' | 'max'
  readonly place: Place | undefined
  readonly kind: Kind
  /** Absent at run time: it carries the type of the value. */
  declare readonly '~result': R
  constructor(name: GroupValue<R>['name'], place: Place | undefined, kind: Kind) {
    this.name = name
    this.place = place
    this.kind = kind
  }
}

export type GroupRow<K, A> = { -readonly [N in keyof K]: ValueFrom<K[N]> } & {
  -readonly [N in keyof A]: A[N] extends GroupValue<infer R> ? R : never
}

type Numeric<T> = [Extract<T, number>] extends [never] ? (unknown extends T ? Path<T> : never) : Path<T>

/**
 * The number of members.
 *
 * @example
 * ```ts
 * const cities = await store
 *   .documents(customers)
 *   .query()
 *   .groupBy({ city: c => c.city }, () => ({ count: count() }))
 *   .toArray()
 * ```
 */
export function count(): GroupValue<number> {
  return new GroupValue('count', undefined, 'number')
}

/**
 * The sum of all numbers; null if there are none.
 *
 * @example
 * ```ts
 * const visits = await store
 *   .documents(customers)
 *   .query()
 *   .groupBy({ city: c => c.city }, c => ({ visits: sum(c.visits) }))
 *   .toArray()
 * ```
 */
export function sum<T>(field: Path<T> & Numeric<T>): GroupValue<number | null> {
  return new GroupValue('sum', placeIn(field), 'number')
}

/**
 * The mean of all numbers; null if there are none.
 *
 * @example
 * ```ts
 * const means = await store
 *   .documents(customers)
 *   .query()
 *   .groupBy({ city: c => c.city }, c => ({ mean: avg(c.visits) }))
 *   .toArray()
 * ```
 */
export function avg<T>(field: Path<T> & Numeric<T>): GroupValue<number | null> {
  return new GroupValue('avg', placeIn(field), 'number')
}

/**
 * The least value; of numbers, or of texts with `as: 'text'`.
 *
 * @example
 * ```ts
 * const mins = await store
 *   .documents(customers)
 *   .query()
 *   .groupBy({ city: c => c.city }, c => ({ visits: min(c.visits) }))
 *   .toArray()
 * ```
 */
export function min<K extends 'number' | 'text' = 'number'>(
  field: Path<unknown>,
  options: { readonly as?: K } = {},
): GroupValue<(K extends 'text' ? string : number) | null> {
  return new GroupValue('min', placeIn(field), options.as ?? 'number')
}

/**
 * The greatest value; of numbers, or of texts with `as: 'text'`.
 *
 * @example
 * ```ts
 * const maxs = await store
 *   .documents(customers)
 *   .query()
 *   .groupBy({ city: c => c.city }, c => ({ visits: max(c.visits) }))
 *   .toArray()
 * ```
 */
export function max<K extends 'number' | 'text' = 'number'>(
  field: Path<unknown>,
  options: { readonly as?: K } = {},
): GroupValue<(K extends 'text' ? string : number) | null> {
  return new GroupValue('max', placeIn(field), options.as ?? 'number')
}

/** A query of groups, with a value for each. */
export interface GroupQuery<Row> {
  /** Only groups that meet the condition. */
  having(condition: (group: Field<Row>) => Condition): GroupQuery<Row>
  orderBy(field: (group: Field<Row>) => TextPath, options?: Direction | OrderOptions): GroupQuery<Row>
  orderBy<T>(field: (group: Field<Row>) => Path<T>, options: OrderAs<NoInfer<T>>): GroupQuery<Row>
  limit(count: number): GroupQuery<Row>
  toArray(options?: CallOptions): Promise<Row[]>
}

interface GroupState {
  readonly keys: ReadonlyMap<string, Place>
  readonly values: ReadonlyMap<string, GroupValue<unknown>>
  readonly having: readonly Condition[]
  readonly order: readonly OrderKey[]
  readonly limit: unknown
}

const groupScope = new Scope()

export function groupQuery<Doc, K extends Keys<Doc>, A extends Record<string, GroupValue<unknown>>>(
  source: QuerySource,
  documents: QueryState,
  keys: K,
  values: (c: Field<Doc>, meta: MetaFields) => A,
): GroupQuery<GroupRow<K, A>> {
  const c = fieldsOf<Doc>(documentScope)
  const places = Object.entries(keys).map(([name, take]) => [name, placeIn(take(c, metaFields))] as const)
  const outcomes = Object.entries(values(c, metaFields))
  const twice = outcomes.find(([name]) => Object.hasOwn(keys, name))?.[0]
  if (twice !== undefined) throw new InvalidQuery({ reason: `groupBy has ${JSON.stringify(twice)} twice` })
  if (!outcomes.every(([, each]) => each instanceof GroupValue))
    throw new InvalidQuery({ reason: 'groupBy takes values such as count() and sum(c.total)' })
  const state = { keys: new Map(places), values: new Map(outcomes), having: [], order: [], limit: undefined }
  return fromState(source, documents, state)
}

function fromState<Row>(source: QuerySource, documents: QueryState, state: GroupState): GroupQuery<Row> {
  const next = (change: Partial<GroupState>): GroupQuery<Row> => fromState(source, documents, { ...state, ...change })
  const group = fieldsOf<Row>(groupScope)
  return {
    having: condition => next({ having: [...state.having, checked(condition(group))] }),
    orderBy: (field: (group: Field<Row>) => Path<unknown>, options?: Direction | OrderOptions) =>
      next({ order: [...state.order, orderKey(placeIn(field(group)), options)] }),
    limit: limit => next({ limit }),
    async toArray(options = {}) {
      const executor = await executorFor(source, documents, options)
      const written = write(source, writing => renderGroups(source, documents, state, writing))
      const rows = await runQuery(source, documents, written, executor)
      const times = [...state.keys].filter(([, place]) => isTime(place, source)).map(([name]) => name)
      return rows.map(([row]) => withTimes(row as Record<string, unknown>, times) as Row)
    },
  }
}

function renderGroups(source: QuerySource, documents: QueryState, state: GroupState, writing: Writing): string {
  const keys = [...state.keys].map(([name, place]) => ({ name, value: keyOf(place, writing) }))
  const outcomes = [...state.values].map(([name, each]) => ({ name, value: outcomeOf(each, writing) }))
  const parts = [...keys, ...outcomes].map(({ name, value }) => `${literal(name)}, ${value}`)
  const by = keys.length === 0 ? '' : `\n    group by ${keys.map(key => key.value).join(', ')}`
  const grouped = { ...writing, scopes: new Map([...writing.scopes, [groupScope, 'g.value']]) }
  const having = state.having.map(each => renderCondition(each, grouped))
  const order = state.order.map(
    ({ place, as, direction, nulls }) => `${typedAt('g.value', place.path, as)} ${direction} nulls ${nulls}`,
  )
  return [
    `/* ${source.label}.group */\n  select g.value`,
    `from (\n    select jsonb_build_object(${parts.join(', ')}) as value\n    ${renderFrom(source, documents, writing)}${by}\n  ) as g`,
    ...(having.length > 0 ? [`where ${having.join(' and ')}`] : []),
    ...(order.length > 0 ? [`order by ${order.join(', ')}`] : []),
    ...(state.limit === undefined ? [] : [`limit ${writing.binder.bind(state.limit, 'bigint', wholeNumber('limit'))}`]),
  ].join('\n  ')
}

/** A group comes as JSON, in which a time is text: those of columns are made Dates again. */
function withTimes(row: Record<string, unknown>, names: readonly string[]): Record<string, unknown> {
  for (const name of names) if (typeof row[name] === 'string') row[name] = new Date(row[name])
  return row
}

function isTime(place: Place, { layout, collection }: QuerySource): boolean {
  return columnOf(place, layout, '', collection.name)?.kind === 'time'
}

/** A missing field and null are one group. A `numeric` is text, as it is when a row is read. */
function keyOf(place: Place, writing: Writing): string {
  const column = columnIn(place, writing)
  if (column === undefined) return `coalesce(${jsonAt(`${writing.prefix}body`, place.path)}, 'null')`
  if (column.kind === 'json') return `coalesce(${jsonAt(column.sql, column.path)}, 'null')`
  const isText = column.type === 'numeric'
  return `coalesce(to_jsonb(${column.sql}${isText ? '::text' : ''}), 'null')`
}

function outcomeOf({ name, place, kind }: GroupValue<unknown>, writing: Writing): string {
  if (place === undefined) return 'count(*)'
  const value = timeOf(place, writing) ?? readAs(place, kind, writing)
  if (value === undefined) throw new InvalidQuery({ reason: `${name} cannot read this field as ${kind}` })
  return `${name}(${value})`
}
