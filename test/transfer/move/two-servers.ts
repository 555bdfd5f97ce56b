/**
 * Two servers and a shop to be moved from the first to the second, which has another major version.
 *
 *     const { move, source, target, store } = await openMove()
 *
 * All tests share the first server; the second belongs to the worker, and ends with it.
 */
import { onTestFinished } from 'vitest'
import type { Database } from '../../../src/database/database.ts'
import { openPostgres } from '../../../src/database/postgres/postgres.ts'
import { identifier } from '../../../src/database/sql.ts'
import { openStore, type Store, type StoreOptions } from '../../../src/store.ts'
import type { Move } from '../../../src/transfer/move/move.ts'
import { engine, freshSchema, openDatabase, postgresUrl } from '../../support/engines.ts'
import { type PostgresServer, startServer } from '../../support/postgres-server.ts'
import { type ShopMap, shopEvents } from '../../support/shop.ts'

export interface Side {
  readonly url: string
  readonly database: Database
  /** `~events` is the table of that name in the given schema. */
  query<R extends object = Record<string, unknown>>(schema: string, text: string): Promise<R[]>
}

export interface OpenMove {
  readonly move: Move
  readonly source: Side
  readonly target: Side
  /** The shop on the source. */
  readonly store: Store<ShopMap>
  /** The same move, back. */
  readonly back: Move
  /** A store with its own connections on either side. */
  open(side: Side, options?: StoreOptions<ShopMap>): Promise<Store<ShopMap>>
}

export async function openMove(): Promise<OpenMove> {
  const second = await secondServer()
  const source = sideOf(postgresUrl(), await openDatabase())
  const database = await openPostgres({ url: second.url })
  const target = sideOf(second.url, database)
  const schema = freshSchema()
  const [here, there] = [source, target].map(({ database }) => ({ database, schema }))
  const names = { incoming: `${schema}_in`, retired: `${schema}_out` }
  const move = { source: here!, target: there!, ...names }
  const back = { source: there!, target: here!, ...names }
  onTestFinished(async () => {
    for (const side of [source, target])
      for (const name of [schema, ...Object.values(names)])
        await side.query(name, `drop schema if exists ${identifier(name)} cascade`)
    await database.close(1_000)
  })
  const open: OpenMove['open'] = async (side, options) => {
    const store = await openStore<ShopMap>({
      events: shopEvents,
      url: side.url,
      schema,
      pollMs: 50,
      resendMs: 500,
      // A call that waits for a fence must not time out before it.
      transactionTimeoutMs: 600_000,
      ...options,
    })
    onTestFinished(() => store.close())
    return store
  }
  const store = await open(source, { migrate: true })
  return { move, source, target, store, back, open }
}

/** The worker's second server. */
export async function secondServer(): Promise<PostgresServer> {
  worker[shared] ??= startServer({
    major: engine === 'postgres-15' ? 18 : 15,
    settings: { timezone: 'Asia/Kathmandu' },
  })
  return worker[shared]
}

const shared: unique symbol = Symbol.for('rillflow.test.second-server') as never
const worker = globalThis as { [shared]?: Promise<PostgresServer> }

function sideOf(url: string, database: Database): Side {
  const query = <R extends object>(schema: string, text: string): Promise<R[]> => {
    const named = text.replaceAll(/~(\w+)/g, (_, name) => identifier(schema, name).quoted)
    return database.transaction(tx => tx.query<R>(named))
  }
  return { url, database, query }
}
