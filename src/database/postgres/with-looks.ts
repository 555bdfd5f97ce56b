/** A server, with two connections of their own for what people look at in the console. */
import type { Database } from '../database.ts'
import { lookConnections, lookTimeoutMs, withLooks } from '../looking.ts'
import { openPostgres, type PostgresOptions } from './postgres.ts'

export async function openWithLooks(options: PostgresOptions): Promise<Database> {
  const database = await openPostgres(options)
  if (options.pool !== undefined) return database
  const { answerTimeoutMs = lookTimeoutMs, applicationName = 'rillflow' } = options
  const own = {
    ...options,
    maxConnections: lookConnections,
    listen: false,
    applicationName: `${applicationName} console`,
  }
  return withLooks(database, () => openPostgres({ ...own, answerTimeoutMs: Math.min(answerTimeoutMs, lookTimeoutMs) }))
}
