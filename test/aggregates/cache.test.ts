import { expect, test } from 'vitest'
import { defineAggregate, defineClassAggregate } from '../../src/aggregates/aggregate.ts'
import { StateCache } from '../../src/aggregates/cache.ts'
import { openShop, paid, placed } from '../support/shop.ts'
import { listeningDatabase, Order, OrderClass, orderDecider, orders } from './orders.ts'

test('a cached state saves all reads but the tail, which is always read', async () => {
  const { database, labels } = await listeningDatabase()
  const { store, sibling } = await openShop({ database })
  const repository = store.aggregates(orders({ cacheSize: 10 }))
  await repository.commit('order-1', [placed(1), placed(2), placed(3)])
  await (await sibling()).events.append('order-1', paid)
  labels.length = 0
  const { events_read_total: before } = store.metrics()

  const order = await repository.load('order-1')

  expect(labels).toEqual(['aggregates.tail'])
  expect(order).toMatchObject({ version: 4, state: { status: 'paid', total: 6 } })
  // The last cached event, and the one after it.
  expect(store.metrics().events_read_total - before).toBe(2)
})

test('a cached state that no longer matches the stream is dropped', async () => {
  const { store, query } = await openShop()
  const repository = store.aggregates(orders({ cacheSize: 10 }))
  await repository.commit('order-1', [placed(1), placed(2)])

  await query('delete from ~events where version = 2')
  await query('update ~streams set version = 1')
  const shorter = await repository.load('order-1')
  await store.events.append('order-1', placed(7))
  const other = await repository.load('order-1')

  expect(shorter).toMatchObject({ version: 1, state: { total: 1 } })
  expect(other).toMatchObject({ version: 2, state: { total: 8 } })
})

test('changes that a caller makes to a loaded state do not reach other callers', async () => {
  const { store } = await openShop()
  const Mutable = defineAggregate('order', {
    ...orderDecider,
    evolve(order, event) {
      if (event.type === 'OrderShipped') order.parcels.push(event.data.parcel)
      return event.type === 'OrderPlaced' ? { ...order, status: 'paid', total: event.data.total } : order
    },
  })
  const repository = store.aggregates(Mutable)
  await repository.commit('order-1', placed(1))
  const order = await repository.load('order-1')

  order.decide({ type: 'Ship', parcels: ['a', 'b'] })
  order.state.total = 1000

  expect(await repository.fetchLatest('order-1')).toEqual({ status: 'paid', total: 1, parcels: [] })
})

test('a state seen in a transaction that was rolled back is not cached', async () => {
  const { store } = await openShop()
  const repository = store.aggregates(orders({ cacheSize: 10 }))
  await repository.commit('order-1', placed(1))

  const failed = store.transaction(async tx => {
    await repository.handle('order-1', { type: 'Place', total: 100 }, { tx })
    expect(await repository.fetchLatest('order-1', { tx })).toMatchObject({ total: 101 })
    throw new Error('changed my mind')
  })

  await expect(failed).rejects.toThrow('changed my mind')
  expect(await repository.fetchLatest('order-1')).toMatchObject({ total: 1 })
})

test('RB-82: two stores never see each other’s states, even if their aggregates are equal', async () => {
  const [one, two] = [await openShop(), await openShop()]
  await one.store.aggregates(Order).commit('order-1', placed(1))
  await two.store.aggregates(Order).commit('order-1', [placed(2), placed(3)])

  expect(await one.store.aggregates(Order).load('order-1')).toMatchObject({ version: 1, state: { total: 1 } })
  expect(await two.store.aggregates(Order).load('order-1')).toMatchObject({ version: 2, state: { total: 5 } })
})

test('a class without hydrate is folded again on each load', async () => {
  const { store } = await openShop()
  const repository = store.aggregates(defineClassAggregate('order', OrderClass))
  await repository.commit('order-1', placed(1))

  const [one, two] = [await repository.fetchLatest('order-1'), await repository.fetchLatest('order-1')]

  expect(one).toMatchObject({ total: 1 })
  expect(two).not.toBe(one)
})

test('the least recently used states are evicted first', () => {
  const cache = new StateCache(2)
  const state = (version: number) => ({ version, eventId: 'id', text: '{}' })
  cache.put('order-1', state(1))
  cache.put('order-2', state(1))
  cache.get('order-1')

  cache.put('order-3', state(1))
  cache.put('order-3', state(3))
  cache.put('order-3', state(2))

  expect(['order-1', 'order-2', 'order-3'].map(stream => cache.get(stream)?.version)).toEqual([1, undefined, 3])
})
