/**
 * A shop under load: orders are placed continuously, some of them twice, some are cancelled; processes work on them.
 *
 *     await using scenario = await openScenario({ url, seed })
 *     const a = scenario.start()
 *     …harm…
 *     expect(await scenario.finish()).toEqual(noErrors)
 */
import { randomUUID } from 'node:crypto'
import pg from 'pg'
import { identifier } from '../../../src/database/sql.ts'
import { openStore } from '../../../src/store.ts'
import { judgeAppends } from '../../../src/verify/record-appends.ts'
import type { Workflows } from '../../../src/workflows/workflows.ts'
import { freshSchema } from '../../support/engines.ts'
import { waitUntil } from '../../support/wait.ts'
import { long, show } from '../chaos.ts'
import { pause, seeded, times } from '../seeded-random.ts'
import { checkWorkflows, inconsistencies, type Query, type WorkflowErrors, wrongSteps } from './check-workflows.ts'
import { type OrderMap, registerOrders, rules } from './orders.ts'
import { startProcess, type WorkerProcess } from './worker-process.ts'
import { makeTables } from './worker-program.ts'

/** Reached only by a run that fails. */
export const deadlineMs = 150_000
/** Limit of a whole test. */
export const limitMs: number = long ? 3_600_000 : 500_000

export interface Scenario extends AsyncDisposable {
  readonly query: Query
  readonly processes: readonly WorkerProcess[]
  start(): WorkerProcess
  /** Stopped for good, in the middle of its work. */
  kill(victim: WorkerProcess): Promise<void>
  /** Resolves when this process runs an execution. */
  isAtWork(process: WorkerProcess): Promise<void>
  /** Resolves when there are this many more effects. */
  progress(effects: number): Promise<void>
  /** Violated invariants that must hold at every moment. */
  look(): Promise<void>
  /** Stops the load, waits until no work is left, and checks everything. */
  finish(): Promise<WorkflowErrors>
}

export async function openScenario({ url, seed, leaseMs = 1_200 }: ScenarioOptions): Promise<Scenario> {
  const schema = freshSchema()
  const store = await openStore({ url, schema, channel: schema, migrate: true, maxConnections: 4 })
  await makeTables(store, schema)
  // Later processes find the handlers registered: events count from now on.
  registerOrders(store, { schema, worker: 'none', random: seeded(seed), inHand: new Set() })
  await store.workflows.sync()
  const pool = new pg.Pool({ connectionString: url, max: 4, application_name: 'chaos' })
  pool.on('error', () => {})
  const query = queryThrough(pool, schema)
  const processes: WorkerProcess[] = []
  const all: WorkerProcess[] = []
  const wrong = new Set<string>()
  const load = placeAllTheTime(store.workflows as unknown as Workflows<OrderMap>, query, seed)
  const count = async (): Promise<number> =>
    (await query<{ n: number }>('select count(*)::int as n from ~effects'))[0]!.n

  return {
    query,
    processes,
    start() {
      const process = startProcess({ url, schema, name: `process-${all.length}`, seed: seed + all.length, leaseMs })
      processes.push(process)
      all.push(process)
      return process
    },
    async kill(victim) {
      processes.splice(processes.indexOf(victim), 1)
      await victim.kill()
    },
    isAtWork: process =>
      waitUntil(async () => (await process.ask({ kind: 'look' })).inHand > 0, {
        ...{ deadlineMs, what: `work of ${process.name}` },
      }),
    async progress(effects) {
      const wanted = (await count()) + effects
      await waitUntil(async () => (await count()) >= wanted, { deadlineMs, what: `${effects} more effects` })
    },
    async look() {
      for (const each of await inconsistencies(query)) wrong.add(each)
    },
    async finish() {
      const placed = await load.stop()
      await isOver(query)
      const errors = await checkWorkflows(query, rules)
      show({ seed, ...placed, effects: await count(), ...(await states(query)) })
      const log = await judgeAppends(store, [], { hasOthers: true })
      return { ...errors, miscounted: [...errors.miscounted, ...(await wrongSteps(query)), ...wrong, ...log] }
    },
    async [Symbol.asyncDispose]() {
      await load.stop()
      await Promise.all(all.map(process => process.kill()))
      await store.close()
      await query(`drop schema ${identifier(schema).quoted} cascade`).catch(() => {})
      await pool.end()
    },
  }
}

export interface ScenarioOptions {
  readonly url: string
  readonly seed: number
  readonly leaseMs?: number
}

