import { expect, test } from 'vitest'
import { defineCollection } from '../../src/documents/collection.ts'
import { compileQuery } from '../../src/documents/query/compile.ts'
import { eq, gt, search } from '../../src/documents/query/condition.ts'
import { sum } from '../../src/documents/query/group.ts'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import { type Order, orders, totals } from '../projections/read-models.ts'
import { openShop, paid, placed, shopEvents } from '../support/shop.ts'

test('the documents of a projection are read as a collection, and written only by the projection', async () => {
  const { store } = await openShop()
  await store.projections.register(orders)
  const collection = store.documents<Order>('orders')
  await store.events.append('order-1', [placed(10, { userId: 'ada' }), paid])
  await store.consumers.runUntilIdle()

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

test('store.documents gives the documents of a projection by its definition, with the whole query language', async () => {
  const { store } = await openShop()
  await store.register(orders)
  await store.events.append('order-1', [placed(10, { userId: 'ada' }), paid])
  await store.events.append('order-2', placed(20))
  await store.consumers.runUntilIdle()
  const read = store.documents(orders)

  expect(await read.get('order-1')).toMatchObject({ id: 'order-1', version: 2, createdBy: 'ada', data: { total: 10 } })
  expect([...(await read.getMany(['order-2', 'order-3'])).keys()]).toEqual(['order-2'])
  expect([await read.exists('order-1'), await read.exists('order-3'), await read.count()]).toEqual([true, false, 2])
  expect((await read.where(order => gt(order.total, 15)).one()).id).toBe('order-2')
  expect(
    await read
      .query()
      .groupBy({}, order => ({ all: sum(order.total) }))
      .toArray(),
  ).toEqual([{ all: 30 }])
  expect(store.documents(orders)).toBe(read)
  expect(Object.keys(read).sort()).toEqual(['count', 'exists', 'get', 'getMany', 'name', 'query', 'where'])
})

test('a projection that never ran reads as empty, inside and outside of a transaction', async () => {
  const { store } = await openShop()
  const read = store.documents(orders)
  const compiled = compileQuery(read, (query, total: number) => query.where(order => gt(order.total, total)))

  expect(await read.get('order-1')).toBeUndefined()
  expect(await read.getMany(['order-1'])).toEqual(new Map())
  expect([await read.exists('order-1'), await read.count()]).toEqual([false, 0])
  expect(await read.query().toArray()).toEqual([])
  expect(await compiled(5).toArray()).toEqual([])
  expect(await store.transaction(async tx => [await read.count({ tx }), await read.get('order-1', { tx })])).toEqual([
    0,
    undefined,
  ])

  await store.register({ ...orders, lifecycle: 'inline' })
  await store.events.append('order-1', placed(10))
  expect(await compiled(5).count()).toBe(1)
  expect((await read.get('order-1'))?.data.total).toBe(10)
})

test('documents of a projection are queried by the indexes it declares', async () => {
  const shop = await openShop()
  const byNote = defineDocumentProjection('notes', {
    events: shopEvents,
    initial: () => ({ note: '', total: 0 }),
    evolve: { OrderPlaced: (_, { data }) => ({ note: data.note ?? '', total: data.total }) },
    indexes: ['note', { path: 'total', as: 'number', unique: true }],
    columns: ['note'],
    search: ['note'],
  })
  await shop.store.register(byNote)
  await shop.store.events.append('order-1', { type: 'OrderPlaced', data: { total: 1, note: 'cups of tea' } })
  await shop.store.consumers.runUntilIdle()
  await shop.store.projections.rebuild(byNote)

  const read = shop.store.documents(byNote)
  expect((await read.where(each => eq(each.note, 'cups of tea')).one()).id).toBe('order-1')
  expect(await read.where(each => search(each, 'cup')).count()).toBe(1)
  expect((await shop.store.schema.check()).problems).toEqual([])
  const [row] = await shop.query<{ indexes: string }>(
    `select string_agg(indexname, ' ' order by indexname) as indexes from pg_indexes where schemaname = $1 and tablename = 'notes'`,
    [shop.schema],
  )
  expect(row!.indexes).toBe('notes_note notes_pkey notes_search notes_total_number')
})

test('a collection and a projection of one name are refused, whichever comes first', async () => {
  const customers = defineCollection('orders')
  const [one, two] = [await openShop(), await openShop()]
  await one.store.register(orders)
  one.store.documents('orders')

  expect(() => one.store.documents(customers)).toThrow(/has the name of a projection/)
  await expect(one.store.register(customers)).rejects.toThrow(/has the name of a projection/)
  await two.store.register(customers)
  await expect(two.store.register({ ...orders, name: 'orders@2' })).rejects.toThrow(/has the name of a collection/)
})

test('a projection without documents, or without rows, says so', async () => {
  const { store } = await openShop()

  expect(() => store.documents(totals() as never)).toThrow(/has no documents to read/)
  expect(() => store.rows(orders as never)).toThrow(/has no rows to read/)
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

  await expect(view.get('order-1')).rejects.toMatchObject({ code: 'collection_not_found', collection: 'orders' })
  await expect(view.getMany(['order-1'])).rejects.toMatchObject({ code: 'collection_not_found' })
  await expect(view.count()).rejects.toMatchObject({ code: 'collection_not_found' })
})
