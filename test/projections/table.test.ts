import { expect, test } from 'vitest'
import { failFast } from '../../src/consumers/run/policy.ts'
import type { NewEvent } from '../../src/events/definition.ts'
import { defineTableProjection } from '../../src/projections/table-projection.ts'
import { openShop, placed, type ShopMap, shipped, shopEvents } from '../support/shop.ts'

const customers = defineTableProjection('customer-totals', {
  events: shopEvents,
  columns: {
    customer: 'text',
    orders: 'bigint',
    total: 'numeric',
    last_parcel: 'text',
    last_order: 'timestamptz',
    last_data: 'jsonb',
    is_known: 'boolean',
  },
  primaryKey: ['customer'],
  indexes: [['total']],
  on: {
    OrderPlaced: (event, row) =>
      row(
        { customer: customerOf(event) },
        {
          increment: { orders: 1, total: event.data.total },
          set: { last_order: event.createdAt, last_data: event.data, is_known: true },
        },
      ),
    OrderShipped: (event, row) =>
      event.data.parcel === ''
        ? undefined
        : row({ customer: customerOf(event) }, { set: { last_parcel: event.data.parcel } }),
    OrderPaid: (event, row) => row({ customer: customerOf(event) }, 'delete'),
  },
})

function customerOf({ stream }: { stream: string }): string {
  return stream.split('-')[0]!
}

const paid: NewEvent<ShopMap> = { type: 'OrderPaid', data: { method: 'cash' } }
const rows = 'select customer, orders, total, last_parcel from ~customer_totals order by customer'

test('columns are set and incremented, numbers exactly and from 0, others from null', async () => {
  const { store, query } = await openShop()
  await store.projections.register(customers)
  await store.events.append('ada-1', [placed(0.1), placed(0.2)])
  await store.events.append('bob-1', [shipped('parcel-7'), shipped('')])

  await store.projections.runUntilIdle()

  expect(await query(rows)).toEqual([
    { customer: 'ada', orders: 2, total: '0.3', last_parcel: null },
    { customer: 'bob', orders: 0, total: '0', last_parcel: 'parcel-7' },
  ])
  const [, second] = await store.events.read('ada-1').toArray()
  expect(await query('select last_order, last_data, is_known from ~customer_totals order by customer')).toEqual([
    { last_order: second!.createdAt, last_data: { total: 0.2 }, is_known: true },
    { last_order: null, last_data: null, is_known: null },
  ])
})

test('later batches continue from earlier ones', async () => {
  const { store, query } = await openShop()
  await store.projections.register(customers)
  await store.events.append('ada-1', placed(1))
  await store.projections.runUntilIdle()
  await store.events.append('ada-2', [placed(2), shipped()])

  await store.projections.runUntilIdle()

  expect(await query(rows)).toEqual([{ customer: 'ada', orders: 2, total: '3', last_parcel: 'parcel-1' }])
})

test('a deleted row is gone, and starts anew when it comes back', async () => {
  const { store, query } = await openShop()
  await store.projections.register(customers)
  await store.events.append('ada-1', [placed(1), shipped()])
  await store.events.append('bob-1', placed(1))
  await store.projections.runUntilIdle()
  await store.events.append('ada-1', [placed(5), paid, placed(7)])
  await store.events.append('bob-1', [placed(1), paid])

  await store.projections.runUntilIdle()

  expect(await query(rows)).toEqual([{ customer: 'ada', orders: 1, total: '7', last_parcel: null }])
})

test('in one batch a set value replaces earlier increments, and later ones are added to it', async () => {
  const { store, query } = await openShop()
  const stock = defineTableProjection('stock', {
    events: shopEvents,
    columns: { item: 'text', day: 'integer', count: 'integer' },
    primaryKey: ['item', 'day'],
    on: {
      OrderPlaced: ({ stream, data }, row) =>
        row(
          { item: stream, day: 1 },
          data.note === 'counted' ? { set: { count: data.total } } : { increment: { count: data.total } },
        ),
    },
  })
  await store.projections.register(stock)
  await store.events.append('chair', [
    placed(5),
    { type: 'OrderPlaced', data: { total: 100, note: 'counted' } },
    placed(1),
    placed(-3),
  ])

  await store.projections.runUntilIdle()

  expect(await query('select item, day, count from ~stock')).toEqual([{ item: 'chair', day: 1, count: 98 }])
})

test('only finite numbers are stored in a column', async () => {
  const { store, query } = await openShop()
  const broken = defineTableProjection('broken', {
    columns: { id: 'text', total: 'double precision' },
    primaryKey: ['id'],
    policy: failFast(),
    on: { OrderPlaced: (event, row) => row({ id: event.stream }, { increment: { total: Number.NaN } }) },
  })
  await store.projections.register(broken)
  await store.events.append('order-1', placed())

  expect(await store.projections.tickOnce('broken')).toMatchObject({ result: 'stopped' })

  const { lastError } = await store.projections.status('broken')
  expect(lastError).toMatchObject({ code: 'invalid_projection_value' })
  expect(await query('select * from ~broken')).toEqual([])
})
