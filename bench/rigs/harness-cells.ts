/**
 * The cells of the neutral harness for job queues, shortened: a phase before, one of harm or pressure, one to recover in.
 *
 *     warm up ─► baseline ─► harm ─► recovery ─► drained: rates, dead tuples, jobs lost or completed twice
 *
 * The processes of the adapter run as the harness runs them; the harm is done to them, or to their server, from here.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import type { BenchServer } from '../harness/server.ts'
import manifest from '../harness-adapter/adapter.json' with { type: 'json' }

export interface Cell {
  readonly name: string
  readonly kind: 'chaos' | 'pressure'
  readonly processes: number
  /** Jobs a second that each process offers. */
  readonly rate: number
  readonly workers: number
  /** The offered rate while the harm lasts, in multiples of `rate`. Default 1. */
  readonly load?: number
  /** Does the harm until it is over. */
  harm?(rig: Rig, ms: number): Promise<void>
}

export interface Durations {
  readonly warmUpMs: number
  readonly phaseMs: number
}

export interface CellResult {
  /** Completed jobs a second: before, while the harm lasted, and afterwards. */
  readonly before: number
  readonly during: number
  readonly after: number
  /** From the end of the harm until nine tenths of the rate before; undefined if that was not reached. */
  readonly recoveredMs: number | undefined
  readonly jobs: number
  /** Acknowledged and not in the log, or never completed. */
  readonly lost: number
  /** Completed more than once. */
  readonly doubled: number
  /** Processes that did not end in time when they were asked to. */
  readonly lingering: number
  readonly deadTuples: number
}

/** What a harm may use. */
export interface Rig {
  readonly server: BenchServer
  readonly url: string
  kill(instance: number): Promise<void>
  start(instance: number): void
}

const database = 'rillflow_bench'
/** Readers count the first of the adapter's tables, as in the harness. */
const [scanned] = manifest.event_tables
/** The adapter has to end within 5 s of a SIGTERM. */
const maxExitMs = 5_000

export const cells: readonly Cell[] = [
  {
    ...{ name: 'crash recovery', kind: 'chaos', processes: 2, rate: 300, workers: 32 },
    async harm(rig, ms) {
      await rig.kill(0)
      await sleep(ms / 2)
      rig.start(0)
      await sleep(ms / 2)
    },
  },
  {
    ...{ name: 'repeated kills', kind: 'chaos', processes: 2, rate: 300, workers: 32 },
    async harm(rig, ms) {
      for (let left = 4; left > 0; left--) {
        await rig.kill(0)
        rig.start(0)
        await sleep(ms / 4)
      }
    },
  },
  {
    ...{ name: 'server restart', kind: 'chaos', processes: 1, rate: 600, workers: 32 },
    async harm({ server }, ms) {
      const { postgres } = server
      if (postgres.stop === undefined || postgres.restart === undefined)
        throw new Error('The server of RILLFLOW_BENCH_URL cannot be restarted: run this bench without it')
      await postgres.stop()
      await sleep(ms / 2)
      await postgres.restart()
      await sleep(ms / 2)
    },
  },
  {
    ...{ name: 'backend kills', kind: 'chaos', processes: 1, rate: 600, workers: 32 },
    async harm({ server }, ms) {
      for (const end = performance.now() + ms; performance.now() < end; await sleep(500))
        await server.admin.query(
          `select pg_terminate_backend(pid)
          from pg_stat_activity
          where datname = $1
            and pid <> pg_backend_pid()
            and state in ('active', 'idle in transaction')`,
          [database],
        )
    },
  },
  {
    ...{ name: 'pool exhaustion', kind: 'chaos', processes: 1, rate: 600, workers: 32 },
    async harm({ url }, ms) {
      const held = await holdConnections(url)
      await sleep(ms)
      await Promise.all(held.map(client => client.end()))
    },
  },
  {
    ...{ name: 'idle in transaction', kind: 'pressure', processes: 1, rate: 800, workers: 32 },
    harm: ({ url }, ms) =>
      withClients(url, 1, async ([client]) => {
        await client!.query('begin')
        await client!.query('select txid_current()')
        await sleep(ms)
        await client!.query('rollback')
      }),
  },
  { ...{ name: 'sustained high load', kind: 'pressure', processes: 1, rate: 800, workers: 32 }, load: 1.5 },
  {
    ...{ name: 'active readers', kind: 'pressure', processes: 1, rate: 800, workers: 32 },
    harm: ({ url }, ms) =>
      withClients(url, 4, async clients => {
        const end = performance.now() + ms
        const read = async (client: pg.Client): Promise<void> => {
          await client.query('begin isolation level repeatable read')
          for (; performance.now() < end; await sleep(100)) await client.query(`select count(*) from ${scanned}`)
          await client.query('rollback')
        }
        await Promise.all(clients.map(read))
      }),
  },
  { ...{ name: 'burst', kind: 'pressure', processes: 1, rate: 1_200, workers: 64 }, load: 1.5 },
]

