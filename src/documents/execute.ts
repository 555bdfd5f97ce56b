/**
 * Running the statements of this folder: they are counted, and an error of the database becomes one about documents.
 */

import { isRillflowError } from '../core/errors.ts'
import type { Executor } from '../database/database.ts'
import { SerializationFailed } from '../database/errors.ts'
import { type Statement, sql } from '../database/sql.ts'
import { refusedRow, sqlStateOf, uniqueViolation, withoutShard } from '../database/sqlstate.ts'
import { isOwnTransaction } from '../database/transaction.ts'
import { channels } from '../telemetry/telemetry.ts'
import { maxBytesOf } from './body.ts'
import type { CallOptions, OpenCollection } from './collection.ts'
import { CollectionNotSynced, InvalidDocument, UniqueViolation } from './errors.ts'
import { indexedFields } from './indexes.ts'
import { historyName } from './table.ts'

/** Runs a statement that returns a row for each document it reads. */
export async function runRead(
  collection: OpenCollection,
  executor: Executor,
  statement: Statement,
): Promise<unknown[][]> {
  const rows = await runRows(collection, executor, statement)
  reportDocuments(collection, 'read', statement.label, rows.length)
  return rows
}

/** Runs a statement that returns a row for each document it writes. `bodies` are the texts to store, for the value in errors. */
export async function runWrite(
  collection: OpenCollection,
  executor: Executor,
  statement: Statement,
  bodies: readonly string[] = [],
): Promise<unknown[][]> {
  const rows = await runRows(collection, executor, statement, bodies)
  reportDocuments(collection, 'written', statement.label, rows.length)
  return rows
}

/** Runs any other statement. */
export async function runRows(
  collection: OpenCollection,
  executor: Executor,
  statement: Statement,
  bodies: readonly string[] = [],
): Promise<unknown[][]> {
  try {
    return await executor.runArrays(statement)
  } catch (error) {
    throw writeError(collection, error, bodies)
  }
}

export function reportDocuments(
  { name, parts: { telemetry, schema } }: OpenCollection,
  happened: 'read' | 'written',
  statement: string,
  documents: number,
): void {
  telemetry.count(`documents_${happened}_total`, documents, name)
  telemetry.publish(channels.documents, () => ({
    schema: schema.name,
    collection: name,
    statement,
    documents,
    happened,
  }))
}

/** The error of this folder that an error of the database stands for; otherwise the error itself. */
export function writeError(collection: OpenCollection, error: unknown, bodies: readonly string[]): unknown {
  const isOurs = isRillflowError(error, 'database_failed')
  const driver = isOurs ? (error as Error).cause : error
  const sqlState = isOurs ? (error as unknown as { sqlState: string }).sqlState : sqlStateOf(error)
  if (sqlState === undefinedTable) {
    collection.state.isReady = collection.declared.length === 0 && collection.readModel === undefined
    const missing = [`table ${collection.tableName}`]
    return new CollectionNotSynced({ collection: collection.name, missing, isInside: false }, error)
  }
  if (sqlState === notNullViolation && refusedRow(driver).column === 'body') {
    const reason = `takes more than ${maxBytesOf(collection)} bytes as JSON after the patch`
    return new InvalidDocument({ collection: collection.name, id: '', path: 'data', reason }, error)
  }
  if (sqlState !== uniqueViolation) return error
  const { constraint: given, detail } = refusedRow(driver)
  const isKnown = (name: string): boolean => indexedFields(collection.tableName, collection.options, name) !== undefined
  const constraint = isKnown(given) ? given : withoutShard(given)
  // Two transactions deleted and made a document at once: both took the same number from its history.
  if (constraint === `${historyName(collection.tableName)}_pkey`)
    return new SerializationFailed({ reason: 'a document was deleted and made again meanwhile' }, error)
  const fields = indexedFields(collection.tableName, collection.options, constraint) ?? [constraint]
  const value = bodies.length === 1 ? valuesAt(bodies[0]!, fields) : undefined
  const known = value ?? /\)=\((.*)\)/s.exec(detail)?.[1]
  return new UniqueViolation({ collection: collection.name, index: constraint, fields, value: known }, error)
}

const undefinedTable = '42P01'
const notNullViolation = '23502'

function valuesAt(body: string, fields: readonly string[]): unknown {
  const values = fields.map(field =>
    field
      .split('.')
      .reduce<unknown>((at, key) => (at as Record<string, unknown> | null | undefined)?.[key], JSON.parse(body)),
  )
  if (values.some(value => value === undefined)) return undefined
  return values.length === 1 ? values[0] : values
}

/** Does work all or not at all: in a transaction of its own, or as a savepoint of the caller's. */
export async function atomically<T>(
  { parts }: OpenCollection,
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
