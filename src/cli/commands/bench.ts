/**
 * `rillflow bench`: measures how fast appends and reads are on this machine or with this server.
 *
 * Guarantee: no existing store is touched. On a server it uses a new schema, which it drops; embedded it uses a new folder,
 * which it deletes.
 */
import { randomBytes } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { throwIfAborted } from '../../core/abort.ts'
import type { Store } from '../../store.ts'
import { type Command, defineCommand } from '../command.ts'
import { withLocation } from '../config.ts'
import { digits, duration } from '../output/amount.ts'
import { type Column, table } from '../output/table.ts'
import { WrongUsage } from '../report-error.ts'

export const bench: Command = defineCommand({
  description:
    'Uses a new schema on a server, or a new folder for an embedded store, and removes it at the end. The events are small, one in each append. The numbers depend on the load of this machine, so compare only runs that were made close together.',
  options: {
    seconds: { kind: 'whole', value: 'COUNT', default: 3, summary: 'How long each kind of append is measured' },
    callers: {
      kind: 'whole',
      value: 'COUNT',
      default: 64,
      summary: 'The number of callers that append at the same time',
    },
  },
  examples: ['rillflow bench', 'rillflow bench --url postgres://localhost/shop --seconds 10 --json'],
  async run({ out, config, location, options: { seconds, callers }, signal }) {
    refuseNothing({ seconds, callers })
    const { url, pool } = withLocation((await config())?.config ?? {}, location)
    const isEmbedded = !url && pool === undefined
    const folder = isEmbedded ? await mkdtemp(join(tmpdir(), 'rillflow-bench-')) : undefined
    const server = pool === undefined ? { url } : { pool }
    const place = folder === undefined ? server : { folder: join(folder, 'store') }
    const schema = `rillflow_bench_${randomBytes(6).toString('hex')}`
    const { openStore } = await import('../../store.ts')
    const store = await openStore({ ...place, schema, migrate: true })
    const bar = out.progress('Measuring')
    try {
      const measured: Measurement[] = []
      for (const count of [1, callers]) {
        measured.push(await measureAppends(store, { callers: count, seconds, signal }))
        bar.update(measured.length, 3, 'measurement')
      }
      measured.push(await measureReads(store, signal))
      bar.end()
      out.print({ engine: store.engine, measured }, style => table(style, measured, columns, ''))
    } finally {
      bar.end()
      if (folder === undefined) await store.schema.drop()
      await store.close()
      if (folder !== undefined) await rm(folder, { recursive: true, force: true })
    }
  },
})

/** Without a second or a caller every number would be 0. */
function refuseNothing(given: Readonly<Record<string, number>>): void {
  for (const [name, value] of Object.entries(given))
    if (value === 0)
      throw new WrongUsage({
        reason: `--${name} is 0, so there would be nothing to measure. It must be at least 1`,
        hint: 'rillflow bench --seconds 3 --callers 64',
      })
}

interface Measurement {
  readonly work: string
  readonly events: number
  readonly perSecond: number
  readonly p50Ms?: number
  readonly p99Ms?: number
}

const columns: Column<Measurement>[] = [
  { title: 'WORK', of: ({ work }) => work, paint: (_, colour) => colour.cyan },
  { title: 'EVENTS', of: ({ events }) => digits(events), right: true },
  { title: 'PER SECOND', of: ({ perSecond }) => digits(perSecond), right: true },
  { title: 'P50', of: ({ p50Ms }) => milliseconds(p50Ms), right: true },
  { title: 'P99', of: ({ p99Ms }) => milliseconds(p99Ms), right: true },
]

interface AppendLoad {
  readonly callers: number
  readonly seconds: number
  readonly signal: AbortSignal
}

async function measureAppends(store: Store, { callers, seconds, signal }: AppendLoad): Promise<Measurement> {
  const timesMs: number[] = []
  const startedAt = performance.now()
  const endsAt = startedAt + seconds * 1000
  const call = async (caller: number): Promise<void> => {
    for (let number = 0; performance.now() < endsAt; number++) {
      throwIfAborted(signal)
      const calledAt = performance.now()
      await store.events.append(`order-${callers}-${caller}-${number % 100}`, { type: 'Measured', data: { number } })
      timesMs.push(performance.now() - calledAt)
    }
  }
  await Promise.all(Array.from({ length: callers }, (_, caller) => call(caller)))
  const passedMs = performance.now() - startedAt
  timesMs.sort((a, b) => a - b)
  const percentile = (share: number): number => timesMs[Math.floor(timesMs.length * share)] ?? 0
  return {
    work: `append, ${callers === 1 ? 'one caller' : `${callers} callers`}`,
    events: timesMs.length,
    perSecond: Math.round((timesMs.length / passedMs) * 1000),
    p50Ms: percentile(0.5),
    p99Ms: percentile(0.99),
  }
}

async function measureReads(store: Store, signal: AbortSignal): Promise<Measurement> {
  const startedAt = performance.now()
  let events = 0
  for await (const _ of store.events.readAll({ signal })) events++
  const perSecond = Math.round((events / (performance.now() - startedAt)) * 1000)
  return { work: 'read all events', events, perSecond }
}

function milliseconds(ms: number | undefined): string | undefined {
  if (ms === undefined) return undefined
  return ms < 10 ? `${ms.toFixed(2)}ms` : duration(ms)
}
