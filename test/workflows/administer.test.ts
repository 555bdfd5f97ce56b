import { expect, test } from 'vitest'
import { deferred } from '../../src/core/lifecycle.ts'
import { emit } from '../../src/workflows/emit.ts'
import type { HandlerDescription } from '../../src/workflows/insight/handlers.ts'
import type { Workflows } from '../../src/workflows/workflows.ts'
import { openShop, outcome } from '../support/shop.ts'
import { executionStates } from '../support/suspended-executions.ts'
import { waitUntil } from '../support/wait.ts'

async function handlerOf(flows: Pick<Workflows, 'handlers'>, name: string, version = 1): Promise<HandlerDescription> {
  const found = (await flows.handlers()).find(each => each.handler === name && each.version === version)
  return found!
}

test('a paused handler gets events that queue, and continues when it is resumed, from any process', async () => {
  const { store, sibling } = await openShop()
  const flows = store.workflows
  const seen: number[] = []
  flows.on('OrderPlaced', { name: 'pay' }, event => void seen.push(event.data.total))
  flows.on('OrderPlaced', { name: 'weigh' }, () => {})
  await using worker = flows.worker()
  await worker.start()
  const operator = (await sibling()).workflows

  await operator.pauseHandler('pay')
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await waitUntil(async () => (await flows.attempts({ handler: 'weigh' })).attempts.length === 1)
  const paused = await handlerOf(operator, 'pay')
  const seenWhilePaused = [...seen]
  await operator.resumeHandler('pay')
  await flow.settled()

  expect(seenWhilePaused).toEqual([])
  expect(paused).toMatchObject({ pausedAt: expect.any(Date), open: { ready: 1 }, workers: 1 })
  expect(seen).toEqual([1])
  expect(await handlerOf(operator, 'pay')).toMatchObject({ pausedAt: undefined, open: { ready: 0 } })
})

test('a paused inline handler is not run by the dispatcher either, and keeps its order when it is resumed', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const seen: number[] = []
  flows.on('OrderPlaced', { name: 'book', inline: true }, event => void seen.push(event.data.total))
  flows.on('OrderPlaced', { name: 'weigh' }, () => {})
  await using worker = flows.worker()
  await worker.start()
  await flows.pauseHandler('book')
  for (const total of [1, 2, 3]) await flows.publish('OrderPlaced', { total }, { correlationId: 'order-1' })
  await waitUntil(async () => (await flows.attempts({ handler: 'weigh' })).attempts.length === 3)
  const seenWhilePaused = [...seen]

  await flows.resumeHandler('book')
  await flows.flow('order-1').settled()

  expect(seenWhilePaused).toEqual([])
  expect(seen).toEqual([1, 2, 3])
})

test('executions that a worker holds behind the head of a lane do not begin once their handler is paused', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const paid = deferred<void>()
  const seen: number[] = []
  flows.on('OrderPlaced', { name: 'pay', ordered: true }, async event => {
    seen.push(event.data.total)
    await paid.promise
  })
  await using dispatching = flows.worker({ handlers: [] })
  await dispatching.start()
  for (const total of [1, 2, 3]) await flows.publish('OrderPlaced', { total }, { correlationId: 'order-1' })
  await waitUntil(async () => (await executionStates(shop)) === '2 blocked, 1 ready')
  await using worker = flows.worker()
  await worker.start()
  await waitUntil(async () => (await executionStates(shop)) === '2 held, 1 running')

  await flows.pauseHandler('pay')
  paid.resolve()
  await waitUntil(async () => (await executionStates(shop)) === '1 blocked, 1 ready')
  const seenWhilePaused = [...seen]
  await flows.resumeHandler('pay')
  await flows.flow('order-1').settled({ timeoutMs: 5_000 })

  expect(seenWhilePaused).toEqual([1])
  expect(seen).toEqual([1, 2, 3])
})

