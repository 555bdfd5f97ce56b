import { expect, test } from 'vitest'
import type { Store } from '../../src/store.ts'
import type { RunningSubscription } from '../../src/subscriptions/consume.ts'
import { partitionOf } from '../../src/subscriptions/hash.ts'
import { openShop, outcome, paid, placed, type ShopMap, shipped, take } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

test('RB-72: a consumer that takes over continues at the stored checkpoint', async () => {
  const { store, sibling } = await openShop()
  const standby = await sibling()
  await store.events.append('order-1', [placed(), paid])
  const first: number[] = []
  const second: number[] = []
  const holder = store.subscribe('mailer', { onEvent: event => void first.push(event.version) })
  await waitUntil(() => first.length === 2)
  await using _next = standby.subscribe('mailer', { onEvent: event => void second.push(event.version) })
  await waitUntil(async () => (await store.subscriptions.status('mailer')).lag === 0)

  await holder.stop()
  await store.events.append('order-1', shipped())

  await waitUntil(() => second.length > 0)
  expect(first).toEqual([1, 2])
  expect(second).toEqual([3])
})

test('a killed consumer is replaced by another when its lease has expired', async () => {
  const { store, query } = await openShop()
  await store.events.append('order-1', [placed(), paid])
  await store.subscriptions.create('mailer')
  await query(`update ~consumers set owner = 'killed', fence = 7, lease_until = now() + interval '400 milliseconds'`)

  const seen = await take(store.subscribe('mailer', { leaseMs: 300 }), 1)

  expect(seen[0]).toMatchObject({ version: 1 })
})

test('partitions are shared by the consumers of a group, and the order of each stream is kept', async () => {
  const { store, sibling } = await openShop()
  const other = await sibling()
  const seen: Seen = []
  const workers = [work(store, seen, 'a', { partitions: 6 }), work(other, seen, 'b', { partitions: 6 })]
  await waitUntil(async () => {
    const { partitions } = await store.subscriptions.status('mailer', 'workers')
    const owners = partitions.map(each => each.owner)
    const shares = [...new Set(owners)].map(owner => owners.filter(each => each === owner).length)
    return !owners.includes(undefined) && shares.join() === '3,3'
  })

  await appendOrders(store, 24, 4)
  await waitUntil(async () => (await store.subscriptions.status('mailer', 'workers')).lag === 0)
  await Promise.all(workers.map(worker => worker.stop()))

  expect(seen).toHaveLength(96)
  expect(new Set(seen.map(each => each.by))).toEqual(new Set(['a', 'b']))
  for (const stream of new Set(seen.map(each => each.stream))) {
    const ofStream = seen.filter(each => each.stream === stream)
    expect(ofStream.map(each => each.version)).toEqual([1, 2, 3, 4])
    expect(new Set(ofStream.map(each => each.by)).size).toBe(1)
  }
})

test('a key function keeps the events of one key in order, whatever their stream', async () => {
  const { store } = await openShop()
  const seen: { total: number; stream: string }[] = []
  for (let n = 0; n < 20; n++) await store.events.append(`order-${n}`, placed(n % 2))

  await using _worker = store.subscribe('mailer', {
    types: ['OrderPlaced'],
    partitions: 3,
    partitionBy: event => `customer ${event.data.total}`,
    concurrency: 4,
    onEvent: event => void seen.push({ total: event.data.total, stream: event.stream }),
  })
  await waitUntil(async () => (await store.subscriptions.status('mailer')).lag === 0)

  for (const total of [0, 1]) {
    const streams = seen.filter(each => each.total === total).map(each => Number(each.stream.slice(6)))
    expect(streams).toEqual([...streams].sort((a, b) => a - b))
    expect(streams).toHaveLength(10)
  }
})

test('concurrent calls never have the same key', async () => {
  const { store } = await openShop()
  await appendOrders(store, 5, 4)
  const running = new Set<string>()
  const faults: string[] = []
  let most = 0

  await using _worker = store.subscribe('mailer', {
    concurrency: 3,
    async onEvent({ stream }) {
      if (running.has(stream)) faults.push(stream)
      running.add(stream)
      most = Math.max(most, running.size)
      await new Promise(setImmediate)
      await new Promise(setImmediate)
      running.delete(stream)
    },
  })
  await waitUntil(async () => (await store.subscriptions.status('mailer')).lag === 0)

  expect(faults).toEqual([])
  expect(most).toBe(3)
})

