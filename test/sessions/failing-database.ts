/** A database that fails once, at a chosen statement. */
import type { Database, Executor, Transaction } from '../../src/database/database.ts'
import { ConnectionLost } from '../../src/database/errors.ts'
import { type Statement, sql } from '../../src/database/sql.ts'
import { openDatabase } from '../support/engines.ts'

/**
 * `unsent`: an error before it is sent. `refused`: the server refuses it. `cut`: the connection is lost instead. `unanswered`:
 * it takes effect, a transaction with its commit, and the answer is lost.
 */
export type Failure = 'unsent' | 'refused' | 'cut' | 'unanswered'

export interface FailingDatabase {
  readonly database: Database
  /** Fails at the n-th statement from now on, the end of a transaction counted as one. */
  failAt(statement: number, failure: Failure): void
  /** Whether it has failed; nothing fails after that. */
  disarm(): boolean
}

export async function failingDatabase(): Promise<FailingDatabase> {
  const database = await openDatabase()
  let left = 0
  let failure: Failure = 'unsent'

  /** Whether this is the one. */
  const isDue = (): boolean => left > 0 && --left === 0

  const fail = async (executor: Executor): Promise<never> => {
    if (failure === 'refused') await executor.run(sql`/* test.refused */ select 1 / 0`)
    if (failure === 'cut') await executor.run(sql`/* test.cut */ select pg_terminate_backend(pg_backend_pid())`)
    throw failure === 'unsent' ? new Error('made to fail') : lost
  }
  const sending =
    <T>(executor: Executor, send: (statement: Statement) => Promise<T>) =>
    async (statement: Statement): Promise<T> => {
      if (!isDue()) return send(statement)
      if (failure !== 'unanswered') return fail(executor)
      await send(statement)
      throw lost
    }
  const inTransaction = (tx: Transaction): Transaction => ({
    ...tx,
    run: sending(tx, statement => tx.run(statement)) as Transaction['run'],
    runArrays: sending(tx, statement => tx.runArrays(statement)),
  })

  return {
    failAt(statement, how) {
      left = statement
      failure = how
    },
    disarm() {
      const hasFailed = left === 0
      left = 0
      return hasFailed
    },
    database: {
      ...database,
      run: sending(database, statement => database.run(statement)) as Database['run'],
      runArrays: sending(database, statement => database.runArrays(statement)),
      async transaction(work, options) {
        let isLost = false
        const result = await database.transaction(async tx => {
          const value = await work(inTransaction(tx))
          if (isDue()) {
            if (failure !== 'unanswered') await fail(tx)
            isLost = true
          }
          return value
        }, options)
        if (isLost) throw lost
        return result
      },
    },
  }
}

const lost = new ConnectionLost({ reason: 'made to break' })
