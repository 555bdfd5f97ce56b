/**
 * Flat-table projections: declared columns, set and incremented by events.
 *
 *     tableProjection('customer-totals', {
 *       events: shopEvents,
 *       columns: { customer: 'text', orders: 'bigint', total: 'numeric', last_parcel: 'text' },
 *       primaryKey: ['customer'],
 *       key: event => ({ customer: event.headers.customer as string }),
 *       on: {
 *         OrderPlaced: { increment: { orders: 1, total: event => event.data.total } },
 *         OrderShipped: event => ({ set: { last_parcel: event.data.parcel } }),
 *         CustomerForgotten: 'delete',
 *       },
 *     })
 *
 * Numbers start at 0, everything else at null; a value of undefined is null. A batch is summed up per row and applied by
 * a handful of statements, whatever its size; amounts are added by the database, so that `numeric` stays exact.
 */
import { InvalidOption } from '../core/errors.ts'
import type { EventMap, RecordedEvent, RecordedEventOf, UntypedEvents } from '../events/definition.ts'
import { InvalidProjectionValue } from './errors.ts'
import { type FlatColumn, type FlatRow, writeRows } from './flat-rows.ts'
import { handlerFor, handlersOf, nameAndFilter, type Projection, type ProjectionOptions } from './projection.ts'
import { type ColumnOptions, table, versionTables } from './table.ts'

/** The types a column may have, and the values it takes. */
export interface FlatTypes {
  text: string
  'text collate "C"': string
  uuid: string
  boolean: boolean
  integer: number
  bigint: number | number
  numeric: number | string
  'double precision': number
  timestamptz: Date | string
  jsonb: object | string | number | boolean
}

export type FlatColumns = Readonly<Record<string, keyof FlatTypes>>

type Value<T extends keyof FlatTypes> = FlatTypes[T] | null | undefined
type Amount = number | number | string

/** What an event does to its row: a value, or a function of the event that gives it. */
export interface RowChange<C extends FlatColumns, E> {
  readonly set?: { readonly [K in keyof C]?: Value<C[K]> | ((event: E) => Value<C[K]>) } | undefined
  readonly increment?: { readonly [K in keyof C]?: Amount | ((event: E) => Amount) } | undefined
}

type RowHandler<C extends FlatColumns, E> =
  | RowChange<C, E>
  | 'delete'
  | ((event: E) => RowChange<C, E> | 'delete' | undefined)

export type RowHandlers<M extends EventMap, C extends FlatColumns> = string extends keyof M
  ? { readonly [type: string]: RowHandler<C, RecordedEvent> }
  : { readonly [T in keyof M & string]?: RowHandler<C, RecordedEventOf<T, M[T]>> } & {
      readonly '*'?: RowHandler<C, RecordedEvent<M>>
    }

export interface TableProjectionOptions<C extends FlatColumns, M extends EventMap = UntypedEvents>
  extends ProjectionOptions<M> {
  readonly columns: C
  readonly primaryKey: readonly (keyof NoInfer<C> & string)[]
  /** The values of the primary key of the row an event is about; undefined for none. */
  readonly key: (event: RecordedEvent<NoInfer<M>>) => { readonly [K in keyof C]?: Value<C[K]> } | undefined
  readonly on: RowHandlers<NoInfer<M>, NoInfer<C>>
  readonly indexes?: readonly (readonly (keyof NoInfer<C> & string)[])[] | undefined
  /** The table. Default: the name, with `_` for `-`. */
  readonly table?: string | undefined
}

export function tableProjection<const C extends FlatColumns, M extends EventMap = UntypedEvents>(
  name: string,
  options: TableProjectionOptions<C, M>,
): Projection {
  const { columns, primaryKey, version = 1, table: tableName = name.replaceAll('-', '_') } = options
  const handlers = handlersOf<RowHandler<FlatColumns, RecordedEvent>>(name, options.on, isRowHandler)
  const flat = Object.entries(columns).map(([column, type]): FlatColumn => {
    const isKey = (primaryKey as readonly string[]).includes(column)
    return { name: column, type, isKey, isNumber: numbers.has(type) && !isKey }
  })
  const strange = flat.find(column => !types.has(column.type) || (column.isKey && column.type === 'jsonb'))
  if (strange !== undefined)
    throw new InvalidOption({ option: `column ${strange.name}`, reason: `cannot have the type ${strange.type} here` })
  const declared = table(tableName, {
    columns: Object.fromEntries(flat.map(column => [column.name, declareFlat(column)])),
    primaryKey,
    indexes: options.indexes,
    fillfactor: 80,
  })
  const keyOf = options.key as (event: RecordedEvent) => Readonly<Record<string, unknown>> | undefined
  return {
    ...nameAndFilter(name, options, handlers),
    tables: versionTables([declared], version),
    reset: undefined,
    fold: undefined,
    async apply(events, ctx) {
      const rows = new Map<string, FlatRow>()
      for (const event of events) {
        ctx.at(event)
        const handler = handlerFor(handlers, name, event)
        const change = typeof handler === 'function' ? handler(event) : handler
        const key = change === undefined ? undefined : keyOf(event)
        if (change === undefined || key === undefined) continue
        changeRow(rowOf(rows, name, flat, key), change, event, { projection: name, columns: flat })
      }
      ctx.at(undefined)
      await writeRows(ctx.tx, ctx.tables(tableName), flat, [...rows.values()], ctx.isInline)
    },
  }
}

