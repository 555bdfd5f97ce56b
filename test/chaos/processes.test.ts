/**
 * Several processes append while everything around them breaks: the server is killed, connections are cut before and after
 * a statement has arrived, delayed, and delivered late, processes are paused, a pooler is restarted. The history of all of
 * them fits one order, and no follower misses anything.
 *
 *     process ──► proxy ──► server ◄── proxy ◄── pooler ◄── process
 *
 * `RILLFLOW_CHAOS=long` has four processes and 50,000 events, or as many as `RILLFLOW_CHAOS_EVENTS` says.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { openStore, type Store } from '../../src/store.ts'
import { judgeAppends } from '../../src/verify/record-appends.ts'
import { freshSchema } from '../support/engines.ts'
import { type Pooler, startPooler } from '../support/pooler.ts'
import { type PostgresServer, startServer } from '../support/postgres-server.ts'
import { waitUntil } from '../support/wait.ts'
import { type AppendingProcess, startAppending } from './appending-process.ts'
import { connect, long, major, show } from './chaos.ts'
import { followLog } from './log-follower.ts'
import { pick, type Random, seeded, times } from './seeded-random.ts'
import { startProxy, type TroubleProxy } from './tcp-proxy.ts'

const wantedEvents = Number(process.env.RILLFLOW_CHAOS_EVENTS ?? (long ? 50_000 : 1_500))
/** Fewer harms, more callers and larger appends where it is the number of events that counts. */
const isLarge = wantedEvents > 500_000
const eventsBetween = isLarge ? wantedEvents / 100 : Math.min(1_000, wantedEvents / 20)
const limitMs = isLarge ? 6 * 3_600_000 : long ? 3_600_000 : 180_000
/** For the next events after a harm: a server with much to recover takes a while. */
const progressMs = isLarge ? 900_000 : 120_000
let server: PostgresServer

beforeAll(async () => {
  server = await startServer({ major, durable: true })
})

afterAll(() => server[Symbol.asyncDispose]())

interface Around {
  readonly proxies: readonly TroubleProxy[]
  readonly pooler: Pooler
  readonly processes: readonly AppendingProcess[]
  readonly random: Random
}

/** Each does its harm, and ends it. */
const harms: Record<string, (around: Around) => Promise<void>> = {
  async 'the server is killed'() {
    await server.kill()
    await server.restart()
  },
  async 'sessions are terminated'() {
    const client = await connect(server.url)
    await client.query(
      `select pg_terminate_backend(pid) from pg_stat_activity
       where backend_type = 'client backend' and pid <> pg_backend_pid() order by random() limit 4`,
    )
    await client.end()
  },
  async 'connections are cut, and what was on its way is lost'({ proxies, random }) {
    const proxy = pick(random, proxies)
    proxy.hold(pick(random, ['up', 'down']))
    await sleep(20)
    for (const link of proxy.cutClients()) link.drop()
    proxy.release()
  },
  async 'connections are cut, and what was on its way arrives later, a second time'({ proxies, random }) {
    const proxy = pick(random, proxies)
    proxy.hold('up')
    await sleep(20)
    const links = proxy.cutClients()
    proxy.release()
    await sleep(100)
    await Promise.all(links.map(link => Promise.race([link.deliver(), sleep(2_000)])))
    for (const link of links) link.drop()
  },
  async 'messages are delayed'({ proxies, random }) {
    const proxy = pick(random, proxies)
    proxy.hold('up')
    proxy.hold('down')
    await sleep(200)
    proxy.release()
  },
  async 'a process is paused'({ processes, random }) {
    const paused = pick(random, processes)
    paused.pause()
    await sleep(300)
    paused.resume()
  },
  async 'the pooler is restarted'({ pooler }) {
    pooler.restart()
  },
}

test(
  'processes that append while all around them breaks have one history, and followers get all of it',
  async () => {
    const schema = freshSchema()
    await using store = await openStore({ url: server.url, schema, migrate: true, pollMs: 200, listen: false })
    await using proxy = await startProxy(server.url)
    await using behindPooler = await startProxy(server.url)
    await using pooler = await startPooler(behindPooler.url, { mode: 'transaction', size: 3 })
    const direct = { url: proxy.url, schema, listen: false, answerTimeoutMs: 5_000 }
    const pooled = { ...direct, url: pooler.url, prepare: false }
    await using started = startAll(times(long ? 4 : 2, at => (at % 2 ? pooled : direct)))
    const { processes } = started
    await Promise.all(processes.map(each => each.ready))
    const tails = [followLog(store), followLog(store)]
    const answers = processes.map((each, seed) =>
      each.ask({
        kind: 'pour',
        callers: isLarge ? 32 : 6,
        streams: Math.max(50, wantedEvents / 20),
        maxEvents: isLarge ? 40 : 10,
        seed,
      }),
    )

    const done: Record<string, number> = {}
    const around: Around = { proxies: [proxy, behindPooler], pooler, processes, random: seeded(7) }
    const names = Object.keys(harms)
    // Each of them at least once.
    for (let at = 0; at < names.length || (await countOf(store)) < wantedEvents; at++) {
      const harm = at < names.length ? names[at]! : pick(around.random, names)
      await progress(store, eventsBetween)
      await harms[harm]!(around)
      done[harm] = (done[harm] ?? 0) + 1
      report(`${lastHead} events, then ${harm}`)
    }
    for (const each of processes) each.stop()
    const errors = (await Promise.all(answers)).flatMap(answer => answer.errors)

    expect(errors).toEqual([])
    const end = await lastPosition(schema)
    for (const tail of tails) await tail.reached(end, limitMs)
    report(`${end} is the last position, and followers have got there`)
    const deliveries = tails.map(({ positions }, at) => ({
      name: `follower ${at + 1}`,
      from: 0,
      cursor: end,
      positions,
    }))
    const records = processes.map(each => each.record())
    expect(await judgeAppends(store, records, { deliveries })).toEqual([])
    for (const tail of tails) await tail.stop()
    report(`judged, with ${Math.round(process.memoryUsage().heapUsed / 2 ** 20)} MiB in use`)
    show({ ...done, calls: records.flatMap(({ calls }) => calls).length, events: tails[0]!.positions.length })
  },
  limitMs,
)

/** A long run says how far it is. */
function report(what: string): void {
  if (isLarge) console.log(`${new Date().toISOString()}  ${what}`)
}

function startAll(
  options: Parameters<typeof startAppending>[0][],
): { processes: AppendingProcess[] } & AsyncDisposable {
  const processes = options.map(startAppending)
  return {
    processes,
    async [Symbol.asyncDispose]() {
      await Promise.all(processes.map(each => each[Symbol.asyncDispose]()))
    },
  }
}

/** Waits until there are so many more events. */
async function progress(store: Store, events: number): Promise<void> {
  const wanted = (await countOf(store)) + events
  await waitUntil(async () => (await countOf(store)) >= wanted, {
    deadlineMs: progressMs,
    everyMs: isLarge ? 100 : 5,
    what: `${events} more events`,
  })
}

async function lastPosition(schema: string): Promise<number> {
  const client = await connect(server.url)
  const { rows } = await client.query(`select max(position)::float8 as last from "${schema}".events`)
  await client.end()
  return rows[0].last
}

/** The head of the log, which counts a few that were rolled back; while the server is away, the last one known. */
async function countOf(store: Store): Promise<number> {
  try {
    lastHead = await store.events.head()
  } catch {
    // It comes back.
  }
  return lastHead
}
let lastHead = 0

function sleep(ms: number): Promise<void> {
  return new Promise(resolve => setTimeout(resolve, ms))
}
