/** One projection of the whole log in a process of its own: from the first event asked for to the last commit. */
import pg from 'pg'
import { type MemoryPeak, watchMemory } from '../harness/memory-peak.ts'
import { answer } from '../harness/program.ts'
import { openStore } from '../harness/rillflow.ts'
import type { Sample } from '../harness/rounds.ts'
import { rebuildWithEmmett } from '../peers/emmett-projection.ts'
import { applyByHand } from '../peers/upserts.ts'
import { applied, ordersProjection } from '../rigs/orders-projection.ts'

export interface ProjectorInput {
  readonly who: 'daemon' | 'runUntilIdle' | 'rebuild' | 'by hand' | 'emmett'
  readonly url: string
  /** The end of our log. */
  readonly head: bigint
  /** Of Emmett's reading. */
  readonly batchSize?: number | undefined
}

export interface ProjectorAnswer extends Sample, MemoryPeak {
  readonly events: number
}

answer<ProjectorInput>(async input => {
  const memory = watchMemory()
  let events = 0
  const onEvent = (): void => {
    events++
    memory.tick()
  }
  const ms =
    input.who === 'emmett'
      ? await timed(() => rebuildWithEmmett(input.url, input.batchSize ?? 100, onEvent))
      : input.who === 'by hand'
        ? await projectByHand(input, onEvent)
        : await projectWithStore(input, onEvent)
  return { value: events / (ms / 1000), events, ...memory.peak() } satisfies ProjectorAnswer
})

async function projectWithStore({ who, url, head }: ProjectorInput, onEvent: () => void): Promise<number> {
  await using store = await openStore({ url, migrate: true })
  await store.projections.register(ordersProjection('orders', onEvent))
  // Its table is there before the clock starts, as everybody's.
  await store.schema.sync()
  if (who === 'rebuild') return await timed(() => store.projections.rebuild('orders'))
  if (who === 'runUntilIdle') return await timed(() => store.projections.runUntilIdle())
  await using daemon = store.daemon()
  const caughtUp = new Promise<void>(resolve => applied(position => position >= head && resolve()))
  return await timed(async () => {
    await daemon.start()
    await caughtUp
  })
}

async function projectByHand({ url }: ProjectorInput, onEvent: () => void): Promise<number> {
  const client = new pg.Client(url)
  await client.connect()
  try {
    return await timed(() => applyByHand(client, '0', onEvent))
  } finally {
    await client.end()
  }
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const started = performance.now()
  await work()
  return performance.now() - started
}
