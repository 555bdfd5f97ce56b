import { expect, test } from 'vitest'
import { defineHandler } from '../../src/workflows/handler.ts'
import type { WorkflowStatus } from '../../src/workflows/status.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, outcome, paid, placed, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

test('SB-03: the last type of a workflow is that of its latest event, not of its first', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: (_, { emit }) => emit('OrderPaid', { method: 'card' }),
    }),
  )
  flows.register(
    defineHandler('ship', {
      events: shopEvents,
      on: 'OrderPaid',
      run: (_, { emit }) => emit('OrderShipped', { parcel: 'p' }),
    }),
  )
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  const before = await flow.status()
  await using worker = workerOf(store)
  await worker.start()

  const after = await flow.waitUntilSettled()

  expect(before).toMatchObject({ lastType: 'OrderPlaced', state: 'running', isSettled: false })
  expect(after).toMatchObject({ lastType: 'OrderShipped', state: 'settled', isSettled: true })
})

test('SB-04: a workflow is never shown as settled while any part of it is unfinished', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const done: string[] = []
  const seen: WorkflowStatus[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 1,
      backoff: { baseMs: 5 },
      run: (_, { attempt, emit }) => {
        if (attempt === 1) throw new Error('the bank is closed')
        return emit('OrderPaid', { method: 'card' })
      },
    }),
  )
  flows.register(
    defineHandler('thank', {
      events: shopEvents,
      on: 'OrderPaid',
      inline: true,
      run: (_, { emit }) => emit('OrderShipped', { parcel: 'p' }),
    }),
  )
  flows.register(
    defineHandler('ask', {
      on: 'OrderShipped',
      delayMs: 30,
      run: async () => {
        await waitUntil(() => seen.length > 5)
        done.push('ask')
      },
    }),
  )
  flows.register(defineHandler('archive', { on: 'OrderShipped', ordered: true, run: () => void done.push('archive') }))
  await using worker = workerOf(store)
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })

  for (let isSettled = false; !isSettled; isSettled = seen.at(-1)!.isSettled) seen.push(await flow.status())

  expect(done.sort()).toEqual(['archive', 'ask'])
  expect(seen.slice(0, -1).every(({ state }) => state === 'running')).toBe(true)
  expect(seen.at(-1)).toMatchObject({ state: 'settled', pending: 0 })
})

test('SB-04: an event that is not dispatched yet is unfinished, and so is one that waits for its time', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  flows.register(defineHandler('thank', { on: 'OrderPaid', delayMs: 3_600_000, run: () => {} }))
  await flows.sync()
  await store.events.append('order-1', placed(), { correlationId: 'order-1' })
  const flow = flows.get('order-1')

  const undispatched = await flow.status()
  await using worker = workerOf(store)
  await worker.start()
  await flow.waitUntilSettled()
  await store.events.append('order-1', paid, { correlationId: 'order-1' })
  const again = await flow.status()
  await waitUntil(async () => (await flow.status()).pending === 1)

  expect(undispatched).toMatchObject({ isSettled: false, state: 'running' })
  expect(again).toMatchObject({ isSettled: false })
  expect(await flow.status()).toMatchObject({ isSettled: false, state: 'running', pending: 1 })
})

test('SB-04: a workflow with a requested dead letter is not settled until that was retried', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  let isBroken = true
  flows.register(
    defineHandler('pay', {
      on: 'OrderPlaced',
      retries: 0,
      run: () => {
        if (isBroken) throw new Error('the bank is closed')
      },
    }),
  )
  await using worker = workerOf(store)
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  const failed = await flow.waitUntilSettled()
  const [deadLetter] = (await store.deadLetters.list()).items
  isBroken = false

  await store.deadLetters.retry('pay', deadLetter!.eventId)
  const fixed = await flow.waitUntilSettled()

  expect(failed).toMatchObject({ state: 'failed', isSettled: true, deadLetters: 1 })
  expect(fixed).toMatchObject({ state: 'settled', isSettled: true, deadLetters: 0 })
})

test('a workflow that the store does not know is unknown, not settled, and waiting for it says so', async () => {
  const { store } = await openShop()
  const workflow = store.workflows.get('order-47l1')

  const status = await workflow.status()
  const waited = await outcome(workflow.waitUntilSettled({ timeoutMs: 20 }))

  expect(status).toMatchObject({ state: 'unknown', isSettled: false, pending: 0 })
  expect(waited.error).toMatchObject({ code: 'timed_out', message: expect.stringContaining('no event') })
})
