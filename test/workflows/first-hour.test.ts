/** What a new user of workflows tries first. */
import { expect, test } from 'vitest'
import { testStore } from '../../src/testing/testing.ts'
import { defineUndo } from '../../src/workflows/cancel/undo.ts'
import { compensate } from '../../src/workflows/emit.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { openDatabase } from '../support/engines.ts'
import { openShop, type ShopMap, shopEvents } from '../support/shop.ts'

const events = shopEvents
const at = '2030-01-01T00:00:00.000Z'

test('a business "no" in a saga undoes its steps and says so, without a dead letter', async () => {
  const undone: unknown[] = []
  const refund = defineUndo('refund', { run: (data: { cents: number }) => void undone.push(data) })
  const charge = defineHandler('charge', {
    events,
    on: 'OrderPlaced',
    async run(event, { step, emit }) {
      await step('charge-card', () => 'receipt', { undo: { by: refund, data: { cents: event.data.total } } })
      return emit('OrderPaid', { method: 'card' })
    },
  })
  const reserve = defineHandler('reserve', {
    events,
    on: 'OrderPaid',
    run: (_, { emit }) => compensate('no stock left', emit('OrderShipped', { parcel: 'refused' })),
  })
  await using store = await testStore<ShopMap>(
    { events, handlers: [charge, reserve], undos: [refund] },
    { database: await openDatabase(), at },
  )
  const workflow = await store.workflows.publish('OrderPlaced', { total: 7 })

  await store.advance()

  expect(await workflow.status()).toMatchObject({ state: 'compensated', reason: 'no stock left', deadLetters: 0 })
  expect(undone).toEqual([{ cents: 7 }])
  expect((await store.deadLetters.list()).items).toEqual([])
  const log = await store.events.readAll().toArray()
  expect(log.map(({ type }) => type)).toEqual(['OrderPlaced', 'OrderPaid', 'OrderShipped'])
})

test('a handler sleeps until a date, and not at all until one that has passed', async () => {
  const remind = defineHandler('remind', {
    events,
    on: 'OrderPlaced',
    async run(_, { sleepUntil, now, emit }) {
      await sleepUntil(new Date('2029-01-01T00:00:00Z'))
      await sleepUntil('new year', new Date('2030-02-01T00:00:00Z'))
      return emit('OrderShipped', { parcel: now().toISOString().slice(0, 16) })
    },
  })
  await using store = await testStore<ShopMap>({ events, handlers: [remind] }, { database: await openDatabase(), at })
  await store.workflows.publish('OrderPlaced', { total: 7 })

  await store.advance({ days: 30 })
  const before = await store.events.head()
  await store.advance({ days: 2 })

  expect(before).toBe(1)
  const last = (await store.events.readAll().toArray()).at(-1)!
  expect(last.data).toEqual({ parcel: '2030-02-01T00:00' })
})

test('any text is an idempotency key of a publish, and a repeat finds the same workflow', async () => {
  const { store } = await openShop()
  const publish = (total: number) =>
    store.workflows.publish('OrderPlaced', { total }, { idempotencyKey: 'order-42: pay €' })

  const first = await publish(1)
  const again = await publish(1)

  expect(again.correlationId).toBe(first.correlationId)
  expect(await store.events.head()).toBe(1)
  await expect(publish(2)).rejects.toMatchObject({ code: 'idempotency_mismatch' })
})
