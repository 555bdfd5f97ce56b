/**
 * Table projections: declared columns, set and incremented by events.
 *
 *     defineTableProjection('sales', {
 *       events,
 *       columns: { customer: 'text', orders: 'integer', cents: 'bigint', last_order: 'timestamptz' },
 *       primaryKey: ['customer'],
 *       on: {
 *         OrderPlaced: ({ data, createdAt }, row) =>
 *           row({ customer: data.customer }, { increment: { orders: 1, cents: data.cents }, set: { last_order: createdAt } }),
 *         CustomerForgotten: ({ data }, row) => row({ customer: data.customer }, 'delete'),
 *       },
 *     })
 *
 * A handler returns the change of one row, a list of changes, or nothing. Numbers start at 0, everything else at null; a
 * value of undefined is null. A batch is summed up per row and applied by a handful of statements, whatever its size;
 * amounts are added by the database, so that `numeric` stays exact.
 */
import { checkDefinition } from '../core/definition.ts'
import { InvalidOption } from '../core/errors.ts'
import { describe } from '../core/options.ts'
import type {
  EventKey,
  EventMap,
  EventsCarried,
  RecordedEvent,
  RecordedEventAt,
  UntypedEvents,
} from '../events/definition.ts'
import { InvalidProjectionValue } from './errors.ts'
import {
  type ApplyContext,
  checkLifecycle,
  commonParts,
  handlerFor,
  handlersOf,
  type Projection,
  type ProjectionOptions,
} from './projection.ts'
import { type ColumnDefinition, declareTable, type TableIndex, versionTables } from './table.ts'
import { type ChangedRow, type ColumnValue, type TableColumn, writeRows } from './table-rows.ts'

/** The types a column may have, and the values that are written to it. */
export interface WrittenValues {
  text: string
  'text collate "C"': string
  uuid: string
  boolean: boolean
  integer: number
  bigint: number | bigint
  numeric: number | bigint | string
  'double precision': number
  timestamptz: Date | string
  jsonb: object | string | number | boolean
}

/** The values that are read from it. */
export interface ReadValues {
  text: string
  'text collate "C"': string
  uuid: string
  boolean: boolean
  integer: number
  bigint: number
  numeric: string
  'double precision': number
  timestamptz: Date
  jsonb: unknown
}

type NumberType = 'integer' | 'bigint' | 'numeric' | 'double precision'

export type RowColumns = Readonly<Record<string, keyof WrittenValues>>

/**
 * A row as it is read. A column that is neither in the key nor a number may be null. (`infer`, so that hovers and
 * declarations show the row itself.)
 */
export type RowOf<Columns extends RowColumns, Key extends keyof Columns> = {
  [C in keyof Columns]: C extends Key
    ? ReadValues[Columns[C]]
    : Columns[C] extends NumberType
      ? ReadValues[Columns[C]]
      : ReadValues[Columns[C]] | null
} extends infer Row
  ? { readonly [C in keyof Row]: Row[C] }
  : never

/** The change of one row by an event: set and increment its columns, or delete it. */
export type ChangeRow<Columns extends RowColumns, Key extends keyof Columns> = (
  key: { readonly [C in Key]: WrittenValues[Columns[C]] },
  change: 'delete' | ColumnChanges<Columns, Key>,
) => RowChange

interface ColumnChanges<Columns extends RowColumns, Key extends keyof Columns> {
  readonly set?:
    | { readonly [C in Exclude<keyof Columns, Key>]?: WrittenValues[Columns[C]] | null | undefined }
    | undefined
  readonly increment?:
    | {
        readonly [C in Exclude<keyof Columns, Key> as Columns[C] extends NumberType ? C : never]?:
          | number
          | bigint
          | string
          | undefined
      }
    | undefined
}

/** Made by `row(key, change)`. */
export interface RowChange {
  readonly key: Readonly<Record<string, unknown>>
  readonly change:
    | 'delete'
    | {
        readonly set?: Readonly<Record<string, unknown>> | undefined
        readonly increment?: Readonly<Record<string, unknown>> | undefined
      }
}

