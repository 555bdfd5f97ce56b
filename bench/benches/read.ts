/** Reading the whole log, as a reader and as a rebuild, and single streams, against keyset pages through the driver. */
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

/** The store reads each source; the driver reads the first one, as it has only one way. */
async function runCases(
  { quick, report }: BenchContext,
  server: BenchServer,
  cases: readonly ReaderInput['source'][],
  streams: readonly string[],
  unit: string,
): Promise<void> {
  const reader = (contestant: ReaderInput['contestant'], source: ReaderInput['source']): Contestant<ReaderAnswer> => ({
    name: contestant === 'ours' ? source : 'driver',
    run: () => runProgram('log-reader', { contestant, source, url: server.url, streams } satisfies ReaderInput),
  })
  const contestants = [...cases.map(source => reader('ours', source)), reader('driver', cases[0]!)]
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
  for (const [name, list] of samples) {
    const [early, late] = [median(list.map(each => each.heapEarly)), median(list.map(each => each.heapLate))]
    report.say(`  ${name}: heap up to ${early.toFixed(0)} MB in the first half, ${late.toFixed(0)} MB in the second`)
  }
}

function rss(answer: ReaderAnswer): { value: number } {
  return { value: answer.rss }
}
