import { expect, test } from 'vitest'
import { defineAggregate, defineClassAggregate } from '../../src/aggregates/aggregate.ts'
import { writeSnapshots } from '../../src/aggregates/snapshot.ts'
import type { ForeignTransaction } from '../../src/database/transaction.ts'
import { defineEvents } from '../../src/events/definition.ts'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import { openConsumerParts } from '../support/consumer-parts.ts'
import { connect, onServer, openShop, outcome, paid, placed, type Shop, shipped } from '../support/shop.ts'
import { KeptOrder, listeningDatabase, OrderClass, orderDecider, orders } from './orders.ts'

interface SnapshotRow {
  stream: string
  version: number
  state_version: number
  body: unknown
}

function snapshotsIn({ query }: Shop): Promise<SnapshotRow[]> {
  return query<SnapshotRow>(
    'select stream, version::integer, state_version, body from ~snapshots order by stream, state_version',
  )
}

test('RB-64: only a commit that reaches or passes a multiple of N writes a snapshot', async () => {
  const shop = await openShop()
  const repository = shop.store.aggregates(orders({ every: 3 }))
  const versions: number[][] = []

  for (const count of [2, 2, 1, 1, 7]) {
    await repository.commit(
      'order-1',
      Array.from({ length: count }, () => placed(1)),
    )
    versions.push((await snapshotsIn(shop)).map(({ version }) => version))
  }

  // Versions 2, 4, 5, 6 and 13.
  expect(versions).toEqual([[], [4], [4], [6], [13]])
  expect(await snapshotsIn(shop)).toEqual([
    { stream: 'order-1', version: 13, state_version: 1, body: { status: 'placed', total: 13, parcels: [] } },
  ])
})

test('a load reads the snapshot and the tail with one query, and folds only the tail', async () => {
  const { database, labels } = await listeningDatabase()
  const { store } = await openShop({ database })
  const folded: number[] = []
  const Counted = defineAggregate('order', {
    ...orderDecider,
    evolve(order, event) {
      folded.push(event.type === 'OrderPlaced' ? event.data.total : 0)
      return orderDecider.evolve(order, event)
    },
    snapshots: { every: 4 },
    cacheSize: 0,
  })
  const repository = store.aggregates(Counted)
  await repository.commit('order-1', [placed(1), placed(2), placed(3), placed(4)])
  await repository.commit('order-1', [placed(5), placed(6)])
  folded.length = 0
  labels.length = 0
  const { events_read_total: before } = store.metrics()

  const order = await repository.load('order-1')

  expect(labels).toEqual(['aggregates.load'])
  expect(folded).toEqual([5, 6])
  expect(store.metrics().events_read_total - before).toBe(2)
  expect(order).toMatchObject({ version: 6, state: { total: 21 } })
})

test('RB-63: with a snapshot at the head nothing is folded, and the version is right', async () => {
  const { store } = await openShop()
  const repository = store.aggregates(orders({ every: 2 }))
  await repository.commit('order-1', [placed(1), placed(2)])
  const { events_read_total: before } = store.metrics()

  const order = await repository.load('order-1')

  expect(order).toMatchObject({ version: 2, state: { total: 3 } })
  expect(store.metrics().events_read_total).toBe(before)
  order.decide({ type: 'Pay' })
  expect(await repository.commit(order)).toMatchObject({ version: 3 })
})

test('RB-63: under concurrent writers every snapshot equals the fold of the events up to its version', async () => {
  const shop = await openShop()
  const stores = [shop.store, await shop.sibling(), await shop.sibling()]
  const seen: SnapshotRow[] = []

  await Promise.all(
    stores.map(async (store, n) => {
      const repository = store.aggregates(orders({ every: 2 }))
      for (let i = 0; i < 8; i++) {
        await repository.commit('order-1', placed(1 + n * 100 + i), { retries: 1000 })
        seen.push(...(await snapshotsIn(shop)))
      }
    }),
  )

  const events = await shop.store.events.read('order-1').toArray()
  const bodies = events.map((_, at) => events.slice(0, at + 1).reduce(orderDecider.evolve, orderDecider.initial()))
  expect(events).toHaveLength(24)
  for (const { version, body } of seen) expect(body).toEqual(bodies[version - 1])
  expect((await snapshotsIn(shop)).map(({ version }) => version)).toEqual([24])
  expect(await shop.store.aggregates(orders()).fetchLatest('order-1')).toEqual(bodies[23])
})

test('RB-63: a newer snapshot is never replaced by an older one', async () => {
  const shop = await openShop()
  const { log } = openConsumerParts(shop)
  const snapshot = (version: number) => ({
    stream: 'order-1',
    version,
    eventId: log.ids.next(),
    text: `{"v":${version}}`,
  })
  const write = (version: number) => writeSnapshots(log, shop.database, orders(), [snapshot(version)])

  const written = [await write(4), await write(2), await write(4), await write(5)]

  expect(written).toEqual([1, 0, 0, 1])
  expect(await snapshotsIn(shop)).toEqual([{ stream: 'order-1', version: 5, state_version: 1, body: { v: 5 } }])
})

