import { expect, test } from 'vitest'
import { defineAggregate, defineClassAggregate } from '../../src/aggregates/aggregate.ts'
import { defineProjectedAggregate } from '../../src/aggregates/projected.ts'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import { KeptOrder, Order, orderDecider, orders } from '../aggregates/orders.ts'
import { openShop, paid, placed, shipped, shopEvents } from '../support/shop.ts'

const totals = defineDocumentProjection('order-totals', {
  events: shopEvents,
  initial: () => ({ total: 0, parcels: 0 }),
  evolve: {
    OrderPlaced: (order, event) => ({ ...order, total: order.total + event.data.total }),
    OrderShipped: order => ({ ...order, parcels: order.parcels + 1 }),
  },
})

test('a stream is fetched once, decided on, and saved only at its version', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', placed(5))
  const [one, two] = [store.session(), store.session()]
  const order = await one.fetchForWriting(Order, 'order-1')
  const other = await two.fetchForWriting(Order, 'order-1')

  order.decide({ type: 'Pay' })
  one.events.append('order-1', shipped())
  expect(order).toMatchObject({ version: 1, state: { status: 'shipped' }, events: [paid, shipped()] })
  expect(await one.fetchForWriting(Order, 'order-1')).toBe(order)
  await one.save()

  other.decide({ type: 'Pay' })
  await expect(two.save()).rejects.toMatchObject({ code: 'version_conflict', expected: 1, actual: 3 })
  expect(two.staged).toEqual({ documents: 0, events: 1 })
})

test('a snapshot that is due is saved with its events', async () => {
  const { store, query } = await openShop()
  const session = store.session()
  const order = await session.fetchForWriting(orders({ every: 2 }), 'order-1')

  order.append([placed(1), placed(2), placed(3)])
  await session.save()

  expect(await query('select version::integer, body from ~snapshots')).toMatchObject([
    { version: 3, body: { total: 6 } },
  ])
})

test('a class can be fetched as well, and its own methods decide', async () => {
  const { store } = await openShop()
  const Kept = defineClassAggregate('order', KeptOrder)
  await store.events.append('order-1', placed(5))
  const session = store.session()

  const order = await session.fetchForWriting(Kept, 'order-1')
  order.decide(kept => kept.ship('parcel-1'))
  await session.save()

  expect((await store.aggregates(Kept).load('order-1')).state.parcels).toEqual(['parcel-1'])
})

test.for(['inline', 'async'] as const)(
  'the read model of an %s projection is fetched at the head of the stream',
  async lifecycle => {
    const { store } = await openShop()
    const Total = defineProjectedAggregate('order', { projection: totals, decide: (parcel: string) => shipped(parcel) })
    await store.projections.register({ ...totals, lifecycle })
    await store.events.append('order-1', [placed(1), paid])
    await store.projections.runUntilIdle()
    await store.events.append('order-1', [placed(2), paid])
    const session = store.session()

    const order = await session.fetchForWriting(Total, 'order-1')
    expect(order).toMatchObject({ version: 4, state: { total: 3, parcels: 0 } })
    order.decide('parcel-1')
    order.append(placed(4))
    expect(order).toMatchObject({ version: 4, state: { total: 7, parcels: 1 } })
    await session.save()

    expect(order).toMatchObject({ version: 6, events: [], state: { total: 7, parcels: 1 } })
    await store.projections.runUntilIdle()
    expect((await store.documents(totals).get('order-1'))?.data).toEqual({ total: 7, parcels: 1 })
    order.append(paid)
    await store.events.append('order-1', paid)
    await expect(session.save()).rejects.toMatchObject({ code: 'version_conflict', expected: 6 })
  },
)

test('a stream is fetched as one aggregate per session', async () => {
  const { store } = await openShop()
  const session = store.session()
  await session.fetchForWriting(Order, 'order-1')

  await expect(session.fetchForWriting(orders(), 'order-1')).rejects.toMatchObject({ code: 'invalid_option' })
})

test('an aggregate that would be invalid is not saved, nor anything with it', async () => {
  const { store } = await openShop()
  const Small = defineAggregate('order', {
    ...orderDecider,
    validate: order => (order.total > 10 ? 'is too much' : undefined),
  })
  const session = store.session()
  const order = await session.fetchForWriting(Small, 'order-1')
  session.events.append('parcel-1', placed(1))

  order.decide({ type: 'Place', total: 11 })

  await expect(session.save()).rejects.toMatchObject({ code: 'invalid_aggregate_state' })
  expect(session.staged).toEqual({ documents: 0, events: 2 })
  expect(await store.streams.describe('parcel-1')).toBeUndefined()
})
