/** Catching up: folding the whole log into documents, against one statement per event and against Emmett's rebuild. */
import type pg from 'pg'
import type { Bench } from '../harness/bench.ts'
import { runProgram } from '../harness/program.ts'
import type { Report } from '../harness/report.ts'
import { type Contestant, compare, interleave, median } from '../harness/rounds.ts'
import { type BenchServer, startBenchServer } from '../harness/server.ts'
import { fillEmmett } from '../peers/emmett-projection.ts'
import { makeUpsertTables, upsertTables } from '../peers/upserts.ts'
import type { CatchUpAnswer, CatchUpInput } from '../programs/projection-catch-up.ts'
import { eventsPerStream, orders } from '../workloads/orders.ts'

const ways = ['runner', 'runUntilIdle', 'rebuild'] as const

export const bench: Bench = {
  about: 'events per second folded into documents of 10 events each, each contestant in a process of its own',
  async run({ quick, only, report }) {
    // Without the peer that takes longest: the more events there are, the less the start counts.
    const isShort = only === 'statements'
    const events = quick && !isShort ? 20_000 : 100_000
    await using server = await startBenchServer(report)
    await fill(server, events)
    await fillEmmett(server.url, isShort ? eventsPerStream : events)
    await server.admin.query('vacuum analyze')
    // Its default page size, and one that suits it better: it sorts the rest of the log for each page.
    const emmettPages = isShort ? [] : quick ? [1000] : [100, 1000]
    await runAgainstPeers(server, report, { events, emmettPages, rounds: quick ? 1 : 3 })
    if (!quick && !isShort) await runLong(server, report, 1_000_000)
  },
}

async function fill(server: BenchServer, events: number): Promise<void> {
  await using store = await server.openStore()
  await store.events.import(orders(events))
  await makeUpsertTables(server.admin)
  await server.admin.query('vacuum analyze rillflow.events, rillflow.streams')
}

async function runAgainstPeers(
  server: BenchServer,
  report: Report,
  { events, emmettPages, rounds }: { events: number; emmettPages: readonly number[]; rounds: number },
): Promise<void> {
  const head = await headOf(server.admin)
  const contestantOf = (
    input: Pick<CatchUpInput, 'contestant' | 'batchSize'>,
    name: string,
  ): Contestant<CatchUpAnswer> => ({
    name,
    run: () => project(server, { url: server.url, head, ...input }, events),
  })
  const emmetts = emmettPages.map(batchSize => contestantOf({ contestant: 'emmett', batchSize }, `emmett ${batchSize}`))
  const contestants = [
    ...ways.map(way => contestantOf({ contestant: way }, way)),
    contestantOf({ contestant: 'by hand' }, 'by hand'),
    ...emmetts,
  ]
  const samples = await interleave(contestants, { rounds, before: () => empty(server.admin) })
  const value = ({ name }: Contestant): number => median(samples.get(name)!.map(sample => sample.value))
  const emmett = [...emmetts].sort((a, b) => value(b) - value(a))[0]?.name
  for (const way of ways) {
    const ours = samples.get(way)!
    const byHand = compare(ours, samples.get('by hand')!)
    report.result({ case: way, peerName: 'per-event statement', unit: 'events/s', ...byHand })
    if (emmett === undefined) continue
    const peerNote = `pages of ${emmett.slice('emmett '.length)}`
    report.result({ case: way, peerName: 'emmett', peerNote, unit: 'events/s', ...compare(ours, samples.get(emmett)!) })
  }
  report.table(`catchup, ${events} events`)
}

/** Ten times as many events, by the store alone: memory must not grow with the log. */
async function runLong(server: BenchServer, report: Report, events: number): Promise<void> {
  await server.admin.query('truncate rillflow.events, rillflow.streams, rillflow.idempotency_keys')
  await fill(server, events)
  const head = await headOf(server.admin)
  for (const way of ways) {
    await empty(server.admin)
    const seen = await project(server, { contestant: way, url: server.url, head }, events)
    const rate = `${Math.round(seen.value)} events/s over ${events} events`
    const heap = `heap up to ${seen.heapEarly.toFixed(0)} MB in the first half, ${seen.heapLate.toFixed(0)} MB in the second`
    report.say(`  ${way}: ${rate}; ${heap}; peak memory ${seen.rss.toFixed(0)} MB`)
  }
}

async function project(server: BenchServer, input: CatchUpInput, events: number): Promise<CatchUpAnswer> {
  const seen = await runProgram<CatchUpAnswer>('projection-catch-up', input)
  const tables = { emmett: 'orders', 'by hand': 'byhand.orders' }
  const table = input.contestant in tables ? tables[input.contestant as keyof typeof tables] : 'rillflow.orders'
  const body = input.contestant === 'emmett' ? 'data' : 'body'
  const { rows } = await server.admin.query(`
    select count(*)::int as documents, sum((${body} ->> 'events')::int)::int as events from ${table}`)
  const { documents, events: folded } = rows[0]
  if (documents !== events / eventsPerStream || folded !== events || seen.events !== events)
    throw new Error(`${input.contestant} folded ${seen.events}, and has ${folded} events in ${documents} documents`)
  return seen
}

/** Removes the read models and checkpoints of all contestants. */
async function empty(admin: pg.Pool): Promise<void> {
  await admin.query('drop table if exists rillflow.orders')
  await admin.query('delete from rillflow.consumers')
  await admin.query(`truncate ${upsertTables.join(', ')}`)
  await admin.query('drop table if exists public.orders')
  await admin.query('truncate emt_processors, emt_projections')
  await admin.query('checkpoint')
}

async function headOf(admin: pg.Pool): Promise<number> {
  const { rows } = await admin.query('select max(position)::float8 as head from rillflow.events')
  return rows[0].head
}