export async function runCell(server: BenchServer, cell: Cell, { warmUpMs, phaseMs }: Durations): Promise<CellResult> {
  await server.admin.query(`drop database if exists ${database} with (force)`)
  await server.admin.query(`create database ${database}`)
  const url = Object.assign(new URL(server.url), { pathname: `/${database}` }).href
  const fleet = openFleet(url, cell)
  const rig: Rig = { server, url, kill: fleet.kill, start: fleet.start }
  try {
    for (let instance = 0; instance < cell.processes; instance++) fleet.start(instance)
    await fleet.firstSample()
    await sleep(warmUpMs)
    const before = await fleet.pace(phaseMs)
    fleet.load(cell.load ?? 1)
    const during = await fleet.pace(cell.harm === undefined ? phaseMs : cell.harm(rig, phaseMs))
    fleet.load(1)
    const harmEnded = performance.now()
    const recovered = fleet
      .untilRate(0.9 * before, 4 * phaseMs)
      .then(isReached => (isReached ? performance.now() - harmEnded : undefined))
    const after = await fleet.pace(phaseMs)
    const recoveredMs = await recovered
    fleet.load(0)
    await fleet.drain(url)
    const lingering = await fleet.stop()
    return { before, during, after, recoveredMs, lingering, ...(await judge(url, fleet.acknowledged())) }
  } finally {
    await fleet.stop()
  }
}

interface Fleet {
  start(instance: number): void
  kill(instance: number): Promise<void>
  /** Returns how many did not end in time. */
  stop(): Promise<number>
  /** Offers so many times the rate from now on. */
  load(factor: number): void
  firstSample(): Promise<void>
  /** Completed jobs a second, for so long or until a promise is done. */
  pace(time: number | Promise<void>): Promise<number>
  untilRate(rate: number, limitMs: number): Promise<boolean>
  drain(url: string): Promise<void>
  /** How many jobs the processes have last said to be acknowledged, those of killed ones included. */
  acknowledged(): number
}

const sampleEveryMs = 1_000

