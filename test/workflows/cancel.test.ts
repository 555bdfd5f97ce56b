import { expect, test } from 'vitest'
import { deferred } from '../../src/core/abort.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { inconsistentCounters } from '../support/counters-consistency.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, type Shop, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

/** A worker that dispatches and runs nothing, so that queued executions stay queued. */
async function openIdleShop(): Promise<Shop> {
  const shop = await openShop()
  const flows = shop.store.workflows
  flows.register(defineHandler('idle', { on: 'OrderShipped', run: () => {} }))
  return shop
}

async function statesOf({ query }: Shop): Promise<string[]> {
  const rows = await query<{ state: string }>('select state from ~workflow_executions order by position, id')
  return rows.map(row => row.state)
}

function activityOf({ query }: Shop, correlationId: string): Promise<{ kind: string; outcome: string | null }[]> {
  return query(
    `select kind, outcome from ~workflow_activity where correlation_id = $1 and kind <> 'dispatched' order by position`,
    [correlationId],
  )
}

test('waiting executions of a cancelled workflow are removed, whatever their state', async () => {
  const shop = await openIdleShop()
  const flows = shop.store.workflows
  flows.register(defineHandler('pay', { on: 'OrderPlaced', delayMs: 60_000, run: () => {} }))
  await using worker = workerOf(shop.store, { handlers: ['idle'] })
  await worker.start()
  const states = ['ready', 'delayed', 'suspended', 'parked', 'unkeyed']
  for (const state of states) await flows.publish('OrderPlaced', { total: 1 }, { correlationId: state })
  await waitUntil(async () => (await statesOf(shop)).length === states.length)
  await shop.query(`update ~workflow_executions set state = correlation_id`)
  await shop.query(`insert into ~workflow_steps (execution, track, ordinal, kind, name, state, at)
    select id, 1, 1, 'wait', 'OrderPaid', 'waiting', queued_at from ~workflow_executions`)
  await shop.query(`insert into ~workflow_waits (execution, kind, name, ordinal, position, since, correlation_id, type)
    select id, 'wait', 'OrderPaid', 1, position, 0, correlation_id, 'OrderPaid' from ~workflow_executions`)

  for (const state of states) {
    const status = await flows.get(state).cancel({ reason: 'sold out' })

    expect(status).toMatchObject({ state: 'cancelled', isSettled: true, pending: 0, reason: 'sold out' })
    expect(await activityOf(shop, state)).toEqual([{ kind: 'cancelled', outcome: state }])
    expect(await inconsistentCounters(shop)).toEqual([])
  }
  expect(await statesOf(shop)).toEqual([])
  expect(await shop.query('select * from ~workflow_steps')).toEqual([])
})

test('a running attempt is notified by its signal, and its outcome is refused', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const begun = deferred<void>()
  const aborted = deferred<unknown>()
  const release = deferred<void>()
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_, ctx) => {
        begun.resolve()
        ctx.signal.addEventListener('abort', () => aborted.resolve(ctx.signal.reason))
        await release.promise
        return ctx.emit('OrderPaid', { method: 'card' })
      },
    }),
  )
  await using worker = workerOf(shop.store, { pollMs: 60_000, leaseMs: 60_000 })
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await begun.promise

  const status = await flow.cancel()
  const reason = await aborted.promise
  release.resolve()
  await worker.stop()

  expect(status).toMatchObject({ state: 'cancelled', isSettled: true })
  expect(reason).toMatchObject({ code: 'execution_lost' })
  expect(await activityOf(shop, flow.correlationId)).toEqual([
    { kind: 'started', outcome: null },
    { kind: 'cancelled', outcome: 'running' },
  ])
  expect(await shop.store.events.read(`workflow-${flow.correlationId}`).toArray()).toHaveLength(1)
  expect(await inconsistentCounters(shop)).toEqual([])
})

