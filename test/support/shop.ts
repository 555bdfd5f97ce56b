/**
 * The toy domain of the tests: a shop that takes orders.
 *
 *     const { store, query } = await openShop()      a store of its own for this test, gone when the test is over
 *
 * Stores of one test share the worker's database; a `sibling` is a second store on the same schema, on a server with
 * connections of its own, as another process would have them.
 */
import pg from 'pg'
import { beforeAll, expect, onTestFinished } from 'vitest'
import type { Database } from '../../src/database/database.ts'
import { identifier } from '../../src/database/sql.ts'
import { defineEvents, type EventsOf, type NewEvent } from '../../src/events/definition.ts'
import { openStore, type Store, type StoreOptions } from '../../src/store.ts'
import { type SpareSchemas, spareSchemas } from '../../src/testing/spare-schemas.ts'
import { engine, freshSchema, openDatabase, postgresUrl } from './engines.ts'

export type ShopEvent =
  | { type: 'OrderPlaced'; data: { total: number; note?: string } }
  | { type: 'OrderPaid'; data: { method: 'card' | 'cash' } }
  | { type: 'OrderShipped'; data: { parcel: string } }

export const shopEvents = defineEvents<ShopEvent>()
export type ShopMap = EventsOf<typeof shopEvents>

/** A busy machine is slow: what is told of that must not be among what a test wants to hear. */
const slowStatementMs = 60_000

export const onServer: boolean = engine !== 'pglite'

// The embedded engine takes seconds to start: not on the time of the first test. (This module is loaded once per worker.)
beforeAll(async () => {
  await openDatabase()
})

export interface Shop {
  readonly store: Store<ShopMap>
  readonly schema: string
  readonly database: Database
  /** Runs SQL beside the store; `~events` is the shop's own table of that name. */
  query<R extends object = Record<string, unknown>>(text: string, values?: readonly unknown[]): Promise<R[]>
  /** The text with `~name` put in full. */
  named(text: string): string
  /** A second store on the same schema. */
  sibling(options?: StoreOptions<ShopMap>): Promise<Store<ShopMap>>
}

/** A database that is given is the worker's own with something in front of it. */
export async function openShop(options: StoreOptions<ShopMap> = {}): Promise<Shop> {
  const shared = await openDatabase()
  const database = options.database ?? shared
  const spare = options.schema === undefined ? sparesOf(shared) : undefined
  const schema = options.schema ?? spare?.take() ?? freshSchema()
  let isShared = false
  let isForeign = false
  const defaults = { events: shopEvents, slowStatementMs }
  const store = await openStore<ShopMap>({ ...defaults, ...options, database, schema, migrate: true })
  await spare?.learn(schema)
  const named = (text: string): string => text.replaceAll(/~(\w+)/g, (_, name) => identifier(schema, name).quoted)
  const query = <R extends object>(text: string, values: readonly unknown[] = []): Promise<R[]> =>
    database.transaction(tx => tx.query<R>(named(text), values))
  onTestFinished(async () => {
    await store.close()
    if (isShared && onServer)
      await query('select pg_terminate_backend(pid, 10000) from pg_stat_activity where application_name = $1', [schema])
    if (spare === undefined || isForeign) await dropSchema(query, schema)
    else await spare.giveBack(schema)
  })
  const sibling = async (more: StoreOptions<ShopMap> = {}): Promise<Store<ShopMap>> => {
    isShared = true
    isForeign ||= more.url !== undefined || more.pool !== undefined || more.database !== undefined
    const own = onServer ? { url: `${postgresUrl()}?application_name=${schema}` } : { database }
    const other = await openStore<ShopMap>({ events: shopEvents, slowStatementMs, ...own, ...more, schema })
    onTestFinished(() => other.close())
    return other
  }
  return { store, schema, database, query, named, sibling }
}

/**
 * Schemas that were used before, emptied: making one takes longer than most tests. Not where connections are cut off, or
 * come in ways of the test's own: what they had sent may still come.
 */
function sparesOf(database: Database): SpareSchemas | undefined {
  if (expect.getState().testPath?.includes('/chaos/') === true) return undefined
  const known = spares.get(database) ?? spareSchemas(database)
  spares.set(database, known)
  return known
}

const spares = new WeakMap<Database, SpareSchemas>()

/** What a cut-off connection had sent may still run on the server, and take the tables in another order than we do. */
async function dropSchema(query: Shop['query'], schema: string): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      await query(`drop schema ${identifier(schema).quoted} cascade`)
      return
    } catch (error) {
      if ((error as { code?: string }).code !== '40P01' || tries === 10) throw error
    }
  }
}

/** A connection of the user's own, closed when the test is over. Only on a server. */
export async function connect(url: string = postgresUrl()): Promise<pg.Client> {
  const client = new pg.Client(url)
  client.on('error', () => {})
  await client.connect()
  onTestFinished(() => client.end())
  return client
}

export function placed(total = 99, more: object = {}): NewEvent<ShopMap> & { type: 'OrderPlaced' } {
  return { type: 'OrderPlaced', data: { total }, ...more }
}

export const paid: NewEvent<ShopMap> = { type: 'OrderPaid', data: { method: 'card' } }

export function shipped(parcel = 'parcel-1'): NewEvent<ShopMap> {
  return { type: 'OrderShipped', data: { parcel } }
}

/** The first `count` of a sequence, which is left then. */
export async function take<T>(source: AsyncIterable<T>, count: number): Promise<T[]> {
  const taken: T[] = []
  for await (const item of source) {
    taken.push(item)
    if (taken.length === count) break
  }
  return taken
}

/** What a promise came to, so that it can be looked at later without having been waited for. */
export function outcome<T>(promise: Promise<T>): Promise<{ value?: T; error?: unknown }> {
  return promise.then(
    value => ({ value }),
    (error: unknown) => ({ error }),
  )
}

/** How many sessions wait for a lock that this connection holds. */
export async function waitersFor(client: pg.Client): Promise<number> {
  const { rows } = await client.query(`
    select count(distinct pid)::integer as waiters
    from pg_locks
    where not granted and pg_backend_pid() = any(pg_blocking_pids(pid))`)
  return rows[0].waiters
}
