/**
 * Stores for tests: real, empty, and removed when they are closed.
 *
 *     await using store = await testStore(shop)
 *     await using store = await testStore(shop, { url: process.env.DATABASE_URL })
 *
 * All test stores of a process share one embedded engine, because starting one takes seconds and 350 MB. Each has a schema of
 * its own, which is emptied and used again, or dropped, when the store is closed.
 */
import { randomBytes } from 'node:crypto'
import { once } from '../core/abort.ts'
import type { Database } from '../database/database.ts'
import { identifier, type Statement } from '../database/sql.ts'
import type { EventMap, UntypedEvents } from '../events/definition.ts'
import { openStore, type Store, type StoreOptions } from '../store.ts'
import { type SpareSchemas, spareSchemas } from './spare-schemas.ts'

/** The place of a test store, if not in the embedded engine of this process: a schema on your server. */
export type TestPlace = Pick<StoreOptions, 'database' | 'url' | 'pool'>

/**
 * Opens a store with the options of your program. Those that say where a store is (`url`, `pool`, `folder`, `memory`,
 * `schema`, `migrate`) are ignored: `place` is the only way to a server.
 */
export async function testStore<M extends EventMap = UntypedEvents>(
  options: StoreOptions<M> = {},
  place: TestPlace = {},
): Promise<Store<M>> {
  const { url: _url, pool: _pool, folder: _folder, memory: _memory, database: _database, ...own } = options
  const isShared = place.database === undefined && place.url === undefined && place.pool === undefined
  return isShared ? openShared(own) : openOn(place, own)
}

async function openOn<M extends EventMap>(place: TestPlace, options: StoreOptions<M>): Promise<Store<M>> {
  const schema = newSchema()
  const store = await openStore<M>({ ...options, ...place, schema, migrate: true })
  const close = once(async () => {
    await store.transaction(tx => tx.query(dropping(schema).text))
    await store.close()
  })
  return { ...store, close, [Symbol.asyncDispose]: close }
}

async function openShared<M extends EventMap>(options: StoreOptions<M>): Promise<Store<M>> {
  engine ??= startEngine()
  const { database, spare } = await engine
  const schema = await spare.take(newSchema())
  const store = await openStore<M>({ ...options, database, schema, migrate: true })
  const close = once(async () => {
    await store.close()
    await spare.release(schema)
  })
  return { ...store, close, [Symbol.asyncDispose]: close }
}

/** One for the process; it ends with the process. */
let engine: Promise<{ database: Database; spare: SpareSchemas }> | undefined

async function startEngine(): Promise<{ database: Database; spare: SpareSchemas }> {
  const { openPglite } = await import('../database/pglite/pglite.ts')
  const database = await openPglite({ memory: true })
  return { database, spare: spareSchemas(database) }
}

function newSchema(): string {
  return `temporary_${randomBytes(8).toString('hex')}`
}

function dropping(schema: string): Statement {
  return { label: 'testing.drop', text: `drop schema if exists ${identifier(schema)} cascade`, values: [] }
}
