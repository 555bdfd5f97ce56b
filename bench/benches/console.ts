/**
 * The console on a large store: the p95 of every route that reads, what open pages ask of the server, and what they cost
 * the appends.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { fillStore, type LargeRequest, largeShop, prepare, requests } from '../../test/support/large-store.ts'
import type { Bench } from '../harness/bench.ts'
import { closedLoop } from '../harness/closed-loop.ts'
import { runProgram } from '../harness/program.ts'
import type { Report } from '../harness/report.ts'
import * as library from '../harness/rillflow.ts'
import { compare, interleave, percentile, type Sample } from '../harness/rounds.ts'
import { type BenchServer, startBenchServer } from '../harness/server.ts'
import { statementsPerSecond } from '../harness/statement-rate.ts'
import type { LivePagesAnswer, LivePagesInput } from '../programs/live-pages.ts'

const aimMs = 50

export const bench: Bench = {
  about:
    'milliseconds of every route on a store of 5 million events, statements of open pages, and appends beside them',
  async run({ quick, report }) {
    const events = Number(process.env.RILLFLOW_BENCH_EVENTS ?? (quick ? 200_000 : 5_000_000))
    await using server = await startBenchServer(report)
    await using store = await server.openStore(largeShop(library as never) as never)
    await prepare(store as never)
    await server.admin.query('set statement_timeout = 0')
    report.say(`  filling a log of ${events} events, and ${Math.min(events, 1_000_000)} dead letters and attempts …`)
    const query = (text: string) => server.admin.query(text.replaceAll(/~(\w+)/g, 'rillflow.$1'))
    await fillStore(query, events, Math.min(events, 1_000_000))
    await server.admin.query('checkpoint')
    await using served = await store.server({ port: 0, console: true })

    await measureRoutes(served.url, requests(events), quick ? 15 : 60, report)
    await measureStatements(server, served.url, quick, report)
    await measureAppends(store as never, served.url, quick, report)
  },
}

async function measureRoutes(url: string, all: readonly LargeRequest[], times: number, report: Report): Promise<void> {
  const lines: { name: string; p50: number; p95: number; statements: string }[] = []
  for (const each of all) {
    const took: number[] = []
    let statements = ''
    for (let at = 0; at < times; at++) {
      const started = performance.now()
      const response = await ask(url, each)
      took.push(performance.now() - started)
      if (at > 0 || statements === '')
        statements = /desc="(\d+)/.exec(response.headers.get('server-timing') ?? '')?.[1] ?? ''
    }
    const name = each.note === undefined ? each.key : `${each.key} (${each.note})`
    const sorted = took.slice(1).sort((a, b) => a - b)
    lines.push({ name, p50: percentile(sorted, 0.5), p95: percentile(sorted, 0.95), statements })
  }
  report.say(`\n  ${'route'.padEnd(58)}${'p50 ms'.padStart(9)}${'p95 ms'.padStart(9)}${'statements'.padStart(12)}`)
  for (const { name, p50, p95, statements } of lines)
    report.say(
      `  ${name.padEnd(58)}${p50.toFixed(1).padStart(9)}${p95.toFixed(1).padStart(9)}${statements.padStart(12)}`,
    )
  const slow = lines.filter(({ p95 }) => p95 > aimMs).map(({ name }) => name)
  report.say(`\n  p95 above ${aimMs} ms: ${slow.length === 0 ? 'none' : slow.join(', ')}`)
}

async function ask(url: string, { path, body }: LargeRequest): Promise<Response> {
  const headers = { 'content-type': 'application/json', origin: url }
  const sent = body === undefined ? {} : { method: 'POST', headers, body: JSON.stringify(body) }
  const response = await fetch(`${url}/api/v1${path}`, sent)
  const text = await response.text()
  if (!response.ok) throw new Error(`${path}: ${response.status} ${text}`)
  return response
}

async function measureStatements(server: BenchServer, url: string, quick: boolean, report: Report): Promise<void> {
  const ms = quick ? 12_000 : 30_000
  for (const pages of [1, 4]) {
    const open = runProgram<LivePagesAnswer>('live-pages', { url, pages, ms: ms + 6_000 } satisfies LivePagesInput)
    await sleep(3_000)
    report.say(`  statements a second with ${pages} open: ${(await statementsPerSecond(server, ms)).toFixed(2)}`)
    await open
  }
  // A look counts for fifteen seconds.
  await sleep(16_000)
  report.say(`  statements a second unseen: ${(await statementsPerSecond(server, 30_000)).toFixed(2)}`)
}

async function measureAppends(
  store: Pick<library.Store, 'events'>,
  url: string,
  quick: boolean,
  report: Report,
): Promise<void> {
  const load = { callers: 64, ms: quick ? 3_000 : 10_000, warmUpMs: 1_000 }
  let next = 0
  const append = (): Promise<Sample> =>
    closedLoop(load, () =>
      store.events.append(`cart-${next++}`, { type: 'OrderPlaced', data: { customer: 'Ada', cents: 1 } }),
    )
  const beside = async (): Promise<Sample> => {
    const pages = runProgram<LivePagesAnswer>('live-pages', { url, pages: 3, ms: load.ms + 12_000 })
    // Its process starts first, and is not measured.
    await sleep(8_000)
    const sample = await append()
    const { messages } = await pages
    if (messages === 0) throw new Error('no message reached the pages')
    return sample
  }
  const contestants = [
    { name: 'with', run: beside },
    { name: 'without', run: append },
  ]
  const samples = await interleave(contestants, { rounds: quick ? 3 : 9 })
  const comparison = compare(samples.get('with')!, samples.get('without')!)
  report.result({
    case: 'append, 64 callers',
    peerName: 'ours',
    peerNote: 'no page open',
    unit: 'events/s',
    ...comparison,
  })
  report.table('console: appends beside three live pages')
}
