/**
 * Tests of the shop, with the test runner of Node.
 *
 *     npx tsx --test examples/shop/order.test.ts
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { specify, testStore } from 'rillflow/testing'
import { events } from './events.ts'
import { Order } from './order.ts'
import { orders, sales } from './read-models.ts'
import shop from './rillflow.config.ts'

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

test('a placed order is charged, packed and shipped', async () => {
  await using store = await testStore(shop)
  await using _runner = await store.start()

  const workflow = await store.workflows.publish('OrderPlaced', placed.data, { stream: 'order-1' })
  const { state } = await workflow.waitUntilSettled()
  await store.consumers.runUntilIdle()

  assert.equal(state, 'settled')
  assert.equal((await store.documents(orders).get('order-1'))?.data.status, 'shipped')
  assert.deepEqual(await store.rows(sales).toArray(), [{ customer: 'Ada', orders: 1, cents: 4200 }])
})