/** Resolves when no work is left; otherwise the error lists it. */
export async function isOver(query: Query): Promise<void> {
  let left: object[] = []
  const isNothingLeft = async (): Promise<boolean> => {
    left = await query(`
      select 'execution' as what, r.handler as name, x.state, x.worker as detail, x.correlation_id,
        extract(epoch from x.deadline_at - clock_timestamp()) as ends_in
      from ~workflow_executions as x
      join ~workflow_routes as r on r.id = x.route
      union all
      select 'join', j.id::text, j.arrived || ' of ' || j.size, null, j.correlation_id, null
      from ~workflow_joins as j
      where j.state = 'open'
      union all
      select 'workflow', null, state, null, correlation_id, null
      from ~workflows
      where state = 'compensating'
      union all
      select 'dispatcher', null, checkpoint::text, owner, null, extract(epoch from lease_until - clock_timestamp())
      from ~consumers
      where name = 'workflows' and checkpoint < (select max(position) from ~events)`)
    return left.length === 0
  }
  await waitUntil(isNothingLeft, { deadlineMs, what: 'the end of all work' }).catch((error: Error) => {
    throw new Error(`${error.message}; left are ${JSON.stringify(left.slice(0, 10), null, 1)}`)
  })
}

async function states(query: Query): Promise<Record<string, number>> {
  const rows = await query<{ name: string; n: number }>(`
    select 'workflows ' || state as name, count(*)::int as n from ~workflows group by 1
    union all
    select 'letters ' || reason, count(*)::int from ~dead_letters group by 1
    union all
    select 'joins ' || state, count(*)::int from ~workflow_joins group by 1
    union all
    select 'lost attempts', count(*)::int from ~workflow_activity where outcome = 'lost'
    order by 1`)
  return Object.fromEntries(rows.map(({ name, n }) => [name, n]))
}

interface Load {
  /** Returns the placed and the cancelled orders. */
  stop(): Promise<{ placed: number; cancelled: number }>
}

/** Whether there is so much work that more would only delay the end of a run. */
async function isBusy(query: Query): Promise<boolean> {
  const rows = await query(`
    (select 1 from ~workflow_executions)
    union all
    (select 1 from ~events as e join ~consumers as c on c.name = 'workflows' and e.position > c.checkpoint)
    limit ${maxOpen}`)
  return rows.length === maxOpen
}

const maxOpen = 60

/** An outcome that is unknown because the server was unavailable is requested again, and read from the log at the end. */
function placeAllTheTime(flows: Workflows<OrderMap>, query: Query, seed: number): Load {
  const random = seeded(seed)
  let going = true
  let placed = 0
  let cancelled = 0
  const publish = async (order: number): Promise<void> => {
    const options = { id: randomUUID(), correlationId: `order-${order}` }
    for (const isAgain = random() < 0.1; ; ) {
      const calls = times(isAgain ? 2 : 1, () => flows.publish('OrderPlaced', { order }, options))
      const outcomes = await Promise.allSettled(calls)
      if (outcomes.some(({ status }) => status === 'fulfilled')) return
      await pause(random, 50)
    }
  }
  const callers = times(2, async caller => {
    for (let order = caller; going; order += 2) {
      await publish(order)
      placed++
      do await pause(random, 60)
      while (going && (await isBusy(query)))
      if (random() < 0.92) continue
      await flows
        .get(`order-${order}`)
        .cancel({ reason: 'changed their mind', compensate: random() < 0.4 })
        .then(
          () => cancelled++,
          () => {},
        )
    }
  })
  return {
    async stop() {
      going = false
      await Promise.all(callers)
      return { placed, cancelled }
    },
  }
}

/** Repeated while the server is unavailable. */
function queryThrough(pool: pg.Pool, schema: string): Query {
  return async <R extends object>(text: string, values: readonly unknown[] = []): Promise<R[]> => {
    const named = text.replaceAll(/~(\w+)/g, (_, name) => identifier(schema, name).quoted)
    for (const until = Date.now() + deadlineMs; ; ) {
      try {
        return (await pool.query(named, [...values])).rows as R[]
      } catch (error) {
        // An error of the statement has a SQLSTATE of another class.
        if (/^(?!08|57)[0-9A-Z]{5}$/.test(String((error as { code?: string }).code)) || Date.now() > until) throw error
        await new Promise(resolve => setTimeout(resolve, 20))
      }
    }
  }
}