test('the result of a cancelled attempt that was not notified is refused as well', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const written: string[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_, ctx) => {
        // In the same turn: no worker has had the time to query.
        await flows.get(ctx.correlationId).cancel({ reason: 'by itself' })
        written.push(ctx.correlationId)
        return ctx.emit('OrderPaid', { method: 'card' })
      },
    }),
  )
  await using worker = workerOf(shop.store)
  await worker.start()

  const flow = await flows.publish('OrderPlaced', { total: 1 })
  const status = await flow.waitUntilSettled()
  await waitUntil(() => written.length === 1)
  await worker.stop()

  expect(status).toMatchObject({ state: 'cancelled', reason: 'by itself' })
  expect(await shop.store.events.read(`workflow-${flow.correlationId}`).toArray()).toHaveLength(1)
  expect(await inconsistentCounters(shop)).toEqual([])
})

test('events of a cancelled workflow run no more handlers, and other workflows continue', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const seen: string[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      inline: true,
      run: (_, ctx) => void seen.push(`inline ${ctx.correlationId}`),
    }),
  )
  flows.register(
    defineHandler('ship', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: (_, ctx) => void seen.push(`queued ${ctx.correlationId}`),
    }),
  )
  flows.register(defineHandler('wait', { on: 'OrderPaid', delayMs: 60_000, run: () => {} }))
  await using worker = workerOf(shop.store)
  await worker.start()
  const flow = await flows.publish('OrderPaid', { method: 'card' }, { correlationId: 'order-1' })
  await waitUntil(async () => (await flow.status()).pending === 1)
  await flow.cancel()

  await flows.publish('OrderPlaced', { total: 1 }, { correlationId: 'order-1' })
  await flows.publish('OrderPlaced', { total: 1 }, { correlationId: 'order-2' })
  await flows.get('order-2').waitUntilSettled()
  const status = await flow.waitUntilSettled()

  expect(seen.sort()).toEqual(['inline order-2', 'queued order-2'])
  expect(status).toMatchObject({ state: 'cancelled', lastType: 'OrderPlaced' })
})

test('a workflow can be cancelled before any of it was dispatched', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const seen: string[] = []
  flows.register(
    defineHandler('pay', { events: shopEvents, on: 'OrderPlaced', run: (_, ctx) => void seen.push(ctx.correlationId) }),
  )
  const early = await flows.publish('OrderPlaced', { total: 1 }, { correlationId: 'early' })

  const status = await early.cancel({ reason: 'too late' })
  await using worker = workerOf(shop.store)
  await worker.start()
  await (await flows.publish('OrderPlaced', { total: 1 }, { correlationId: 'later' })).waitUntilSettled()
  const settled = await early.waitUntilSettled()

  expect(status).toMatchObject({ state: 'cancelled', isSettled: false })
  expect(settled).toMatchObject({ state: 'cancelled', isSettled: true })
  expect(seen).toEqual(['later'])
  expect(await inconsistentCounters(shop)).toEqual([])
})

test('a workflow that has ended, or is unknown, has nothing to cancel', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const seen: number[] = []
  flows.register(
    defineHandler('pay', { events: shopEvents, on: 'OrderPlaced', run: event => void seen.push(event.data.total) }),
  )
  await using worker = workerOf(shop.store)
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await flow.waitUntilSettled()

  const over = await flow.cancel({ reason: 'why not' })
  const unknown = await flows.get('nobody').cancel({ compensate: true })
  await flow.signal('OrderPlaced', { total: 2 })
  await flow.waitUntilSettled()

  expect(over).toMatchObject({ state: 'settled', reason: undefined })
  expect(unknown).toMatchObject({ state: 'unknown', pending: 0 })
  expect(seen).toEqual([1, 2])
  expect(await shop.query(`select * from ~workflows where correlation_id = 'nobody'`)).toEqual([])
})

test('a workflow that has failed can be cancelled, and once cancelled it stays so', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  flows.register(
    defineHandler('pay', {
      on: 'OrderPlaced',
      retries: 0,
      run: () => {
        throw new Error('no money')
      },
    }),
  )
  await using worker = workerOf(shop.store)
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  expect(await flow.waitUntilSettled()).toMatchObject({ state: 'failed' })

  const first = await flow.cancel({ reason: 'given up' })
  const again = await flow.cancel({ reason: 'once more' })
  const compensated = await flow.cancel({ compensate: true })

  expect(first).toMatchObject({ state: 'cancelled', reason: 'given up', deadLetters: 1 })
  expect(again).toEqual(first)
  expect(compensated).toEqual(first)
})

