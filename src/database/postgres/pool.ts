/**
 * The connections: a pool of our own, or one that the user brings along, of which only `connect` is needed.
 *
 *     borrow ──► a connection for one call ──► kept at hand (`kept.ts`) or released; closed after an error
 *        └──► no answer in time ──► every idle connection is tested, and those that do not answer are closed
 *
 * - A full server is waited for: its connections are often free again in a moment.
 * - When the network goes away without a word, all connections of the pool are silent. Without the test each of them would
 *   cost one more call its time-out.
 * - A connection answers in the text format, and to one call at a time, while it is borrowed, whatever the user's pool says.
 */
import type pg from 'pg'
import { abortable, abortError, sleep } from '../../core/abort.ts'
import { InvalidOption } from '../../core/errors.ts'
import { type Backoff, delay } from '../../core/retry.ts'
import { ConnectionLost } from '../errors.ts'
import { isServerFull, queryCancelled, type Target, toConnectError } from '../sqlstate.ts'
import { cancelStatement } from './cancel.ts'
import { type KeptConnections, keepConnections } from './kept.ts'
import type { PgPool, PostgresOptions } from './postgres.ts'
import { measureReplies } from './replies.ts'
import { connectionString } from './target.ts'

export interface Pool {
  readonly options: { readonly max?: number | undefined }
  /** The present connections; zero where a pool of the user does not count them. */
  counts(): { readonly total: number; readonly idle: number; readonly waiting: number }
  /** Runs `work` on a connection that nothing else uses meanwhile. After an error the connection is closed. */
  use<T>(work: (client: pg.PoolClient) => Promise<T>): Promise<T>
  /** A connection that is at hand, without a wait; undefined if there is none. It is given back with `giveBack`. */
  take(): pg.PoolClient | undefined
  /** The connection of `take` or `connect` is free again; after an error it is closed. */
  giveBack(client: pg.PoolClient, error?: Error): void
  /** Ends a statement that was given up: true if its connection is free again, and was given back. */
  cancel(client: pg.PoolClient): Promise<boolean>
  /** A connection of the caller's own, to be released by it. */
  connect(signal?: AbortSignal): Promise<pg.PoolClient>
  /** Closes the idle connections that do not answer. Call it when a connection has fallen silent. */
  testIdle(): void
  /** Ends our own pool; one of the user stays. `closeMs` is the time for running calls. */
  end(): Promise<void>
  /** Cuts off every connection of our own pool. */
  destroy(): void
}

export interface PoolOptions {
  readonly target: Target
  readonly connectTimeoutMs: number
  /** How long an idle connection may take to answer before it counts as silent. */
  readonly testMs: number
  readonly answerTimeoutMs: number
}

const fullBackoff: Backoff = { baseMs: 50, factor: 2, maxMs: 1_000, jitter: 0.5 }

/** Wraps a pool of the user. Nothing but `connect` is needed of it. */
export function foreignPool(given: PgPool, options: PoolOptions): Pool {
  if (typeof given?.connect !== 'function')
    throw new InvalidOption({
      option: 'pool',
      reason:
        'The option "pool" has no method "connect". Give a pool of pg (new pg.Pool(…)), or an object whose connect() resolves to a client with query() and release().',
    })
  return wrap(given as pg.Pool, options, undefined, { end: async () => {}, destroy: () => {} })
}

export function ownPool(driver: typeof pg, options: PostgresOptions, given: PoolOptions): Pool {
  const clients = new Set<pg.Client>()
  const pool = new driver.Pool({
    Client: trackedClient(driver, clients),
    connectionString: connectionString(options.url!, options.ssl),
    max: options.maxConnections ?? 10,
    ...(options.maxUses === undefined ? {} : { maxUses: options.maxUses }),
    connectionTimeoutMillis: given.connectTimeoutMs,
    idleTimeoutMillis: 30_000,
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
    application_name: options.applicationName ?? 'rillflow',
    ...(options.ssl === undefined ? {} : { ssl: options.ssl }),
    ...(options.prepare === false ? {} : { onConnect: (client: pg.ClientBase) => limitSession(client, given) }),
  } as pg.PoolConfig)
  // An idle connection that is lost is replaced on the next use. Without a listener its error would end the process.
  pool.on('error', () => {})
  const kept = keepConnections({ waiting: () => pool.waitingCount, maxUses: options.maxUses })
  return wrap(pool, given, kept, {
    end: () => {
      kept.close()
      return pool.end()
    },
    // Not with `end`: the pool would then wait for ever for a connection that is just being made.
    destroy: () => {
      for (const client of clients)
        (client as unknown as { connection: { stream: { destroy(): void } } }).connection.stream.destroy()
    },
  })
}

