/** Reading: the whole log, as a reader and as a rebuild, and single streams, against the driver's own keyset pages. */
import type { Bench, BenchContext } from '../bench.ts'
import { runProgram } from '../program.ts'
import type { ReaderAnswer, ReaderInput } from '../programs/reader.ts'
import { compare, interleave, middle } from '../rounds.ts'
import { type BenchServer, startBenchServer } from '../server.ts'
import { orders } from '../workload.ts'

const longStream = 'long-stream'

export const bench: Bench = {
  about: 'events per second read, each reader in a process of its own, data in the cache of the server',
  async run(context) {
    const { quick, report } = context
    const events = quick ? 200_000 : 1_000_000
    await using server = await startBenchServer(report)
    await fill(server, events, quick ? 20_000 : 100_000)
    const { rows } = await server.admin.query(`
      select stream from rillflow.streams where stream <> '${longStream}' order by random() limit 5000`)
    const streams = rows.map(row => row.stream as string)
    await runCase(context, server, { name: 'log', peers: 'log', unit: 'events/s' }, [])
    await runCase(context, server, { name: 'rebuild', peers: 'log', unit: 'events/s' }, [])
    await runCase(context, server, { name: 'long stream', peers: 'long stream', unit: 'events/s' }, [longStream])
    await runCase(context, server, { name: 'streams', peers: 'streams', unit: 'streams/s' }, streams)
  },
}

async function fill(server: BenchServer, events: number, long: number): Promise<void> {
  await using store = await server.openStore()
  await store.events.import(orders(events))
  await store.events.import(orders(long, longStream))
  await server.admin.query('vacuum analyze rillflow.events, rillflow.streams')
  await server.admin.query('checkpoint')
}

interface ReadCase {
  readonly name: ReaderInput['what']
  /** What the driver does meanwhile. */
  readonly peers: ReaderInput['what']
  readonly unit: string
}

async function runCase(
  { quick, report }: BenchContext,
  server: BenchServer,
  { name, peers, unit }: ReadCase,
  streams: readonly string[],
): Promise<void> {
  const reader = (who: ReaderInput['who'], what: ReaderInput['what']): Promise<ReaderAnswer> =>
    runProgram<ReaderAnswer>('reader', { who, what, url: server.url, streams } satisfies ReaderInput)
  const samples = await interleave(
    [
      { name: 'ours', run: () => reader('ours', name) },
      { name: 'driver', run: () => reader('driver', peers) },
    ],
    { rounds: quick ? 3 : 5 },
  )
  const [ours, driver] = [samples.get('ours')!, samples.get('driver')!]
  report.result({ case: name, peerName: 'driver', unit, ...compare(ours, driver) })
  const memory = (list: readonly ReaderAnswer[]): { value: number }[] => list.map(({ rss }) => ({ value: rss }))
  const peaks = compare(memory(ours), memory(driver), 'less')
  report.result({ case: `${name}: peak memory`, peerName: 'driver', unit: 'MB', ...peaks })
  report.table(`read, ${name}, ${name === 'streams' ? '10 events each, 8 callers' : `${ours[0]!.events} events`}`)
  for (const [who, list] of samples) {
    const [early, late] = [middle(list.map(heap('heapEarly'))), middle(list.map(heap('heapLate')))]
    report.say(`  ${who}: heap peaks at ${early.value.toFixed(0)} MB in the first half, ${late.value.toFixed(0)} MB in the second`)
  }
}

function heap(half: 'heapEarly' | 'heapLate'): (answer: ReaderAnswer) => { value: number } {
  return answer => ({ value: answer[half] })
}
