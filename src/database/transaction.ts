/**
 * The common part of the transactions of both engines: whether code runs inside one, the end of a handle, transactions
 * that the user brings along, and which events were appended in one.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import { InvalidOption, isRillflowError } from '../core/errors.ts'
import { describe } from '../core/options.ts'
import type { Database, Executor, Transaction, TransactionOptions } from './database.ts'
import { InsideTransaction, NotInTransaction, OutcomeUnknown, TransactionClosed } from './errors.ts'
import { type Statement, sql } from './sql.ts'
import { noActiveTransaction, sqlStateOf } from './sqlstate.ts'
import { refuseUnstorable } from './storable.ts'

/** One open transaction, for the code that runs inside it. */
export interface OpenTransaction {
  readonly database: Database
  open: boolean
}

/** The transactions that the current code runs in. At most one per database, so a short list. */
const surroundings = new AsyncLocalStorage<readonly OpenTransaction[]>()
let openCount = 0

/** Runs `work` marked as the inside of a transaction. */
export async function runInside<T>(transaction: OpenTransaction, work: () => Promise<T>): Promise<T> {
  openCount++
  try {
    return await surroundings.run([...(surroundings.getStore() ?? []), transaction], work)
  } finally {
    // Following contexts makes every promise of the process slower (an append costs half as much again), so it is done
    // only while a transaction is open.
    if (--openCount === 0) surroundings.disable()
  }
}

/** Runs `work` as if outside of any transaction: for loops that are started inside one and outlive it. */
export function runOutside<T>(work: () => T): T {
  return surroundings.getStore() === undefined ? work() : surroundings.exit(work)
}

export function refuseInside(database: Database, call: string): void {
  const inside = surroundings.getStore()
  if (inside?.some(transaction => transaction.open && transaction.database === database))
    throw new InsideTransaction({ call })
}

/** Checked at every use of a handle: after its end it must not reach a connection that others use by now. */
export function assertOpen(transaction: OpenTransaction): void {
  if (!transaction.open) throw new TransactionClosed({})
}

/**
 * A transaction that belongs to the user: anything with a `query` method that takes the query object of `pg`. Adapters for
 * other libraries implement it in a few lines.
 *
 * @example
 * ```ts
 * const place = (client: ForeignTransaction) => store.events.append('order-9', placed, { tx: client })
 * ```
 */
export interface ForeignTransaction {
  query(query: ForeignQuery): Promise<{ rows: unknown[] }>
}

/** The query object of `pg`. `types` makes values come back as ours do, whatever the settings of the driver. */
export interface ForeignQuery {
  readonly text: string
  readonly values: unknown[]
  readonly rowMode?: 'array'
  readonly types?: { getTypeParser(oid: number, format?: string): (text: string) => unknown }
}

/**
 * The values of the option `tx`: a transaction of `store.transaction`, a client of `pg`, or an adapter's result.
 *
 * @example
 * ```ts
 * const place = (tx: AnyTransaction) => store.events.append('order-8', placed, { tx })
 * await store.transaction(place)
 * ```
 */
export type AnyTransaction = Transaction | ForeignTransaction

export function isOwnTransaction(tx: AnyTransaction): tx is Transaction {
  refuseUnknownTransaction(tx)
  return 'savepoint' in tx && 'runArrays' in tx
}

interface Library {
  readonly name: string
  /** Members that only its transactions have. */
  readonly members: readonly string[]
  /** The expression that gives a transaction that is taken. */
  readonly use: string
}

/** The transactions of other libraries, the most particular first. */
const libraries: readonly Library[] = [
  {
    name: 'MikroORM',
    members: ['getTransactionContext', 'persist'],
    use: 'await em.getTransactionContext().client.acquireConnection()',
  },
  { name: 'TypeORM', members: ['queryRunner', 'createQueryBuilder'], use: 'await manager.queryRunner.connect()' },
  { name: 'TypeORM', members: ['startTransaction', 'manager'], use: 'await queryRunner.connect()' },
  { name: 'Kysely', members: ['selectFrom', 'withoutPlugins'], use: 'fromKysely(trx)' },
  { name: 'Prisma', members: ['$queryRawUnsafe'], use: 'fromPrisma(tx)' },
  { name: 'postgres.js', members: ['unsafe', 'typed'], use: 'fromPostgresJs(sql)' },
  { name: 'Drizzle', members: ['execute', 'select'], use: 'fromDrizzle(tx)' },
  { name: 'Knex', members: ['raw', 'client'], use: 'await trx.client.acquireConnection()' },
]

