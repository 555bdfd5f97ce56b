/**
 * Connections for looking: what people look at in the console goes through two connections of its own, so that a page never
 * takes one from the application. They are opened by the first look, and closed with the database.
 *
 *     looking(() => …) ──► run ──► the connections for looking            everything else ──► the pool
 *
 * Transactions stay on the pool: a look is a statement. A statement of a look has 5 s; then it is cancelled on the server.
 * A pool of the user, and the embedded engine, are shared by all.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import type { Database } from './database.ts'

const looks = new AsyncLocalStorage<true>()

/** Statements that `work` sends, also after it has returned, are looks. */
export function looking<T>(work: () => T): T {
  return looks.run(true, work)
}

export const lookConnections = 2
export const lookTimeoutMs = 5_000

/** The same database, with looks on the connections that `open` gives. */
export function withLooks(database: Database, open: () => Promise<Database>): Database {
  let opened: Promise<Database> | undefined
  const target = async (): Promise<Database> => {
    opened ??= open().catch((error: unknown) => {
      opened = undefined
      throw error
    })
    return opened
  }
  return {
    ...database,
    run: statement =>
      looks.getStore() === undefined ? database.run(statement) : target().then(each => each.run(statement)),
    runArrays: statement =>
      looks.getStore() === undefined ? database.runArrays(statement) : target().then(each => each.runArrays(statement)),
    async close(closeMs) {
      const looked = opened?.then(each => each.close(closeMs)).catch(() => {})
      await Promise.all([database.close(closeMs), looked])
    },
  }
}
