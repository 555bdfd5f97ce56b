/**
 * The moved marker: it stays under a store's name on the server that the store has left.
 *
 * It is an empty schema whose table of migrations names a migration that no library knows. A process that still expects
 * the store here can therefore neither write, because there are no tables, nor make the tables again (`SchemaNewer`),
 * which would be a second owner. The marker stays until the store comes back or is made anew.
 */
import { isRillflowError } from '../../core/errors.ts'
import type { Executor, Transaction } from '../../database/database.ts'
import { identifier, sql } from '../../database/sql.ts'
import { sqlStateOf } from '../../database/sqlstate.ts'
import { library } from '../../parts.ts'
import { glanceAtHistory, type History, historySteps, readHistory } from '../../schema/history.ts'
import { lockKey } from '../../schema/migrate.ts'
import type { Migration } from '../../schema/migration.ts'
import type { StoreLocation } from '../transfer.ts'

const movedAway: Migration = { id: 1_000_000, name: 'moved away', breaking: true, statements: [] }

/** `store`: a store. `moved`: the marker of one that has moved. `other`: an empty schema, or one that is not ours. */
export type Occupant = 'none' | 'store' | 'moved' | 'other'

export async function readOccupant(executor: Executor, schema: string): Promise<Occupant> {
  const history = await readHistory(executor, schema, library)
  if (!history.hasSchema) return 'none'
  if (!history.hasStore) return 'other'
  return hasMarker(history) ? 'moved' : 'store'
}

function hasMarker({ unknown }: History): boolean {
  return unknown.some(({ id }) => id === movedAway.id)
}

export async function writeMovedMarker(tx: Transaction, schema: string): Promise<void> {
  const empty = { numbers: 'announced' as const, hasSchema: false, hasStore: false, pending: [movedAway], outdated: [] }
  for (const step of historySteps(empty, schema)) await tx.query(step.sql)
}

/** Without `cascade`: if the store has come back meanwhile, the schema has more tables, and nothing is dropped. */
export async function removeMovedMarker(tx: Transaction, schema: string): Promise<void> {
  await tx.query(`drop table ${identifier(schema, 'migrations')}`)
  await tx.query(`drop schema ${identifier(schema)}`)
}

/**
 * Frees the name where a store has moved away from, so that a new store can be made there. `confirm` throws if the store
 * lives elsewhere. It is called after the marker was found, because earlier knowledge may be older than the move.
 */
export async function freeMovedName({ database, schema }: StoreLocation, confirm: () => Promise<void>): Promise<void> {
  // One statement, outside of a transaction: another process may remove the marker between two.
  if (!hasMarker(await glanceAtHistory(database, schema, library))) return
  await database.transaction(async tx => {
    await lockSchema(tx, schema)
    if ((await readOccupant(tx, schema)) !== 'moved') return
    await removeMovedMarker(tx, schema)
    await confirm()
  })
}

/** Migrations take this lock, and so does a switch until its commit has ended, even if its process has died. */
export async function lockSchema(tx: Transaction, schema: string): Promise<void> {
  await tx.run(sql`/* move.lock_source */
    select pg_advisory_xact_lock(${lockKey(schema)}::bigint)`)
}

/** 42P01 table, 42883 function, 3F000 schema, 42704 type: PostgreSQL found none of that name. */
const notFoundStates = ['42P01', '42883', '3F000', '42704']

/**
 * Whether a call failed because the store is not there, so that it took no effect. A table that was never made gives the
 * same error: only the directory knows whether the store has moved, and to which server.
 */
export function isStoreMissing(error: unknown): boolean {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    if (isRillflowError(cause, 'schema_newer')) return true
    if (notFoundStates.includes(sqlStateOf(cause) ?? '')) return true
  }
  return false
}
