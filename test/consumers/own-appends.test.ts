/** Appends of a consumer's own process, which it gets without a look and without a read. */
import { expect, onTestFinished, test } from 'vitest'
import { defineProcessor } from '../../src/consumers/processor.ts'
import type { RecordedEvent } from '../../src/events/definition.ts'
import type { Store } from '../../src/store.ts'
import { openDatabase } from '../support/engines.ts'
import { shopEvents as events, onServer, openShop, outcome, placed, type ShopMap } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'
import { watchedDatabase } from '../support/watched-database.ts'

/** The events that a processor of this store gets, as they come. */
async function follow(store: Store<ShopMap>, from: 'start' | 'now' = 'start'): Promise<RecordedEvent[]> {
  const seen: RecordedEvent[] = []
  const see = (event: RecordedEvent): void => void seen.push(event)
  const processor = defineProcessor('counter', {
    events,
    from,
    on: { OrderPlaced: see as never, OrderPaid: see as never, OrderShipped: see as never },
  })
  await store.register(processor)
  const stopping = new AbortController()
  const running = outcome(store.consumers.run(processor, { signal: stopping.signal }))
  onTestFinished(async () => {
    stopping.abort()
    await running
  })
  return seen
}

test('events that are not read back look as if they had been', async () => {
  const watched = watchedDatabase(await openDatabase())
  const { store } = await openShop({ database: watched.database })
  const seen = await follow(store)
  const data = {
    ...{ total: 1.5, 10: 'ten', é: { zz: -0, b: 1e21, a: [{ y: 1, x: [] }] }, __long_name__: null },
    ...JSON.parse('{"__proto__": {"b": 1, "a": "\\u2028"}}'),
  }
  let appended = 0
  const append = async (): Promise<void> => {
    watched.labels.length = 0
    const headers = { zone: 'b', ip: { v6: false, port: 1 } }
    await store.events.append(
      'cart-1',
      { type: 'OrderPlaced', data, headers, userId: 'ada' },
      { correlationId: 'walk' },
    )
    appended++
    await waitUntil(() => seen.length === appended)
  }

  // The first ones are looked for.
  await waitUntil(async () => {
    await append()
    return !watched.labels.some(label => /^events\.(settle|read)/.test(label))
  })

  const read = await store.events.readAll().toArray()
  expect(seen).toEqual(read)
  expect(JSON.stringify(seen.at(-1))).toBe(JSON.stringify(read.at(-1)))
  expect(Object.keys(seen.at(-1)!.data as object)).toContain('__proto__')
})

if (onServer)
  test('beyond a position that another process has drawn nothing is taken before that is settled', async () => {
    const { store, sibling } = await openShop()
    const other = await sibling()
    const seen = await follow(store)
    await store.events.append('order-1', placed(1))
    await waitUntil(() => seen.length === 1)

    await other.transaction(async tx => {
      await other.events.append('order-2', placed(2), { tx })
      for (let total = 3; total < 6; total++) await store.events.append('order-3', placed(total))
      // Long enough for a follower that takes what it is told of.
      for (let turn = 0; turn < 50; turn++) await store.events.settled()
      expect(seen).toHaveLength(1)
    })
    await waitUntil(() => seen.length === 5)

    expect(seen.map(({ data }) => (data as { total: number }).total)).toEqual([1, 2, 3, 4, 5])
  })

test('two processes append at once: each event comes once, in the order of positions', async () => {
  const { store, sibling } = await openShop()
  const other = await sibling()
  const seen = await follow(store)

  await Promise.all(
    [store, other].flatMap((each, at) =>
      Array.from({ length: 8 }, async (_, caller) => {
        for (let total = 0; total < 15; total++) await each.events.append(`order-${at}-${caller}`, placed(total))
      }),
    ),
  )
  await waitUntil(() => seen.length >= 240)

  expect(seen).toEqual(await store.events.readAll().toArray())
})
