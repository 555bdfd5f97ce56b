/**
 * One run of a plan: processes with the whole shop on one engine, clients, faults; then the judges look at what is stored.
 *
 *     const { problems, trace } = await simulate(planOf(42))
 */
import type { Clock } from '../../src/core/clock.ts'
import type { Database } from '../../src/database/database.ts'
import { openPglite } from '../../src/database/pglite/pglite.ts'
import { identifier } from '../../src/database/sql.ts'
import { isRillflowError } from '../../src/errors.ts'
import { openStore, type Store } from '../../src/store.ts'
import { type AppendRecorder, recordAppends } from '../../src/verify/record-appends.ts'
import { effectsTable, type Query } from '../chaos/workflows/check-workflows.ts'
import { moreTables, registerOrders } from '../chaos/workflows/orders.ts'
import { isAllDone, judge } from './judge.ts'
import type { Plan, Task } from './plan.ts'
import { cleared, counts, shopDefinitions, shopEvents } from './shop.ts'
import { openWorld, type SimulatedProcess } from './world.ts'

export interface Simulated {
  /** In words; none, if everything that is promised holds. */
  readonly problems: readonly string[]
  /** A line for each step. */
  readonly trace: readonly string[]
}

export interface SimulateOptions {
  /** Changes the functions or tables of the schema before the run: a planted bug. */
  sabotage?: ((query: Query) => Promise<unknown>) | undefined
  /** Changes the database as a process has it: a planted bug. */
  spoil?: ((database: Database, process: { readonly life: number }) => Database) | undefined
}

const schema = 'simulated'
const maxSteps = 20_000
const maxMs = 5 * 60_000
const leaseMs = 12_000
const pollMs = 5_000

/**
 * One for many runs, the last one until the process ends. Each run leaves the dead rows of its schema in the catalogue, where
 * every statement is slower for them.
 */
let engine: Promise<Database> | undefined
/** For the engine time stands still: when it vacuums depends on the runs before, and takes timers and turns of the world. */
const still: Clock = { now: () => new Date(0), setTimeout: () => ({ cancel() {} }) }
let runs = 0
const maxRuns = 25

async function takeEngine(): Promise<Database> {
  if (engine !== undefined && runs >= maxRuns) {
    await (await engine).close(0)
    engine = undefined
    runs = 0
  }
  runs++
  engine ??= openPglite({ memory: true }, { clock: still })
  return engine
}