test('a key belongs to the same partition forever', () => {
  expect(['', 'order-1', 'order-2', 'Straße 🛒'].map(key => partitionOf(key, 16))).toEqual([11, 12, 0, 8])
  const counts = Array.from({ length: 8 }, () => 0)
  for (let n = 0; n < 8000; n++) counts[partitionOf(`order-${n}`, 8)]!++
  for (const count of counts) expect(Math.abs(count - 1000)).toBeLessThan(150)
})

test('the number of partitions changes at one position, so that nothing is lost, repeated or reordered', async () => {
  const { store, sibling } = await openShop()
  const operator = await sibling()
  const seen: Seen = []
  const worker = work(store, seen, 'a', { partitions: 2 })
  await appendOrders(store, 10, 2)
  await waitUntil(async () => (await store.subscriptions.status('mailer', 'workers')).lag === 0)

  const changing = operator.subscriptions.repartition('mailer', 'workers', 5)
  await appendOrders(operator, 10, 2)
  await changing
  await waitUntil(async () => {
    const { lag, partitions } = await store.subscriptions.status('mailer', 'workers')
    return lag === 0 && partitions.length === 5
  })
  await worker.stop()

  expect(seen).toHaveLength(40)
  for (let n = 0; n < 10; n++) {
    const versions = seen.filter(each => each.stream === `order-${n}`).map(each => each.version)
    expect(versions).toEqual([1, 2, 3, 4])
  }
})

test('partitions that are not brought to one position are not changed, and continue as before', async () => {
  const { store, query } = await openShop()
  const { position } = await store.events.append('order-1', [placed(), paid])
  await store.subscriptions.create('mailer', { partitions: 2 })
  await query(`update ~consumers set checkpoint = $1 where name like '%#1'`, [position])

  const { error } = await outcome(store.subscriptions.repartition('mailer', 'default', 3, { timeoutMs: 50 }))
  const { partitions } = await store.subscriptions.status('mailer')
  await take(store.subscribe('mailer', { partitions: 2 }), partitionOf('order-1', 2) === 0 ? 2 : 0)

  expect(error).toMatchObject({ code: 'timed_out' })
  expect(partitions).toHaveLength(2)
})

test('another number of partitions, or another partitioning, is refused', async () => {
  const { store } = await openShop()
  await store.subscriptions.create('mailer', { partitions: 2 })

  const more = await outcome(take(store.subscribe('mailer', { partitions: 3 }), 1))
  const other = await outcome(take(store.subscribe('mailer', { partitions: 2, partitionBy: e => e.type }), 1))

  expect(more.error).toMatchObject({ code: 'subscription_mismatch', what: 'partitions', stored: 2, given: 3 })
  expect(other.error).toMatchObject({ code: 'subscription_mismatch', what: 'partitionBy' })
})

test('groups with similar names have separate rows', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', placed())

  await take(store.subscribe('a', { group: 'b/c' }), 1)
  await take(store.subscribe('a/b', { group: 'c' }), 1)
  await take(store.subscribe('a', { group: 'b', partitions: 2 }), 1)
  await take(store.subscribe('a', { group: 'b#0' }), 1)

  const listed = await store.subscriptions.list()
  expect(listed.map(each => [each.name, each.groups.toSorted()])).toEqual([
    ['a', ['b', 'b#0', 'b/c']],
    ['a/b', ['c']],
  ])
})

type Seen = { by: string; stream: string; version: number }[]

function work(store: Store<ShopMap>, seen: Seen, by: string, options: { partitions: number }): RunningSubscription {
  return store.subscribe('mailer', {
    group: 'workers',
    ...options,
    onEvent: ({ stream, version }) => void seen.push({ by, stream, version }),
  })
}

async function appendOrders(store: Store<ShopMap>, streams: number, events: number): Promise<void> {
  const appends = Array.from({ length: streams }, (_, n) =>
    store.events.append(
      `order-${n}`,
      Array.from({ length: events }, () => placed(n)),
    ),
  )
  await Promise.all(appends)
}
