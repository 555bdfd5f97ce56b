/**
 * Transactions of other libraries, published as `rillflow/transactions`: what the store writes commits, or is rolled back,
 * with what your library writes.
 *
 *     await db.transaction(async tx => {                                     Drizzle
 *       await tx.insert(orders).values(order)
 *       await store.events.append(order.id, placed, { tx: fromDrizzle(tx) })
 *     })
 *
 *     fromDrizzle     on node-postgres or postgres.js          fromKysely      on its PostgresDialect
 *     fromPrisma      with a driver adapter for PostgreSQL     fromPostgresJs  `sql.begin` and `sql.savepoint`
 *
 * A client of `pg` needs no adapter. Each gives an object that sends our statements through the connection of your
 * transaction, and reads the answers by our parsers, whatever the settings of the library. Nothing is imported from any
 * of them: the types are of the few members that are used.
 *
 * The store refuses a handle without an open transaction (`not_in_transaction`). It does not know when yours commits, so other
 * readers are woken by a notification that the database sends with the commit.
 */
import { InvalidOption } from '../core/errors.ts'
import { IntegerTooLarge } from '../database/errors.ts'
import type { ForeignQuery, ForeignTransaction } from '../database/transaction.ts'

/**
 * The transaction of `db.transaction(async tx => …)`.
 *
 * @example
 * ```ts
 * const adapt = (tx: DrizzleTransaction) => fromDrizzle(tx)
 * ```
 */
export interface DrizzleTransaction {
  execute(query: never): unknown
  rollback(): never
}

/**
 * The transaction of Drizzle, on node-postgres or postgres.js, as `{ tx }`.
 *
 * @example
 * ```ts
 * const place = (tx: DrizzleTransaction) =>
 *   store.events.append('order-6', placed, { tx: fromDrizzle(tx) })
 * ```
 */
export function fromDrizzle(tx: DrizzleTransaction): ForeignTransaction {
  const client = (tx as { session?: { client?: Partial<ForeignTransaction & PostgresJsClient> } }).session?.client
  if (typeof client?.unsafe === 'function') return fromPostgresJs(client as unknown as PostgresJsTransaction)
  if (typeof client?.query === 'function' && !('exec' in client)) return client as ForeignTransaction
  const reason =
    'fromDrizzle takes the transaction of a database of "drizzle-orm/node-postgres" or "drizzle-orm/postgres-js". It has no such client.'
  throw new InvalidOption({ option: 'tx', reason })
}

/**
 * The transaction of `db.transaction().execute(async trx => …)`, or a controlled one.
 *
 * @example
 * ```ts
 * const adapt = (trx: KyselyTransaction) => fromKysely(trx)
 * ```
 */
export interface KyselyTransaction {
  readonly isTransaction: true
  withoutPlugins(): unknown
}

interface KyselyExecutor {
  executeQuery(query: object): Promise<{ rows: unknown[] }>
}

/**
 * Kysely gives the text of a query to `pg` as it is, and `pg` takes an object there that has parsers and a row mode.
 *
 * @example
 * ```ts
 * const place = (trx: KyselyTransaction) =>
 *   store.events.append('order-6', placed, { tx: fromKysely(trx) })
 * ```
 */
export function fromKysely(trx: KyselyTransaction): ForeignTransaction {
  return once(trx, () => {
    const db = trx.withoutPlugins() as KyselyExecutor
    const node = { kind: 'RawNode', sqlFragments: [], parameters: [] }
    return query =>
      db.executeQuery({ sql: query, parameters: query.values, query: node, queryId: { queryId: 'rillflow' } })
  })
}

/**
 * The client of `prisma.$transaction(async tx => …)`.
 *
 * @example
 * ```ts
 * const adapt = (tx: PrismaTransaction) => fromPrisma(tx)
 * ```
 */
export interface PrismaTransaction {
  $queryRawUnsafe(query: string, ...values: unknown[]): PromiseLike<unknown>
  readonly $connect?: never
}

/**
 * Prisma parses the answers itself: a bigint is a `BigInt`, a numeric a `Decimal`. They are made what ours are.
 *
 * @example
 * ```ts
 * const place = (tx: PrismaTransaction) =>
 *   store.events.append('order-6', placed, { tx: fromPrisma(tx) })
 * ```
 */