export async function simulate(plan: Plan, { sabotage, spoil = same }: SimulateOptions = {}): Promise<Simulated> {
  const database = await takeEngine()
  const query: Query = (text, values = []) =>
    database.run({ label: 'simulation', text: text.replaceAll(/~(\w+)/g, `"${schema}".$1`), values: [...values] })
  await makeSchema(database, query)
  await sabotage?.(query)

  using world = openWorld(database, { seed: plan.seed, faults: plan.faults, maxSteps, maxMs })
  const recorders: AppendRecorder[] = []
  const mailed = new Set<number>()
  const done = new Set<Task>()
  const atWork = watchWork(plan, report)
  const failures: string[] = []
  for (let index = 0; index < plan.processes; index++) start(index, 1)

  const isOver = async (): Promise<boolean> => done.size === plan.tasks.length && (await isAllDone(query, mailed))
  const end = await world.run(isOver)
  // The judge reads by the time of the world, and changes nothing.
  const found = await judge({ database, schema, query, recorders, mailed, plan })
  if (end !== 'over') failures.push(`The work does not end: ${end}.`)
  return { problems: [...failures, ...found], trace: [...world.trace] }

  function report(problem: string): void {
    if (!failures.includes(problem)) failures.push(problem)
  }

  function start(index: number, life: number): void {
    const process = world.spawn(`${index + 1}.${life}`, backInMs => {
      world.after(backInMs, `start ${index + 1}`, () => start(index, life + 1))
    })
    void live(process, index, life).catch((error: unknown) => {
      // As a supervisor would: a program that could not start is started again.
      if (!mayGoOn(error)) failures.push(`Process ${process.name} failed: ${String(error)}`)
      process.isAlive = false
      if (life < 10) world.after(1_000, `start ${index + 1}`, () => start(index, life + 1))
    })
  }

  async function live(process: SimulatedProcess, index: number, life: number): Promise<void> {
    const rest = (): Promise<void> => {
      const length = world.random()
      return world.pause(process, world.random() * (length < 0.5 ? 0 : length < 0.9 ? 500 : 8_000))
    }
    const store = await openStore({
      ...{
        events: shopEvents,
        database: spoil(process.database, { life }),
        schema,
        channel: schema,
        migrate: 'manual',
      },
      ...{ logger: false, slowStatementMs: Number.POSITIVE_INFINITY, pollMs },
    })
    await store.register(...shopDefinitions({ mailed, inHand: atWork.of(process) }, rest))
    const options = { schema, worker: process.name, random: world.random, inHand: atWork.of(process), rest }
    registerOrders(store as unknown as Store, options)
    const recorder = recordAppends(store as unknown as Store, process.name)
    recorders.push(recorder)
    await store.start({ leaseMs, pollMs, concurrency: 4 })
    const own = plan.tasks.filter((_, at) => at % plan.processes === index)
    for (const task of own) if (!done.has(task)) void perform(process, store as unknown as Store, recorder, task)
  }

  async function perform(process: SimulatedProcess, store: Store, recorder: AppendRecorder, task: Task): Promise<void> {
    await world.pause(process, task.afterMs)
    for (;;) {
      try {
        await attempt(store, recorder, task)
        break
      } catch (error) {
        if (!mayGoOn(error)) failures.push(`${task.kind} failed: ${String(error)}`)
        if (!mayGoOn(error)) break
        await world.pause(process, 500)
      }
    }
    done.add(task)
  }

  async function attempt(store: Store, recorder: AppendRecorder, task: Task): Promise<void> {
    if (task.kind === 'place') {
      const { order } = task
      const keys = { correlationId: `order-${order}`, idempotencyKey: `place-${order}` }
      await store.workflows.publish('OrderPlaced', { order }, keys)
    } else if (task.kind === 'cancel') {
      const { order, compensate } = task
      const cancelling = store.workflows.get(`order-${order}`).cancel({ reason: 'changed their mind', compensate })
      await cancelling.catch((error: unknown) => {
        // It may be over, or not placed yet.
        if (!isRillflowError(error) || mayGoOn(error)) throw error
      })
    } else {
      const stream = `counter-${task.stream}`
      const version = task.isExact ? (await recorder.read(stream)).length : undefined
      const expected = version === undefined ? 'any' : version === 0 ? 'empty' : version
      await recorder.append(stream, { type: 'Counted', data: { by: stream } }, { expected }).catch((error: unknown) => {
        // Recorded, and judged with the others.
        if (!isRillflowError(error)) throw error
      })
    }
  }
}

/** What a fault of the plan can bring about: it is tried again. */
function mayGoOn(error: unknown): boolean {
  return isRillflowError(error) && (error.retryable || error.code === 'outcome_unknown')
}

interface Work {
  /** What a process works on now. */
  of(process: SimulatedProcess): Set<string>
}

/**
 * Two processes may work on one thing only while one of them is away: crashed, frozen, or without an answer. In a plan
 * without such faults they never do.
 */
function watchWork({ faults }: Plan, report: (problem: string) => void): Work {
  const isAnyAway = faults.some(({ kind }) => kind === 'freeze' || kind === 'delay')
  const all: { process: SimulatedProcess; names: Set<string> }[] = []
  return {
    of(process) {
      const names = new Set<string>()
      all.push({ process, names })
      const add = (name: string): Set<string> => {
        const other = all.find(each => each.process !== process && each.process.isAlive && each.names.has(name))
        if (other !== undefined && !isAnyAway && process.isAlive)
          report(`${process.name} works on ${name}, and so does ${other.process.name}.`)
        Set.prototype.add.call(names, name)
        return names
      }
      return Object.assign(names, { add })
    },
  }
}

function same(database: Database): Database {
  return database
}

/** A new one for each run: rows that were deleted before would change the order in which tables are read. */
async function makeSchema(database: Database, query: Query): Promise<void> {
  await query(`drop schema if exists ${identifier(schema).quoted} cascade`)
  await query(`select set_config('rillflow.clock', '', false)`)
  const options = { events: shopEvents, projections: [counts, cleared] }
  await using store = await openStore({ ...options, database, schema, migrate: 'manual', register: false })
  await store.schema.sync()
  for (const table of [effectsTable, ...moreTables]) await query(table)
}
