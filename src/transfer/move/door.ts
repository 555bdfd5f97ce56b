/**
 * The closed door: what is left under a store's name where the store was. An empty schema whose history says that a
 * migration was applied that no library knows, so that a process that still believes the store to be here can neither
 * write (there are no tables) nor make the tables anew (`SchemaNewer`), which would be a second owner.
 */
import type { Executor, Transaction } from '../../database/database.ts'
import { identifier } from '../../database/sql.ts'
import { library } from '../../parts.ts'
import { glanceAtHistory, type History, historySteps, readHistory } from '../../schema/history.ts'
import type { Migration } from '../../schema/migration.ts'

const movedAway: Migration = { id: 1_000_000, name: 'moved away', breaking: true, statements: [] }

/** `live`: a store. `closed`: its door. `other`: something that is not ours, or an empty schema. */
export type Occupant = 'none' | 'live' | 'closed' | 'other'

export async function occupantOf(executor: Executor, schema: string): Promise<Occupant> {
  const history = await readHistory(executor, schema, library)
  if (!history.hasSchema) return 'none'
  if (!history.hasStore) return 'other'
  return hasMovedAway(history) ? 'closed' : 'live'
}

/** Not inside a transaction: somebody else may open it between two looks, so this is one. */
export async function isClosedNow(executor: Executor, schema: string): Promise<boolean> {
  return hasMovedAway(await glanceAtHistory(executor, schema, library))
}

function hasMovedAway({ unknown }: History): boolean {
  return unknown.some(({ id }) => id === movedAway.id)
}

export async function closeDoor(tx: Transaction, schema: string): Promise<void> {
  const nothing = { hasSchema: false, hasStore: false, pending: [movedAway], outdated: [] }
  for (const step of historySteps(nothing, schema)) await tx.query(step.sql)
}

/** Without `cascade`: should the store have come back meanwhile, there is more than a door, and nothing is dropped. */
export async function openDoor(tx: Transaction, schema: string): Promise<void> {
  await tx.query(`drop table ${identifier(schema, 'migrations')}`)
  await tx.query(`drop schema ${identifier(schema)}`)
}
