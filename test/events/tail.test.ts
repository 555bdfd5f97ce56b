import { expect, test } from 'vitest'
import type { Database } from '../../src/database/database.ts'
import type { Statement } from '../../src/database/sql.ts'
import type { RecordedEvent } from '../../src/events/definition.ts'
import { openDatabase } from '../support/engines.ts'
import { onServer, openShop, outcome, paid, placed, type ShopMap, shipped, take } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

/** So long that events are found by notifications, not by polling. */
const never = 600_000

const names = (events: readonly RecordedEvent<ShopMap>[]): string[] =>
  events.map(event => `${event.stream}/${event.version}`)

test('a tail from the start delivers existing and new events', async () => {
  const { store } = await openShop({ pollMs: never })
  await store.events.append('order-1', [placed(), paid])

  const tailing = take(store.events.tail({ from: 'start' }), 4)
  await store.events.append('order-2', placed())
  await store.events.append('order-1', shipped())

  expect(names(await tailing)).toEqual(['order-1/1', 'order-1/2', 'order-2/1', 'order-1/3'])
})

test('a tail from a position delivers only events above it', async () => {
  const { store } = await openShop({ pollMs: never })
  const { position } = await store.events.append('order-1', [placed(), paid])

  const tailing = take(store.events.tail({ from: position }), 1)
  await store.events.append('order-2', placed())

  expect(names(await tailing)).toEqual(['order-2/1'])
})

test('a tail from now on, the default, delivers only new events', async () => {
  const { store } = await openShop({ pollMs: never })
  await store.events.append('order-1', [placed(), paid])
  const before = store.metrics().settles_total

  const tailing = take(store.events.tail(), 1)
  // The first query finds the current end, the second that there is nothing new.
  await waitUntil(() => store.metrics().settles_total >= before + 2)
  await store.events.append('order-2', placed())

  expect(names(await tailing)).toEqual(['order-2/1'])
})

test('a tail delivers each of many concurrent appends once, in the order of positions', async () => {
  const { store, sibling } = await openShop()
  const other = await sibling({ pollMs: 20 })
  const tailing = take(other.events.tail({ from: 'start' }), 300)
  const appending = Array.from({ length: 100 }, (_, n) =>
    (n % 2 === 0 ? store : other).events.append(`order-${n % 7}`, [placed(n), paid, shipped()]),
  )

  await Promise.all(appending)
  const positions = (await tailing).map(event => event.position)

  expect(new Set(positions).size).toBe(300)
  expect(positions).toEqual([...positions].sort((a, b) => (a < b ? -1 : 1)))
})

test('a tail with a filter delivers matching events, and two tails do not interfere', async () => {
  const { store } = await openShop({ pollMs: never })

  const paying = take(store.events.tail({ from: 'start', types: ['OrderPaid'] }), 2)
  const second = take(store.events.tail({ from: 'start', streams: ['order-2'] }), 2)
  const ordering = take(store.events.tail({ from: 'start', categories: ['order'], headers: { vip: true } }), 1)
  await store.events.append('order-1', [placed(), paid])
  await store.events.append('order-2', placed(5, { headers: { vip: true } }))
  await store.events.append('stock-1', paid)
  await store.events.append('order-2', shipped())

  expect(names(await paying)).toEqual(['order-1/2', 'stock-1/1'])
  expect(names(await second)).toEqual(['order-2/1', 'order-2/2'])
  expect(names(await ordering)).toEqual(['order-2/1'])
})

test('a tail includes archived streams, so that a slow reader misses nothing', async () => {
  const { store } = await openShop({ pollMs: never })
  await store.events.append('order-1', placed())
  await store.streams.archive('order-1')
  await store.events.append('order-2', placed())
  await store.streams.tombstone('order-2')

  const events = await take(store.events.tail({ from: 'start' }), 3)

  expect(events.map(event => event.type)).toEqual(['OrderPlaced', 'OrderPlaced', '$tombstone'])
})

test('a tail sees events committed in a transaction, also the tombstone of a stream', async () => {
  const { store } = await openShop({ pollMs: never })
  await store.events.append('order-1', placed())

  const tailing = take(store.events.tail({ from: 'start' }), 3)
  await store.transaction(async tx => {
    await store.events.append('order-2', placed(), { tx })
    await store.streams.tombstone('order-1', { tx })
  })

  expect(names(await tailing)).toEqual(['order-1/1', 'order-2/1', 'order-1/2'])
})

