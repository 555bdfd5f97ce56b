import { expect, test } from 'vitest'
import { defineHandler } from '../../src/workflows/handler.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, type Shop, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

/** Three orders wait for a handler that started paused. */
async function openWaiting(): Promise<Shop & { ids(): Promise<string[]>; readonly paid: number[] }> {
  const shop = await openShop()
  const flows = shop.store.workflows
  const paid: number[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      paused: true,
      retries: 0,
      async run(event, { step, emit, sleep }) {
        if (event.data.total === 1) throw new Error('the card was refused')
        if (event.data.total === 4) await sleep(86_400_000)
        paid.push(await step('charge-card', () => event.data.total))
        return emit('OrderPaid', { method: 'card' })
      },
    }),
  )
  const ids = async (): Promise<string[]> => {
    const { items } = await flows.executions.list({ handler: 'pay', state: 'ready' })
    return items.toSorted((a, b) => a.eventPosition - b.eventPosition).map(({ executionId }) => executionId)
  }
  return { ...shop, ids, paid }
}

test('a handler that starts paused queues its executions, and one of them is run by hand', async () => {
  const { store, ids, paid } = await openWaiting()
  const flows = store.workflows
  await using worker = workerOf(store)
  await worker.start()
  for (const total of [1, 2, 3, 4]) await flows.publish('OrderPlaced', { total }, { correlationId: `order-${total}` })
  await waitUntil(async () => (await ids()).length === 4)
  const [failing, charged, , sleeping] = await ids()

  const attempt = await flows.executions.run(charged!)
  const failed = await flows.executions.run(failing!)
  const waits = await flows.executions.run(sleeping!)

  expect(attempt).toMatchObject({ kind: 'completed', correlationId: 'order-2', attempt: 1 })
  expect(failed).toMatchObject({ kind: 'failed', error: { message: 'the card was refused' } })
  expect(waits).toBeUndefined()
  expect(paid).toEqual([2])
  expect((await flows.get('order-2').status()).lastType).toBe('OrderPaid')
  expect((await flows.handlers.list()).items).toMatchObject([{ handler: 'pay', pausedAt: expect.any(Date) }])
  expect(await ids()).toHaveLength(1)
  await expect(flows.executions.run(charged!)).rejects.toMatchObject({ code: 'execution_not_ready', state: 'gone' })

  await flows.handlers.resume('pay')
  await flows.get('order-3').waitUntilSettled()
  expect(paid).toEqual([2, 3])
})

test('a handler that was resumed stays so when a program starts with it again', async () => {
  const { store } = await openWaiting()
  const flows = store.workflows
  await flows.sync()
  await flows.handlers.resume('pay')

  await flows.sync()

  expect((await flows.handlers.list()).items[0]!.pausedAt).toBeUndefined()
})

test('an execution is run by hand while the whole runner is paused', async () => {
  const { store, ids, paid } = await openWaiting()
  const flows = store.workflows
  const worker = workerOf(store)
  await worker.start()
  await flows.publish('OrderPlaced', { total: 2 }, { correlationId: 'order-2' })
  await waitUntil(async () => (await ids()).length === 1)
  await worker.stop()
  await flows.handlers.resume('pay')
  await using runner = await store.start({ name: 'west-1', paused: true })

  const attempt = await flows.executions.run((await ids())[0]!)

  expect({ role: runner.role, kind: attempt?.kind, paid }).toEqual({ role: 'paused', kind: 'completed', paid: [2] })
})
