/**
 * The toy domain of the tests: a shop that takes orders.
 *
 *     const { store, query } = await openShop()      a store for this test, removed when the test is over
 *
 * Stores of one test share the worker's database; a `sibling` is a second store on the same schema, on a server with its
 * own connections, like another process.
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

/** A busy machine is slow: warnings about slow statements must not appear among those that a test expects. */
const slowStatementMs = 60_000

export const onServer: boolean = engine !== 'pglite'

// The embedded engine takes seconds to start: not within the time of the first test. (This module is loaded once per worker.)
beforeAll(async () => {
  await openDatabase()
})

export interface Shop {
  readonly store: Store<ShopMap>
  readonly schema: string
  readonly database: Database
  /** Runs SQL outside of the store; `~events` is the shop's own table of that name. */
  query<R extends object = Record<string, unknown>>(text: string, values?: readonly unknown[]): Promise<R[]>
  /** The text with each `~name` replaced by the full name. */
  named(text: string): string
  /** A second store on the same schema. */
  sibling(options?: StoreOptions<ShopMap>): Promise<Store<ShopMap>>
}

/** A given database must be the worker's own with a wrapper around it. */
export async function openShop(options: StoreOptions<ShopMap> = {}): Promise<Shop> {
  const shared = await openDatabase()
  const database = options.database ?? shared
  const spare = options.schema === undefined ? sparesOf(shared) : undefined
  const schema = options.schema ?? (await spare?.take(freshSchema())) ?? freshSchema()
  let isShared = false
  let isForeign = false
  const defaults = { events: shopEvents, slowStatementMs, logger: false } as const
  const store = await openStore<ShopMap>({ ...defaults, ...options, database, schema, migrate: true })
  const named = (text: string): string => text.replaceAll(/~(\w+)/g, (_, name) => identifier(schema, name).quoted)
  const query = <R extends object>(text: string, values: readonly unknown[] = []): Promise<R[]> =>
    database.transaction(tx => tx.query<R>(named(text), values))
  onTestFinished(async () => {
    await store.close()
    if (isShared && onServer)
      await query('select pg_terminate_backend(pid, 10000) from pg_stat_activity where application_name = $1', [schema])
    if (spare === undefined || isForeign) await dropSchema(query, schema)
    else await spare.release(schema)
  })
  const sibling = async (more: StoreOptions<ShopMap> = {}): Promise<Store<ShopMap>> => {
    isShared = true
    isForeign ||= more.url !== undefined || more.pool !== undefined || more.database !== undefined
    const own = onServer ? { url: `${postgresUrl()}?application_name=${schema}` } : { database }
    const other = await openStore<ShopMap>({
      events: shopEvents,
      slowStatementMs,
      logger: false,
      ...own,
      ...more,
      schema,
    })
    onTestFinished(() => other.close())
    return other
  }
  return { store, schema, database, query, named, sibling }
}

/**
 * Schemas that were used before, emptied: making one takes longer than most tests. Not for tests that cut connections or
 * bring their own: statements that they had sent may still arrive.
 */
function sparesOf(database: Database): SpareSchemas | undefined {
  if (expect.getState().testPath?.includes('/chaos/') === true) return undefined
  const known = spares.get(database) ?? spareSchemas(database)
  spares.set(database, known)
  return known
}

const spares = new WeakMap<Database, SpareSchemas>()

/** Statements of a cut connection may still run on the server, and lock the tables in another order than the drop. */
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

/** A connection of the user, closed when the test is over. Only on a server. */
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

/** The first `count` items of a sequence, which is left then. */
export async function take<T>(source: AsyncIterable<T>, count: number): Promise<T[]> {
  const taken: T[] = []
  for await (const item of source) {
    taken.push(item)
    if (taken.length === count) break
  }
  return taken
}

/** The outcome of a promise, to be checked later without awaiting it now. */
export function outcome<T>(promise: Promise<T>): Promise<{ value?: T; error?: unknown }> {
  return promise.then(
    value => ({ value }),
    (error: unknown) => ({ error }),
  )
}

/** Number of sessions that wait for a lock of this connection. */
export async function waitersFor(client: pg.Client): Promise<number> {
  const { rows } = await client.query(`
    select count(distinct pid)::integer as waiters
    from pg_locks
    where not granted and pg_backend_pid() = any(pg_blocking_pids(pid))`)
  return rows[0].waiters
}
