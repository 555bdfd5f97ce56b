/**
 * A PostgreSQL server behind the `Database` interface, through `pg`: with a pool of our own, or with the user's.
 *
 *     run, copyOut ──┐
 *     transaction ───┼──► pool ──► connections ──► server
 *     listen ────────┴──► a connection of its own
 *
 * Statements are prepared under a name once per connection (unnamed ones are about half as fast), unless `prepare:
 * false` says that there is a pooler in transaction mode. A statement outside of a transaction runs at the server's
 * default isolation; if that is not read committed, each is wrapped in a transaction that is.
 */
import type pg from 'pg'
import { InvalidOption, StoreClosed } from '../../core/errors.ts'
import { type Database, type Listener, oldestMajor, type Transaction, type TransactionOptions } from '../database.ts'
import { ServerUnsupported } from '../errors.ts'
import { openPreparedShapes } from '../prepared.ts'
import type { Statement } from '../sql.ts'
import { toConnectError, toRillflowError } from '../sqlstate.ts'
import { refuseInside } from '../transaction.ts'
import { copyToBuffer } from './copy.ts'
import { listenPostgres } from './listen.ts'
import { driverTypes, openRunningCalls, send } from './query.ts'
import { measureReplies } from './replies.ts'
import { runPostgresTransaction } from './transaction.ts'

export interface PostgresOptions {
  /** `postgres://user:password@host:port/database`. */
  url?: string | undefined
  /** A `pg` pool of yours instead of a url. The store does not end it. */
  pool?: PgPool | undefined
  /** The number of connections in the store's own pool. Default 10. */
  maxConnections?: number | undefined
  /** A connection is replaced after so many uses, because its memory on the server grows with the schemas it has used. Default: never, with tenants 10 000. */
  maxUses?: number | undefined
  /** How long to wait for a connection. Default 10 000. */
  connectTimeoutMs?: number | undefined
  /** The `ssl` option of `pg`: true, or TLS options. */
  ssl?: boolean | object | undefined
  /** False behind a pooler in transaction mode, which does not support prepared statements. Default true. */
  prepare?: boolean | undefined
  /** False: no listening connection, so that appends of other processes are found by polling. Default true. */
  listen?: boolean | undefined
  /** How long a statement may take before its connection counts as lost. Default 60 000. */
  answerTimeoutMs?: number | undefined
  /** The time limit of a transaction that has none of its own. Default 30 000. */
  transactionTimeoutMs?: number | undefined
}

/** The part of a `pg.Pool` that the store uses. */
export interface PgPool {
  connect(): Promise<PgClient>
  readonly options?: { readonly max?: number | undefined } | undefined
}

/** The part of a `pg.Client` that the store uses. */
export interface PgClient {
  query(query: object): Promise<{ rows: unknown[]; command: string }>
  release(error?: Error | boolean): void
}

export async function openPostgres(options: PostgresOptions): Promise<Database> {
  const { default: driver } = await import('pg')
  const clients = new Set<pg.Client>()
  const pool = options.pool === undefined ? ownPool(driver, options, clients) : (options.pool as pg.Pool)
  const isOwnPool = options.pool === undefined
  const shapes = options.prepare === false ? undefined : openPreparedShapes()
  const maxConnections = pool.options.max ?? 10
  const transactionTimeoutMs = options.transactionTimeoutMs ?? 30_000
  const timeoutMs = options.answerTimeoutMs ?? 60_000
  const types = driverTypes(driver)
  const stopMeasuring = measureReplies(pool)

  const server = await firstContact(pool, options.url).catch(async error => {
    if (isOwnPool) await pool.end()
    throw error
  })
  const isReadCommitted = server.isolation === 'read committed'

  let isClosed = false
  const calls = openRunningCalls()
  const openTransactions = new Set<(error: Error) => void>()

  const runStatement = async (statement: Statement, arrays: boolean): Promise<unknown[]> => {
    database.refuseInsideTransaction(statement.label)
    if (isClosed) throw new StoreClosed({})
    if (!isReadCommitted && statement.alone === undefined)
      return database.transaction(tx => (arrays ? tx.runArrays(statement) : tx.run(statement)))
    try {
      const limitMs = statement.alone?.timeoutMs ?? timeoutMs
      return (await calls.track(() => send(pool, statement, { shapes, arrays, types, timeoutMs: limitMs }))).rows
    } catch (error) {
      throw toRillflowError(error, statement.label)
    }
  }

  const database: Database = {
    engine: 'postgres',
    soleUser: undefined,
    files: undefined,
    neighbours: new Set(),
    maxConnections,
    connections: () => {
      // Not every pool of a user has these counts.
      const { totalCount = 0, idleCount = 0, waitingCount = 0 } = pool as Partial<pg.Pool>
      return { busy: totalCount - idleCount, idle: idleCount, waiting: waitingCount }
    },
    batch: { appendEvents: 1000, readEvents: 1000 },
    run: async <R extends object>(statement: Statement) => (await runStatement(statement, false)) as R[],
    runArrays: async statement => (await runStatement(statement, true)) as unknown[][],
    async transaction<T>(work: (tx: Transaction) => Promise<T>, given: TransactionOptions = {}): Promise<T> {
      database.refuseInsideTransaction('transaction')
      if (isClosed) throw new StoreClosed({})
      const timeoutMs = given.timeoutMs ?? transactionTimeoutMs
      const parts = { database, pool, types, shapes, openTransactions }
      return calls.track(() => runPostgresTransaction(parts, work, { ...given, timeoutMs }))
    },
    async copyOut(text) {
      database.refuseInsideTransaction('copy')
      if (isClosed) throw new StoreClosed({})
      return calls.track(() => copyToBuffer(pool, text))
    },
    listen(channel, onNotify): Listener {
      if (options.listen === false) return { ready: Promise.resolve(), close: async () => {} }
      return listenPostgres(driver, listenerConfig(options, pool), channel, onNotify)
    },
    refuseInsideTransaction: call => refuseInside(database, call),
    async close(closeMs) {
      if (isClosed) return
      isClosed = true
      const until = performance.now() + closeMs
      await calls.whenIdle(closeMs)
      await closePool(pool, isOwnPool, { openTransactions, clients }, Math.max(0, until - performance.now()))
      calls.rejectAll(new StoreClosed({}))
      stopMeasuring()
    },
  }
  return database
}