/** A table projection, as it was defined. `store.rows(projection)` reads it. */
export interface TableProjection<Row = unknown, M extends EventMap = never> extends Projection<M> {
  /** Absent at run time: it carries the type to where rows are read. */
  readonly '~row'?: Row | undefined
  /** The name of its table for `ctx.table`. */
  readonly rowTable: string
  readonly columns: readonly TableColumn[]
}

export interface TableProjectionDefinition<
  M extends EventMap,
  Columns extends RowColumns,
  Key extends keyof Columns,
  Type extends string,
> extends ProjectionOptions<M> {
  readonly columns: Columns
  readonly primaryKey: readonly Key[]
  /** Handlers by type; `'*'` is for events of all types that have none of their own. */
  readonly on: {
    readonly [T in Type]: (
      event: RecordedEventAt<NoInfer<M>, T>,
      row: ChangeRow<Columns, Key>,
    ) => RowChange | readonly RowChange[] | undefined
  }
  readonly indexes?: readonly TableIndex<keyof NoInfer<Columns> & string>[] | undefined
  /** The table. Default: the name, with `_` for `-`. */
  readonly table?: string | undefined
}

/**
 * Defines a read model in SQL columns: sums, counts and last values, one row for each key.
 *
 * @example
 * ```ts
 * const turnover = defineTableProjection('turnover', {
 *   events,
 *   columns: { customer: 'text', cents: 'bigint' },
 *   primaryKey: ['customer'],
 *   on: { OrderPlaced: ({ data }, row) => row({ customer: data.customer }, { increment: { cents: data.cents } }) },
 * })
 * ```
 */
export function defineTableProjection<
  M extends EventMap = UntypedEvents,
  const Columns extends RowColumns = RowColumns,
  Key extends keyof Columns = never,
  Type extends EventKey<NoInfer<M>> = EventKey<NoInfer<M>>,
>(
  name: string,
  definition: TableProjectionDefinition<M, Columns, Key, Type>,
): TableProjection<RowOf<Columns, Key>, EventsCarried<M>> {
  checkDefinition('defineTableProjection', name, definition)
  const { version = 1, table = name.replaceAll('-', '_'), indexes } = definition
  const handlers = handlersOf<Handler>(name, 'on', definition.on)
  const common = commonParts(name, definition, handlers, ['columns', 'primaryKey', 'on', 'indexes', 'table'])
  const primaryKey = definition.primaryKey as readonly string[]
  const columns = columnsOf(name, definition.columns, primaryKey)
  const declared = declareTable(table, {
    columns: Object.fromEntries(columns.map(column => [column.name, definitionOf(column)])),
    ...{ primaryKey, indexes, fillfactor: 80 },
  })
  return Object.freeze(
    checkLifecycle({
      ...common,
      tables: versionTables([declared], version),
      rowTable: table,
      columns,
      reset: undefined,
      fold: undefined,
      async apply(events: readonly RecordedEvent[], ctx: ApplyContext) {
        const rows = new Map<string, ChangedRow>()
        for (const event of events) {
          ctx.at(event)
          for (const { key, change } of changesBy(handlerFor(handlers, name, event), name, event))
            changeRow(rowOf(rows, { projection: name, columns }, key), change, { projection: name, columns })
        }
        ctx.at(undefined)
        await writeRows(ctx.tx, ctx.tables(table), { projection: name, columns }, [...rows.values()], ctx.isInline)
      },
    }),
  )
}

type Handler = (event: RecordedEvent, row: (key: RowChange['key'], change: RowChange['change']) => RowChange) => unknown

function columnsOf(name: string, given: RowColumns, primaryKey: readonly string[]): TableColumn[] {
  return Object.entries(given).map(([column, type]) => {
    const isKey = primaryKey.includes(column)
    if (!types.has(type) || (isKey && type === 'jsonb')) {
      const reason = `Column "${column}" of projection "${name}" cannot have the type ${describe(type)}${isKey ? ' in the primary key' : ''}. The types are ${[...types].join(', ')}.`
      throw new InvalidOption({ option: `columns.${column}`, reason })
    }
    return { name: column, type, isKey, isNumber: numbers.has(type) && !isKey }
  })
}

function definitionOf({ type, isKey, isNumber }: TableColumn): ColumnDefinition {
  if (isKey) return { type }
  return isNumber ? { type, default: 0 } : { type, nullable: true }
}

