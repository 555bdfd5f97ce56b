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
import { InvalidOption, isRillflowError, StoreClosed } from '../../core/errors.ts'
import type { Database, Listener, Transaction, TransactionOptions } from '../database.ts'
import { openNotifications } from '../notifications.ts'
import { openPreparedShapes } from '../prepared.ts'
import { type Statement, sql } from '../sql.ts'
import { toRillflowError } from '../sqlstate.ts'
import { refuseInside } from '../transaction.ts'
import { openRunningCalls } from './calls.ts'
import { copyToBuffer } from './copy.ts'
import { firstContact } from './first-contact.ts'
import { listenPostgres } from './listen.ts'
import { OwnQuery, submitOn, textsOf } from './own-query.ts'
import { cancelled, foreignPool, givenUp, isSilence, noAnswer, ownPool, type Pool, sessionTimeout } from './pool.ts'
import { driverTypes, send } from './query.ts'
import { type Secret, withDefaultTls, withPassword } from './secured.ts'
import { checkUrl, connectionString, describeTarget } from './target.ts'
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
  /** How long to wait for a connection, also while the server accepts no more. Default 10 000. */
  connectTimeoutMs?: number | undefined
  /** The name of its connections in the views of the server. Default `rillflow`. */
  applicationName?: string | undefined
  /** The password of the role, or where it is kept: `{ env }`, `{ file }` or a function, which is asked for each connection. Default: that of the url. */
  password?: Secret | undefined
  /** The `ssl` option of `pg`: true, false, or TLS options. It wins over the url. Default: true for a server on another machine, unless the url says otherwise. */
  ssl?: boolean | object | undefined
  /** False behind a pooler in transaction mode, which does not support prepared statements. Default true. */
  prepare?: boolean | undefined
  /**
   * False: no listening connection, so that appends of other processes are found by polling. Default true, if the address is
   * known: a pool of yours without `options` has none.
   */
  listen?: boolean | undefined
  /** How long a statement, or the next rows of a COPY, may take before the connection counts as lost. Default 60 000. */
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

