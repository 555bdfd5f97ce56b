/**
 * A place for one round: a new schema on the user's server with two stores, whose connections can be cut. Only connections that
 * were opened here are cut, and only on this side, so that nothing else on the server or behind the pooler notices.
 */
import pg from 'pg'
import type { Documents } from '../documents/documents.ts'
import { openStore, type Store } from '../store.ts'
import type { Counted } from './record-transactions.ts'

export interface Server {
  readonly url: string
  /** False behind a pooler. Default true. */
  readonly prepare?: boolean | undefined
  /** Ends a round early. */
  readonly signal?: AbortSignal | undefined
}

export interface Place extends AsyncDisposable {
  readonly stores: readonly Store[]
  /** A store whose connections are not cut: it reads what the others have done. */
  readonly judge: Store
  /** The collection that transactions write to: of the judge, and of each store. */
  readonly stocks: readonly Documents<Counted>[]
  readonly schema: string
  readonly signal: AbortSignal | undefined
  /** A client for transactions of a user. */
  client(): Promise<pg.PoolClient>
  /** Breaks some of its connections, in the middle of whatever they do. */
  cut(): void
}

const maxConnections = 8

export async function openPlace({ url, prepare, signal }: Server, schema: string): Promise<Place> {
  const sockets = new Set<{ destroy(): void }>()
  const pools = [0, 1].map(() => {
    const pool = new pg.Pool({ connectionString: url, max: maxConnections, application_name: 'rillflow verify' })
    pool.on('error', () => {})
    pool.on('connect', client => {
      const { stream } = (client as unknown as { connection: { stream: { destroy(): void } } }).connection
      client.on('error', () => {})
      client.on('end', () => sockets.delete(stream))
      sockets.add(stream)
    })
    return pool
  })
  const users = new pg.Pool({ connectionString: url, max: maxConnections, application_name: 'rillflow verify' })
  users.on('error', () => {})
  const stores: Store[] = []
  const close = async (): Promise<void> => {
    await stores[0]?.schema.drop()
    for (const store of stores) await store.close()
    await Promise.all([...pools, users].map(pool => pool.end()))
  }
  try {
    for (const pool of [users, ...pools])
      stores.push(await openStore({ pool, schema, prepare, migrate: stores.length === 0, listen: false, pollMs: 50 }))
    const stocks = stores.map(store => store.documents('stock', { history: true, gin: false }) as Documents<Counted>)
    const [judge, ...cuttable] = stores as [Store, ...Store[]]
    await judge.schema.sync()
    return {
      stores: cuttable,
      judge,
      stocks,
      schema,
      signal,
      client: () => users.connect(),
      cut() {
        for (const socket of sockets) if (Math.random() < 0.3) socket.destroy()
      },
      [Symbol.asyncDispose]: close,
    }
  } catch (error) {
    await close().catch(() => {})
    throw error
  }
}

/** Calls all of them, again and again, until the time is over. */
export async function runFor(
  ms: number,
  workers: readonly (() => Promise<void>)[],
  { signal }: Pick<Place, 'signal'>,
): Promise<void> {
  const until = performance.now() + ms
  await Promise.all(
    workers.map(async work => {
      while (performance.now() < until && signal?.aborted !== true) await work()
    }),
  )
}

export function pick<T>(from: readonly T[]): T {
  return from[Math.floor(Math.random() * from.length)]!
}

export function pause(maxMs: number): Promise<void> {
  return new Promise(resolve => setTimeout(resolve, Math.random() * maxMs))
}

export function times<T>(count: number, make: (at: number) => T): T[] {
  return Array.from({ length: count }, (_, at) => make(at))
}
