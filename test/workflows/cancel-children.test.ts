import { expect, test } from 'vitest'
import { defineHandler } from '../../src/workflows/handler.ts'
import { inconsistentCounters } from '../support/counters-consistency.ts'
import { openShop, placed, type Shop } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

/** Orders wait forever to be paid; shipped orders are done immediately. */
async function openWaitingShop(): Promise<Shop> {
  const shop = await openShop()
  const flows = shop.store.workflows
  flows.register(defineHandler('pay', { on: 'OrderPlaced', delayMs: 60_000, run: () => {} }))
  flows.register(defineHandler('tell', { on: 'OrderShipped', run: () => {} }))
  return shop
}

async function start({ store }: Shop, correlationId: string, parent?: string): Promise<void> {
  const headers = parent === undefined ? {} : { workflow: { parent } }
  await store.events.append(correlationId, [{ ...placed(), headers }], { correlationId })
}

async function statesOf({ query }: Shop): Promise<Record<string, string>> {
  const rows = await query<{ correlation_id: string; state: string }>('select correlation_id, state from ~workflows')
  return Object.fromEntries(rows.map(row => [row.correlation_id, row.state]))
}

test('cancellation reaches the children of a workflow, and their children', async () => {
  const shop = await openWaitingShop()
  const flows = shop.store.workflows
  await using worker = flows.worker()
  await worker.start()
  await start(shop, 'order')
  for (const child of ['gift', 'mail']) await start(shop, child, 'order')
  await start(shop, 'card', 'gift')
  await start(shop, 'stranger')
  await waitUntil(async () => Object.keys(await statesOf(shop)).length === 5)

  await flows.get('order').cancel({ reason: 'sold out' })

  expect(await statesOf(shop)).toEqual({
    ...{ order: 'cancelled', gift: 'cancelled', mail: 'cancelled', card: 'cancelled' },
    stranger: 'active',
  })
  expect(await flows.get('card').waitUntilSettled()).toMatchObject({
    ...{ state: 'cancelled', reason: 'sold out', parent: 'gift' },
  })
  expect(await shop.query('select correlation_id from ~workflows where is_spreading')).toEqual([])
  expect(await inconsistentCounters(shop)).toEqual([])
})

test('a child that has ended stays as it is, but its own children are cancelled', async () => {
  const shop = await openWaitingShop()
  const flows = shop.store.workflows
  await using worker = flows.worker()
  await worker.start()
  await start(shop, 'order')
  const headers = { workflow: { parent: 'order' } }
  await flows.publish('OrderShipped', { parcel: 'gift' }, { correlationId: 'gift', headers })
  await start(shop, 'card', 'gift')
  await flows.get('gift').waitUntilSettled()
  await waitUntil(async () => Object.keys(await statesOf(shop)).length === 3)

  await flows.get('order').cancel()

  expect(await statesOf(shop)).toEqual({ order: 'cancelled', gift: 'active', card: 'cancelled' })
  expect(await flows.get('gift').status()).toMatchObject({ state: 'settled' })
})

test('a child that is dispatched after its parent was cancelled never begins', async () => {
  const shop = await openWaitingShop()
  const flows = shop.store.workflows
  await using worker = flows.worker()
  await worker.start()
  await start(shop, 'order')
  await waitUntil(async () => Object.keys(await statesOf(shop)).length === 1)
  await flows.get('order').cancel()

  await start(shop, 'gift', 'order')
  const status = await flows.get('gift').waitUntilSettled()

  expect(status).toMatchObject({ state: 'cancelled', parent: 'order' })
  expect(await shop.query(`select * from ~workflow_activity where correlation_id = 'gift'`)).toEqual([])
})

test('a cancellation that was interrupted before it reached the children is completed by any worker', async () => {
  const shop = await openWaitingShop()
  const flows = shop.store.workflows
  const before = flows.worker()
  await before.start()
  await start(shop, 'order')
  await start(shop, 'gift', 'order')
  await start(shop, 'card', 'gift')
  await waitUntil(async () => Object.keys(await statesOf(shop)).length === 3)
  await before.stop()
  // As after a process that ended right after it cancelled the parent.
  await shop.query(`delete from ~workflow_executions where correlation_id = 'order'`)
  await shop.query(`update ~workflows set state = 'cancelled', open = 0, is_spreading = true
    where correlation_id = 'order'`)

  await using worker = flows.worker()
  await worker.start()

  await waitUntil(async () => (await shop.query('select * from ~workflows where is_spreading')).length === 0)
  expect(await statesOf(shop)).toEqual({ order: 'cancelled', gift: 'cancelled', card: 'cancelled' })
})

test('workflows that have started each other in a cycle are all cancelled', async () => {
  const shop = await openWaitingShop()
  const flows = shop.store.workflows
  await using worker = flows.worker()
  await worker.start()
  await start(shop, 'order', 'gift')
  await start(shop, 'gift', 'order')
  await waitUntil(async () => Object.keys(await statesOf(shop)).length === 2)

  await flows.get('order').cancel()

  expect(await statesOf(shop)).toEqual({ order: 'cancelled', gift: 'cancelled' })
  expect(await shop.query('select * from ~workflows where is_spreading')).toEqual([])
})
