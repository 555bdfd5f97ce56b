/** `rillflow bench`: how fast appends and reads are on this machine, or with this server. Nobody's store is touched. */

import { randomBytes } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { throwIfAborted } from '../../core/lifecycle.ts'
import type { Store } from '../../store.ts'
import { type Command, defineCommand } from '../command.ts'
import { mergePlace } from '../config.ts'
import { digits, duration } from '../output/amount.ts'
import { table } from '../output/table.ts'

export const benchCommand: Command = defineCommand({
  description:
    'On a server in a schema of its own, which is dropped again; embedded in a folder that is thrown away. Small events, one each append. What is measured is this machine as it is now: compare only runs beside each other.',
  options: {
    seconds: { kind: 'whole', value: 'COUNT', default: 3, summary: 'How long each kind of append is measured' },
    callers: { kind: 'whole', value: 'COUNT', default: 64, summary: 'How many append at once, where many do' },
  },
  examples: ['rillflow bench', 'rillflow bench --url postgres://localhost/shop --seconds 10 --json'],
  async run({ out, config, place, options: { seconds, callers }, signal }) {
    const { url, pool } = mergePlace((await config())?.config ?? {}, place)
    const isEmbedded = url === undefined && pool === undefined
    const folder = isEmbedded ? await mkdtemp(join(tmpdir(), 'rillflow-bench-')) : undefined
    const where = folder === undefined ? { url, pool } : { folder: join(folder, 'store') }
    const schema = `rillflow_bench_${randomBytes(6).toString('hex')}`
    const { openStore } = await import('../../store.ts')
    const store = await openStore({ ...where, schema, migrate: true })
    const bar = out.progress('Measuring')
    try {
      const measured: Measured[] = []
      for (const many of [1, callers]) {
        measured.push(await measureAppends(store, { callers: many, seconds, signal }))
        bar.update(measured.length, 3, 'measurement')
      }
      measured.push(await measureReads(store, signal))
      bar.end()
      out.print({ engine: store.engine, measured }, style =>
        table(
          style,
          measured,
          [
            { title: 'WORK', of: each => each.work, paint: (_, colour) => colour.cyan },
            { title: 'EVENTS', of: each => digits(each.events), right: true },
            { title: 'PER SECOND', of: each => digits(each.perSecond), right: true },
            { title: 'P50', of: each => shown(each.p50Ms), right: true },
            { title: 'P99', of: each => shown(each.p99Ms), right: true },
          ],
          '',
        ),
      )
    } finally {
      bar.end()
      if (folder === undefined) await store.schema.drop()
      await store.close()
      if (folder !== undefined) await rm(folder, { recursive: true, force: true })
    }
  },
})

interface Measured {
  readonly work: string
  readonly events: number
  readonly perSecond: number
  readonly p50Ms?: number
  readonly p99Ms?: number
}

interface AppendLoad {
  readonly callers: number
  readonly seconds: number
  readonly signal: AbortSignal
}

async function measureAppends(store: Store, { callers, seconds, signal }: AppendLoad): Promise<Measured> {
  const waits: number[] = []
  const startedAt = performance.now()
  const endsAt = startedAt + seconds * 1000
  const call = async (caller: number): Promise<void> => {
    for (let number = 0; performance.now() < endsAt; number++) {
      throwIfAborted(signal)
      const begunAt = performance.now()
      await store.events.append(`order-${callers}-${caller}-${number % 100}`, { type: 'Measured', data: { number } })
      waits.push(performance.now() - begunAt)
    }
  }
  await Promise.all(Array.from({ length: callers }, (_, caller) => call(caller)))
  const passedMs = performance.now() - startedAt
  waits.sort((a, b) => a - b)
  const at = (share: number): number => waits[Math.floor(waits.length * share)] ?? 0
  return {
    work: `append, ${callers === 1 ? 'one caller' : `${callers} callers`}`,
    events: waits.length,
    perSecond: Math.round((waits.length / passedMs) * 1000),
    ...{ p50Ms: at(0.5), p99Ms: at(0.99) },
  }
}

async function measureReads(store: Store, signal: AbortSignal): Promise<Measured> {
  const startedAt = performance.now()
  let events = 0
  for await (const _ of store.events.readAll({ signal })) events++
  const perSecond = Math.round((events / (performance.now() - startedAt)) * 1000)
  return { work: 'read all of it', events, perSecond }
}

function shown(ms: number | undefined): string | undefined {
  if (ms === undefined) return undefined
  return ms < 10 ? `${ms.toFixed(2)}ms` : duration(ms)
}
