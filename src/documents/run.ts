/** Running statements, and saying what their failure means in terms of documents. */

import { isRillflowError } from '../core/errors.ts'
import type { Executor } from '../database/database.ts'
import { SerializationFailed } from '../database/errors.ts'
import type { Statement } from '../database/sql.ts'
import { sqlStateOf, uniqueViolation } from '../database/sqlstate.ts'
import { channels } from '../telemetry/telemetry.ts'
import type { CollectionBase } from './collection.ts'
import { CollectionNotSynced, UniqueViolation } from './errors.ts'
import { indexedFields } from './indexes.ts'
import { historyName } from './table.ts'

/** The rows of a statement that gives a row for each document it reads. */
export async function runRead(
  collection: CollectionBase,
  executor: Executor,
  statement: Statement,
): Promise<unknown[][]> {
  const rows = await runRows(collection, executor, statement)
  tellDocuments(collection, 'read', statement.label, rows.length)
  return rows
}

/** The same for each document it writes. `bodies` are the texts to be stored, for naming the value that is there already. */
export async function runWrite(
  collection: CollectionBase,
  executor: Executor,
  statement: Statement,
  bodies: readonly string[] = [],
): Promise<unknown[][]> {
  const rows = await runRows(collection, executor, statement, bodies)
  tellDocuments(collection, 'written', statement.label, rows.length)
  return rows
}

/** The rows of a statement, whatever they are. */
export async function runRows(
  collection: CollectionBase,
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

export function tellDocuments(
  { name, parts: { telemetry, schema } }: CollectionBase,
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

/** An error of the database in the words of this folder, where there are any. */
export function writeError(collection: CollectionBase, error: unknown, bodies: readonly string[]): unknown {
  const isOurs = isRillflowError(error, 'database_failed')
  const driver = isOurs ? (error as Error).cause : error
  const sqlState = isOurs ? (error as unknown as { sqlState: string }).sqlState : sqlStateOf(error)
  if (sqlState === undefinedTable) {
    collection.state.isReady = collection.declared.length === 0 && collection.readModel === undefined
    const missing = [`table ${collection.tableName}`]
    return new CollectionNotSynced({ collection: collection.name, missing, isInside: false }, error)
  }
  if (sqlState !== uniqueViolation) return error
  const { constraint = '', detail = '' } = driver as { constraint?: string; detail?: string }
  // A document was deleted and made again by two at once: its new version was counted from an old look at the history.
  if (constraint === `${historyName(collection.tableName)}_pkey`)
    return new SerializationFailed({ reason: 'a document was deleted and made again meanwhile' }, error)
  const fields = indexedFields(collection.tableName, collection.options, constraint) ?? [constraint]
  const value = bodies.length === 1 ? valuesAt(bodies[0]!, fields) : undefined
  const told = value ?? /\)=\((.*)\)/s.exec(detail)?.[1]
  return new UniqueViolation({ collection: collection.name, index: constraint, fields, value: told }, error)
}

const undefinedTable = '42P01'

function valuesAt(body: string, fields: readonly string[]): unknown {
  const values = fields.map(field =>
    field
      .split('.')
      .reduce<unknown>((at, key) => (at as Record<string, unknown> | null | undefined)?.[key], JSON.parse(body)),
  )
  if (values.some(value => value === undefined)) return undefined
  return values.length === 1 ? values[0] : values
}
