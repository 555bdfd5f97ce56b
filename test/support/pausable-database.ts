/**
 * A database that a test can pause, as if the process that uses it were stopped: every call waits until it is resumed. A
 * database that is killed never answers again, as for a process that was killed.
 *
 *     worker ──► pausable ──► database        a transaction that has begun continues to its end
 */

import { type Deferred, deferred } from '../../src/core/abort.ts'
import { StoreClosed } from '../../src/core/errors.ts'
import type { Database, Executor } from '../../src/database/database.ts'
import type { Statement } from '../../src/database/sql.ts'

export interface PausableDatabase {
  /** To be given to the store. */
  readonly database: Database
  pause(): void
  resume(): void
  /** Fails all waiting and later calls. */
  kill(): void
  /** Outcomes of attempts that waited during a pause: still waiting, and accepted or refused after it. */
  lateOutcomes(): { readonly waiting: number; readonly accepted: number; readonly refused: number }
}

const outcomeLabels = ['workflows.hold', 'workflows.complete']

export function pausableDatabase(database: Database): PausableDatabase {
  let resumed: Deferred<void> | undefined
  let waiting = 0
  let accepted = 0
  let refused = 0

  const through = async <T>(call: (isLate: boolean) => Promise<T>): Promise<T> => {
    if (resumed === undefined) return call(false)
    waiting++
    try {
      while (resumed !== undefined) await resumed.promise
    } finally {
      waiting--
    }
    return call(true)
  }
  const count = (rows: readonly unknown[]): void => {
    const [executions] = (rows[0] ?? []) as [string[] | string | null]
    if (executions === null || executions === '{}') refused++
    else accepted++
  }
  /** The first statement about an outcome decides whether it is accepted. */
  const counting = (executor: Executor): Executor['runArrays'] => {
    let isCounted = false
    return async (statement: Statement) => {
      const rows = await executor.runArrays(statement)
      if (!outcomeLabels.includes(statement.label)) return rows
      if (!isCounted) count(rows)
      isCounted = true
      return rows
    }
  }

  return {
    database: {
      ...database,
      run: statement => through(() => database.run<never>(statement)),
      runArrays: statement =>
        through(isLate => (isLate ? counting(database)(statement) : database.runArrays(statement))),
      transaction: (work, options) =>
        through(isLate => database.transaction(tx => work(isLate ? { ...tx, runArrays: counting(tx) } : tx), options)),
    },
    pause() {
      resumed ??= deferred<void>()
    },
    resume() {
      const waitingCalls = resumed
      resumed = undefined
      waitingCalls?.resolve()
    },
    kill() {
      const waitingCalls = resumed ?? deferred<void>()
      resumed = deferred<void>()
      resumed.promise.catch(() => {})
      resumed.reject(new StoreClosed({}))
      waitingCalls.resolve()
    },
    lateOutcomes: () => ({ waiting, accepted, refused }),
  }
}
