/**
 * A gate between the parts of one process and its database: closed, everything waits in front of it, as if the process
 * were stopped; opened, all goes on, late. What never gets through again is a process that was killed.
 *
 *     worker ──► | gate | ──► database        a transaction that has begun is let through to its end
 */
import { StoreClosed } from '../../src/core/errors.ts'
import { type Deferred, deferred } from '../../src/core/lifecycle.ts'
import type { Database, Executor } from '../../src/database/database.ts'
import type { Statement } from '../../src/database/sql.ts'

export interface Gate {
  /** The database, seen through the gate. */
  readonly database: Database
  close(): void
  open(): void
  /** Ends the process for good: whatever waits, and comes, fails. */
  kill(): void
  /** Outcomes that waited at the closed gate: how many were taken, and how many refused, once it was open. */
  late(): { readonly waiting: number; readonly taken: number; readonly refused: number }
}

export function openGate(database: Database): Gate {
  let closed: Deferred<void> | undefined
  let waiting = 0
  let taken = 0
  let refused = 0

  /** True if it had to wait. */
  const pass = async (): Promise<boolean> => {
    const isLate = closed !== undefined
    while (closed !== undefined) await closed.promise
    return isLate
  }
  const through = async <T>(call: (isLate: boolean) => Promise<T>): Promise<T> => {
    if (closed === undefined) return call(false)
    waiting++
    try {
      await pass()
    } finally {
      waiting--
    }
    return call(true)
  }
  const count = (statement: Statement, rows: readonly unknown[]): void => {
    if (statement.label !== 'workflows.hold' && statement.label !== 'workflows.finish') return
    const [accepted] = (rows[0] ?? []) as [string[] | string | null]
    if (accepted === null || accepted === '{}') refused++
    else taken++
  }
  /** The first word about an outcome decides whether it is taken. */
  const counting = (executor: Executor): Executor['runArrays'] => {
    let isCounted = false
    return async statement => {
      const rows = await executor.runArrays(statement)
      if (!isCounted) count(statement, rows)
      isCounted ||= statement.label === 'workflows.hold' || statement.label === 'workflows.finish'
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
    close() {
      closed ??= deferred<void>()
    },
    open() {
      const opened = closed
      closed = undefined
      opened?.resolve()
    },
    kill() {
      const opened = closed ?? deferred<void>()
      closed = deferred<void>()
      closed.promise.catch(() => {})
      closed.reject(new StoreClosed({}))
      opened.resolve()
    },
    late: () => ({ waiting, taken, refused }),
  }
}
