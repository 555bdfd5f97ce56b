import { expect, test } from 'vitest'
import { deferred } from '../../src/core/abort.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import type { HandlerDescription } from '../../src/workflows/insight/handlers.ts'
import type { Workflows } from '../../src/workflows/workflows.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, outcome, shopEvents } from '../support/shop.ts'
import { executionStates } from '../support/suspended-executions.ts'
import { waitUntil } from '../support/wait.ts'

async function handlerOf(flows: Pick<Workflows, 'handlers'>, name: string, version = 1): Promise<HandlerDescription> {
  const found = (await flows.handlers.list()).items.find(each => each.handler === name && each.version === version)
  return found!
}

test('a paused handler gets events that queue, and continues when it is resumed, from any process', async () => {
  const { store, sibling } = await openShop()
  const flows = store.workflows
  const seen: number[] = []
  flows.register(
    defineHandler('pay', { events: shopEvents, on: 'OrderPlaced', run: event => void seen.push(event.data.total) }),
  )
  flows.register(defineHandler('weigh', { on: 'OrderPlaced', run: () => {} }))
  await using worker = workerOf(store)
  await worker.start()
  const operator = (await sibling()).workflows

  await operator.handlers.pause('pay')
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await waitUntil(async () => (await flows.attempts({ handler: 'weigh' })).items.length === 1)
  const paused = await handlerOf(operator, 'pay')
  const seenWhilePaused = [...seen]
  await operator.handlers.resume('pay')
  await flow.waitUntilSettled()

  expect(seenWhilePaused).toEqual([])
  expect(paused).toMatchObject({ pausedAt: expect.any(Date), open: { ready: 1 }, workers: 1 })
  expect(seen).toEqual([1])
  expect(await handlerOf(operator, 'pay')).toMatchObject({ pausedAt: undefined, open: { ready: 0 } })
})

test('a paused inline handler is not run by the dispatcher either, and keeps its order when it is resumed', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const seen: number[] = []
  flows.register(
    defineHandler('book', {
      events: shopEvents,
      on: 'OrderPlaced',
      inline: true,
      run: event => void seen.push(event.data.total),
    }),
  )
  flows.register(defineHandler('weigh', { on: 'OrderPlaced', run: () => {} }))
  await using worker = workerOf(store)
  await worker.start()
  await flows.handlers.pause('book')
  for (const total of [1, 2, 3]) await flows.publish('OrderPlaced', { total }, { correlationId: 'order-1' })
  await waitUntil(async () => (await flows.attempts({ handler: 'weigh' })).items.length === 3)
  const seenWhilePaused = [...seen]

  await flows.handlers.resume('book')
  await flows.get('order-1').waitUntilSettled()

  expect(seenWhilePaused).toEqual([])
  expect(seen).toEqual([1, 2, 3])
})

test('executions that a worker holds behind the head of a lane do not begin once their handler is paused', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const paid = deferred<void>()
  const seen: number[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      ordered: true,
      run: async event => {
        seen.push(event.data.total)
        await paid.promise
      },
    }),
  )
  await using dispatching = workerOf(shop.store, { handlers: [] })
  await dispatching.start()
  for (const total of [1, 2, 3]) await flows.publish('OrderPlaced', { total }, { correlationId: 'order-1' })
  await waitUntil(async () => (await executionStates(shop)) === '2 blocked, 1 ready')
  await using worker = workerOf(shop.store)
  await worker.start()
  await waitUntil(async () => (await executionStates(shop)) === '2 held, 1 running')

  await flows.handlers.pause('pay')
  paid.resolve()
  await waitUntil(async () => (await executionStates(shop)) === '1 blocked, 1 ready')
  const seenWhilePaused = [...seen]
  await flows.handlers.resume('pay')
  await flows.get('order-1').waitUntilSettled({ timeoutMs: 5_000 })

  expect(seenWhilePaused).toEqual([1])
  expect(seen).toEqual([1, 2, 3])
})

test('a retired handler gets no more events, completes its executions, and returns when it is resumed', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const seen: number[] = []
  flows.register(
    defineHandler('pay', { events: shopEvents, on: 'OrderPlaced', run: event => void seen.push(event.data.total) }),
  )
  flows.register(defineHandler('weigh', { on: 'OrderPlaced', run: () => {} }))
  await flows.handlers.pause('pay').catch(() => {})
  await using worker = workerOf(store)
  await worker.start()
  await flows.handlers.pause('pay')
  const first = await flows.publish('OrderPlaced', { total: 1 })
  await waitUntil(async () => (await handlerOf(flows, 'pay')).open.ready === 1)

  await flows.handlers.retire('pay')
  const second = await flows.publish('OrderPlaced', { total: 2 })
  await second.waitUntilSettled()
  const retired = await handlerOf(flows, 'pay')
  await flows.handlers.resume('pay')
  await first.waitUntilSettled()
  const third = await flows.publish('OrderPlaced', { total: 3 })
  await third.waitUntilSettled()

  expect(retired).toMatchObject({ retiredAt: expect.any(Date), open: { ready: 1 } })
  expect(seen).toEqual([1, 3])
})

