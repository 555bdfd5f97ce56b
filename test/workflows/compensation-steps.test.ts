import { expect, test } from 'vitest'
import { deferred } from '../../src/core/abort.ts'
import { defineUndo } from '../../src/workflows/cancel/undo.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { inconsistentCounters } from '../support/counters-consistency.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, shopEvents } from '../support/shop.ts'
import { letTimePass, untilSuspended } from '../support/suspended-executions.ts'
import { waitUntil } from '../support/wait.ts'

const undo = { by: 'refund', data: { cents: 4200 } }

test('a handler that waits is undone without being run again', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const seen: unknown[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_, ctx) => {
        seen.push('run')
        await ctx.step('charge', () => 'receipt-1', { undo })
        await ctx.waitForEvent('OrderPaid')
        seen.push('paid')
      },
    }),
  )
  flows.register(defineUndo('refund', { run: (data, step) => void seen.push([data, step]) }))
  await using worker = workerOf(shop.store)
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await waitUntil(async () => (await flow.status()).state === 'waiting')

  await flow.cancel({ compensate: true })
  await flow.signal('OrderPaid', { method: 'card' })
  const ended = await flow.waitUntilSettled()

  expect(ended).toMatchObject({ state: 'compensated', pending: 0 })
  expect(seen).toEqual(['run', [{ cents: 4200 }, { name: 'charge', isKnown: true, result: 'receipt-1' }]])
  expect(await shop.query('select * from ~workflow_waits')).toEqual([])
  expect(await inconsistentCounters(shop)).toEqual([])
})

test('the result of a step that had to stop is not stored, and the compensation waits for a step that runs on', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const charging = deferred<void>()
  const charged = deferred<string>()
  const aborted = deferred<void>()
  const seen: unknown[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_, ctx) => {
        const later = ctx.step(
          'charge',
          async () => {
            charging.resolve()
            const receipt = await charged.promise
            seen.push('charged')
            return receipt
          },
          { undo },
        )
        later.catch(() => {})
        await new Promise<void>(resolve => ctx.signal.addEventListener('abort', () => resolve()))
        aborted.resolve()
      },
    }),
  )
  flows.register(defineUndo('refund', { run: (_, { isKnown, result }) => void seen.push([isKnown, result]) }))
  await using worker = workerOf(shop.store, { pollMs: 60_000, leaseMs: 60_000 })
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await charging.promise

  await flow.cancel({ compensate: true })
  await aborted.promise
  const during = await flow.status()
  charged.resolve('receipt-1')
  const ended = await flow.waitUntilSettled()

  expect(during).toMatchObject({ state: 'compensating', pending: 1 })
  expect(ended.state).toBe('compensated')
  expect(seen).toEqual(['charged', [false, undefined]])
})

test('an attempt that sleeps in memory stops immediately', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const charged = deferred<void>()
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_, ctx) => {
        await ctx.step('charge', () => charged.resolve(), { undo })
        for (;;) await ctx.sleep(900)
      },
    }),
  )
  flows.register(defineUndo('refund', { run: () => {} }))
  await using worker = workerOf(shop.store, { pollMs: 60_000, leaseMs: 60_000 })
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await charged.promise

  await flow.cancel({ compensate: true })
  const ended = await flow.waitUntilSettled()

  expect(ended.state).toBe('compensated')
})

test('a transactional step is undone as well, and an undo has its own steps and waits', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const seen: unknown[] = []
  await shop.query('create table ~payments (cents int)')
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_, ctx) => {
        const book = shop.named('insert into ~payments values (4200)')
        await ctx.tx('charge', tx => tx.query(book).then(() => 'booked'), { undo })
        // Another kind of step may have the same name.
        await ctx.step('charge', () => 'receipt-1', { undo })
      },
    }),
  )
  flows.register(
    defineUndo('refund', {
      run: async (_, { result }, ctx) => {
        seen.push(await ctx.step('find', () => `found ${result}`))
        await ctx.sleep(60_000)
        await ctx.tx('delete', tx => tx.query(shop.named('delete from ~payments')))
      },
    }),
  )
  await using worker = workerOf(shop.store, { pollMs: 20 })
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await flow.waitUntilSettled()
  await flow.cancel({ compensate: true })

  for (const runs of [1, 3]) {
    await waitUntil(() => seen.length === runs)
    await untilSuspended(shop)
    await letTimePass(shop, 60_000)
  }
  const ended = await flow.waitUntilSettled()

  expect(ended.state).toBe('compensated')
  expect(seen).toEqual(['found receipt-1', 'found receipt-1', 'found booked', 'found booked'])
  expect(await shop.query('select * from ~payments')).toEqual([])
  expect(await inconsistentCounters(shop)).toEqual([])
})

test('a parent that waits for its child gets its cancellation', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const received: unknown[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_, ctx) => {
        const child = await ctx.start('OrderShipped', { parcel: 'gift' }, { correlationId: 'gift' })
        received.push((await child.waitUntilSettled()).state)
      },
    }),
  )
  flows.register(defineHandler('tell', { on: 'OrderShipped', delayMs: 60_000, run: () => {} }))
  await using worker = workerOf(shop.store)
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await waitUntil(async () => (await flows.get('gift').status()).pending === 1)

  await flows.get('gift').cancel({ reason: 'not wanted' })
  const ended = await flow.waitUntilSettled()

  expect(ended.state).toBe('settled')
  expect(received).toEqual(['cancelled'])
})

test('cancelling a workflow also cancels the children that its handlers wait for', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_, ctx) => {
        const child = await ctx.start('OrderShipped', { parcel: 'gift' }, { correlationId: 'gift' })
        await child.waitUntilSettled()
      },
    }),
  )
  flows.register(defineHandler('tell', { on: 'OrderShipped', delayMs: 60_000, run: () => {} }))
  await using worker = workerOf(shop.store)
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await waitUntil(async () => (await flows.get('gift').status()).pending === 1)

  await flow.cancel({ reason: 'not wanted' })

  expect(await flows.get('gift').status()).toMatchObject({ state: 'cancelled', reason: 'not wanted', pending: 0 })
  expect(await shop.query('select * from ~workflow_executions')).toEqual([])
  expect(await inconsistentCounters(shop)).toEqual([])
})
