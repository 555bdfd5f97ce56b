/** Work that is done whole or not at all: in a transaction of its own, or as one step of the caller's. */
import type { Executor } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import { isOwnTransaction } from '../database/transaction.ts'
import type { CallOptions, CollectionBase } from './collection.ts'

export async function atomically<T>(
  { parts }: CollectionBase,
  { tx, signal }: CallOptions,
  work: (executor: Executor) => Promise<T>,
): Promise<T> {
  if (tx === undefined) return parts.database.transaction(work, { signal })
  if (isOwnTransaction(tx)) return tx.savepoint(() => work(tx))
  const executor = parts.executorOf(tx)
  await executor.run(sql`/* documents.savepoint */ savepoint rillflow_documents`)
  try {
    const result = await work(executor)
    await executor.run(sql`/* documents.release */ release savepoint rillflow_documents`)
    return result
  } catch (error) {
    await executor.run(sql`/* documents.rollback */ rollback to savepoint rillflow_documents`)
    throw error
  }
}
