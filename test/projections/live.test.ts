import { expect, test } from 'vitest'
import { liveProjection } from '../../src/projections/live.ts'
import { openShop, paid, placed, shipped, shopEvents } from '../support/shop.ts'
import { orders, totals } from './read-models.ts'

const order = liveProjection('order', {
  events: shopEvents,
  initial: () => ({ total: 0, parcels: [] as string[] }),
  on: {
    OrderPlaced: (order, event) => ({ ...order, total: order.total + event.data.total }),
    OrderShipped: (order, event) => ({ ...order, parcels: [...order.parcels, event.data.parcel] }),
  },
})

test('a live projection is folded when it is read, and is never behind', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', [placed(1), paid, placed(2)])
  expect(await store.projections.get(order, 'order-1')).toEqual({ total: 3, parcels: [] })

  await store.events.append('order-1', shipped('parcel-1'))

  expect(await store.projections.get(order, 'order-1')).toEqual({ total: 3, parcels: ['parcel-1'] })
  expect(await store.projections.get(order, 'order-2')).toBeUndefined()
})

test('within a transaction it sees the events appended there', async () => {
  const { store } = await openShop()

  const seen = await store.transaction(async tx => {
    await store.events.append('order-1', placed(4), { tx })
    return store.projections.get(order, 'order-1', { tx })
  })

  expect(seen?.total).toBe(4)
})

test('a document projection of one stream can also be live: it stores nothing then', async () => {
  const { store, query } = await openShop()
  await store.projections.register(orders, { lifecycle: 'live' })
  await store.events.append('order-1', [placed(10), paid])

  expect(await store.projections.runUntilIdle()).toBe(0)

  expect(await store.projections.get(orders, 'order-1')).toEqual({ total: 10, note: null, isPaid: true })
  expect(await query(`select to_regclass('~orders') as found`)).toEqual([{ found: null }])
})

test('invalid live projections are refused', async () => {
  const { store } = await openShop()

  expect(() => store.projections.register(totals(), { lifecycle: 'live' })).toThrow(/only the fold of one stream can/)
  expect(() => store.projections.register(order, { lifecycle: 'async' })).toThrow(/can only be live/)
  expect(() => store.projections.register(totals(), { lifecycle: 'daily' as never })).toThrow(/not daily/)
})