function openFleet(url: string, cell: Cell): Fleet {
  const children = new Map<number, ChildProcess>()
  /** By process: the last value of each counter. */
  const counters = new Map<ChildProcess, Map<string, number>>()
  let factor = 1
  let credit = 0
  let isSampled = false
  let lastRate = 0
  // As the harness paces: tokens on stdin, by the time that has really passed.
  let last = performance.now()
  const pacer = setInterval(() => {
    const now = performance.now()
    credit += ((now - last) * cell.rate * factor) / 1_000
    last = now
    const count = Math.floor(credit)
    credit -= count
    if (count > 0) for (const child of children.values()) child.stdin!.write(`ENQUEUE ${count}\n`)
  }, 20)
  const sum = (name: string): number => {
    let all = 0
    for (const each of counters.values()) all += each.get(name) ?? 0
    return all
  }
  const until = async (isDone: () => boolean | Promise<boolean>, limitMs: number): Promise<boolean> => {
    for (const end = performance.now() + limitMs; performance.now() < end; await sleep(100))
      if (await isDone()) return true
    return false
  }
  return {
    start(instance) {
      const child = spawn(
        process.execPath,
        [...process.execArgv, `${import.meta.dirname}/../harness-adapter/adapter.ts`],
        {
          stdio: ['pipe', 'pipe', 'inherit'],
          env: {
            ...process.env,
            ...{ DATABASE_URL: url, SCENARIO: 'long_horizon', PRODUCER_MODE: 'fixed', PRODUCER_PACING: 'harness' },
            ...{ PRODUCER_RATE: String(cell.rate), WORKER_COUNT: String(cell.workers), JOB_WORK_MS: '1' },
            ...{ SAMPLE_EVERY_S: String(sampleEveryMs / 1_000), BENCH_INSTANCE_ID: String(instance) },
          },
        },
      )
      child.stdin!.on('error', () => {})
      const seen = new Map<string, number>()
      counters.set(child, seen)
      children.set(instance, child)
      createInterface({ input: child.stdout! }).on('line', line => {
        const { metric, value } = JSON.parse(line) as { metric?: string; value: number }
        if (metric === undefined) return
        seen.set(metric, value)
        isSampled = true
        if (metric === 'completion_rate')
          lastRate = [...children.values()].reduce((all, each) => all + (counters.get(each)?.get(metric) ?? 0), 0)
      })
    },
    async kill(instance) {
      const child = children.get(instance)
      children.delete(instance)
      await ended(child, 'SIGKILL')
    },
    async stop() {
      clearInterval(pacer)
      const ends = await Promise.all([...children.values()].map(child => ended(child, 'SIGTERM')))
      children.clear()
      return ends.filter(isInTime => !isInTime).length
    },
    load(next) {
      factor = next
    },
    async firstSample() {
      if (!(await until(() => isSampled, 60_000))) throw new Error('the adapter gave no sample within a minute')
    },
    async pace(time) {
      const [from, runs] = [performance.now(), sum('handler_runs')]
      await (typeof time === 'number' ? sleep(time) : time)
      return (sum('handler_runs') - runs) / ((performance.now() - from) / 1_000)
    },
    untilRate: (rate, limitMs) => until(() => lastRate >= rate, limitMs),
    async drain(address) {
      await withClients(address, 1, async ([client]) => {
        const isDrained = async (): Promise<boolean> => {
          const { rows } = await client!.query(`
            select (select checkpoint from rillflow.consumers where name = 'workflows')
                >= (select coalesce(max(position), 0) from rillflow.events)
              and not exists (select from rillflow.workflow_executions) as drained`)
          return rows[0].drained
        }
        if (!(await until(isDrained, 120_000))) throw new Error('jobs are still open after two minutes')
      })
      await sleep(2 * sampleEveryMs)
    },
    acknowledged: () => sum('jobs_acknowledged'),
  }
}

/** Returns whether it has ended in time; one that has not is killed. */
async function ended(child: ChildProcess | undefined, signal: NodeJS.Signals): Promise<boolean> {
  if (child === undefined || child.exitCode !== null || child.signalCode !== null) return true
  let isInTime = true
  const limit = setTimeout(() => {
    isInTime = false
    child.kill('SIGKILL')
  }, maxExitMs)
  child.kill(signal)
  await new Promise(resolve => child.once('close', resolve))
  clearTimeout(limit)
  return isInTime
}

/** Holds the log against what was acknowledged: each job is in the log, and completed once. */
async function judge(
  url: string,
  acknowledged: number,
): Promise<Pick<CellResult, 'jobs' | 'lost' | 'doubled' | 'deadTuples'>> {
  return withClients(url, 1, async ([client]) => {
    const { rows } = await client!.query(`
      select count(*)::integer as jobs,
        count(*) filter (where a.completed is null)::integer as open,
        count(*) filter (where a.completed > 1)::integer as doubled
      from rillflow.events as e
      left join (
        select event_position, count(*) as completed
        from rillflow.workflow_activity
        where kind = 'completed'
        group by event_position) as a on a.event_position = e.position`)
    const { rows: dead } = await client!.query(`
      select coalesce(sum(n_dead_tup), 0)::integer as tuples from pg_stat_user_tables where schemaname = 'rillflow'`)
    const { jobs, open, doubled } = rows[0]
    const lost = open + Math.max(0, acknowledged - jobs)
    return { jobs, lost, doubled, deadTuples: dead[0].tuples }
  })
}

/** As many as the server gives. */
async function holdConnections(url: string): Promise<pg.Client[]> {
  const held: pg.Client[] = []
  for (let count = 0; count < 300; count++) {
    const client = new pg.Client(url)
    client.on('error', () => {})
    try {
      await client.connect()
      held.push(client)
    } catch {
      break
    }
  }
  return held
}

async function withClients<T>(url: string, count: number, work: (clients: pg.Client[]) => Promise<T>): Promise<T> {
  const clients = Array.from({ length: count }, () => new pg.Client(url))
  for (const client of clients) client.on('error', () => {})
  await Promise.all(clients.map(client => client.connect()))
  try {
    return await work(clients)
  } finally {
    await Promise.all(clients.map(client => client.end().catch(() => {})))
  }
}