const numbers: ReadonlySet<string> = new Set(['integer', 'bigint', 'numeric', 'double precision'])
const types: ReadonlySet<string> = new Set([
  ...numbers,
  ...['text', 'text collate "C"', 'uuid', 'boolean', 'timestamptz', 'jsonb'],
])

/**
 * The changes that a handler returns. A change that it makes and does not return is refused, because it would be lost
 * in silence.
 */
function changesBy(handler: Handler, projection: string, event: RecordedEvent): readonly RowChange[] {
  let made = 0
  const known = new Set<unknown>()
  const returned = handler(event, (key, change) => {
    made++
    const one = { key, change }
    known.add(one)
    return one
  })
  const changes: readonly unknown[] = returned === undefined ? [] : Array.isArray(returned) ? returned : [returned]
  if (changes.every(each => known.has(each)) && changes.length === made) return changes as readonly RowChange[]
  const reason =
    made > changes.length
      ? `calls row() ${made} times and returns ${changes.length} of its results: return each of them`
      : `returns ${describe(returned)}: return row(key, change), a list of these, or nothing`
  throw new InvalidProjectionValue({ projection, path: `on.${event.type}`, reason })
}

interface Target {
  readonly projection: string
  readonly columns: readonly TableColumn[]
}

function rowOf(
  rows: Map<string, ChangedRow>,
  { projection, columns }: Target,
  given: Readonly<Record<string, unknown>>,
): ChangedRow {
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
  const row: ChangedRow = { key, isDeleted: false, isChanged: false, sets: new Map(), adds: new Map() }
  rows.set(text, row)
  return row
}

/** Of a batch only the outcome is stored: the last value set, and the amounts added since. */
function changeRow(row: ChangedRow, change: RowChange['change'], target: Target): void {
  if (change === 'delete') {
    row.isDeleted = true
    row.isChanged = false
    row.sets.clear()
    row.adds.clear()
    return
  }
  const { projection } = target
  row.isChanged = true
  for (const [name, given] of Object.entries(change.set ?? {})) {
    const column = columnOf(target, name)
    row.sets.set(name, storable({ projection, path: name }, column, given))
    row.adds.delete(name)
  }
  for (const [name, given] of Object.entries(change.increment ?? {})) {
    const column = columnOf(target, name)
    const path = `the increment of ${name}`
    const amount = given === undefined || given === null ? null : storable({ projection, path }, column, given)
    if (!column.isNumber || amount === null)
      throw new InvalidProjectionValue({ projection, path, reason: 'needs a number' })
    const amounts = row.adds.get(name)
    if (amounts === undefined) row.adds.set(name, [amount])
    else amounts.push(amount)
  }
}

function columnOf({ projection, columns }: Target, name: string): TableColumn {
  const column = columns.find(each => each.name === name)
  if (column === undefined || column.isKey)
    throw new InvalidProjectionValue({ projection, path: name, reason: 'is not a column that an event can change' })
  return column
}

/** The value as it is sent. `NaN` would be stored by the database, and stay for good. */
function storable(at: { projection: string; path: string }, column: TableColumn, value: unknown): ColumnValue {
  const refuse = (reason: string): never => {
    throw new InvalidProjectionValue({ ...at, reason })
  }
  if (value === undefined || value === null) return column.isNumber ? 0 : null
  if (column.type === 'jsonb') return JSON.stringify(value) ?? null
  if (typeof value === 'number' && !Number.isFinite(value)) refuse(`is ${value}`)
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? refuse('is an invalid date') : value.toISOString()
  if (column.type === 'bigint' && !isExact(value)) refuse(`is ${String(value)}, beyond ${Number.MAX_SAFE_INTEGER}`)
  if (typeof value === 'bigint') return value.toString()
  if (typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean') return value
  return refuse(`is of type ${typeof value}`)
}

/** Whether a whole number is read back as it was written. */
function isExact(value: unknown): boolean {
  return typeof value === 'number' || typeof value === 'bigint' || typeof value === 'string'
    ? Math.abs(Number(value)) <= Number.MAX_SAFE_INTEGER
    : true
}
