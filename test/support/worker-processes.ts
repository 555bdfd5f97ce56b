/**
 * Workers that act like separate processes: each has its own store, connections and worker, on a database that can be
 * paused or killed.
 *
 *     await using workers = await openWorkerProcesses(shop, { leaseMs: 250, register })
 *     const one = await workers.start()
 *     one.database.pause()                it stops in the middle of its work
 */
import type { Database } from '../../src/database/database.ts'
import { openPostgres } from '../../src/database/postgres/postgres.ts'
import { openStore, type Store } from '../../src/store.ts'
import { postgresUrl } from './engines.ts'
import { type PausableDatabase, pausableDatabase } from './pausable-database.ts'
import { type Worker, type WorkerOptions, workerOf } from './run-worker.ts'
import { onServer, type Shop, type ShopMap, shopEvents } from './shop.ts'

export interface WorkerProcess {
  readonly name: string
  readonly database: PausableDatabase
  readonly store: Store<ShopMap>
  readonly worker: Worker
  /** Ids of the executions that it runs now. */
  readonly running: Set<string>
}

export interface WorkerProcessesOptions extends WorkerOptions {
  /** Registers the handlers of one process. */
  readonly register: (process: Omit<WorkerProcess, 'worker'>) => void
}

export interface WorkerProcesses extends AsyncDisposable {
  /** Those that were not killed. */
  readonly alive: readonly WorkerProcess[]
  start(): Promise<WorkerProcess>
  /** Stops all of its calls for good. */
  kill(victim: WorkerProcess): void
}

export async function openWorkerProcesses(
  shop: Shop,
  { register, ...options }: WorkerProcessesOptions,
): Promise<WorkerProcesses> {
  const all: (WorkerProcess & { connections: Database })[] = []
  const alive: WorkerProcess[] = []
  const killed: typeof all = []
  return {
    alive,
    async start() {
      const name = `worker-${all.length}`
      const connections = onServer ? await openPostgres({ url: postgresUrl(), maxConnections: 6 }) : shop.database
      const database = pausableDatabase(connections)
      const { schema } = shop
      const given = { events: shopEvents, database: database.database, schema, closeMs: 1_000, logger: false as const }
      const store = await openStore<ShopMap>(given)
      const process = { name, database, store, running: new Set<string>() }
      register(process)
      const worker = workerOf(store, { concurrency: 4, pollMs: 50, drainMs: 0, ...options })
      await worker.start()
      const started = { ...process, worker }
      all.push({ ...started, connections })
      alive.push(started)
      return started
    },
    kill(victim) {
      victim.database.pause()
      alive.splice(alive.indexOf(victim), 1)
      killed.push(all.find(each => each.name === victim.name)!)
      // By then the server would have noticed that the process is gone.
      const [oldest] = killed.length > 10 ? killed.splice(0, 1) : []
      oldest?.database.kill()
      if (onServer) void oldest?.connections.close(0)
    },
    async [Symbol.asyncDispose]() {
      for (const each of all) if (!alive.some(({ name }) => name === each.name)) each.database.kill()
      await Promise.all(all.map(({ store }) => store.close()))
      if (onServer) await Promise.all(all.map(({ connections }) => connections.close(1_000)))
    },
  }
}