test('an invalid reason and invalid options are refused', async () => {
  const { store } = await openShop()
  const flow = store.workflows.get('order-1')

  await expect(flow.cancel(7 as never)).rejects.toMatchObject({ code: 'invalid_option' })
  await expect(flow.cancel({ compensate: 'yes' as never })).rejects.toMatchObject({ code: 'invalid_option' })
})

test('a lane continues with other workflows when its head, or a queued execution, is cancelled', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const seen: string[] = []
  const release = deferred<void>()
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      ordered: () => 'till',
      run: async (_, ctx) => {
        seen.push(ctx.correlationId)
        if (ctx.correlationId === 'a') await release.promise
      },
    }),
  )
  await using worker = workerOf(shop.store)
  await worker.start()
  await flows.publish('OrderPlaced', { total: 1 }, { correlationId: 'a' })
  await waitUntil(() => seen.length === 1)
  for (const correlationId of ['b', 'c', 'd']) await flows.publish('OrderPlaced', { total: 1 }, { correlationId })
  await waitUntil(async () => (await statesOf(shop)).join() === 'running,blocked,blocked,blocked')

  await flows.get('c').cancel()
  expect(await inconsistentCounters(shop)).toEqual([])
  await flows.get('a').cancel()
  await flows.get('d').waitUntilSettled()
  release.resolve()
  await worker.stop()

  expect(seen).toEqual(['a', 'b', 'd'])
  expect(await inconsistentCounters(shop)).toEqual([])
  expect(await shop.query('select * from ~workflow_lanes')).toEqual([])
})

test('an execution that a worker holds behind the head of a lane does not run once it is cancelled', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const seen: string[] = []
  const release = deferred<void>()
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      ordered: () => 'till',
      run: async (_, ctx) => {
        seen.push(ctx.correlationId)
        if (ctx.correlationId === 'a') await release.promise
      },
    }),
  )
  await using idleWorker = workerOf(shop.store, { handlers: [] })
  await idleWorker.start()
  for (const correlationId of ['a', 'b', 'c', 'd']) await flows.publish('OrderPlaced', { total: 1 }, { correlationId })
  await waitUntil(async () => (await statesOf(shop)).length === 4)
  // The whole lane is claimed at once: the head runs, the others are held behind it.
  await using worker = workerOf(shop.store, { pollMs: 60_000, leaseMs: 60_000 })
  await worker.start()
  await waitUntil(async () => (await statesOf(shop)).join() === 'running,held,held,held')

  await flows.get('b').cancel()
  expect(await inconsistentCounters(shop)).toEqual([])
  release.resolve()
  for (const each of ['a', 'c', 'd']) await flows.get(each).waitUntilSettled()

  expect(seen).toEqual(['a', 'c', 'd'])
  expect(await inconsistentCounters(shop)).toEqual([])
})

test('open joins of a cancelled workflow are closed, and no longer counted', async () => {
  const shop = await openIdleShop()
  const flows = shop.store.workflows
  flows.register(defineHandler('pay', { on: 'OrderPlaced', delayMs: 60_000, run: () => {} }))
  await using worker = workerOf(shop.store, { handlers: ['idle'] })
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 }, { correlationId: 'order-1' })
  await waitUntil(async () => (await flow.status()).pending === 1)
  await shop.query(`insert into ~workflow_joins (id, position, batch_id, route, size, correlation_id, state)
    select gen_random_uuid(), 1, gen_random_uuid(), 1, 3, 'order-1', state from unnest(array['open', 'open', 'closed']) as state`)
  await shop.query(`update ~workflows set open = open + 2`)

  const status = await flow.cancel()

  expect(status).toMatchObject({ state: 'cancelled', isSettled: true, pending: 0 })
  const joins = await shop.query('select state, closed_at is not null as closed from ~workflow_joins order by state')
  expect(joins).toEqual([
    { state: 'cancelled', closed: true },
    { state: 'cancelled', closed: true },
    { state: 'closed', closed: false },
  ])
  expect(await inconsistentCounters(shop)).toEqual([])
})

