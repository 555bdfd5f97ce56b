/** Reading: the whole log, as a reader and as a rebuild, and single streams, against the driver's own keyset pages. */
import type { Bench, BenchContext } from '../harness/bench.ts'
import { runProgram } from '../harness/program.ts'
import { type Contestant, compare, interleave, median } from '../harness/rounds.ts'
import { type BenchServer, startBenchServer } from '../harness/server.ts'
import type { ReaderAnswer, ReaderInput } from '../programs/log-reader.ts'
import { orders } from '../workloads/orders.ts'

const longStream = 'long-stream'

export const bench: Bench = {
  about: 'events per second read, each reader in a process of its own, the data in the cache of the server',
  async run(context) {
    const { quick, report } = context
    const events = quick ? 150_000 : 1_000_000
    const long = quick ? 20_000 : 100_000
    await using server = await startBenchServer(report)
    await fill(server, events, long)
    const { rows } = await server.admin.query(`
      select stream from rillflow.streams where stream <> '${longStream}' order by random() limit 5000`)
    const streams = rows.map(row => row.stream as string)
    await runCases(context, server, ['log', 'rebuild'], [], 'events/s')
    await runCases(context, server, ['long stream'], [longStream], 'events/s')
    await runCases(context, server, ['streams'], streams, 'streams/s')
  },
}

async function fill(server: BenchServer, events: number, long: number): Promise<void> {
  await using store = await server.openStore()
  await store.events.import(orders(events))
  await store.events.import(orders(long, longStream))
  await server.admin.query('vacuum analyze rillflow.events, rillflow.streams')
  await server.admin.query('checkpoint')
}

/** Ours reads each of them; the driver knows one way only. */
async function runCases(
  { quick, report }: BenchContext,
  server: BenchServer,
  cases: readonly ReaderInput['what'][],
  streams: readonly string[],
  unit: string,
): Promise<void> {
  const reader = (who: ReaderInput['who'], what: ReaderInput['what']): Contestant<ReaderAnswer> => ({
    name: who === 'ours' ? what : 'driver',
    run: () => runProgram('log-reader', { who, what, url: server.url, streams } satisfies ReaderInput),
  })
  const contestants = [...cases.map(what => reader('ours', what)), reader('driver', cases[0]!)]
  const samples = await interleave(contestants, { rounds: quick ? 3 : 5 })
  const driver = samples.get('driver')!
  for (const name of cases) {
    const ours = samples.get(name)!
    report.result({ case: name, peerName: 'driver', unit, ...compare(ours, driver) })
    const peaks = compare(ours.map(rss), driver.map(rss), 'less')
    report.result({ case: `${name}: peak memory`, peerName: 'driver', unit: 'MB', ...peaks })
  }
  const size = unit === 'events/s' ? `${driver[0]!.events} events` : '10 events each, 8 callers'
  report.table(`read, ${cases.join(' and ')}, ${size}`)
  for (const [who, list] of samples) {
    const [early, late] = [median(list.map(each => each.heapEarly)), median(list.map(each => each.heapLate))]
    report.say(`  ${who}: heap up to ${early.toFixed(0)} MB in the first half, ${late.toFixed(0)} MB in the second`)
  }
}

function rss(answer: ReaderAnswer): { value: number } {
  return { value: answer.rss }
}
