import { expect, test } from 'vitest'
import { defineProjectedAggregate } from '../../src/aggregates/projected.ts'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import { specify } from '../../src/testing/testing.ts'
import { openShop, paid, placed, type ShopEvent, shipped, shopEvents } from '../support/shop.ts'
import { listeningDatabase } from './orders.ts'

interface Summary {
  total: number
  id: string
}

const summary = {
  initial: (id: string): Summary => ({ total: 0, id }),
  evolve: {
    OrderPlaced: (order: Summary, event: { data: { total: number } }): Summary => ({
      ...order,
      total: order.total + event.data.total,
    }),
    OrderShipped: () => null,
  },
}

const summaries = defineDocumentProjection('summaries', { events: shopEvents, ...summary })

function decide(command: 'add' | 'ship', order: Summary | null): ShopEvent {
  if (command === 'add') return { type: 'OrderPlaced', data: { total: 1 } }
  if (order === null) throw new Error('nothing to ship')
  return { type: 'OrderShipped', data: { parcel: 'a' } }
}

const Order = defineProjectedAggregate('order', { projection: summaries, decide })

test('a document that is behind is folded up to the head of its stream', async () => {
  const { store } = await openShop()
  const orders = store.aggregates(Order)
  await store.projections.register(summaries)
  const unsynced = await orders.load('order-1')
  await store.events.append('order-1', [placed(1), placed(2)])
  await store.consumers.runUntilIdle()
  await store.events.append('order-1', [placed(3), paid])

  const order = await orders.load('order-1')
  order.decide('add')
  await orders.commit(order)

  expect(unsynced).toMatchObject({ version: 0, state: null })
  expect((await store.documents(summaries).get('order-1'))?.data).toEqual({ total: 3, id: 'order-1' })
  expect(order).toMatchObject({ version: 5, state: { total: 7, id: 'order-1' } })
  expect(await orders.fetchLatest('order-1')).toEqual({ total: 7, id: 'order-1' })
})

test('events that the document already contains are not read again', async () => {
  const { database, labels } = await listeningDatabase()
  const { store } = await openShop({ database })
  const orders = store.aggregates(Order)
  await store.projections.register({ ...summaries, lifecycle: 'inline' })
  for (let n = 0; n < 3; n++) await orders.handle('order-1', 'add')
  labels.length = 0
  const { events_read_total: before } = store.metrics()

  const order = await orders.load('order-1')

  expect(order).toMatchObject({ version: 3, state: { total: 3 } })
  expect(labels).toEqual(['projections.stored', 'aggregates.load'])
  expect(store.metrics().events_read_total).toBe(before)
})

test('a live projection is folded from the beginning, and decisions are made on it like on any other', async () => {
  const { store } = await openShop()
  const Live = defineProjectedAggregate('order', {
    projection: defineDocumentProjection('live', { lifecycle: 'live', events: shopEvents, ...summary }),
    decide,
  })
  const orders = store.aggregates(Live)
  await store.events.append('order-1', [placed(5), paid])

  const { state, saved } = await orders.handle('order-1', 'add')

  expect(state).toEqual({ total: 6, id: 'order-1' })
  expect(saved.streams[0]!.version).toBe(3)
})

test('a deleted document is null', async () => {
  const { store } = await openShop()
  const orders = store.aggregates(Order)
  await store.projections.register(summaries)
  await store.events.append('order-1', [placed(1), shipped()])
  await store.consumers.runUntilIdle()

  expect(await orders.load('order-1')).toMatchObject({ version: 2, state: null })
  await expect(orders.handle('order-1', 'ship')).rejects.toThrow('nothing to ship')
  expect(await orders.load('order-1', { version: 1 })).toMatchObject({ state: { total: 1 } })
  specify(Order)
    .given([placed(1), shipped()])
    .when('ship')
    .expect(/nothing to ship/)
})

test('an archived stream is refused, and so is a projection of several streams', async () => {
  const { store } = await openShop()
  await store.projections.register(summaries)
  await store.events.append('order-1', placed(1))
  await store.consumers.runUntilIdle()
  await store.streams.archive('order-1')

  await expect(store.aggregates(Order).load('order-1')).rejects.toMatchObject({ code: 'stream_archived' })
  const many = defineDocumentProjection('many', { events: shopEvents, ...summary, identity: () => 'all' })
  expect(() => defineProjectedAggregate('order', { projection: many, decide })).toThrow('does not fold single streams')
  expect(() =>
    defineProjectedAggregate('order', { projection: summaries, decide, snapshots: { every: 2 } } as never),
  ).toThrow('has no option "snapshots"')
})