export async function openPostgres(given: PostgresOptions): Promise<Database> {
  const options = withDefaultTls(given)
  const driver = withPassword((await import('pg')).default, options.password)
  const { url } = options
  const isForeign = options.pool !== undefined
  if (!isForeign) checkPlace(url)
  const connectTimeoutMs = bounded(options.connectTimeoutMs ?? 10_000)
  const timeoutMs = bounded(options.answerTimeoutMs ?? 60_000)
  const target = describeTarget((options.pool ?? {}) as { options?: pg.PoolConfig }, url)
  const testMs = Math.min(timeoutMs, 5_000)
  const limits = { target, connectTimeoutMs, testMs, answerTimeoutMs: timeoutMs }
  const pool = options.pool === undefined ? ownPool(driver, options, limits) : foreignPool(options.pool, limits)
  const shapes = options.prepare === false ? undefined : openPreparedShapes()
  // Behind a pooler, and on a pool of the user, a session is not ours to set.
  const isLimited = !isForeign && shapes !== undefined
  const transactionTimeoutMs = bounded(options.transactionTimeoutMs ?? 30_000)
  const types = driverTypes(driver)

  const server = await firstContact(pool, { target, isForeign, timeoutMs }).catch(async error => {
    await pool.end()
    throw error
  })
  const isReadCommitted = server.isolation === 'read committed'

  let isClosed = false
  const calls = openRunningCalls()
  const openTransactions = new Set<(error: Error) => void>()
  const listeners = new Set<Listener>()

  /** Silence is rarely that of one connection alone. */
  const lostBySilence = (label: string, limitMs: number): Error => {
    pool.testIdle()
    return noAnswer(label, limitMs)
  }

  const runStatement = async (statement: Statement, arrays: boolean): Promise<unknown[]> => {
    database.refuseInsideTransaction(statement.label)
    if (isClosed) throw new StoreClosed({})
    if (!isReadCommitted && statement.alone === undefined)
      return database.transaction(tx => (arrays ? tx.runArrays(statement) : tx.run(statement)))
    const limitMs = statement.alone?.timeoutMs ?? Math.min(statement.budgetMs ?? timeoutMs, timeoutMs)
    const sending = { shapes, arrays, timeoutMs: limitMs }
    try {
      const values = isForeign || statement.alone !== undefined ? undefined : textsOf(statement)
      if (values !== undefined) return await sendOwn(statement, values, arrays, limitMs)
      return (await calls.track(() => pool.use(client => sendAlone(client, statement, sending)))).rows
    } catch (error) {
      throw isSilence(error) ? lostBySilence(statement.label, limitMs) : toRillflowError(error, statement.label)
    }
  }

  /** On a connection of our own: one promise, and the watchdog instead of a timer. */
  const sendOwn = (
    statement: Statement,
    values: readonly (string | null)[],
    arrays: boolean,
    limitMs: number,
  ): Promise<unknown[]> =>
    new Promise((resolve, reject) => {
      const call = calls.begin(reject)
      const fail = (error: unknown): void => {
        calls.end(call)
        reject(error)
      }
      const sendOn = (client: pg.PoolClient): void => {
        const end = {
          done: (rows: unknown[]): void => {
            calls.end(call)
            pool.giveBack(client)
            resolve(rows)
          },
          failed: (error: Error): void => {
            pool.giveBack(client, error)
            fail(error)
          },
        }
        const query = new OwnQuery(statement, values, { shapes, arrays, end })
        calls.limit(call, limitMs, () => {
          query.abandon()
          const error = givenUp()
          void pool.cancel(client).then(isFree => {
            if (!isFree) client.release(error)
            fail(isFree ? cancelled() : error)
          })
        })
        try {
          submitOn(client, query)
        } catch (error) {
          query.handleError(error as Error)
        }
      }
      const atHand = pool.take()
      if (atHand === undefined) pool.connect().then(sendOn, fail)
      else sendOn(atHand)
    })

  /** A statement that may take longer than others raises the limit of its session for its own time. */
  const sendAlone: typeof send = async (client, statement, sending) => {
    if (statement.alone === undefined || !isLimited) return send(client, statement, sending)
    const limit = (ms: number) => client.query({ text: `set statement_timeout = '${sessionTimeout(ms)}'` })
    await limit(statement.alone.timeoutMs)
    const answer = await send(client, statement, sending)
    await limit(timeoutMs)
    return answer
  }

  /** Reads again after silence: nothing can have changed, and the silent connections are closed. */
  const copyOut = async (text: string, tries = 1): Promise<Buffer> => {
    try {
      return await pool.use(client => copyToBuffer(client, text, timeoutMs))
    } catch (error) {
      if (!isRillflowError(error, 'connection_lost')) throw toRillflowError(error, 'copy')
      pool.testIdle()
      if (tries === maxCopyTries || isClosed) throw error
      return copyOut(text, tries + 1)
    }
  }

  const notifications = openNotifications(statement => runStatement(statement, true))
  const database: Database = {
    engine: 'postgres',
    hasNodes: server.hasNodes,
    soleUser: undefined,
    files: undefined,
    neighbours: new Set(),
    maxConnections: pool.options.max ?? 10,
    connections: () => {
      const { total, idle, waiting } = pool.counts()
      return { busy: total - idle, idle, waiting }
    },
    batch: { appendEvents: 1000, readEvents: 1000 },
    run: async <R extends object>(statement: Statement) => (await runStatement(statement, false)) as R[],
    runArrays: async statement => (await runStatement(statement, true)) as unknown[][],
    async transaction<T>(work: (tx: Transaction) => Promise<T>, given: TransactionOptions = {}): Promise<T> {
      database.refuseInsideTransaction('transaction')
      if (isClosed) throw new StoreClosed({})
      const limits = {
        timeoutMs: bounded(given.timeoutMs ?? transactionTimeoutMs),
        idleMs: given.idleMs && bounded(given.idleMs),
        lockTimeoutMs: given.lockTimeoutMs && bounded(given.lockTimeoutMs),
      }
      const parts = { database, pool, types, shapes, openTransactions, lostBySilence }
      return calls.track(() => runPostgresTransaction(parts, work, { ...given, ...limits }))
    },
    async copyOut(text) {
      database.refuseInsideTransaction('copy')
      if (isClosed) throw new StoreClosed({})
      return calls.track(() => copyOut(text))
    },
    notify: notifications.notify,
    listen(channel, onNotify): Listener {
      if (options.listen === false || (isForeign && options.pool?.options === undefined)) return notListening
      const notify = (payload: string) =>
        database.run(sql`/* database.test_listener */ select pg_notify(${channel}::text, ${payload}::text)`)
      if (isClosed) return notListening
      const listener = listenPostgres({ driver, config: listenerConfig(options), channel, notify }, onNotify)
      listeners.add(listener)
      return {
        ...listener,
        async close() {
          listeners.delete(listener)
          await listener.close()
        },
      }
    },
    refuseInsideTransaction: call => refuseInside(database, call),
    async close(closeMs) {
      if (isClosed) return
      isClosed = true
      notifications.close()
      const until = performance.now() + closeMs
      // A listener reconnects by itself: one that is left open would hold a connection of the server for ever.
      const listenersClosed = Promise.all([...listeners].map(listener => listener.close()))
      await calls.whenIdle(closeMs)
      await closePool(pool, openTransactions, Math.max(0, until - performance.now()))
      calls.rejectAll(new StoreClosed({}))
      await listenersClosed
    },
  }
  return database
}

const maxCopyTries = 3

/** Timers of Node and settings of PostgreSQL end after 24.8 days; ours on the server are a little later than these. */
const maxTimerMs = 24 * 24 * 3_600_000

function bounded(ms: number): number {
  return Math.min(ms, maxTimerMs)
}

/** A store that polls needs no notifications. */
const notListening: Listener = {
  ready: Promise.resolve(),
  receives: Promise.resolve(undefined),
  close: async () => {},
}

function checkPlace(url: string | undefined): void {
  if (url === undefined)
    throw new InvalidOption({ option: 'url', reason: 'A store on a server needs the option "url" or "pool".' })
  checkUrl(url)
}

function listenerConfig({ url, pool, ssl }: PostgresOptions): pg.ClientConfig {
  // The password of the pool's options is not enumerable, so it is not copied with the others.
  const given = (pool as { options?: pg.PoolConfig } | undefined)?.options ?? {}
  const { max: _max, ...own } = { ...given, password: given.password }
  const config = url === undefined ? own : { connectionString: connectionString(url, ssl) }
  return { ...config, ...(ssl === undefined ? {} : { ssl }), keepAlive: true } as pg.ClientConfig
}

async function closePool(pool: Pool, openTransactions: Set<(error: Error) => void>, closeMs: number): Promise<void> {
  const cutOff = setTimeout(() => {
    for (const revoke of openTransactions) revoke(new StoreClosed({}))
    // A running statement ends with its connection, and the pool waits for both; a server that does not answer would
    // never end it.
    pool.destroy()
  }, closeMs)
  try {
    await pool.end()
  } finally {
    clearTimeout(cutOff)
  }
}