/** Refuses anything that cannot run our statements, before it is a TypeError somewhere inside. */
export function refuseUnknownTransaction(tx: unknown): void {
  const given = (typeof tx === 'object' || typeof tx === 'function' ? (tx ?? {}) : {}) as Record<string, unknown>
  if (typeof given.runArrays === 'function') return
  const library = libraries.find(({ members }) => members.every(member => member in given))
  if (library === undefined && typeof given.query === 'function') return
  throw new InvalidOption({
    option: 'tx',
    reason:
      library === undefined
        ? `The option "tx" is ${describe(tx)}, which has no query({ text, values }). Pass the handle of store.transaction(tx => …), a pg client with an open transaction, or a transaction of your library by an adapter of 'rillflow/transactions'.`
        : `The option "tx" is a transaction of ${library.name}, which does not run our statements as it is. Pass { tx: ${library.use} }${library.use.startsWith('from') ? `, with import { ${library.use.replace(/\(.*/, '')} } from 'rillflow/transactions'` : ''}.`,
  })
}

/**
 * Runs our statements in a transaction of the user. The first one finds out whether there is a transaction: `lock table` is
 * refused outside of one. Without that check a write of several statements would be stored in part when one of them fails.
 */
export function foreignExecutor(tx: ForeignTransaction, types: NonNullable<ForeignQuery['types']>): Executor {
  if (isPool(tx)) throw new NotInTransaction({ given: 'pool' })
  const send = async ({ label, text, values }: Statement, rowMode?: 'array'): Promise<unknown[]> => {
    refuseUnstorable(label, text, values)
    const query = { text, values: values as unknown[], types }
    return (await sendAsText(tx, rowMode === undefined ? query : { ...query, rowMode })).rows
  }
  let checked: Promise<unknown> | undefined
  const check = (): Promise<unknown> => {
    checked ??= send(beganStatement).catch((error: unknown) => {
      if (sqlStateOf(error) === noActiveTransaction) throw new NotInTransaction({ given: 'connection' }, error)
      throw error
    })
    return checked
  }
  return {
    async run<R extends object>(statement: Statement) {
      await check()
      return (await send(statement)) as R[]
    },
    async runArrays(statement) {
      await check()
      return (await send(statement, 'array')) as unknown[][]
    },
  }
}

/** Our parsers read the text format. A client of `pg` decides on the format when a query is passed to it. */
function sendAsText(tx: ForeignTransaction, query: ForeignQuery): ReturnType<ForeignTransaction['query']> {
  const client = tx as { binary?: boolean }
  if (client.binary !== true) return tx.query(query)
  client.binary = false
  try {
    return tx.query(query)
  } finally {
    client.binary = true
  }
}

/** It takes no snapshot, and only the weakest lock, which every query of the catalogue takes. */
const beganStatement: Statement = sql`/* database.began */
  lock table pg_catalog.pg_namespace in access share mode`

/** A pool of `pg`: a client has no number of connections. */
function isPool(tx: ForeignTransaction): boolean {
  return typeof (tx as { totalCount?: unknown }).totalCount === 'number'
}

/** Transactions that remember the ids of the events appended in them. */
export interface RememberingTransactions {
  /** A commit without an answer rejects with `OutcomeUnknown`, which has the ids. */
  transaction<T>(work: (tx: Transaction) => Promise<T>, options?: TransactionOptions): Promise<T>
  rememberIds(tx: AnyTransaction, ids: readonly string[]): void
}

export function rememberingTransactions(database: Database): RememberingTransactions {
  const appended = new WeakMap<AnyTransaction, string[]>()
  return {
    async transaction(work, options) {
      const eventIds: string[] = []
      try {
        return await database.transaction(tx => {
          appended.set(tx, eventIds)
          return work(tx)
        }, options)
      } catch (error) {
        if (!isRillflowError(error, 'outcome_unknown')) throw error
        throw new OutcomeUnknown({ eventIds, reason: 'the connection was lost during the commit' }, error)
      }
    },
    rememberIds(tx, ids) {
      appended.get(tx)?.push(...ids)
    },
  }
}