function wrap(
  pool: pg.Pool,
  { target, connectTimeoutMs, testMs }: PoolOptions,
  kept: KeptConnections | undefined,
  end: Pick<Pool, 'end' | 'destroy'>,
): Pool {
  let isTesting = false

  const connect = async (signal?: AbortSignal): Promise<pg.PoolClient> => {
    const until = performance.now() + connectTimeoutMs
    for (let tries = 1; ; tries++) {
      if (signal?.aborted) throw abortError(signal)
      const atHand = kept?.take()
      if (atHand !== undefined) return atHand
      try {
        const client = inText(await connectOnce(pool, signal))
        measureReplies(client)
        return client
      } catch (error) {
        const waitMs = delay(fullBackoff, tries)
        if (!isServerFull(error)) throw error
        if (performance.now() + waitMs > until) throw toConnectError(error, target)
        await sleep(waitMs, { signal })
      }
    }
  }

  const testAll = async (): Promise<void> => {
    kept?.release()
    // All at once, so that each call gets another one: the pool hands out its idle connections first.
    const taken = Array.from({ length: pool.idleCount ?? 0 }, () => pool.connect().catch(() => undefined))
    await Promise.all(taken.map(async taking => testOne(await taking, testMs)))
  }

  const giveBack = (client: pg.PoolClient, error?: Error): void => {
    if (error !== undefined) client.release(error)
    else if (kept === undefined) client.release()
    else kept.keep(client)
  }

  return {
    options: pool.options ?? {},
    counts: () => {
      const { totalCount = 0, idleCount = 0, waitingCount = 0 } = pool as Partial<pg.Pool>
      return { total: totalCount, idle: idleCount + (kept?.size ?? 0), waiting: waitingCount }
    },
    async use(work) {
      const client = await connect()
      client.on?.('error', ignore)
      try {
        const result = await work(client)
        client.off?.('error', ignore)
        client.release()
        return result
      } catch (error) {
        if (isSilence(error) && (await cancelStatement(client))) {
          client.off?.('error', ignore)
          client.release()
          throw cancelled()
        }
        client.release(error as Error)
        throw error
      }
    },
    take: () => kept?.take(),
    giveBack,
    async cancel(client) {
      const isFree = await cancelStatement(client)
      if (isFree) giveBack(client)
      return isFree
    },
    connect,
    testIdle() {
      if (isTesting) return
      isTesting = true
      void testAll().finally(() => {
        isTesting = false
      })
    },
    ...end,
  }
}

const ignore = (): void => {}

/** A connection that comes after the caller was aborted is released at once. */
async function connectOnce(pool: pg.Pool, signal: AbortSignal | undefined): Promise<pg.PoolClient> {
  const connecting = pool.connect()
  try {
    return await abortable(connecting, signal)
  } catch (error) {
    connecting.then(
      client => client.release(),
      () => {},
    )
    throw error
  }
}

async function testOne(client: pg.PoolClient | undefined, testMs: number): Promise<void> {
  if (client === undefined) return
  client.on?.('error', ignore)
  try {
    await client.query({ text: 'select 1', query_timeout: testMs } as pg.QueryConfig)
    client.off?.('error', ignore)
    client.release()
  } catch (error) {
    client.release(error as Error)
  }
}

/** Settings of the client that `release` gives back as they were. */
interface Switches {
  binary?: boolean | undefined
  pipeline?: boolean | undefined
}

/** Our parsers read the text format, and COPY needs a connection that is not pipelined. */
function inText(client: pg.PoolClient): pg.PoolClient {
  const switches = client as Switches
  const { binary, pipeline } = switches
  if (binary !== true && pipeline !== true) return client
  const release = client.release
  switches.binary = false
  if (pipeline !== undefined) switches.pipeline = false
  client.release = (error?: Error | boolean) => {
    client.release = release
    switches.binary = binary
    switches.pipeline = pipeline
    release.call(client, error)
  }
  return client
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

    /** Dates in another style cannot be read. As a parameter of the start it also holds behind a pooler. */
    getStartupConf(): Record<string, string> {
      const given = (driver.Client.prototype as unknown as { getStartupConf(): Record<string, string> }).getStartupConf
      return { ...given.call(this), datestyle: 'ISO' }
    }
  }
}

/**
 * Makes the server notice within half a minute that this machine cannot be reached, and free the locks of its sessions; and
 * end statements whose answer no one awaits any longer. Its limit is the later one, so that ours decides.
 */
async function limitSession(client: pg.ClientBase, { connectTimeoutMs, answerTimeoutMs }: PoolOptions): Promise<void> {
  const text = `
    select
      set_config('tcp_keepalives_idle', '10', false),
      set_config('tcp_keepalives_interval', '5', false),
      set_config('tcp_keepalives_count', '3', false),
      set_config('statement_timeout', '${sessionTimeout(answerTimeoutMs)}', false)`
  // The pool's own limit covers only the connecting.
  const send = (text: string) => client.query({ text, query_timeout: connectTimeoutMs } as pg.QueryConfig)
  await send(text)
  // Not every system that a server runs on can notice it.
  await send(`select set_config('client_connection_check_interval', '5s', false)`).catch(ignore)
}

/** The limit of our own sessions for a statement that we give up after `answerTimeoutMs`. */
export function sessionTimeout(answerTimeoutMs: number): string {
  return `${answerTimeoutMs + 1_000}ms`
}

/** The error of a statement of ours that got no answer in time. */
export function noAnswer(label: string, timeoutMs: number): Error {
  return new ConnectionLost({ reason: `no answer to ${label} within ${timeoutMs} ms` })
}

/** The error of a statement that was given up, and that the server has ended: nothing of it took effect. */
export function cancelled(): Error {
  return Object.assign(new Error('it took longer than its time limit'), { code: queryCancelled })
}

/** Whether a statement was given up because no answer came. */
export function isSilence(error: unknown): boolean {
  return error instanceof Error && error.message === silence
}

/** The driver's own error of a statement that was given up. */
export function givenUp(): Error {
  return new Error(silence)
}

const silence = 'Query read timeout'
