/** Running statements, and saying what their failure means in terms of documents. */
import { CollectionNotSynced, UniqueViolation } from '../core/document-errors.ts'
import { isRillflowError, SerializationFailed } from '../core/errors.ts'
import type { Executor } from '../database/database.ts'
import type { Statement } from '../database/sql.ts'
import { sqlStateOf, uniqueViolation } from '../database/sqlstate.ts'
import type { CollectionBase } from './collection.ts'
import { indexedFields } from './indexes.ts'
import { historyName } from './table.ts'

export function runRead(collection: CollectionBase, executor: Executor, statement: Statement): Promise<unknown[][]> {
  return runWrite(collection, executor, statement)
}

/** The rows a write gives back. `bodies` are the texts it was to store, for naming the value that is there already. */
export async function runWrite(
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

/** An error of the database in the words of this folder, where there are any. */
export function writeError(collection: CollectionBase, error: unknown, bodies: readonly string[]): unknown {
  const isOurs = isRillflowError(error, 'database_failed')
  const driver = isOurs ? (error as Error).cause : error
  const sqlState = isOurs ? (error as unknown as { sqlState: string }).sqlState : sqlStateOf(error)
  if (sqlState === undefinedTable) {
    collection.state.isReady = collection.declared.length === 0
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
