import { expect, test } from 'vitest'
import { defineAggregate } from '../../src/aggregates/aggregate.ts'
import { openShop, placed, type Shop, shipped } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'
import { orderDecider, orders } from './orders.ts'

interface SnapshotRow {
  stream: string
  version: number
  total: number
}

function snapshotsIn({ query }: Shop): Promise<SnapshotRow[]> {
  return query<SnapshotRow>(
    "select stream, version::integer, (body ->> 'total')::integer as total from ~snapshots order by stream",
  )
}

const following = (options: { every: number; batchSize?: number }) => orders({ ...options, lifecycle: 'async' })

const many = (count: number) => Array.from({ length: count }, () => placed(1))

test('the snapshotter writes snapshots of streams that are far enough ahead, and of no others', async () => {
  const shop = await openShop()
  const snapshotter = shop.store.snapshots(following({ every: 3, batchSize: 4 }))
  for (const [stream, count] of [
    ['order-1', 3],
    ['order-2', 2],
    ['order-3', 7],
    ['cart-1', 9],
  ] as const)
    await shop.store.events.append(stream, many(count))
  const before = await snapshotter.metrics()

  const written = await snapshotter.runUntilIdle()

  expect(before).toEqual({ candidates: 2, maxGap: 7, written: 0 })
  expect(written).toBe(2)
  expect(await snapshotsIn(shop)).toEqual([
    { stream: 'order-1', version: 3, total: 3 },
    { stream: 'order-3', version: 7, total: 7 },
  ])
  expect(await snapshotter.metrics()).toEqual({ candidates: 0, maxGap: 2, written: 2 })
  expect(await shop.store.aggregates(orders()).load('order-3')).toMatchObject({ version: 7, state: { total: 7 } })
})

test('runOnce does one batch, and says what it did', async () => {
  const { store } = await openShop()
  const snapshotter = store.snapshots(following({ every: 2, batchSize: 2 }))
  await store.events.appendMany([
    { stream: 'order-1', events: many(2) },
    { stream: 'order-2', events: many(2) },
  ])

  const ticks = [await snapshotter.runOnce(), await snapshotter.runOnce(), await snapshotter.runOnce()]

  expect(ticks).toMatchObject([
    { result: 'processed', count: 2, written: 1 },
    { result: 'processed', count: 2, written: 1 },
    { result: 'idle', count: 0, written: 0 },
  ])
})

test('it continues from the existing snapshot as the stream grows', async () => {
  const shop = await openShop()
  const snapshotter = shop.store.snapshots(following({ every: 2 }))
  await shop.store.events.append('order-1', many(2))
  await snapshotter.runUntilIdle()
  const { events_read_total: before } = shop.store.metrics()

  await shop.store.events.append('order-1', many(1))
  const none = await snapshotter.runUntilIdle()
  await shop.store.events.append('order-1', many(1))
  const one = await snapshotter.runUntilIdle()

  expect([none, one]).toEqual([0, 1])
  expect(await snapshotsIn(shop)).toEqual([{ stream: 'order-1', version: 4, total: 4 }])
  // The two events as a consumer, and the tail of two: not the whole stream.
  expect(shop.store.metrics().events_read_total - before).toBe(4)
})

test('RB-62: a stream that cannot be folded gets no snapshot, and the others do', async () => {
  const shop = await openShop()
  const Picky = defineAggregate('order', {
    ...orderDecider,
    evolve(order, event) {
      if (event.type === 'OrderShipped') throw new Error('no parcels here')
      return orderDecider.evolve(order, event)
    },
    snapshots: { every: 2, lifecycle: 'async' },
  })
  const snapshotter = shop.store.snapshots(Picky)
  for (const [stream, events] of [
    ['order-1', many(2)],
    ['order-2', [...many(2), shipped()]],
    ['order-3', many(2)],
  ] as const)
    await shop.store.events.append(stream, events)

  const written = await snapshotter.runUntilIdle()

  expect(written).toBe(2)
  expect((await snapshotsIn(shop)).map(({ stream }) => stream)).toEqual(['order-1', 'order-3'])
  expect(await snapshotter.metrics()).toMatchObject({ candidates: 1, maxGap: 3 })
})

