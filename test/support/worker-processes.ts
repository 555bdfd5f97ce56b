/**
 * Processes of one test: each is a store with connections of its own and a worker, behind a gate that stops or kills it.
 *
 *     await using crew = await openCrew(shop, { leaseMs: 250 })
 *     const victim = await crew.hire()
 *     victim.gate.close()                it is stopped in the middle of what it does
 */
import type { Database } from '../../src/database/database.ts'
import { openPostgres } from '../../src/database/postgres.ts'
import { openStore, type Store } from '../../src/store.ts'
import type { Worker, WorkerOptions } from '../../src/workflows/worker.ts'
import { postgresUrl } from './engines.ts'
import { type Gate, openGate } from './pausable-database.ts'
import { onServer, type Shop, type ShopMap, shopEvents } from './shop.ts'

export interface Process {
  readonly name: string
  readonly gate: Gate
  readonly store: Store<ShopMap>
  readonly worker: Worker
  /** The executions it runs now. */
  readonly inHand: Set<string>
}

export interface CrewOptions extends WorkerOptions {
  /** Registers the handlers of one process. */
  readonly register: (process: Omit<Process, 'worker'>) => void
}

export interface Crew extends AsyncDisposable {
  /** Those that work. */
  readonly processes: readonly Process[]
  hire(): Promise<Process>
  /** It does nothing more, and says nothing. */
  kill(victim: Process): void
}

export async function openCrew(shop: Shop, { register, ...options }: CrewOptions): Promise<Crew> {
  const all: (Process & { database: Database })[] = []
  const processes: Process[] = []
  return {
    processes,
    async hire() {
      const name = `worker-${all.length}`
      const database = onServer ? await openPostgres({ url: postgresUrl(), maxConnections: 6 }) : shop.database
      const gate = openGate(database)
      const { schema } = shop
      const store = await openStore<ShopMap>({ events: shopEvents, database: gate.database, schema, closeMs: 1_000 })
      const process = { name, gate, store, inHand: new Set<string>() }
      register(process)
      const worker = store.workflows.worker({ concurrency: 4, pollMs: 50, drainMs: 0, ...options })
      await worker.start()
      const hired = { ...process, worker }
      all.push({ ...hired, database })
      processes.push(hired)
      return hired
    },
    kill(victim) {
      victim.gate.close()
      processes.splice(processes.indexOf(victim), 1)
    },
    async [Symbol.asyncDispose]() {
      for (const each of all) if (!processes.some(({ name }) => name === each.name)) each.gate.kill()
      await Promise.all(all.map(({ store }) => store.close()))
      if (onServer) await Promise.all(all.map(({ database }) => database.close(1_000)))
    },
  }
}
