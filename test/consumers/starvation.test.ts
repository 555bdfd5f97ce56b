/** Handlers that are too slow for a whole batch. They must make progress all the same, also if each batch has another runner. */
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { type Consumer, consumer } from '../../src/consumers/consumer.ts'
import { runUntilIdle } from '../../src/consumers/run/run.ts'
import { readStatus } from '../../src/consumers/status.ts'
import { waitForConsumer } from '../../src/consumers/wait-for.ts'
import { openConsumerParts } from '../support/consumer-parts.ts'
import { openShop, placed, type Shop } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

const leaseMs = 1_000
const costMs = 100

/** A batch of 500 of its events takes 50 s. */
function slow(
  batches: number[],
  pause: (events: number, tx: { query(text: string): Promise<unknown> }) => Promise<void>,
): Consumer {
  return consumer(
    {
      name: 'labels',
      kind: 'processor',
      filter: {},
      async handle(events, { tx }) {
        batches.push(events.length)
        await pause(events.length, tx)
      },
    },
    { leaseMs, timeoutMs: 20_000, onFailure: 'stop' },
  )
}

/** Each event takes its time, and the connection is used meanwhile. */
const eventByEvent = async (events: number, tx: { query(text: string): Promise<unknown> }): Promise<void> => {
  for (let n = 0; n < events; n++) {
    await sleep(costMs)
    await tx.query('select 1')
  }
}

async function fill({ store }: Shop, count: number): Promise<number> {
  const { position } = await store.events.append(
    'order-1',
    Array.from({ length: count }, () => placed()),
  )
  return position
}

/** How long the checkpoint stood still at most, until it had passed so many events. */
async function longestStandstill(shop: Shop, count: number): Promise<number> {
  let [checkpoint, since, longest] = [0, performance.now(), 0]
  await waitUntil(
    async () => {
      const [row] = await shop.query<{ checkpoint: number }>("select checkpoint from ~consumers where name = 'labels'")
      const now = performance.now()
      longest = Math.max(longest, now - since)
      if (row !== undefined && row.checkpoint > checkpoint) [checkpoint, since] = [row.checkpoint, now]
      return checkpoint >= count || longest > 8 * leaseMs
    },
    { everyMs: 50 },
  )
  return longest
}

test('a handler that is too slow for a full batch makes progress, although its lease is lost to others again and again', async () => {
  const shop = await openShop()
  const batches: number[] = []
  await fill(shop, 500)
  const stopping = new AbortController()
  const runners = [1, 2, 3].map(async () => {
    const parts = openConsumerParts(shop)
    const labels = slow(batches, eventByEvent)
    while (!stopping.signal.aborted) {
      // By hand no lease is renewed while a batch is applied.
      await runUntilIdle(parts, [labels], { signal: stopping.signal }).catch(() => {})
      await shop.store.events.append('order-2', placed())
    }
  })

  const longest = await longestStandstill(shop, 30)
  stopping.abort()
  await Promise.all(runners)

  expect(longest).toBeLessThan(8 * leaseMs)
  expect(Math.max(...batches)).toBeLessThan(50)
})

test('a batch that takes too long is smaller the next time, also for the next runner', async () => {
  const shop = await openShop()
  await fill(shop, 40)
  await shop.query("insert into ~consumers (name, kind, checkpoint, batch_limit) values ('labels', 'processor', 0, 32)")
  const first: number[] = []
  const one = openConsumerParts(shop)
  // Only one event fits into the time of the handler.
  const hasty = { ...slow(first, eventByEvent), timeoutMs: costMs * 2.5 }
  one.register(hasty)
  const runner = await one.start()
  await waitUntil(() => first.length >= 2)
  await runner.stop()

  const second: number[] = []
  const other = openConsumerParts(shop)
  other.register({ ...slow(second, eventByEvent), timeoutMs: costMs * 2.5 })
  await other.start()
  await waitForConsumer(other, 'labels', 2)

  expect(first[0]).toBe(32)
  expect(first[1]).toBeLessThan(32)
  expect(second[0]).toBeLessThan(32)
})

test('a handler of unknown cost starts with a small batch and grows, and the next runner begins where it was', async () => {
  const shop = await openShop()
  const batches: number[] = []
  const quick = slow(batches, async () => {})
  const end = await fill(shop, 100)
  const parts = openConsumerParts(shop)
  await runUntilIdle(parts, [quick])
  expect(batches.slice(0, 2)).toEqual([16, 32])

  const next = await fill(shop, 100)
  parts.register(quick)
  await parts.start()
  await waitForConsumer(parts, 'labels', next)

  expect(end).toBe(100)
  expect(batches.slice(3)[0]).toBeGreaterThan(16)
  expect((await readStatus(parts.log))[0]).toMatchObject({ checkpoint: 200 })
})