test('a snapshot exists if, and only if, its events do', async () => {
  const shop = await openShop()
  const repository = shop.store.aggregates(orders({ every: 1 }))
  const order = await repository.load('order-1')
  order.decide({ type: 'Place', total: 1 })
  await shop.store.events.append('order-1', placed(2))

  const conflict = await outcome(repository.commit(order))
  const failed = await outcome(
    shop.store.transaction(async tx => {
      await repository.handle('order-1', { type: 'Place', total: 3 }, { tx })
      throw new Error('changed my mind')
    }),
  )

  expect(conflict.error).toMatchObject({ code: 'version_conflict' })
  expect(failed.error).toMatchObject({ message: 'changed my mind' })
  expect(await snapshotsIn(shop)).toEqual([])
  await shop.store.transaction(tx => repository.handle('order-1', { type: 'Place', total: 3 }, { tx }))
  expect(await snapshotsIn(shop)).toMatchObject([{ version: 2, body: { total: 5 } }])
})

test('a snapshot and an inline projection are written together, or neither is', async () => {
  const shop = await openShop()
  const totals = defineDocumentProjection('totals', {
    initial: () => ({ total: 0 }),
    evolve: {
      OrderPlaced(document, { data }) {
        const { total } = data as { total: number }
        if (total < 0) throw new Error('negative')
        return { total: document.total + total }
      },
    },
  })
  await shop.store.projections.register({ ...totals, lifecycle: 'inline' })
  const repository = shop.store.aggregates(orders({ every: 1 }))

  await repository.handle('order-1', { type: 'Place', total: 1 })
  const { error } = await outcome(repository.handle('order-1', { type: 'Place', total: -1 }))

  expect(error).toMatchObject({ code: 'inline_projection_failed' })
  expect((await shop.store.documents(totals).get('order-1'))?.data).toEqual({ total: 1 })
  expect(await snapshotsIn(shop)).toMatchObject([{ version: 1, body: { total: 1 } }])
})

test('commits that write snapshots and those that do not keep their order in one stream', async () => {
  const { store } = await openShop()
  const repository = store.aggregates(orders({ every: 2 }))
  const order = await repository.load('order-1')
  const commits = []

  for (let total = 1; total <= 5; total++) {
    order.decide({ type: 'Place', total })
    commits.push(await repository.commit(order))
  }

  expect(commits.map(({ version }) => version)).toEqual([1, 2, 3, 4, 5])
  expect(await repository.load('order-1', { version: 3 })).toMatchObject({ state: { total: 6 } })
})

test('snapshots of another state version are not used, and are deleted when a newer one is written', async () => {
  const shop = await openShop()
  await shop.store.aggregates(orders({ every: 2 })).commit('order-1', [placed(1), placed(2)])
  await shop.query(`update ~snapshots set body = '{"status":"placed","total":1000,"parcels":[]}'`)
  const changed = shop.store.aggregates(orders({ every: 2, stateVersion: 2 }))

  const before = await changed.fetchLatest('order-1')
  await changed.commit('order-1', [placed(3), placed(4)])

  expect(before).toMatchObject({ total: 3 })
  expect(await snapshotsIn(shop)).toMatchObject([{ state_version: 2, version: 4, body: { total: 10 } }])
})

test('a release with the old state version keeps working next to the new one', async () => {
  const shop = await openShop()
  const [old, changed] = [1, 2].map(stateVersion => shop.store.aggregates(orders({ every: 1, stateVersion })))
  await changed!.commit('order-1', placed(1))

  await old!.commit('order-1', placed(2))

  expect(await snapshotsIn(shop)).toMatchObject([
    { state_version: 1, version: 2 },
    { state_version: 2, version: 1 },
  ])
  expect(await changed!.fetchLatest('order-1')).toEqual(await old!.fetchLatest('order-1'))
})

test('RB-61: a class has snapshots only if it can be hydrated, and loads as an instance of itself', async () => {
  const shop = await openShop()
  const repository = shop.store.aggregates(
    defineClassAggregate('order', KeptOrder, { snapshots: { every: 2 }, cacheSize: 0 }),
  )

  await repository.commit('order-1', [placed(5), shipped('a')])
  await repository.commit('order-1', shipped('b'))
  const state = await repository.fetchLatest('order-1')

  expect(await snapshotsIn(shop)).toMatchObject([{ version: 2, body: [5, 'a'] }])
  expect(state).toBeInstanceOf(KeptOrder)
  expect(state).toMatchObject({ total: 5, parcels: ['a', 'b'] })
  expect(() => defineClassAggregate('order', OrderClass, { snapshots: { every: 2 } })).toThrow('snapshot and hydrate')
  expect(() => shop.store.snapshots(defineClassAggregate('order', OrderClass))).toThrow(
    'no snapshots in the background',
  )
})