export function fromPrisma(tx: PrismaTransaction): ForeignTransaction {
  return once(tx, () => async ({ text, values, rowMode }) => {
    try {
      const rows = (await tx.$queryRawUnsafe(text, ...values.map(encode))) as Record<string, unknown>[]
      const read = (row: Record<string, unknown>): [string, unknown][] =>
        Object.entries(row).map(([name, value]) => [name, fromPrismaValue(value)])
      if (rowMode === 'array') return { rows: rows.map(row => read(row).map(([, value]) => value)) }
      return { rows: rows.map(row => Object.fromEntries(read(row))) }
    } catch (error) {
      throw withSqlState(error)
    }
  })
}

/**
 * The `sql` of `sql.begin(async sql => …)`.
 *
 * @example
 * ```ts
 * const adapt = (sql: PostgresJsTransaction) => fromPostgresJs(sql, { prepare: false })
 * ```
 */
export interface PostgresJsTransaction {
  unsafe(query: string, parameters: never[], options: object): { raw(): PromiseLike<unknown> }
  typed: unknown
  savepoint: unknown
}

interface PostgresJsClient {
  unsafe(query: string, parameters: unknown[], options: object): { raw(): PromiseLike<RawResult> }
  typed(value: unknown, oid: number): unknown
}

type RawResult = Iterable<(Buffer | null)[]> & { readonly columns?: readonly { name: string; type: number }[] }

const textType = 25

/**
 * It guesses the type of a parameter by its first element, and writes JSON a second time where the server expects JSON. So
 * every parameter goes as text, which the casts in our statements make what it is.
 *
 * @example
 * ```ts
 * const place = (sql: PostgresJsTransaction) =>
 *   store.events.append('order-6', placed, { tx: fromPostgresJs(sql) })
 * ```
 */
export function fromPostgresJs(
  transaction: PostgresJsTransaction,
  options: { readonly prepare?: boolean } = {},
): ForeignTransaction {
  const sql = transaction as unknown as PostgresJsClient
  const prepare = options.prepare ?? true
  const typed = (value: unknown): unknown => (value === null ? null : sql.typed(value, textType))
  return once(transaction, () => async ({ text, values, rowMode, types }: ForeignQuery) => {
    const result = await sql.unsafe(text, values.map(encode).map(typed), { prepare }).raw()
    const columns = result.columns ?? []
    const parsers = columns.map(({ type }) => types!.getTypeParser(type))
    const rows = Array.from(result, row => row.map((raw, at) => (raw === null ? null : parsers[at]!(raw.toString()))))
    if (rowMode === 'array') return { rows }
    return { rows: rows.map(row => Object.fromEntries(row.map((value, at) => [columns[at]!.name, value]))) }
  })
}

/** One handle for each transaction, however often it is adapted: the store puts what it does in one into an order. */
function once(theirs: object, open: () => ForeignTransaction['query']): ForeignTransaction {
  const known = handles.get(theirs) ?? { query: open() }
  handles.set(theirs, known)
  return known
}

const handles = new WeakMap<object, ForeignTransaction>()

/** A value in PostgreSQL's text form: every parameter of our statements is cast, so no driver has to know its type. */
function encode(value: unknown): string | null {
  if (value === null || value === undefined) return null
  if (typeof value === 'string') return value
  if (Array.isArray(value)) return `{${value.map(encodeItem).join(',')}}`
  if (value instanceof Date) return value.toISOString()
  if (value instanceof Uint8Array) return `\\x${Buffer.from(value).toString('hex')}`
  return typeof value === 'object' ? JSON.stringify(value) : String(value)
}

function encodeItem(value: unknown): string {
  if (Array.isArray(value)) return encode(value)!
  const text = encode(value)
  return text === null ? 'NULL' : `"${text.replaceAll(/["\\]/g, '\\$&')}"`
}

function fromPrismaValue(value: unknown): unknown {
  if (typeof value === 'bigint') {
    if (!Number.isSafeInteger(Number(value))) throw new IntegerTooLarge({ value: String(value) })
    return Number(value)
  }
  if (Array.isArray(value)) return value.map(fromPrismaValue)
  const decimal = value as { toFixed?: () => string; d?: unknown } | null
  return typeof value === 'object' && typeof decimal?.toFixed === 'function' ? decimal.toFixed() : value
}

/** Prisma hides the state of the database's error behind a code of its own. */
function withSqlState(error: unknown): unknown {
  const { meta } = error as { meta?: { code?: unknown; driverAdapterError?: { cause?: { originalCode?: unknown } } } }
  const state = meta?.driverAdapterError?.cause?.originalCode ?? meta?.code
  if (typeof state !== 'string') return error
  return Object.assign(new Error((error as Error).message, { cause: error }), { code: state })
}
