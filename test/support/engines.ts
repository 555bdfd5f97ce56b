/**
 * The database of the engine that the current project runs on.
 *
 *     const database = await openDatabase()      one per worker and shared: never close it
 *     const schema = freshSchema()               a name that no other test uses
 *
 * PGlite takes seconds to start and 350 MB, so a worker has one, in memory, for all its files; tests are separated by
 * schema. It is stored on the process, because modules are evaluated again for each project.
 */
import { randomBytes } from 'node:crypto'
import { inject } from 'vitest'
import type { Database } from '../../src/database/database.ts'
import { openPglite } from '../../src/database/pglite/pglite.ts'
import { openPostgres } from '../../src/database/postgres/postgres.ts'
import { sql } from '../../src/database/sql.ts'
import type { EngineName } from './global-setup.ts'

export const engine: EngineName = inject('engine')

/** Schemas draw their numbers from rows here, not from sequences. */
export const hasCounters: boolean = engine === 'counter' || engine === 'citus'

/** The worker's database. One that a test has closed is replaced. */
export async function openDatabase(): Promise<Database> {
  const known = worker[shared]?.get(engine)
  if (known !== undefined && (await isOpen(known))) return known
  const opening = engine === 'pglite' ? openPglite({ memory: true }, limits) : openPostgres({ url: postgresUrl() })
  worker[shared] ??= new Map()
  worker[shared].set(engine, opening)
  return opening
}

/** The address of the server all tests share. */
export function postgresUrl(): string {
  const url = inject('postgresUrl')
  if (url === undefined) throw new Error(`there is no server in the project of ${engine}`)
  return url
}

/** A name for the schema of one test, which does not exist yet. */
export function freshSchema(): string {
  return `test_${randomBytes(8).toString('hex')}`
}

/** On a busy machine work of tenths of a second may take as long as the usual limit of a transaction. */
const limits = { transactionTimeoutMs: 60_000 }

const shared: unique symbol = Symbol.for('rillflow.test.databases') as never
const worker = globalThis as { [shared]?: Map<EngineName, Promise<Database>> }

async function isOpen(known: Promise<Database>): Promise<boolean> {
  try {
    await (await known).run(sql`/* test.probe */ select 1`)
    return true
  } catch {
    return false
  }
}