test('a tail that is left sends no more queries', async () => {
  const { store } = await openShop({ pollMs: 1 })
  await store.events.append('order-1', placed())

  await take(store.events.tail({ from: 'start' }), 1)
  const before = store.metrics().settles_total
  for (let n = 0; n < 5; n++) await store.events.append('order-1', placed(n))

  expect(store.metrics().settles_total).toBe(before)
})

test('a tail ends quietly with its signal, while it waits and before it begins, and other tails continue', async () => {
  const { store } = await openShop({ pollMs: never })
  const abort = new AbortController()
  const before = store.metrics().settles_total
  const aborted = outcome(take(store.events.tail({ from: 'start', signal: abort.signal }), 1))
  const other = take(store.events.tail({ from: 'start' }), 1)
  await waitUntil(() => store.metrics().settles_total > before)

  abort.abort('closing time')
  const late = outcome(take(store.events.tail({ signal: abort.signal }), 1))

  expect(await aborted).toEqual({ value: [] })
  expect(await late).toEqual({ value: [] })
  await store.events.append('order-1', placed())
  expect(await other).toHaveLength(1)
})

test('a tail from an invalid position is refused', async () => {
  const { store } = await openShop()

  for (const from of [5n, -1, 'yesterday']) {
    const { error } = await outcome(take(store.events.tail({ from: from as 'now' }), 1))

    expect(error).toMatchObject({ code: 'invalid_option', option: 'from' })
  }
})

test('a tail finds appends of another store without a notification, by polling', async () => {
  const { store, sibling } = await openShop({ pollMs: 20 })
  const other = await sibling()

  const tailing = take(store.events.tail({ from: 'start' }), 1)
  await other.events.append('order-1', placed())

  expect(names(await tailing)).toEqual(['order-1/1'])
})

if (onServer) {
  test('a tail is woken by appends of another process, and of a transaction of the user', async () => {
    const { store, sibling } = await openShop({ pollMs: never })
    const other = await sibling()
    const tailing = take(store.events.tail({ from: 'start' }), 2)

    await other.events.append('order-1', placed())
    await other.transaction(tx => other.events.append('order-1', paid, { tx }))

    expect(names(await tailing)).toEqual(['order-1/1', 'order-1/2'])
  })

  test('without a listener connection appends of another process are found by polling', async () => {
    const { store, sibling } = await openShop()
    const deaf = await sibling({ listen: false, pollMs: 20 })
    const tailing = take(deaf.events.tail({ from: 'start' }), 1)

    await store.events.append('order-1', placed())

    expect(names(await tailing)).toEqual(['order-1/1'])
  })

  test('a store on another channel receives only its own notifications, and still sees everything', async () => {
    const { store, sibling } = await openShop()
    const elsewhere = await sibling({ channel: 'the other channel', pollMs: 50 })
    const tailing = take(elsewhere.events.tail({ from: 'start' }), 2)

    await store.events.append('order-1', placed())
    await elsewhere.events.append('order-1', paid)

    expect(names(await tailing)).toEqual(['order-1/1', 'order-1/2'])
  })
}

test('a hundred tails of one process read a new event once', async () => {
  const shared = await openDatabase()
  const sent = new Map<string, number>()
  const counted = (statement: Statement): Statement => {
    sent.set(statement.label, (sent.get(statement.label) ?? 0) + 1)
    return statement
  }
  const database = {
    ...shared,
    run: ((statement: Statement) => shared.run(counted(statement))) as Database['run'],
    runArrays: (statement: Statement) => shared.runArrays(counted(statement)),
  }
  const { store } = await openShop({ pollMs: never, database })
  const tails = Array.from({ length: 100 }, (_, n) =>
    take(store.events.tail({ from: 'start', ...(n % 2 === 0 ? {} : { types: ['OrderPlaced'] as const }) }), 3),
  )

  await store.events.append('order-1', placed())
  await waitUntil(() => sent.size > 0)
  for (let n = 0; n < 2; n++) await store.events.append('order-1', placed())
  const seen = await Promise.all(tails)

  expect(new Set(seen.map(events => names(events).join())).size).toBe(1)
  const reads = [...sent].filter(([label]) => /^events\.(read|page|log)/.test(label))
  expect(
    reads.reduce((sum, [, count]) => sum + count, 0),
    JSON.stringify([...sent]),
  ).toBeLessThanOrEqual(8)
  expect([...sent.values()].reduce((sum, count) => sum + count, 0)).toBeLessThan(80)
})
