/** Two processes on the same few streams, and streams held by another transaction: how many unrelated appends suffer? */
import { readFile } from 'node:fs/promises'
import pg from 'pg'
import type { Bench, BenchContext } from '../harness/bench.ts'
import { closedLoop } from '../harness/closed-loop.ts'
import { runProgram } from '../harness/program.ts'
import { type Contestant, compare, compareCounts, interleave, percentile, type Sample } from '../harness/rounds.ts'
import { type BenchServer, startAfresh, startBenchServer } from '../harness/server.ts'
import { openAppendCall } from '../peers/append-call.ts'
import { storeAppender, storeTables } from '../peers/rillflow-append.ts'
import { openRoundTrips } from '../peers/round-trips.ts'
import type { CompetingAppenderAnswer, CompetingAppenderInput } from '../programs/competing-appender.ts'
import type { Appender } from '../rigs/appender.ts'
import { orderEvent, StreamCursor } from '../workloads/orders.ts'

const delayedMs = 250
const kinds = ['ours', 'call', 'roundTrips'] as const

export const bench: Bench = {
  about: 'two processes × 32 callers on 20 streams, 20 % any version; then streams held for 2 s by another transaction',
  async run(context) {
    await using server = await startBenchServer(context.report)
    await using ours = storeAppender(await server.openStore())
    const roundTrips = await openRoundTrips(server.url, 1)
    await roundTrips[Symbol.asyncDispose]()
    await hotStreams(context, server)
    await using call = openAppendCall(server.url, 32)
    for (const held of [1, 12]) await heldStreams(context, server, held, { ours, call })
  },
}

interface CompetitionSample extends Sample, CompetingAppenderAnswer {
  /** Counted in the server's log: also those that did not reach a caller. */
  readonly loggedUniqueViolations: number
  readonly brokenStreams: number
}

async function hotStreams({ quick, report }: BenchContext, server: BenchServer): Promise<void> {
  const ms = quick ? 2000 : 4000
  const contestants: Contestant<CompetitionSample>[] = kinds.map(kind => ({
    name: kind,
    run: () => compete(server, kind, ms),
  }))
  const samples = await interleave(contestants, {
    rounds: quick ? 2 : 4,
    before: () => startAfresh(server.admin, [...storeTables, 'naive.events']),
  })
  const [ours, call, roundTrips] = kinds.map(kind => samples.get(kind)!) as [
    CompetitionSample[],
    CompetitionSample[],
    CompetitionSample[],
  ]
  const rate = { case: 'hot streams', unit: 'appends/s' }
  report.result({ ...rate, peerName: 'round trips', ...compare(ours, roundTrips) })
  report.result({ ...rate, peerName: 'per-append call', ...compare(ours, call) })
  for (const [name, pick] of [
    ['deadlocks', (sample: CompetitionSample) => sample.deadlocks],
    ['raw unique violations', (sample: CompetitionSample) => sample.uniqueViolations],
    ['unique violations in the log', (sample: CompetitionSample) => sample.loggedUniqueViolations],
    ['innocent failures', (sample: CompetitionSample) => sample.innocent],
    ['streams with gaps', (sample: CompetitionSample) => sample.brokenStreams],
  ] as const) {
    const sum = (list: readonly CompetitionSample[]): number => list.reduce((all, sample) => all + pick(sample), 0)
    report.result({ case: name, peerName: 'round trips', unit: 'count', ...compareCounts(sum(ours), sum(roundTrips)) })
  }
  report.table('conflict, hot streams')
  const conflicts = ours.map(({ appended, conflicts: lost }) => lost / (lost + appended))
  report.say(`  ours: ${Math.round(Math.max(...conflicts) * 100)} % of the appends were true version conflicts`)
  for (const reason of new Set(ours.flatMap(sample => sample.reasons))) report.say(`  ours failed: ${reason}`)
}

