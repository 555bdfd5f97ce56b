import { expect, test } from 'vitest'
import { defineHandler } from '../../src/workflows/handler.ts'
import { pruneAttempts } from '../../src/workflows/retention.ts'
import { logOf } from '../support/consumer-parts.ts'
import { openShop, shopEvents } from '../support/shop.ts'

test('traces of workflows are deleted after a while; events, cancelled workflows and open dead letters stay', async () => {
  const shop = await openShop()
  const { store, query } = shop
  const flows = store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 0,
      run: event => {
        if (event.data.total === 2) throw new Error('no money')
      },
    }),
  )
  await using worker = flows.worker()
  await worker.start()
  for (const total of [1, 2]) {
    const flow = await flows.publish('OrderPlaced', { total }, { correlationId: `order-${total}` })
    await flow.waitUntilSettled()
  }

  expect(await pruneAttempts(logOf(shop), { olderThanMs: 60_000 })).toBe(0)
  expect(await pruneAttempts(logOf(shop), { olderThanMs: 0 })).toBeGreaterThan(0)

  expect(await query('select * from ~workflow_activity')).toEqual([])
  expect(await query('select correlation_id from ~workflows')).toEqual([{ correlation_id: 'order-2' }])
  expect((await store.events.readAll().toArray()).length).toBe(2)
  expect((await flows.get('order-1').status()).state).toBe('settled')
  expect((await flows.get('order-2').status()).state).toBe('failed')
})

test('SB-34: a handler that is delayed longer than all retention completes', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  let ran = 0
  flows.register(defineHandler('remind', { on: 'OrderPlaced', delayMs: 300, run: () => void ran++ }))
  await using worker = flows.worker()
  await worker.start()

  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await pruneAttempts(logOf(shop), { olderThanMs: 0 })
  await flow.waitUntilSettled()

  expect(ran).toBe(1)
})