test('RB-61: a snapshot that cannot be read is ignored, and the stream is folded', async () => {
  const warned: string[] = []
  const logger = { debug() {}, info() {}, warn: (_: object, text: string) => void warned.push(text), error() {} }
  const shop = await openShop({ logger })
  const Broken = defineAggregate('order', {
    ...orderDecider,
    snapshots: { every: 2 },
    cacheSize: 0,
    toSnapshot: order => order,
    fromSnapshot() {
      throw new Error('of another time')
    },
  })
  const repository = shop.store.aggregates(Broken)
  await repository.commit('order-1', [placed(1), placed(2), placed(3)])

  const state = await repository.fetchLatest('order-1')

  expect(await snapshotsIn(shop)).toHaveLength(1)
  expect(state).toMatchObject({ total: 6 })
  expect(warned).toEqual(['A snapshot could not be read. The stream is folded from its first event.'])
})

test('a state that JSON would change is not stored as a snapshot: the commit succeeds without it and a warning is logged', async () => {
  const warned: object[] = []
  const logger = { debug() {}, info() {}, warn: (fields: object) => void warned.push(fields), error() {} }
  const shop = await openShop({ logger })
  for (const value of [new Date(0), new Map(), Number.NaN, 1n, { toJSON: () => 1 }, new (class Money {})()]) {
    const Vault = defineAggregate('vault', {
      initial: (): { held: { value: unknown } } => ({ held: { value: null } }),
      evolve: { Held: (_, event) => ({ held: { value: event && value } }) },
      decide: (_: 'hold') => ({ type: 'Held', data: {} }),
      snapshots: { every: 1 },
    })
    const repository = shop.store.aggregates(Vault)
    const stream = `vault-${warned.length}`

    await repository.handle(stream, 'hold')

    expect(warned.at(-1)).toMatchObject({
      stream,
      error: { code: 'snapshot_refused', path: expect.stringContaining('state.held.value') },
    })
    expect((await repository.fetchLatest(stream))?.held.value).toBe(value)
  }
  expect(await snapshotsIn(shop)).toEqual([])
  expect(shop.store.metrics().snapshots_refused_total).toBe(6)
})

test('a state that the database would give back far larger than it was sent is not stored as a snapshot', async () => {
  const warned: object[] = []
  const logger = { debug() {}, info() {}, warn: (fields: object) => void warned.push(fields), error() {} }
  const shop = await openShop({ logger })
  const Scale = defineAggregate('scale', {
    initial: (): { weights: number[] } => ({ weights: [] }),
    evolve: { Weighed: () => ({ weights: Array.from({ length: 60_000 }, () => 1e308) }) },
    decide: (_: 'weigh') => ({ type: 'Weighed', data: {} }),
    snapshots: { every: 1 },
  })

  await shop.store.aggregates(Scale).handle('scale-1', 'weigh')

  expect(warned.at(-1)).toMatchObject({ stream: 'scale-1', error: { code: 'snapshot_refused' } })
  expect(await snapshotsIn(shop)).toEqual([])
})

test('a state loaded from a snapshot keeps the order of its keys', async () => {
  const { store } = await openShop()
  const Bag = defineAggregate('bag', {
    events: defineEvents<{ Added: { key: string } }>(),
    initial: (): Record<string, number> => ({}),
    evolve: (state, event) => ({ ...state, [event.data.key]: 1 }),
    decide: (key: string) => ({ type: 'Added', data: { key } }),
    snapshots: { every: 3 },
    cacheSize: 0,
  })
  const repository = store.aggregates(Bag)

  for (const key of ['zebra', 'b', 'ant']) await repository.handle('bag-1', key)

  expect(Object.keys((await repository.fetchLatest('bag-1'))!)).toEqual(['zebra', 'b', 'ant'])
})

test('a stream of many pages folds to the same state with and without a snapshot', async () => {
  const { store } = await openShop()
  const size = 2 * (store.engine === 'pglite' ? 500 : 1000) + 3
  await store.events.append(
    'order-1',
    Array.from({ length: size }, () => placed(1)),
  )
  const repository = store.aggregates(orders({ every: size + 2 }))

  const whole = await repository.load('order-1')
  await repository.commit('order-1', [placed(1), placed(1), paid])

  expect(whole).toMatchObject({ version: size, state: { total: size } })
  expect(await repository.load('order-1')).toMatchObject({ version: size + 3, state: { total: size + 2 } })
  expect(await repository.load('order-1', { version: size - 1 })).toMatchObject({ state: { total: size - 1 } })
})

if (onServer) {
  test('a snapshot is also written in a transaction of the caller', async () => {
    const shop = await openShop()
    const client = await connect()
    const repository = shop.store.aggregates(orders({ every: 1 }))
    await client.query('begin')

    await repository.handle('order-1', { type: 'Place', total: 1 }, { tx: client as unknown as ForeignTransaction })
    const before = await snapshotsIn(shop)
    await client.query('commit')

    expect(before).toEqual([])
    expect(await snapshotsIn(shop)).toMatchObject([{ version: 1, body: { total: 1 } }])
  })
}
