/**
 * Shared by the scenarios: a store with continuous appends, workers in other processes, and a judge of their committed
 * effects.
 *
 *     await using scenario = await openScenario({ consumers: 4 })
 *     const a = scenario.start({ name: 'a' })
 *     …harm…
 *     expect(await scenario.finish()).toEqual([])
 */
import type pg from 'pg'
import { identifier } from '../../../src/database/sql.ts'
import { openStore, type Store } from '../../../src/store.ts'
import type { LoggedEvent } from '../../../src/verify/append-history.ts'
import { type AppendRecorder, judgeAppends, readLog, recordAppends } from '../../../src/verify/record-appends.ts'
import { freshSchema, postgresUrl } from '../../support/engines.ts'
import { waitUntil } from '../../support/wait.ts'
import { connections, long, show } from '../chaos.ts'
import { times } from '../seeded-random.ts'
import { type Effect, effectProblems } from './check-effects.ts'
import { startWorker, type Worker } from './worker-process.ts'
import { effectsTable, type WorkerOptions } from './worker-program.ts'

/** Reached only by a run that fails. */
export const deadlineMs = 100_000
/** Limit of a whole test. */
export const limitMs = long ? 3_600_000 : 300_000

export interface ScenarioOptions {
  readonly consumers: number
  readonly url?: string
  /** Default 1200. */
  readonly leaseMs?: number
  /** Appends continuously. Default true. */
  readonly isBusy?: boolean
  /** How long each of two callers waits between its appends. Default 25. */
  readonly maxPauseMs?: number
}

export interface Scenario extends AsyncDisposable {
  readonly store: Store
  readonly schema: string
  readonly names: readonly string[]
  start(options?: Partial<WorkerOptions>): Worker
  query<R extends object>(text: string, values?: readonly unknown[]): Promise<R[]>
  /** Number of effects, of all consumers or of the given one. */
  effects(of?: { consumer?: string; worker?: string }): Promise<number>
  /** Resolves when each consumer has applied this many more events. */
  progress(events: number): Promise<void>
  /** Stops the appends, waits until all consumers have reached the end of the log, and returns the log and all effects. */
  drain(): Promise<{ log: readonly LoggedEvent[]; effects: readonly Effect[] }>
  /** The same, judged: what is wrong with them. */
  finish(): Promise<string[]>
}

export async function openScenario(options: ScenarioOptions): Promise<Scenario> {
  const { consumers, url = postgresUrl(), leaseMs = 1_200, isBusy = true, maxPauseMs = 25 } = options
  const schema = freshSchema()
  const names = times(consumers, at => `totals-${String(at).padStart(2, '0')}`)
  const store = await openStore({ url, schema, channel: schema, migrate: true, maxConnections: 4 })
  const clients = connections(url)
  let client: pg.Client | undefined
  const query = async <R extends object>(text: string, values: readonly unknown[] = []): Promise<R[]> => {
    const named = text.replaceAll(/~(\w+)/g, (_, name) => identifier(schema, name).quoted)
    for (const until = Date.now() + deadlineMs; ; ) {
      try {
        client ??= await clients.open()
        return (await client.query(named, [...values])).rows as R[]
      } catch (error) {
        // While the server is unavailable; an error of the statement has a SQLSTATE of another class.
        if (/^(?!08|57)[0-9A-Z]{5}$/.test(String((error as { code?: string }).code)) || Date.now() > until) throw error
        client = undefined
        await new Promise(resolve => setTimeout(resolve, 20))
      }
    }
  }
  await query(effectsTable(schema))
  const workers: Worker[] = []
  const orders = recordAppends(store, 'shop')
  const load = isBusy ? appendAllTheTime(orders, maxPauseMs) : { stop: async () => {} }

  const effects: Scenario['effects'] = async ({ consumer, worker } = {}) => {
    const [row] = await query<{ count: number }>(
      `select count(*)::integer as count from ~effects
      where ($1::text is null or consumer = $1) and ($2::text is null or worker = $2)`,
      [consumer ?? null, worker ?? null],
    )
    return row!.count
  }
  const reached = async (position: number): Promise<boolean> => {
    const rows = await query('select name from ~consumers where name = any($1) and checkpoint >= $2', [names, position])
    return rows.length === names.length
  }

  const drain: Scenario['drain'] = async () => {
    await load.stop()
    const wrong = await judgeAppends(store, [orders], { hasOthers: true })
    if (wrong.length > 0) throw new Error(`The appends fit no order: ${wrong.join('\n\n')}`)
    const log = await readLog(store)
    const last = log.at(-1)!.position
    await waitUntil(() => reached(last), { deadlineMs, what: `all consumers at the end of the log, ${last}` })
    const effects = await query<Effect & { worker: string }>(
      'select consumer, position::text, worker from ~effects order by n',
    )
    show(counts(effects.map(({ worker }) => worker)))
    return { log, effects }
  }

  return {
    store,
    schema,
    names,
    query,
    effects,
    start(options = {}) {
      const worker = startWorker({ url, schema, consumers: names, leaseMs, ...options })
      workers.push(worker)
      return worker
    },
    async progress(events) {
      const [row] = await query<{ checkpoint: string }>(
        'select coalesce(max(checkpoint), 0)::text as checkpoint from ~consumers where name = any($1)',
        [names],
      )
      const position = Number(row!.checkpoint) + Number(events)
      await waitUntil(() => reached(position), { deadlineMs, what: `all consumers at ${position}` })
    },
    drain,
    async finish() {
      const { log, effects } = await drain()
      return effectProblems(names, log, effects)
    },
    async [Symbol.asyncDispose]() {
      await load.stop()
      await Promise.all(workers.map(worker => worker.kill()))
      await store.close()
      await query(`drop schema ${identifier(schema).quoted} cascade`).catch(() => {})
      await clients[Symbol.asyncDispose]()
    },
  }
}

/** Resolves when the workers hold these numbers of consumers, in any order, and none is held twice. */
export async function holding(workers: readonly Worker[], wanted: readonly number[]): Promise<void> {
  const sorted = (counts: readonly number[]): string => String([...counts].sort((a, b) => a - b))
  let seen: string[][] = []
  const isSo = async (): Promise<boolean> => {
    seen = (await Promise.all(workers.map(worker => worker.ask({ kind: 'holds' })))).map(({ holds }) => holds)
    return (
      sorted(seen.map(holds => holds.length)) === sorted(wanted) && new Set(seen.flat()).size === seen.flat().length
    )
  }
  await waitUntil(isSo, { deadlineMs, what: `holding ${wanted}` }).catch((error: Error) => {
    throw new Error(`${error.message}; at last it was ${JSON.stringify(seen)}`, { cause: error })
  })
}

function counts(names: readonly string[]): Record<string, number> {
  const counted: Record<string, number> = {}
  for (const name of names) counted[name] = (counted[name] ?? 0) + 1
  return counted
}

function appendAllTheTime(orders: AppendRecorder, maxPauseMs: number): { stop(): Promise<void> } {
  let going = true
  const callers = times(2, async caller => {
    for (let at = 0; going; at++) {
      const events = times(1 + (at % 3), total => ({ type: 'OrderPlaced', data: { total } }))
      // An unknown outcome is resolved by reading the log at the end.
      await orders.append(`order-${caller}-${at % 5}`, events).catch(() => {})
      await new Promise(resolve => setTimeout(resolve, maxPauseMs))
    }
  })
  return {
    async stop() {
      going = false
      await Promise.all(callers)
    },
  }
}
