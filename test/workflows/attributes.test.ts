import { expect, test } from 'vitest'
import { defineHandler } from '../../src/workflows/handler.ts'
import type { ListWorkflowsOptions } from '../../src/workflows/insight/list.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, shopEvents } from '../support/shop.ts'

test('workflows are found by the attributes that they were published with, and by those that a handler adds', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: (event, { emit }) =>
        emit('OrderPaid', { method: 'card' }, { attributes: { isLarge: event.data.total > 10, region: 'eu' } }),
    }),
    defineHandler('ship', { on: 'OrderPaid', run: () => {} }),
  )
  await using worker = workerOf(store)
  await worker.start()
  for (const [order, customer, total] of [
    ['1', 'c-1', 5],
    ['2', 'c-2', 50],
    ['3', 'c-1', 70],
  ] as const) {
    const attributes = { customer, region: 'unknown' }
    const flow = await flows.publish('OrderPlaced', { total }, { correlationId: `order-${order}`, attributes })
    await flow.waitUntilSettled()
  }
  const ids = async (options: ListWorkflowsOptions): Promise<string[]> =>
    (await flows.list(options)).items.map(({ correlationId }) => correlationId)

  expect(await ids({ attributes: { customer: 'c-1' } })).toEqual(['order-3', 'order-1'])
  expect(await ids({ attributes: { customer: 'c-1', isLarge: true } })).toEqual(['order-3'])
  expect(await ids({ attributes: { region: 'unknown' } })).toEqual([])
  expect(await ids({ attributes: { customer: 'c-1' }, state: 'failed' })).toEqual([])
  const first = await flows.list({ attributes: { region: 'eu' }, limit: 2 })
  const second = await flows.list({ attributes: { region: 'eu' }, limit: 2, after: first.next })
  expect([first, second].map(({ items }) => items.length)).toEqual([2, 1])
  expect(await flows.get('order-3').status()).toMatchObject({
    attributes: { customer: 'c-1', region: 'eu', isLarge: true },
  })
})

test('attributes are text, numbers and booleans, and few', async () => {
  const { store } = await openShop()
  const wrong = [{ customer: { id: 1 } }, { customer: null }, ['c-1'], { note: 'x'.repeat(3_000) }] as never[]

  for (const attributes of wrong)
    await expect(store.workflows.publish('OrderPlaced', { total: 1 }, { attributes })).rejects.toMatchObject({
      ...{ code: 'invalid_option', option: 'attributes' },
    })
})
