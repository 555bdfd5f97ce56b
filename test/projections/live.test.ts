import { expect, test } from 'vitest'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import type { Projection } from '../../src/projections/projection.ts'
import { openShop, paid, placed, shipped, shopEvents } from '../support/shop.ts'
import { orders, totals } from './read-models.ts'

const order = defineDocumentProjection('order', {
  lifecycle: 'live',
  events: shopEvents,
  initial: () => ({ total: 0, parcels: [] as string[] }),
  evolve: {
    OrderPlaced: (order, event) => ({ ...order, total: order.total + event.data.total }),
    OrderShipped: (order, event) => ({ ...order, parcels: [...order.parcels, event.data.parcel] }),
  },
})

test('a live projection is folded when it is read, and is never behind', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', [placed(1), paid, placed(2)])
  expect((await store.documents(order).get('order-1'))?.data).toEqual({ total: 3, parcels: [] })

  await store.events.append('order-1', shipped('parcel-1'))

  expect((await store.documents(order).get('order-1'))?.data).toEqual({ total: 3, parcels: ['parcel-1'] })
  expect((await store.documents(order).get('order-2'))?.data).toBeUndefined()
})

test('within a transaction it sees the events appended there', async () => {
  const { store } = await openShop()

  const seen = await store.transaction(async tx => {
    await store.events.append('order-1', placed(4), { tx })
    return store
      .documents(order)
      .get('order-1', { tx })
      .then(found => found?.data)
  })

  expect(seen?.total).toBe(4)
})

test('a document projection of one stream can also be live: it stores nothing then', async () => {
  const { store, query } = await openShop()
  await store.projections.register({ ...orders, lifecycle: 'live' })
  await store.events.append('order-1', [placed(10), paid])

  expect(await store.consumers.runUntilIdle()).toBe(0)

  expect((await store.documents(orders).get('order-1'))?.data).toEqual({ total: 10, note: null, isPaid: true })
  expect(await query(`select to_regclass('~orders') as found`)).toEqual([{ found: null }])
})

test('documents that are folded when they are read are read by id only', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', placed(1, { userId: 'ada' }))
  await store.events.append('order-2', placed(2))
  const live = store.documents(order)

  expect(await live.get('order-1')).toMatchObject({ id: 'order-1', version: 1, createdBy: 'ada' })
  expect([...(await live.getMany(['order-2', 'order-3', 'order-1'])).keys()]).toEqual(['order-2', 'order-1'])
  expect([await live.exists('order-1'), await live.exists('order-3')]).toEqual([true, false])
  expect(() => live.query()).toThrow(/read by id only/)
  await expect(live.count()).rejects.toThrow(/read by id only/)
})

test('a lifecycle that a projection cannot have is refused', async () => {
  const { store } = await openShop()

  const refused: Record<string, [Projection, RegExp]> = {
    'a projection in SQL that is live': [{ ...totals(), lifecycle: 'live' }, /is the fold of one stream/],
    'a lifecycle that does not exist': [{ ...totals(), lifecycle: 'daily' as never }, /has the lifecycle "daily"/],
    'a live one with a filter': [{ ...order, filter: { categories: ['order'] } }, /cannot be live: it has a filter/],
  }
  for (const [what, [projection, message]] of Object.entries(refused))
    expect(() => store.projections.register(projection), what).toThrow(message)
})