test('one version of a handler can be retired; an unknown name or version is refused with the known ones', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  flows.register(defineHandler('charge', { on: 'OrderPlaced', run: () => {} }))
  flows.register(defineHandler('charge', { on: 'OrderPlaced', version: 2, run: () => {} }))
  await flows.sync()

  await flows.handlers.retire('charge', { version: 1 })

  expect(await handlerOf(flows, 'charge', 1)).toMatchObject({ retiredAt: expect.any(Date) })
  expect(await handlerOf(flows, 'charge', 2)).toMatchObject({ retiredAt: undefined })
  for (const call of [flows.handlers.pause, flows.handlers.resume, flows.handlers.retire])
    expect((await outcome(call('chrage'))).error).toMatchObject({ code: 'handler_not_found', nearest: 'charge' })
  expect((await outcome(flows.handlers.retire('charge', { version: 7 }))).error).toMatchObject({
    code: 'invalid_option',
    message: expect.stringContaining('1, 2'),
  })
})

test('a handler whose code no worker has shows its waiting executions, and none is lost', async () => {
  const { store, sibling } = await openShop()
  const old = store.workflows
  const seen: string[] = []
  old.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: (_, { emit }) => emit('OrderPaid', { method: 'card' }),
    }),
  )
  await old.sync()
  const newerStore = await sibling()
  const newer = newerStore.workflows
  newer.register(
    defineHandler('ship', {
      events: shopEvents,
      on: ['OrderPlaced', 'OrderPaid'],
      ordered: true,
      run: event => void seen.push(event.type),
    }),
  )
  await using worker = workerOf(newerStore, { name: 'new' })
  await worker.start()
  const flow = await newer.publish('OrderPlaced', { total: 1 })
  await waitUntil(() => seen.length === 1)

  const orphan = await handlerOf(newer, 'pay')
  const served = await handlerOf(newer, 'ship')
  old.register(defineHandler('thank', { on: 'OrderShipped', run: () => {} }))
  await using again = workerOf(store)
  await again.start()
  await flow.waitUntilSettled()

  expect(orphan).toMatchObject({ workers: 0, open: { ready: 1 }, kind: 'queued', types: ['OrderPlaced'] })
  expect(served).toMatchObject({
    workers: 1,
    kind: 'ordered',
    types: ['OrderPlaced', 'OrderPaid'],
    isBackfilling: false,
  })
  expect(seen).toEqual(['OrderPlaced', 'OrderPaid'])
})

test('live workers are listed with their handlers and their running executions', async () => {
  const { store, query } = await openShop()
  const flows = store.workflows
  const released = deferred<void>()
  flows.register(defineHandler('pay', { on: 'OrderPlaced', run: () => released.promise }))
  flows.register(defineHandler('ship', { on: 'OrderPaid', run: () => {} }))
  await using first = workerOf(store, { name: 'a', concurrency: 3 })
  await using second = workerOf(store, { name: 'b', handlers: ['ship'] })
  await first.start()
  await second.start()
  await query(`insert into ~runners (id, name, fence, role, started_at, consumers, lease_ms, concurrency, routes, heartbeat_at)
    values ('gone/1', 'c', 0, 'active', now(), '{}', 1000, 1, '{}', now() - interval '1 hour')`)
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await waitUntil(async () => (await flows.workers()).items[0]?.running === 1)

  const workers = (await flows.workers()).items
  released.resolve()
  await flow.waitUntilSettled()

  expect(workers).toMatchObject([
    { id: first.id, name: 'a', concurrency: 3, running: 1, held: 0, heartbeatAgeMs: expect.any(Number) },
    { id: second.id, name: 'b', handlers: [{ handler: 'ship', version: 1 }], running: 0 },
  ])
  expect(workers[0]!.handlers.map(each => each.handler)).toEqual(['pay', 'ship'])
  const { items, next } = await flows.workers({ limit: 1 })
  expect(items.map(each => each.name)).toEqual(['a'])
  expect(await flows.workers({ after: next })).toMatchObject({ items: [{ name: 'b' }], next: undefined })
})
