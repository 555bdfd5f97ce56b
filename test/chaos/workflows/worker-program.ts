/** The program of a process: a store and a worker with the handlers of `orders.ts`. */
import { fileURLToPath } from 'node:url'
import { openStore, type Store } from '../../../src/store.ts'
import type { Workflows } from '../../../src/workflows/workflows.ts'
import { seeded, times } from '../seeded-random.ts'
import { effectsTable } from './check-workflows.ts'
import { moreTables, type OrderMap, registerOrders } from './orders.ts'

export interface ProcessOptions {
  readonly schema: string
  /** Its name in the rows it writes. */
  readonly name: string
  readonly seed: number
  readonly leaseMs: number
  /** On a server. */
  readonly url?: string
  /** Embedded; then the process also creates the tables, and publishes. */
  readonly folder?: string
}

export type Task =
  | { readonly kind: 'look' }
  /** Places orders until it is killed, from this number on. */
  | { readonly kind: 'publish'; readonly from: number }

/** More could not be completed in time on a busy machine. */
const maxOrders = 60

export interface Answer {
  /** Number of executions that it runs now. */
  readonly inHand: number
  /** The orders whose publication was acknowledged. */
  readonly published: readonly number[]
  /** Embedded: the number of remaining executions. */
  readonly left: number | undefined
}

interface Work {
  readonly store: Store
  readonly inHand: Set<string>
  readonly published: number[]
  readonly folder: string | undefined
  readonly schema: string
}

async function start({ schema, name, seed, leaseMs, url, folder }: ProcessOptions): Promise<Work> {
  const where = folder === undefined ? { url, maxConnections: 6 } : { folder, migrate: true as const }
  const store = await openStore({ ...where, schema, channel: schema })
  const inHand = new Set<string>()
  if (folder !== undefined) await makeTables(store, schema)
  registerOrders(store, { schema, worker: name, random: seeded(seed), inHand })
  await store.workflows.worker({ concurrency: 8, leaseMs, pollMs: 200 }).start()
  return { store, inHand, published: [], folder, schema }
}

export async function makeTables(store: Store, schema: string): Promise<void> {
  const named = (text: string): string => text.replaceAll(/~(\w+)/g, (_, name) => `"${schema}"."${name}"`)
  for (const table of [effectsTable, ...moreTables]) await store.transaction(tx => tx.query(named(table)))
}

async function perform(work: Work, task: Task): Promise<Answer> {
  const { store, inHand, published, folder } = work
  if (task.kind === 'publish') {
    const flows = store.workflows as unknown as Workflows<OrderMap>
    for (const publisher of times(2, each => each))
      void (async () => {
        for (let order = task.from + publisher; order < task.from + maxOrders; order += 2) {
          await flows.publish('OrderPlaced', { order }, { correlationId: `order-${order}` })
          published.push(order)
        }
      })()
  }
  return { inHand: inHand.size, published, left: folder === undefined ? undefined : await countLeft(work) }
}

async function countLeft({ store, schema }: Work): Promise<number> {
  const [row] = await store.transaction(tx =>
    tx.query<{ n: number }>(`
      select count(*)::int as n
      from (
        select 1 from "${schema}".workflow_executions
        union all
        select 1 from "${schema}".workflow_joins where state = 'open'
        union all
        select 1 from "${schema}".consumers as c, "${schema}".events as e
        where c.name = 'workflows' and e.position > c.checkpoint) as l`),
  )
  return row!.n
}

if (process.send !== undefined && process.argv[1] === fileURLToPath(import.meta.url)) {
  const reported = (error: unknown): void => void process.send!({ error: (error as Error).stack })
  process.on('disconnect', () => process.exit())
  process.once('message', (options: ProcessOptions) => {
    start(options).then(work => {
      process.on('message', (task: Task) => {
        perform(work, task).then(answer => process.send!(answer), reported)
      })
      process.send!({})
    }, reported)
  })
}
