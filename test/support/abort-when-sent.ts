/** The worker's database, which aborts a call at the moment its append is sent. */
import type { Database } from '../../src/database/database.ts'
import { openDatabase } from './engines.ts'

export async function abortWhenSent(abort: AbortController): Promise<Database> {
  const database = await openDatabase()
  return {
    ...database,
    runArrays(statement) {
      if (statement.label.startsWith('events.append')) abort.abort()
      return database.runArrays(statement)
    },
  }
}
