import { expect, test } from 'vitest'
import { defineAggregate } from '../../src/aggregates/aggregate.ts'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import { openShop, outcome, shopEvents } from '../support/shop.ts'

const order = defineAggregate('order', {
  events: shopEvents,
  initial: () => ({ status: 'new', total: 0, parcels: [] as string[] }),
  evolve: {
    OrderPlaced: (state, { data }) => ({ ...state, status: 'placed', total: data.total }),
    OrderPaid: state => ({ ...state, status: 'paid' }),
    OrderShipped: (state, { data }) => ({ ...state, status: 'shipped', parcels: [...state.parcels, data.parcel] }),
  },
})

const orders = defineDocumentProjection('orders', {
  events: shopEvents,
  lifecycle: 'live',
  initial: () => ({ note: '' }),
  evolve: { OrderPlaced: (document, { data }) => ({ ...document, note: data.note ?? '' }) },
})

async function placeOrder() {
  const { store } = await openShop({ aggregates: [order], projections: [orders] })
  await store.events.append(
    'order-1',
    [
      { type: 'OrderPlaced', data: { total: 10, note: 'a gift' } },
      { type: 'OrderPaid', data: { method: 'card' } },
      { type: 'OrderShipped', data: { parcel: 'p-1' } },
      { type: 'OrderShipped', data: { parcel: 'p-2' } },
    ],
    { userId: 'ada' },
  )
  return store
}

test('the state of an order is seen at each version, by an aggregate and by a projection', async () => {
  const store = await placeOrder()

  const before = await store.states.at(order, 'order-1', { version: 0 })
  const paid = await store.states.at('order', 'order-1', { version: 2 })
  const now = await store.states.at('order', 'order-1')
  const note = await store.states.at('orders', 'order-1')

  expect(store.states.list()).toEqual([
    { name: 'order', kind: 'aggregate' },
    { name: 'orders', kind: 'projection' },
  ])
  expect(before).toEqual({ version: 0, state: { status: 'new', total: 0, parcels: [] } })
  expect(paid).toEqual({ version: 2, state: { status: 'paid', total: 10, parcels: [] } })
  expect(now).toEqual({ version: 4, state: { status: 'shipped', total: 10, parcels: ['p-1', 'p-2'] } })
  expect(note.state).toEqual({ note: 'a gift' })
})

test('each step says which fields its event has changed', async () => {
  const store = await placeOrder()

  const steps = await store.states.steps('order', 'order-1', { from: 2, to: 4 })

  expect(steps.map(({ version, event, changed }) => [version, event.type, changed])).toEqual([
    [2, 'OrderPaid', ['status']],
    [3, 'OrderShipped', ['status', 'parcels[0]']],
    [4, 'OrderShipped', ['parcels[1]']],
  ])
})

test('every field is blamed on the event that last changed it', async () => {
  const store = await placeOrder()

  const { version, blame } = await store.states.blame('order', 'order-1')

  expect(version).toBe(4)
  const found = Object.entries(blame).map(([path, each]) => [path, each.version, each.type, each.userId])
  expect(found.sort()).toEqual([
    ['parcels[0]', 3, 'OrderShipped', 'ada'],
    ['parcels[1]', 4, 'OrderShipped', 'ada'],
    ['status', 3, 'OrderShipped', 'ada'],
    ['total', 1, 'OrderPlaced', 'ada'],
  ])
})

test('a fold that this process does not have is refused, with the name that was probably meant', async () => {
  const store = await placeOrder()

  const unknown = await outcome(store.states.at('ordr', 'order-1'))
  const tooMany = await outcome(store.states.steps('order', 'order-1', { from: 1, to: 201 }))

  expect(unknown.error).toMatchObject({ code: 'invalid_option', option: 'of' })
  expect((unknown.error as Error).message).toContain('Did you mean "order"?')
  expect(tooMany.error).toMatchObject({ code: 'invalid_option', option: 'to' })
})