test('RB-65: it ends even if no snapshot can be written', async () => {
  const { store } = await openShop()
  const Never = defineAggregate('order', {
    ...orderDecider,
    toSnapshot() {
      throw new Error('never')
    },
    fromSnapshot: () => orderDecider.initial(),
    snapshots: { every: 1, lifecycle: 'async' },
  })
  const snapshotter = store.snapshots(Never)
  await store.events.append('order-1', many(3))

  const written = await snapshotter.runUntilIdle()
  const again = await snapshotter.runOnce()

  expect(written).toBe(0)
  expect(again).toMatchObject({ result: 'idle', written: 0 })
})

test('RB-65: the snapshots of a store are in its schema', async () => {
  const [one, two] = [await openShop(), await openShop()]
  for (const { store } of [one, two]) await store.events.append('order-1', many(2))

  await one.store.snapshots(following({ every: 1 })).runUntilIdle()

  expect(await snapshotsIn(one)).toHaveLength(1)
  expect(await snapshotsIn(two)).toEqual([])
})

test('an archived stream gets no snapshot', async () => {
  const shop = await openShop()
  const snapshotter = shop.store.snapshots(following({ every: 1 }))
  await shop.store.events.append('order-1', many(2))
  await shop.store.streams.archive('order-1')

  const written = await snapshotter.runUntilIdle()

  expect(written).toBe(0)
  expect(await snapshotter.metrics()).toMatchObject({ candidates: 0 })
})

test('a runner runs it with the other consumers', async () => {
  const shop = await openShop()
  await shop.store.register(following({ every: 2 }))
  await using _runner = await shop.store.start()

  await shop.store.events.append('order-1', many(2))

  await waitUntil(async () => (await snapshotsIn(shop)).length === 1, { what: 'the snapshot', deadlineMs: 50_000 })
  expect(await snapshotsIn(shop)).toEqual([{ stream: 'order-1', version: 2, total: 2 }])
})

test('an aggregate has at most one snapshotter, until it is removed', async () => {
  const { store } = await openShop()
  const every100 = following({ every: 100 })
  await store.register(every100)
  const snapshotter = store.snapshots(every100)

  expect(snapshotter.name).toBe('snapshotter-order')
  await expect(store.register(following({ every: 100 }))).rejects.toMatchObject({ code: 'duplicate_consumer' })
  snapshotter.unregister()
  await store.register(following({ every: 100 }))
  expect(() => following({ every: 0 })).toThrow('every')
  expect(() => store.snapshots(orders({ every: 100 }))).toThrow(/no snapshots in the background/)
})

test('it returns to a stream that it has passed when its threshold is lowered', async () => {
  const shop = await openShop()
  await shop.store.events.append('order-1', many(3))
  await shop.store.events.append('order-2', many(6))
  await shop.store.snapshots(following({ every: 5 })).runUntilIdle()
  const before = await snapshotsIn(shop)

  const lowered = await shop.store.snapshots(following({ every: 3 })).runUntilIdle()
  const again = await shop.store.snapshots(following({ every: 3 })).runOnce()

  expect(before.map(row => row.stream)).toEqual(['order-2'])
  expect(lowered).toBe(1)
  expect(await snapshotsIn(shop)).toEqual([
    { stream: 'order-1', version: 3, total: 3 },
    { stream: 'order-2', version: 6, total: 6 },
  ])
  // It does so once.
  expect(again).toMatchObject({ result: 'idle', count: 0 })
})

test('it returns to the streams that it has passed when the version of the state is raised, also in a runner', async () => {
  const shop = await openShop()
  await shop.store.events.append('order-1', many(3))
  const of = (stateVersion: number) =>
    defineAggregate('order', { ...orderDecider, stateVersion, snapshots: { every: 2, lifecycle: 'async' } })
  await shop.store.snapshots(of(1)).runUntilIdle()

  await shop.store.register(of(2))
  await shop.store.start()
  const versions = 'select distinct state_version as v from ~snapshots order by v'
  await waitUntil(async () => (await shop.query<{ v: number }>(versions)).at(-1)?.v === 2)

  expect((await shop.store.snapshots(of(2)).metrics()).candidates).toBe(0)
})
