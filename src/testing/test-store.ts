/**
 * Stores for tests: real, empty, and removed when they are closed.
 *
 *     await using store = await testStore(shop)
 *     await using store = await testStore(shop, { url: process.env.DATABASE_URL })
 *     await store.advance({ days: 3 })                          its time is in your hands
 *
 * All test stores of a process share one embedded engine, because starting one takes seconds and 350 MB. Each has a schema of
 * its own, which is emptied and used again, or dropped, when the store is closed.
 */
import { randomBytes } from 'node:crypto'
import { once } from '../core/abort.ts'
import { InvalidOption } from '../core/errors.ts'
import { refuseUnknownOptions } from '../core/options.ts'
import type { Database } from '../database/database.ts'
import { identifier, type Statement } from '../database/sql.ts'
import type { EventMap, UntypedEvents } from '../events/definition.ts'
import { moveClock } from '../schema/clock.sql.ts'
import { openParts, type Store, type StoreOptions } from '../store.ts'
import { type Advance, movableClock, openTime, type Time } from './advance.ts'
import { type SpareSchemas, spareSchemas } from './spare-schemas.ts'

/**
 * The place of a test store, if not in the embedded engine of this process: a schema on your server.
 *
 * @example
 * ```ts
 * const place: TestPlace = { at: '2030-01-01T00:00:00Z' }
 * ```
 */
export interface TestPlace extends Pick<StoreOptions, 'database' | 'url' | 'pool'> {
  /** The time of the store, which stands still but for `advance`. Default: the present, and it goes on. */
  at?: Date | string | undefined
}

/**
 * A store whose time is in the hands of the test.
 *
 * @example
 * ```ts
 * const tomorrow = (shop: TestStore) => shop.advance({ days: 1 })
 * ```
 */
export interface TestStore<M extends EventMap = UntypedEvents> extends Store<M> {
  /**
   * Moves the time and runs everything that is due on the way, at once and without a runner: `advance({ days: 3 })`.
   * `advance()` runs what can run now. Returns the time of the store.
   */
  readonly advance: Advance
}

/**
 * Opens a store with the options of your program. Those that say where a store is (`url`, `pool`, `folder`, `memory`,
 * `schema`, `migrate`) are ignored: `place` is the only way to a server.
 *
 * @example
 * ```ts
 * await using shop = await testStore({ events })
 * await shop.advance({ days: 3 })
 * ```
 */
export async function testStore<M extends EventMap = UntypedEvents>(
  options: StoreOptions<M> = {},
  place: TestPlace = {},
): Promise<TestStore<M>> {
  return (await openTestStore(options, place)).store
}

/** A test store together with its time, for specifications. */
export async function openTestStore<M extends EventMap>(
  options: StoreOptions<M>,
  place: TestPlace,
): Promise<OpenedTestStore<M>> {
  const { url: _url, pool: _pool, folder: _folder, memory: _memory, database: _database, ...own } = options
  const { at, ...server } = place
  refuseUnknownOptions('testStore', place, ['database', 'url', 'pool', 'at'])
  const isShared = server.database === undefined && server.url === undefined && server.pool === undefined
  return isShared ? openShared(own, at) : openOn(server, own, at)
}

export interface OpenedTestStore<M extends EventMap> extends AsyncDisposable {
  readonly store: TestStore<M>
  readonly time: Time
}

async function openOn<M extends EventMap>(
  place: Omit<TestPlace, 'at'>,
  options: StoreOptions<M>,
  at: TestPlace['at'],
): Promise<OpenedTestStore<M>> {
  const schema = newSchema()
  return openTimed({ ...options, ...place, schema }, at, async store => {
    await store.transaction(tx => tx.query(dropping(schema).text))
    await store.close()
  })
}

async function openShared<M extends EventMap>(
  options: StoreOptions<M>,
  at: TestPlace['at'],
): Promise<OpenedTestStore<M>> {
  const { database, spare } = await sharedEngine()
  const schema = await spare.take(newSchema())
  return openTimed({ ...options, database, schema }, at, async store => {
    await store.close()
    await moveClock(database, schema, undefined)
    await spare.release(schema)
  })
}

async function openTimed<M extends EventMap>(
  options: StoreOptions<M>,
  at: TestPlace['at'],
  end: (store: Store<M>) => Promise<void>,
): Promise<OpenedTestStore<M>> {
  if (options.tenancy !== undefined)
    throw new InvalidOption({
      option: 'tenancy',
      reason: 'A test store is the store of one tenant. Leave "tenancy" out, or open the tenants with openStore.',
    })
  const clock = movableClock(options.clock)
  let time!: Time
  const { store } = await openParts<M>({ ...options, clock, migrate: true }, async parts => {
    time = openTime(parts, clock)
    if (at !== undefined) await time.moveTo(at)
  })
  const close = once(() => end(store))
  const start: Store<M>['start'] = async given => {
    const runner = await store.start(given)
    time.started(runner)
    return runner
  }
  const timed = { ...store, start, advance: time.advance, close, [Symbol.asyncDispose]: close }
  return { store: timed, time, [Symbol.asyncDispose]: close }
}

/** One for the process; it ends with the process. */
let engine: Promise<SharedEngine> | undefined

export interface SharedEngine {
  readonly database: Database
  readonly spare: SpareSchemas
}

export function sharedEngine(): Promise<SharedEngine> {
  engine ??= startEngine()
  return engine
}

async function startEngine(): Promise<SharedEngine> {
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
