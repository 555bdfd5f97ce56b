import { randomBytes } from 'node:crypto'
import { once } from '../core/lifecycle.ts'
import type { Database } from '../database/database.ts'
import { identifier, type Statement } from '../database/sql.ts'
import type { EventMap, UntypedEvents } from '../events/definition.ts'
import { openStore, type Store, type StoreOptions } from '../store.ts'
import { type SpareSchemas, spareSchemas } from './spare-schemas.ts'

export type TemporaryStoreOptions<M extends EventMap = UntypedEvents> = Omit<
  StoreOptions<M>,
  'folder' | 'memory' | 'migrate' | 'schema'
>

/** A store in memory with a schema of its own; with a `url` the same on a server. Closing it drops the schema. */
export async function temporaryStore<M extends EventMap = UntypedEvents>(
  options: TemporaryStoreOptions<M> = {},
): Promise<Store<M>> {
  const isShared = options.database === undefined && options.url === undefined && options.pool === undefined
  return isShared ? openShared(options) : openOwn(options)
}

async function openOwn<M extends EventMap>(options: TemporaryStoreOptions<M>): Promise<Store<M>> {
  const schema = newSchema()
  const store = await openStore<M>({ ...options, schema, migrate: true })
  const close = once(async () => {
    await store.transaction(tx => tx.query(dropping(schema).text))
    await store.close()
  })
  return { ...store, close, [Symbol.asyncDispose]: close }
}

async function openShared<M extends EventMap>(options: TemporaryStoreOptions<M>): Promise<Store<M>> {
  engine ??= startEngine()
  const { database, spare } = await engine
  const schema = await spare.take(newSchema())
  const store = await openStore<M>({ ...options, database, schema, migrate: true })
  const close = once(async () => {
    await store.close()
    await spare.giveBack(schema)
  })
  return { ...store, close, [Symbol.asyncDispose]: close }
}

let engine: Promise<{ database: Database; spare: SpareSchemas }> | undefined

/** One for the process: it ends with it. */
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