function isRowHandler(given: unknown): boolean {
  return typeof given === 'function' || given === 'delete' || (typeof given === 'object' && given !== null)
}

function declareFlat({ type, isKey, isNumber }: FlatColumn): ColumnOptions {
  if (isKey) return { type }
  return isNumber ? { type, default: 0 } : { type, nullable: true }
}

const numbers: ReadonlySet<string> = new Set(['integer', 'bigint', 'numeric', 'double precision'])
const types: ReadonlySet<string> = new Set([
  ...numbers,
  ...['text', 'text collate "C"', 'uuid', 'boolean', 'timestamptz', 'jsonb'],
])

interface Where {
  readonly projection: string
  readonly columns: readonly FlatColumn[]
}

function rowOf(
  rows: Map<string, FlatRow>,
  projection: string,
  columns: readonly FlatColumn[],
  given: Readonly<Record<string, unknown>>,
): FlatRow {
  const key = columns
    .filter(column => column.isKey)
    .map(column => storable({ projection, path: `key ${column.name}` }, column, given[column.name]))
    // 1 and 1n are one key.
    .map(value => (typeof value === 'number' ? String(value) : value))
  if (key.includes(null))
    throw new InvalidProjectionValue({ projection, path: 'the key', reason: 'lacks a value of the primary key' })
  const text = JSON.stringify(key)
  const known = rows.get(text)
  if (known !== undefined) return known
  const row: FlatRow = { key, isDeleted: false, isChanged: false, sets: new Map(), adds: new Map() }
  rows.set(text, row)
  return row
}

/** Only what counts in the end is kept: the last value set, and the amounts added since. */
function changeRow(
  row: FlatRow,
  change: RowChange<FlatColumns, RecordedEvent> | 'delete',
  event: RecordedEvent,
  where: Where,
): void {
  if (change === 'delete') {
    row.isDeleted = true
    row.isChanged = false
    row.sets.clear()
    row.adds.clear()
    return
  }
  row.isChanged = true
  const evaluate = (given: unknown): unknown => (typeof given === 'function' ? given(event) : given)
  for (const [name, given] of Object.entries(change.set ?? {})) {
    const column = columnOf(where, name)
    row.sets.set(name, storable({ projection: where.projection, path: name }, column, evaluate(given)))
    row.adds.delete(name)
  }
  for (const [name, given] of Object.entries(change.increment ?? {})) {
    const column = columnOf(where, name)
    const path = `the increment of ${name}`
    const amount = storable({ projection: where.projection, path }, column, evaluate(given))
    if (!column.isNumber || amount === null)
      throw new InvalidProjectionValue({ projection: where.projection, path, reason: 'needs a number' })
    const amounts = row.adds.get(name)
    if (amounts === undefined) row.adds.set(name, [amount])
    else amounts.push(amount)
  }
}

function columnOf({ projection, columns }: Where, name: string): FlatColumn {
  const column = columns.find(each => each.name === name)
  if (column === undefined || column.isKey)
    throw new InvalidProjectionValue({ projection, path: name, reason: 'is no column that an event can change' })
  return column
}

/** The value as it is sent. `NaN` would be taken by the database, and never go away again. */
function storable(at: { projection: string; path: string }, column: FlatColumn, value: unknown): FlatValue {
  if (value === undefined || value === null) return column.isNumber && !at.path.startsWith('the increment') ? 0 : null
  if (column.type === 'jsonb') return JSON.stringify(value) ?? null
  if (typeof value === 'number' && !Number.isFinite(value))
    throw new InvalidProjectionValue({ ...at, reason: `is ${value}` })
  if (value instanceof Date) {
    if (Number.isNaN(value.getTime())) throw new InvalidProjectionValue({ ...at, reason: 'is an invalid date' })
    return value.toISOString()
  }
  if (typeof value === 'bigint') return value.toString()
  if (typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean') return value
  throw new InvalidProjectionValue({ ...at, reason: `is of type ${typeof value}` })
}

export type FlatValue = string | number | boolean | null