test('a dead letter that is being retried is open again', async () => {
  const shop = await openIdleShop()
  const flows = shop.store.workflows
  flows.register(defineHandler('pay', { on: 'OrderPlaced', delayMs: 60_000, run: () => {} }))
  await using worker = workerOf(shop.store, { handlers: ['idle'] })
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 }, { correlationId: 'order-1' })
  await waitUntil(async () => (await flow.status()).pending === 1)
  await shop.query(`update ~workflow_executions set is_retry = true`)
  await shop.query(`insert into ~dead_letters
      (consumer, event_id, position, stream, version, type, fence, attempts, errors, state, execution, correlation_id,
        first_failed_at, last_failed_at)
    select 'handler:pay', e.event_id, e.position, e.stream, e.version, e.type, 1, 1, '[]', 'retrying', x.id, 'order-1',
      e.created_at, e.created_at
    from ~events as e join ~workflow_executions as x on x.position = e.position`)

  await flow.cancel()

  const deadLetters = await shop.query(`select state, retry_at, history->-1->>'from' as before from ~dead_letters`)
  expect(deadLetters).toEqual([{ state: 'open', retry_at: null, before: 'retrying' }])
})

test('a lane parked for a dead letter continues when the workflow of the dead letter is cancelled', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const seen: string[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      ordered: () => 'till',
      onFailure: 'park',
      retries: 0,
      run: (_, ctx) => {
        if (ctx.correlationId === 'a') throw new Error('no money')
        seen.push(ctx.correlationId)
      },
    }),
  )
  await using worker = workerOf(shop.store)
  await worker.start()
  for (const correlationId of ['a', 'b']) await flows.publish('OrderPlaced', { total: 1 }, { correlationId })
  await flows.get('a').waitUntilSettled()
  await waitUntil(async () => (await statesOf(shop)).join() === 'blocked')

  await flows.get('a').cancel({ reason: 'given up' })
  await flows.get('b').waitUntilSettled()

  expect(seen).toEqual(['b'])
  expect((await flows.lanes.list()).items).toEqual([])
  const [deadLetter] = (await shop.store.deadLetters.list()).items
  await expect(shop.store.deadLetters.retry('pay', deadLetter!.eventId)).rejects.toMatchObject({
    code: 'workflow_not_active',
  })
  expect(await inconsistentCounters(shop)).toEqual([])
})

test('all workflows that match are cancelled, in pages, and those that are over or do not match stay as they are', async () => {
  const shop = await openIdleShop()
  const flows = shop.store.workflows
  flows.register(
    defineHandler('pay', { on: 'OrderPlaced', delayMs: 60_000, run: () => {} }),
    defineHandler('thank', { on: 'OrderPaid', run: () => {} }),
  )
  await using worker = workerOf(shop.store, { handlers: ['idle', 'thank'] })
  await worker.start()
  const ids = Array.from({ length: 120 }, (_, at) => `order-${at}`)
  for (const correlationId of ids) await flows.publish('OrderPlaced', { total: 1 }, { correlationId })
  const vip = await flows.publish('OrderPlaced', { total: 9 }, { attributes: { tier: 'vip' } })
  const over = await flows.publish('OrderPaid', { method: 'card' })
  await over.waitUntilSettled()
  await waitUntil(async () => (await statesOf(shop)).length === ids.length + 1)
  const counts: number[] = []

  const ofVip = await flows.cancelAll({ attributes: { tier: 'vip' } }, { reason: 'moved' })
  const rest = await flows.cancelAll({ state: 'running' }, { onProgress: cancelled => counts.push(cancelled) })
  const nothing = await flows.cancelAll({ state: ['running', 'waiting'] })

  expect([ofVip, rest, nothing]).toEqual([{ cancelled: 1 }, { cancelled: ids.length }, { cancelled: 0 }])
  expect(await vip.status()).toMatchObject({ state: 'cancelled', reason: 'moved' })
  expect(await over.status()).toMatchObject({ state: 'settled' })
  expect(counts.at(-1)).toBe(ids.length)
  expect(await statesOf(shop)).toEqual([])
  await expect(flows.cancelAll({})).rejects.toThrow('needs a condition')
  await expect(flows.cancelAll({ state: 'settled' })).rejects.toThrow('is over')
})
