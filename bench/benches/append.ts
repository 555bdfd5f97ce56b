/** Appending events, at 1 to 256 callers, against Emmett, the naive way, our function without the store, and COPY. */
import pg from 'pg'
import type { Bench, BenchContext } from '../harness/bench.ts'
import { closedLoop, type LoadSample } from '../harness/closed-loop.ts'
import type { PeerName } from '../harness/report.ts'
import type { Store } from '../harness/rillflow.ts'
import { type Contestant, compare, interleave, median, middle, type Sample } from '../harness/rounds.ts'
import { type BenchServer, startAfresh, startBenchServer } from '../harness/server.ts'
import { openAppendCall } from '../peers/append-call.ts'
import { copyIn, orderRows } from '../peers/copy.ts'
import { openEmmett } from '../peers/emmett.ts'
import { storeAppender } from '../peers/rillflow-append.ts'
import { openRoundTrips } from '../peers/round-trips.ts'
import type { Appender } from '../rigs/appender.ts'
import { orderEvents, StreamCursor } from '../workloads/orders.ts'

const cases = [
  { name: '1', callers: 1, events: 1 },
  { name: '8', callers: 8, events: 1 },
  { name: '64', callers: 64, events: 1 },
  { name: '256', callers: 256, events: 1 },
  { name: '64x10', callers: 64, events: 10 },
] as const
type Case = (typeof cases)[number]

const poolSize = 32

export const bench: Bench = {
  about: 'events per second appended, each caller waiting for its answer before it appends again',
  async run(context) {
    await using server = await startBenchServer(context.report)
    const store = await server.openStore()
    await using ours = storeAppender(store)
    await using emmett = await openEmmett(server.url, 'default')
    await using emmett32 = await openEmmett(server.url, poolSize)
    await using roundTrips = await openRoundTrips(server.url, poolSize)
    for (const each of cases) {
      await using call = openAppendCall(server.url, Math.min(each.callers, poolSize))
      await runCase(context, server, store, each, { ours, emmett, emmett32, roundTrips, call })
    }
  },
}

type Names = 'ours' | 'emmett' | 'emmett32' | 'roundTrips' | 'call'

async function runCase(
  { quick, report }: BenchContext,
  server: BenchServer,
  store: Store,
  each: Case,
  appenders: Record<Names, Appender>,
): Promise<void> {
  const ms = quick ? 600 : 2000
  const groupSizes: number[] = []
  const cores: number[] = []
  const contestants: Contestant[] = Object.entries(appenders).map(([name, appender]) => ({
    name,
    async run() {
      const before = store.metrics()
      const sample = await appendLoad(appender, each, ms)
      if (name === 'ours') {
        const after = store.metrics()
        const groups = after.event_append_groups_total - before.event_append_groups_total
        groupSizes.push((after.event_appends_total - before.event_appends_total) / groups)
        cores.push(sample.cores)
      }
      return sample
    },
  }))
  if (each.events > 1 || each.callers === 256) contestants.push({ name: 'copy', run: () => copyLoad(server, ms) })
  const tables = [...new Set(Object.values(appenders).flatMap(appender => appender.tables))]
  const samples = await interleave(contestants, {
    rounds: quick ? 3 : 7,
    before: () => startAfresh(server.admin, tables),
  })

  const ours = samples.get('ours')!
  const against = (peerName: PeerName, peer: readonly Sample[], peerNote?: string): void =>
    report.result({ case: each.name, peerName, unit: 'events/s', peerNote, ...compare(ours, peer) })
  const [small, large] = [samples.get('emmett')!, samples.get('emmett32')!]
  if (middle(large).value > middle(small).value) against('emmett', large, `pool of ${poolSize}`)
  else against('emmett', small, 'default pool')
  against('round trips', samples.get('roundTrips')!)
  against('per-append call', samples.get('call')!)
  if (samples.has('copy')) against('copy', samples.get('copy')!)
  const p99 = (list: readonly Sample[]): Sample[] => list.map(sample => ({ value: sample.p99! }))
  const slowest = compare(p99(ours), p99(samples.get('call')!), 'less')
  report.result({ case: `${each.name} p99`, peerName: 'per-append call', unit: 'ms', ...slowest })
  report.table(`append, ${each.callers} callers × ${each.events} events`)
  report.say(`  ours: ${median(groupSizes).toFixed(1)} appends per group, ${median(cores).toFixed(2)} cores in Node`)
}

function appendLoad(appender: Appender, { callers, events }: Case, ms: number): Promise<LoadSample> {
  const cursors = Array.from({ length: callers }, () => new StreamCursor())
  let made = 0
  return closedLoop({ callers, ms, warmUpMs: 250, unitsPerCall: events }, caller => {
    const { stream, version } = cursors[caller]!.next(events)
    made += events
    return appender.append(stream, version, orderEvents(events, made))
  })
}

/** One statement for the whole time; rows are made while it runs. */
async function copyLoad(server: BenchServer, ms: number): Promise<Sample> {
  const client = new pg.Client(server.url)
  await client.connect()
  try {
    let copied = 0
    const started = performance.now()
    await copyIn(
      client,
      orderRows(rows => {
        copied = rows
        return performance.now() - started > ms
      }),
    )
    return { value: copied / ((performance.now() - started) / 1000) }
  } finally {
    await client.end()
  }
}