test('a retired handler gets no more events, completes its executions, and returns when it is resumed', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const seen: number[] = []
  flows.on('OrderPlaced', { name: 'pay' }, event => void seen.push(event.data.total))
  flows.on('OrderPlaced', { name: 'weigh' }, () => {})
  await flows.pauseHandler('pay').catch(() => {})
  await using worker = flows.worker()
  await worker.start()
  await flows.pauseHandler('pay')
  const first = await flows.publish('OrderPlaced', { total: 1 })
  await waitUntil(async () => (await handlerOf(flows, 'pay')).open.ready === 1)

  await flows.retireHandler('pay')
  const second = await flows.publish('OrderPlaced', { total: 2 })
  await second.settled()
  const retired = await handlerOf(flows, 'pay')
  await flows.resumeHandler('pay')
  await first.settled()
  const third = await flows.publish('OrderPlaced', { total: 3 })
  await third.settled()

  expect(retired).toMatchObject({ retiredAt: expect.any(Date), open: { ready: 1 } })
  expect(seen).toEqual([1, 3])
})

test('one version of a handler can be retired; an unknown name or version is refused with the known ones', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  flows.on('OrderPlaced', { name: 'charge' }, () => {})
  flows.on('OrderPlaced', { name: 'charge', version: 2 }, () => {})
  await flows.register()

  await flows.retireHandler('charge', { version: 1 })

  expect(await handlerOf(flows, 'charge', 1)).toMatchObject({ retiredAt: expect.any(Date) })
  expect(await handlerOf(flows, 'charge', 2)).toMatchObject({ retiredAt: undefined })
  for (const call of [flows.pauseHandler, flows.resumeHandler, flows.retireHandler])
    expect((await outcome(call('chrage'))).error).toMatchObject({ code: 'handler_not_found', nearest: 'charge' })
  expect((await outcome(flows.retireHandler('charge', { version: 7 }))).error).toMatchObject({
    code: 'invalid_option',
    message: expect.stringContaining('1, 2'),
  })
})

test('a handler whose code no worker has shows its waiting executions, and none is lost', async () => {
  const { store, sibling } = await openShop()
  const old = store.workflows
  const seen: string[] = []
  old.on('OrderPlaced', { name: 'pay' }, () => emit('OrderPaid', { method: 'card' }))
  await old.register()
  const newer = (await sibling()).workflows
  newer.on(['OrderPlaced', 'OrderPaid'], { name: 'ship', ordered: true }, event => void seen.push(event.type))
  await using worker = newer.worker({ node: 'new' })
  await worker.start()
  const flow = await newer.publish('OrderPlaced', { total: 1 })
  await waitUntil(() => seen.length === 1)

  const orphan = await handlerOf(newer, 'pay')
  const served = await handlerOf(newer, 'ship')
  old.on('OrderShipped', { name: 'thank' }, () => {})
  await using again = old.worker()
  await again.start()
  await flow.settled()

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
  flows.on('OrderPlaced', { name: 'pay' }, () => released.promise)
  flows.on('OrderPaid', { name: 'ship' }, () => {})
  await using first = flows.worker({ node: 'a', concurrency: 3 })
  await using second = flows.worker({ node: 'b', handlers: ['ship'] })
  await first.start()
  await second.start()
  await query(`insert into ~workflow_workers (heartbeat_at, lease_ms, concurrency, owner, node, routes)
    values (now() - interval '1 hour', 1000, 1, 'gone/1', 'c', '{}')`)
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await waitUntil(async () => (await flows.workers())[0]?.running === 1)

  const workers = await flows.workers()
  released.resolve()
  await flow.settled()

  expect(workers).toMatchObject([
    { id: first.id, node: 'a', concurrency: 3, running: 1, held: 0, heartbeatAgeMs: expect.any(Number) },
    { id: second.id, node: 'b', handlers: [{ handler: 'ship', version: 1 }], running: 0 },
  ])
  expect(workers[0]!.handlers.map(each => each.handler)).toEqual(['pay', 'ship'])
})
