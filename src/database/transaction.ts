/**
 * What both engines' transactions share: knowing that code runs inside one, and taking a handle away from code that
 * outlives its transaction.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import type { Database, Executor, Transaction } from './database.ts'
import { InsideTransaction, TransactionClosed } from './errors.ts'
import type { Statement } from './sql.ts'

/** One open transaction, as the code inside it sees its surroundings. */
export interface OpenTransaction {
  readonly database: Database
  open: boolean
}

/** Which transactions the current code runs in. One per database at most, so a short list. */
const surroundings = new AsyncLocalStorage<readonly OpenTransaction[]>()

/** Runs `work` marked as the inside of a transaction. */
export async function runInside<T>(transaction: OpenTransaction, work: () => Promise<T>): Promise<T> {
  open++
  try {
    return await surroundings.run([...(surroundings.getStore() ?? []), transaction], work)
  } finally {
    // Following contexts makes every promise of the process dearer (an append costs half as much again), so it is
    // done only while there is something to follow.
    if (--open === 0) surroundings.disable()
  }
}

let open = 0

/** Runs `work` as if outside of any transaction: for loops started from inside one that outlive it. */
export function runOutside<T>(work: () => T): T {
  return surroundings.getStore() === undefined ? work() : surroundings.exit(work)
}

export function refuseInside(database: Database, call: string): void {
  const inside = surroundings.getStore()
  if (inside?.some(transaction => transaction.open && transaction.database === database))
    throw new InsideTransaction({ call })
}

/** Guards every use of a handle: after its end it throws instead of reaching a connection that others use by now. */
export function assertOpen(transaction: OpenTransaction): void {
  if (!transaction.open) throw new TransactionClosed({})
}

/**
 * A transaction that belongs to the user: anything with `query(text, values)` or the drivers' query object. Adapters
 * for other libraries implement `ForeignTransaction` in a few lines.
 */
export interface ForeignTransaction {
  query(query: ForeignQuery): Promise<{ rows: unknown[] }>
}

/** The query object `pg` takes. `types` gives back bigint, Date and parsed json, whatever the driver's own settings. */
export interface ForeignQuery {
  readonly text: string
  readonly values: unknown[]
  readonly rowMode?: 'array'
  readonly types?: { getTypeParser(oid: number, format?: string): (text: string) => unknown }
}

export type AnyTransaction = Transaction | ForeignTransaction

export function isOwnTransaction(tx: AnyTransaction): tx is Transaction {
  return 'savepoint' in tx && 'runArrays' in tx
}

/** The statements of ours that a user's transaction is to run. */
export function foreignExecutor(tx: ForeignTransaction, types: NonNullable<ForeignQuery['types']>): Executor {
  const send = async (statement: Statement, rowMode?: 'array'): Promise<unknown[]> => {
    const { text, values } = statement
    const query = { text, values: values as unknown[], types }
    return (await tx.query(rowMode === undefined ? query : { ...query, rowMode })).rows
  }
  return {
    run: async <R extends object>(statement: Statement) => (await send(statement)) as R[],
    runArrays: async statement => (await send(statement, 'array')) as unknown[][],
  }
}
