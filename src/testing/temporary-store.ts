import { randomBytes } from 'node:crypto'
import { once } from '../core/lifecycle.ts'
import type { Database } from '../database/database.ts'
import { identifier, type Statement } from '../database/sql.ts'
import type { EventMap, UntypedEvents } from '../events/definition.ts'
import { openStore, type Store, type StoreOptions } from '../store.ts'

/** A store in memory with a schema of its own; with a `url` the same on a server. Closing it drops the schema. */
export async function temporaryStore<M extends EventMap = UntypedEvents>(
  options: Omit<StoreOptions<M>, 'folder' | 'memory' | 'migrate' | 'schema'> = {},
): Promise<Store<M>> {
  const schema = `temporary_${randomBytes(8).toString('hex')}`
  const database =
    options.database ?? (options.url === undefined && options.pool === undefined ? await shared() : undefined)
  const store = await openStore<M>({ ...options, database, schema, migrate: true })
  const close = once(async () => {
    await store.transaction(tx => tx.query(dropping(schema).text))
    await store.close()
  })
  return { ...store, close, [Symbol.asyncDispose]: close }
}

let engine: Promise<Database> | undefined

/** One for the process: it ends with it. */
function shared(): Promise<Database> {
  engine ??= import('../database/pglite.ts').then(({ openPglite }) => openPglite({ memory: true }))
  return engine
}

function dropping(schema: string): Statement {
  return { label: 'testing.drop', text: `drop schema if exists ${identifier(schema)} cascade`, values: [] }
}
