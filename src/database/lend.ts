/** A database that several stores share: each has a view that ends with it, and the database goes on. */
import { StoreClosed } from '../core/errors.ts'
import type { Database } from './database.ts'

export function lendDatabase(database: Database): Database {
  let isClosed = false
  const ifOpen = <T>(call: () => Promise<T>): Promise<T> => (isClosed ? Promise.reject(new StoreClosed({})) : call())
  return {
    ...database,
    run: statement => ifOpen(() => database.run(statement)),
    runArrays: statement => ifOpen(() => database.runArrays(statement)),
    transaction: (work, options) => ifOpen(() => database.transaction(work, options)),
    copyOut: text => ifOpen(() => database.copyOut(text)),
    async close() {
      isClosed = true
    },
  }
}
