import { expect, test } from 'vitest'
import { type Order, orders } from '../projections/read-models.ts'
import { openShop, paid, placed } from '../support/shop.ts'

test('the documents of a projection are read as a collection, and written only by the projection', async () => {
  const { store } = await openShop()
  await store.projections.register(orders)
  const collection = store.documents<Order>('orders')
  await store.events.append('order-1', [placed(10, { userId: 'ada' }), paid])
  await store.projections.runUntilIdle()

  expect(await collection.get('order-1')).toMatchObject({
    data: { total: 10, isPaid: true },
    version: 2,
    createdBy: 'ada',
  })
  expect(await collection.count()).toBe(1)

  const order: Order = { total: 1, note: null, isPaid: false }
  const refused = { code: 'collection_read_only', collection: 'orders' }
  await expect(collection.put('order-1', order)).rejects.toMatchObject(refused)
  await expect(collection.patch('order-1', { total: 2 })).rejects.toMatchObject(refused)
  await expect(collection.delete('order-1')).rejects.toMatchObject(refused)
  await expect(collection.putMany([{ data: order }])).rejects.toMatchObject(refused)
  await expect(collection.importMany([{ data: order }])).rejects.toMatchObject(refused)
  await expect(collection.batch().put('order-1', order).flush()).rejects.toMatchObject(refused)
})

test('documents of an inline projection are visible when the append returns', async () => {
  const { store } = await openShop()
  await store.projections.register({ ...orders, lifecycle: 'inline' })
  const collection = store.documents<Order>('orders')

  await store.events.append('order-1', placed(10))

  expect((await collection.get('order-1'))?.data.total).toBe(10)
})

test('a collection cannot use the table of a projection, nor a projection that of a collection', async () => {
  const { store } = await openShop()
  store.documents<Order>('orders')

  expect(() => store.projections.register(orders)).toThrow(expect.objectContaining({ code: 'invalid_option' }))
})

test('a collection can be declared read only', async () => {
  const { store } = await openShop()
  await store.documents('customers').put('ada', { email: 'ada@x' })
  const view = store.documents('people', { table: 'customers', readOnly: true })

  expect((await view.get('ada'))?.data).toEqual({ email: 'ada@x' })
  await expect(view.put('ada', {})).rejects.toMatchObject({ code: 'collection_read_only', collection: 'people' })
})

test('a read model that does not exist yet is reported as such', async () => {
  const { store } = await openShop()
  const view = store.documents('orders', { readOnly: true })

  await expect(view.get('order-1')).rejects.toMatchObject({ code: 'collection_not_synced', missing: ['table orders'] })
  await expect(view.getMany(['order-1'])).rejects.toMatchObject({ code: 'collection_not_synced' })
  await expect(view.count()).rejects.toMatchObject({ code: 'collection_not_synced' })
})