async function compete(
  server: BenchServer,
  kind: CompetingAppenderInput['kind'],
  ms: number,
): Promise<CompetitionSample> {
  const before = await countErrors(server)
  const input = {
    kind,
    url: server.url,
    streams: 20,
    callers: 32,
    ms,
    startAt: Date.now() + 2000,
  } satisfies CompetingAppenderInput
  const [one, two] = await Promise.all(
    [1, 2].map(() => runProgram<CompetingAppenderAnswer>('competing-appender', input)),
  )
  const after = await countErrors(server)
  const both = (pick: (answer: CompetingAppenderAnswer) => number): number => pick(one!) + pick(two!)
  const table = kind === 'roundTrips' ? 'naive.events' : 'rillflow.events'
  const broken = await server.admin.query(
    `select count(*) from (select from ${table} group by stream having count(*) <> max(version)) as broken`,
  )
  return {
    value: both(answer => answer.appended) / (ms / 1000),
    appended: both(answer => answer.appended),
    conflicts: both(answer => answer.conflicts),
    deadlocks: after.deadlocks - before.deadlocks,
    uniqueViolations: both(answer => answer.uniqueViolations),
    innocent: both(answer => answer.innocent),
    reasons: [...one!.reasons, ...two!.reasons],
    loggedUniqueViolations: after.uniqueViolations - before.uniqueViolations,
    brokenStreams: Number(broken.rows[0].count),
  }
}

async function countErrors(server: BenchServer): Promise<{ deadlocks: number; uniqueViolations: number }> {
  const { rows } = await server.admin.query(`select sum(deadlocks)::int as deadlocks from pg_stat_database`)
  const log = await readFile(`${server.postgres.dataDir}/server.log`, 'utf8')
  return { deadlocks: rows[0].deadlocks, uniqueViolations: log.split('duplicate key value').length - 1 }
}

/** One caller waits for each held stream; 32 others append to other streams. */
async function heldStreams(
  { quick, report }: BenchContext,
  server: BenchServer,
  held: number,
  appenders: { ours: Appender; call: Appender },
): Promise<void> {
  const contestants: Contestant[] = Object.entries(appenders).map(([name, appender]) => ({
    name,
    run: () => appendWhileHeld(server, appender, held),
  }))
  const samples = await interleave(contestants, {
    rounds: quick ? 2 : 4,
    before: () => startAfresh(server.admin, storeTables),
  })
  const [ours, call] = [samples.get('ours')!, samples.get('call')!]
  const sum = (list: readonly Sample[]): number => list.reduce((all, sample) => all + sample.value, 0)
  const name = `${held} held: others delayed`
  report.result({ case: name, peerName: 'per-append call', unit: 'count', ...compareCounts(sum(ours), sum(call)) })
  const p99 = (list: readonly Sample[]): Sample[] => list.map(sample => ({ value: sample.p99! }))
  const slow = compare(p99(ours), p99(call), 'less')
  report.result({ case: `${held} held: p99 of others`, peerName: 'per-append call', unit: 'ms', ...slow })
  report.table(`conflict, ${held} streams held for 2 s, others delayed by more than ${delayedMs} ms`)
}

async function appendWhileHeld(server: BenchServer, appender: Appender, count: number): Promise<Sample> {
  const held = Array.from({ length: count }, (_, at) => `held-${at}`)
  // Also opens all connections before anything is held.
  const first = [...held, ...Array.from({ length: 32 }, (_, at) => `free-${at}`)]
  await Promise.all(first.map(stream => appender.append(stream, 'any', [orderEvent(0)])))
  const holder = new pg.Client(server.url)
  await holder.connect()
  await holder.query('begin')
  await holder.query('select from rillflow.streams where stream = any($1) order by stream for update', [held])
  const waiting = Promise.all(held.map(stream => appender.append(stream, 'any', [orderEvent(1)])))
  const cursors = Array.from({ length: 32 }, () => new StreamCursor())
  const { latencies } = await closedLoop({ callers: 32, ms: 2000, warmUpMs: 300 }, caller => {
    const { stream, version } = cursors[caller]!.next(1)
    return appender.append(stream, version, [orderEvent(2)])
  })
  await holder.query('commit')
  await holder.end()
  await waiting
  return { value: latencies.filter(each => each > delayedMs).length, p99: percentile(latencies, 0.99) }
}
