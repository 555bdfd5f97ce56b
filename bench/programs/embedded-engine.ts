/** The embedded store, or PGlite alone on the same folder: appends, a read, and how late timers fire meanwhile. */
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { PGlite } from '@electric-sql/pglite'
import { closedLoop } from '../harness/closed-loop.ts'
import { answer } from '../harness/program.ts'
import { openStore } from '../harness/rillflow.ts'
import type { Sample } from '../harness/rounds.ts'
import { watchTimers } from '../harness/timer-lateness.ts'
import { appendOne, appendOneValues } from '../peers/append-call.ts'
import { logPage, type Row, readPages } from '../peers/keyset.ts'
import { storeTables } from '../peers/rillflow-append.ts'
import { eventsPerStream, type OrderEvent, orderEvent, orderEvents, orders, StreamCursor } from '../workloads/orders.ts'

export interface EmbeddedInput {
  readonly contestant: 'ours' | 'driver'
  readonly folder: string
  readonly ms: number
  readonly events: number
}

/** A rate, and the worst lateness of a timer meanwhile. */
export interface EmbeddedSample extends Sample {
  readonly lateMs: number
}

export interface EmbeddedAnswer {
  readonly one: EmbeddedSample
  readonly many: EmbeddedSample
  readonly read: EmbeddedSample
  /** Lateness of timers during a checkpoint, and after the load, when the store vacuums its tables. */
  readonly checkpointLateMs: number
  readonly quietLateMs: number
  readonly rss: number
}

interface Engine extends AsyncDisposable {
  append(stream: string, version: number, event: OrderEvent): Promise<unknown>
  load(events: number): Promise<unknown>
  /** Gives the number of events. */
  readAll(): Promise<number>
  run(statement: string): Promise<unknown>
}

answer<EmbeddedInput>(async ({ contestant, folder, ms, events }): Promise<EmbeddedAnswer> => {
  await using engine = contestant === 'ours' ? await embeddedStore(folder) : await plainPglite(folder)
  const empty = (): Promise<unknown> => engine.run(`truncate ${storeTables.join(', ')}`)
  // WebAssembly is slow until it has been optimized.
  await appendLoad(engine, 8, 1500)
  await empty()
  const one = await late(() => appendLoad(engine, 1, ms))
  await empty()
  const many = await late(() => appendLoad(engine, 64, ms))
  await empty()
  await engine.load(events)
  const read = await late(async () => {
    const started = performance.now()
    return { value: (await engine.readAll()) / ((performance.now() - started) / 1000) }
  })
  const checkpointLateMs = (await late(async () => ({ value: Number(await engine.run('checkpoint')) }))).lateMs
  const quietLateMs = (await late(async () => ({ value: Number(await sleep(2500)) }))).lateMs
  return { one, many, read, checkpointLateMs, quietLateMs, rss: process.resourceUsage().maxRSS / 1024 }
})

async function embeddedStore(folder: string): Promise<Engine> {
  const store = await openStore({ folder })
  return {
    append: (stream, version, event) => store.events.append(stream, event, { expected: version }),
    load: events => store.events.import(orders(events)),
    async readAll() {
      let events = 0
      for await (const event of store.events.readAll()) events += event.version > 0 ? 1 : 0
      return events
    },
    run: statement => store.transaction(tx => tx.query(statement)),
    [Symbol.asyncDispose]: () => store.close(),
  }
}

async function plainPglite(folder: string): Promise<Engine> {
  const pglite = await PGlite.create(`file://${folder}/data`)
  const append = (stream: string, version: number, events: readonly OrderEvent[]): Promise<unknown> =>
    pglite.query(appendOne, appendOneValues(stream, version, events))
  return {
    append: (stream, version, event) => append(stream, version, [event]),
    async load(events) {
      for (let at = 0; at < events; at += eventsPerStream)
        await append(randomUUID(), 0, orderEvents(eventsPerStream, at))
    },
    async readAll() {
      let events = 0
      await readPages(
        async last => (await pglite.query<Row>(logPage, [last?.position ?? 0])).rows,
        () => void events++,
      )
      return events
    },
    run: text => pglite.query(text),
    [Symbol.asyncDispose]: () => pglite.close(),
  }
}

function appendLoad(engine: Engine, callers: number, ms: number): Promise<Sample> {
  const cursors = Array.from({ length: callers }, () => new StreamCursor())
  let made = 0
  return closedLoop({ callers, ms, warmUpMs: 250 }, caller => {
    const { stream, version } = cursors[caller]!.next(1)
    return engine.append(stream, version, orderEvent(made++))
  })
}

async function late(work: () => Promise<Sample>): Promise<EmbeddedSample> {
  const watch = watchTimers()
  try {
    const { value, p50, p99 } = await work()
    return { value, p50, p99, lateMs: watch.worst() }
  } finally {
    watch.stop()
  }
}
