/** One projection of the whole log in its own process: from the first event requested to the last commit. */
import pg from 'pg'
import { type MemoryPeak, watchMemory } from '../harness/memory-peak.ts'
import { answer } from '../harness/program.ts'
import { openStore } from '../harness/rillflow.ts'
import type { Sample } from '../harness/rounds.ts'
import { rebuildWithEmmett } from '../peers/emmett-projection.ts'
import { applyByHand } from '../peers/upserts.ts'
import { onApplied, ordersProjection } from '../rigs/orders-projection.ts'

export interface CatchUpInput {
  readonly contestant: 'runner' | 'runUntilIdle' | 'rebuild' | 'by hand' | 'emmett'
  readonly url: string
  /** The last position of our log. */
  readonly head: number
  /** Page size of Emmett's reads. */
  readonly batchSize?: number | undefined
}

export interface CatchUpAnswer extends Sample, MemoryPeak {
  readonly events: number
}

answer<CatchUpInput>(async input => {
  const memory = watchMemory()
  let events = 0
  const onEvent = (): void => {
    events++
    memory.countEvent()
  }
  const ms =
    input.contestant === 'emmett'
      ? await timed(() => rebuildWithEmmett(input.url, input.batchSize ?? 100, onEvent))
      : input.contestant === 'by hand'
        ? await projectByHand(input, onEvent)
        : await projectWithStore(input, onEvent)
  return { value: events / (ms / 1000), events, ...memory.peak() } satisfies CatchUpAnswer
})

async function projectWithStore({ contestant, url, head }: CatchUpInput, onEvent: () => void): Promise<number> {
  await using store = await openStore({ url, migrate: true })
  await store.projections.register(ordersProjection('orders', onEvent))
  // The table exists before the clock starts, as for all contestants.
  await store.schema.sync()
  if (contestant === 'rebuild') return await timed(() => store.projections.rebuild('orders'))
  if (contestant === 'runUntilIdle') return await timed(() => store.consumers.runUntilIdle())
  const caughtUp = new Promise<void>(resolve => onApplied(position => position >= head && resolve()))
  return await timed(async () => {
    await store.start({ only: ['projections'] })
    await caughtUp
  })
}

async function projectByHand({ url }: CatchUpInput, onEvent: () => void): Promise<number> {
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
