/**
 * Tests of the shop, with the test runner of Node.
 *
 *     npx tsx --test examples/shop/order.test.ts
 */
import assert from 'node:assert/strict'
import { mock, test } from 'node:test'
import { crashEverywhere, recordEffects, specify, testStore } from 'rillflow/testing'
import { events } from './events.ts'
import { Order } from './order.ts'
import { orders, sales } from './read-models.ts'
import shop from './rillflow.config.ts'
import { charge, pack, ship } from './workflows.ts'
import { gateway } from './world.ts'

const placed = events.create('OrderPlaced', { customer: 'Ada', items: ['teapot', 'cup'], cents: 4200 })
const paid = events.create('OrderPaid', { receipt: 'receipt-1' })
const shipped = events.create('OrderShipped', { carrier: 'Swift' })

test('an order that is paid can be shipped', () => {
  specify(Order).given([placed, paid]).when({ type: 'Ship', carrier: 'Swift' }).expect([shipped])
})

test('an order that is not paid cannot be shipped', () => {
  specify(Order)
    .given([placed])
    .when({ type: 'Ship', carrier: 'Swift' })
    .expect(/placed cannot be shipped/)
})

test('an order is charged, and asks for its items', async () => {
  const asked = (item: string) => events.create('PackAsked', { item, order: 'order-1' })

  await specify(charge)
    .given([{ ...placed, stream: 'order-1' }])
    .stub('charge-card', 'receipt-1')
    .expect([{ ...paid, stream: 'order-1' }, asked('teapot'), asked('cup')])
})

test('a process may be killed anywhere: the card is charged once, and the order is shipped', async () => {
  const effects = recordEffects()
  mock.method(gateway, 'charge', (cents: number, { idempotencyKey }: { idempotencyKey: string }) =>
    effects.record('charge', { cents }, { idempotencyKey, result: 'receipt-1' }),
  )

  const { points } = await crashEverywhere([charge, pack, ship], {
    given: { ...placed, stream: 'order-1' },
    effects,
    store: shop,
    advance: { minutes: 5 },
  })

  assert.ok(points.length > 10)
  assert.equal(effects.list().length, 1)
  mock.restoreAll()
})

test('three days later a placed order was charged, packed and shipped, and three reports were made', async () => {
  await using store = await testStore(shop, { at: '2030-01-01T12:00:00Z' })
  const workflow = await store.workflows.publish('OrderPlaced', placed.data, { stream: 'order-1' })

  await store.advance({ days: 3 })

  assert.equal((await workflow.status()).state, 'settled')
  assert.equal((await store.documents(orders).get('order-1'))?.data.status, 'shipped')
  assert.deepEqual(await store.rows(sales).toArray(), [{ customer: 'Ada', orders: 1, cents: 4200 }])
  const reports = await store.events.readAll({ types: ['DayEnded'] }).toArray()
  assert.deepEqual(
    reports.map(({ data }) => data.day),
    ['2030-01-02', '2030-01-03', '2030-01-04'],
  )
})
