/** One reader in its own process, so that time and memory are the reader's alone. */

import { closedLoop } from '../harness/closed-loop.ts'
import { type MemoryPeak, watchMemory } from '../harness/memory-peak.ts'
import { openPool } from '../harness/pool.ts'
import { answer } from '../harness/program.ts'
import { openStore } from '../harness/rillflow.ts'
import type { Sample } from '../harness/rounds.ts'
import { readLogPages, readStreamPages } from '../peers/keyset.ts'

export interface ReaderInput {
  readonly contestant: 'ours' | 'driver'
  readonly source: 'log' | 'rebuild' | 'streams' | 'long stream'
  readonly url: string
  /** Names of the streams to read. */
  readonly streams: readonly string[]
}

export interface ReaderAnswer extends Sample, MemoryPeak {
  readonly events: number
}

/** Reads one source to its end and passes each event on. */
type Read = (onEvent: (event: { readonly data: unknown }) => void) => Promise<void>

answer<ReaderInput>(input => (input.contestant === 'ours' ? readWithStore(input) : readWithDriver(input)))

async function readWithStore({ source, url, streams }: ReaderInput): Promise<ReaderAnswer> {
  await using store = await openStore({ url })
  const all = (events: AsyncIterable<{ readonly data: unknown }>): Read => {
    return async onEvent => {
      for await (const event of events) onEvent(event)
    }
  }
  if (source === 'streams') return await readMany(streams, stream => all(store.events.read(stream)))
  if (source === 'long stream') return await readOnce(all(store.events.read(streams[0]!)))
  return await readOnce(all(store.events.readAll(source === 'rebuild' ? { includeArchived: true } : {})))
}

async function readWithDriver({ source, url, streams }: ReaderInput): Promise<ReaderAnswer> {
  const pool = openPool(url, 10)
  const client = await pool.connect()
  const whole = (stream: string): Read => {
    return onEvent => readStreamPages(pool, stream, onEvent)
  }
  try {
    if (source === 'streams') return await readMany(streams, whole)
    if (source === 'long stream') return await readOnce(whole(streams[0]!))
    return await readOnce(onEvent => readLogPages(client, onEvent))
  } finally {
    client.release()
    await pool.end()
  }
}

async function readOnce(read: Read): Promise<ReaderAnswer> {
  const watch = watchEvents()
  const started = performance.now()
  await read(watch.see)
  const value = watch.events() / ((performance.now() - started) / 1000)
  return { value, events: watch.events(), ...watch.peak() }
}

/** Whole streams, each by one of 8 callers. */
async function readMany(streams: readonly string[], readOf: (stream: string) => Read): Promise<ReaderAnswer> {
  const watch = watchEvents()
  let next = 0
  const { value, p50, p99 } = await closedLoop({ callers: 8, ms: 1500, warmUpMs: 300 }, () =>
    readOf(streams[next++ % streams.length]!)(watch.see),
  )
  return { value, p50, p99, events: watch.events(), ...watch.peak() }
}

function watchEvents(): { see(event: { readonly data: unknown }): void; events(): number; peak(): MemoryPeak } {
  const memory = watchMemory()
  let events = 0
  return {
    see(event) {
      if (typeof event.data !== 'object') throw new Error('an event without data')
      events++
      memory.countEvent()
    },
    events: () => events,
    peak: () => memory.peak(),
  }
}