function ownPool(driver: typeof pg, options: PostgresOptions, clients: Set<pg.Client>): pg.Pool {
  if (options.url === undefined)
    throw new InvalidOption({ option: 'url', reason: 'A store on a server needs the option "url" or "pool".' })
  const connectTimeoutMs = options.connectTimeoutMs ?? 10_000
  const pool = new driver.Pool({
    Client: trackedClient(driver, clients),
    connectionString: options.url,
    max: options.maxConnections ?? 10,
    ...(options.maxUses === undefined ? {} : { maxUses: options.maxUses }),
    connectionTimeoutMillis: connectTimeoutMs,
    idleTimeoutMillis: 30_000,
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
    application_name: 'rillflow',
    ...(options.ssl === undefined ? {} : { ssl: options.ssl }),
    ...(options.prepare === false
      ? {}
      : { onConnect: (client: pg.ClientBase) => noticeDeadClients(client, connectTimeoutMs) }),
  } as pg.PoolConfig)
  // An idle connection that is lost is replaced on the next use. Without a listener its error would end the process.
  pool.on('error', () => {})
  return pool
}

/** Adds each connection to `clients` from its first attempt to its end, whether the pool has handed it out or not. */
function trackedClient(driver: typeof pg, clients: Set<pg.Client>): typeof pg.Client {
  return class extends driver.Client {
    constructor(config?: string | pg.ClientConfig) {
      super(config)
      clients.add(this)
      this.once('end', () => clients.delete(this))
      // A connection that is lost while the pool hands it out has no other listener, and its error would end the
      // process. The next statement on it fails anyway.
      this.on('error', () => {})
    }
  }
}

/** Makes the server notice within half a minute that this machine cannot be reached, and free the locks of its sessions. */
async function noticeDeadClients(client: pg.ClientBase, timeoutMs: number): Promise<void> {
  const text = `
    select
      set_config('tcp_keepalives_idle', '10', false),
      set_config('tcp_keepalives_interval', '5', false),
      set_config('tcp_keepalives_count', '3', false)`
  // The pool's own limit covers only the connecting.
  await client.query({ text, query_timeout: timeoutMs } as pg.QueryConfig)
}

async function firstContact(pool: pg.Pool, url: string | undefined): Promise<{ isolation: string }> {
  const to = describeTarget(pool, url)
  try {
    const answer = await pool.query(`
      select
        current_setting('server_version') as version,
        current_setting('server_version_num')::integer as number,
        current_setting('default_transaction_isolation') as isolation`)
    const { version, number, isolation } = answer.rows[0]
    if (number < oldestMajor * 10_000) throw new ServerUnsupported({ version, oldest: oldestMajor })
    return { isolation }
  } catch (error) {
    throw toConnectError(error, to)
  }
}

function describeTarget(pool: pg.Pool, url: string | undefined): { address: string; user: string; database: string } {
  const { host, port, user, database } = pool.options
  const parsed = url !== undefined && URL.canParse(url) ? new URL(url) : undefined
  return {
    address: `${parsed?.hostname || host || 'localhost'}:${parsed?.port || port || 5432}`,
    user: decodeURIComponent(parsed?.username ?? '') || user || process.env.PGUSER || 'unknown',
    database: decodeURIComponent(parsed?.pathname.slice(1) ?? '') || database || 'unknown',
  }
}

function listenerConfig(options: PostgresOptions, pool: pg.Pool): pg.ClientConfig {
  // The password of the pool's options is not enumerable, so it is not copied with the others.
  const { max: _max, ...own } = { ...pool.options, password: pool.options.password }
  const config = options.url === undefined ? own : { connectionString: options.url }
  return { ...config, ...(options.ssl === undefined ? {} : { ssl: options.ssl }), keepAlive: true } as pg.ClientConfig
}

async function closePool(
  pool: pg.Pool,
  isOwnPool: boolean,
  running: { openTransactions: Set<(error: Error) => void>; clients: Set<pg.Client> },
  closeMs: number,
): Promise<void> {
  const cutOff = setTimeout(() => {
    for (const revoke of running.openTransactions) revoke(new StoreClosed({}))
    // A running statement ends with its connection, and the pool waits for both; a server that does not answer would
    // never end it. (Not with `end`: the pool would then wait for ever for a connection that is just being made.)
    for (const client of running.clients)
      (client as unknown as { connection: { stream: { destroy(): void } } }).connection.stream.destroy()
  }, closeMs)
  try {
    if (isOwnPool) await pool.end()
  } finally {
    clearTimeout(cutOff)
  }
}
