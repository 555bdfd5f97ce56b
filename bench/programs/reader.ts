/** One reader in a process of its own, so that what it takes is only its own. */
import pg from 'pg'
import { closedLoop } from '../load.ts'
import { type MemoryPeak, watchMemory } from '../memory.ts'
import { keysetPages, keysetStream } from '../peers/keyset.ts'
import { answer } from '../program.ts'
import { openStore } from '../rillflow.ts'
import type { Sample } from '../rounds.ts'

export interface ReaderInput {
  readonly who: 'ours' | 'driver'
  readonly what: 'log' | 'rebuild' | 'streams' | 'long stream'
  readonly url: string
  /** Names of streams, for those that read streams. */
  readonly streams: readonly string[]
}

export interface ReaderAnswer extends Sample, MemoryPeak {
  readonly events: number
}

type Source = () => AsyncIterable<{ data?: unknown }>

answer<ReaderInput>(async input => (input.who === 'ours' ? readWithStore(input) : readWithDriver(input)))

async function readWithStore({ what, url, streams }: ReaderInput): Promise<ReaderAnswer> {
  await using store = await openStore({ url })
  if (what === 'streams') return readStreams(streams, stream => store.events.read(stream))
  if (what === 'long stream') return readOnce(() => store.events.read(streams[0]!))
  return readOnce(() => store.events.readAll(what === 'rebuild' ? { includeArchived: true } : {}))
}

async function readWithDriver({ what, url, streams }: ReaderInput): Promise<ReaderAnswer> {
  const pool = new pg.Pool({ connectionString: url, max: 10 })
  const client = await pool.connect()
  try {
    if (what === 'streams') return await readStreams(streams, stream => keysetStream(pool, stream))
    if (what === 'long stream') return await readOnce(() => keysetStream(pool, streams[0]!))
    return await readOnce(() => keysetPages(client))
  } finally {
    client.release()
    await pool.end()
  }
}

async function readOnce(source: Source): Promise<ReaderAnswer> {
  const memory = watchMemory()
  const started = performance.now()
  let events = 0
  for await (const event of source()) {
    if (event.data === undefined) throw new Error('an event without data')
    events++
    memory.tick()
  }
  return { value: events / ((performance.now() - started) / 1000), events, ...memory.peak() }
}

/** Whole streams, each by one of 8 callers. */
async function readStreams(streams: readonly string[], source: (stream: string) => ReturnType<Source>): Promise<ReaderAnswer> {
  const memory = watchMemory()
  let events = 0
  let next = 0
  const sample = await closedLoop({ callers: 8, ms: 1500, warmUpMs: 300 }, async () => {
    for await (const event of source(streams[next++ % streams.length]!)) {
      if (event.data === undefined) throw new Error('an event without data')
      events++
      memory.tick()
    }
  })
  return { value: sample.value, p50: sample.p50, p99: sample.p99, events, ...memory.peak() }
}
