import { expect, test } from 'vitest'
import { deferred } from '../../src/core/abort.ts'
import { defineUndo, recordUndo } from '../../src/workflows/cancel/undo.ts'
import { complete } from '../../src/workflows/emit.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { type Claimed, claim, drawFences } from '../../src/workflows/work/claim.ts'
import { logOf } from '../support/consumer-parts.ts'
import { inconsistentCounters } from '../support/counters-consistency.ts'
import { enterWorker, workerOf } from '../support/run-worker.ts'
import { openShop, type Shop, shopEvents } from '../support/shop.ts'
import { stepWithUndo } from '../support/step-with-undo.ts'
import { waitUntil } from '../support/wait.ts'

function undosOf({ query }: Shop): Promise<{ step: string; state: string }[]> {
  return query('select step, state from ~workflow_undos order by id')
}

test('the steps of a workflow are undone, newest first, each once, with their results', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const undone: unknown[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_, ctx) => {
        await stepWithUndo(ctx, 'reserve', { by: 'refund', data: { what: 'goods' } }, () => ({ shelf: 7 }))
        await stepWithUndo(ctx, 'charge', { by: 'refund', data: { what: 'card' } }, () => 'receipt-1')
        return ctx.emit('OrderPaid', { method: 'card' })
      },
    }),
  )
  flows.register(
    defineHandler('ship', {
      events: shopEvents,
      on: 'OrderPaid',
      run: (_, ctx) => stepWithUndo(ctx, 'send', { by: 'call-back' }, () => {}),
    }),
  )
  flows.register(
    defineUndo('refund', {
      run: (data: { what: string }, { name, isKnown, result }) => {
        undone.push([data.what, name, isKnown, result])
      },
    }),
  )
  flows.register(
    defineUndo('call-back', {
      run: (data, { name, isKnown, result }, ctx) => {
        undone.push([data, name, isKnown, result, ctx.handler, ctx.attempt])
      },
    }),
  )
  await using worker = workerOf(shop.store)
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await flow.waitUntilSettled()

  const begun = await flow.cancel({ reason: 'sent back', compensate: true })
  const ended = await flow.waitUntilSettled()
  const again = await flow.cancel({ compensate: true })

  expect(begun).toMatchObject({ state: 'compensating', isSettled: false, pending: 1, reason: 'sent back' })
  expect(ended).toMatchObject({ state: 'compensated', isSettled: true, pending: 0 })
  expect(again).toEqual(ended)
  expect(undone).toEqual([
    [null, 'send', true, null, 'call-back', 1],
    ['card', 'charge', true, 'receipt-1'],
    ['goods', 'reserve', true, { shelf: 7 }],
  ])
  expect(await inconsistentCounters(shop)).toEqual([])
})

test('compensation waits for a running attempt, whose undo gets an unknown result', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const charging = deferred<void>()
  const charged = deferred<string>()
  const aborted = deferred<unknown>()
  const undone: unknown[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_, ctx) => {
        ctx.signal.addEventListener('abort', () => aborted.resolve(ctx.signal.reason))
        await stepWithUndo(ctx, 'charge', { by: 'refund' }, () => {
          charging.resolve()
          return charged.promise
        })
        return ctx.emit('OrderPaid', { method: 'card' })
      },
    }),
  )
  flows.register(defineUndo('refund', { run: (_, reported) => void undone.push(reported) }))
  await using worker = workerOf(shop.store, { pollMs: 60_000, leaseMs: 60_000 })
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await charging.promise

  await flow.cancel({ compensate: true })
  const reason = await aborted.promise
  const during = await flow.status()
  const stopping = await shop.query('select state from ~workflow_executions')
  // The replaced attempt completes its step and its run, and nothing of it counts.
  charged.resolve('receipt-1')
  const ended = await flow.waitUntilSettled()

  expect(reason).toMatchObject({ code: 'execution_lost' })
  expect(during).toMatchObject({ state: 'compensating', pending: 1 })
  expect(stopping).toEqual([{ state: 'stopping' }])
  expect(ended.state).toBe('compensated')
  expect(undone).toHaveLength(1)
  expect(await shop.store.events.read(`workflow-${flow.correlationId}`).toArray()).toHaveLength(1)
  const reported = await shop.query(`select kind, outcome, handler from ~workflow_activity
    where kind in ('cancelled', 'completed') order by position`)
  expect(reported).toEqual([
    { kind: 'cancelled', outcome: 'stopping', handler: 'pay' },
    { kind: 'completed', outcome: null, handler: 'refund' },
  ])
  expect(await inconsistentCounters(shop)).toEqual([])
})

test('compensation waits for an attempt that ignores its signal until its time limit', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const charging = deferred<void>()
  const never = deferred<void>()
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      timeoutMs: 60_000,
      run: async (_, ctx) => {
        await stepWithUndo(ctx, 'charge', { by: 'refund' }, () => charging.resolve())
        await never.promise
      },
    }),
  )
  flows.register(defineUndo('refund', { run: () => {} }))
  await using worker = workerOf(shop.store, { pollMs: 20 })
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await charging.promise
  await flow.cancel({ compensate: true })
  expect(await flow.status()).toMatchObject({ state: 'compensating', pending: 1 })

  await shop.query(`update ~workflow_executions set deadline_at = now() - interval '1 second' where state = 'stopping'`)
  const ended = await flow.waitUntilSettled()
  never.resolve()

  expect(ended.state).toBe('compensated')
  expect(await inconsistentCounters(shop)).toEqual([])
})

/** A worker that only claims ready executions. */
async function claimAll(shop: Shop): Promise<Claimed[]> {
  const log = logOf(shop)
  const rows = await shop.query<{ id: number }>('select id from ~workflow_routes')
  const routes = rows.map(({ id }) => id)
  await enterWorker(log, { owner: 'dead/1', leaseMs: 60_000, concurrency: 1, routes })
  return claim(log, { owner: 'dead/1', fence: await drawFences(log)(), routes, limit: 10, ahead: 0, graceMs: 60_000 })
}

/** Its heartbeat is older than its lease. */
async function die({ query }: Shop): Promise<void> {
  await query(`update ~runners set heartbeat_at = '-infinity' where id = 'dead/1'`)
}

test('compensation does not wait for an attempt whose worker died', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const undone: unknown[] = []
  flows.register(defineHandler('pay', { on: 'OrderPlaced', run: () => {} }))
  flows.register(defineUndo('refund', { run: (_, reported) => void undone.push(reported) }))
  await using dispatching = workerOf(shop.store, { handlers: [], pollMs: 60_000, leaseMs: 60_000 })
  await dispatching.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await waitUntil(async () => (await flow.status()).pending === 1)
  const [claimed] = await claimAll(shop)
  const place = { executionId: claimed!.id, fence: claimed!.fence, kind: 'step', step: 'charge' }
  await recordUndo(logOf(shop), shop.database, place, { by: 'refund' })

  const begun = await flow.cancel({ compensate: true })
  await die(shop)
  await using worker = workerOf(shop.store, { pollMs: 20 })
  await worker.start()
  const ended = await flow.waitUntilSettled()

  expect(begun).toMatchObject({ state: 'compensating', pending: 1 })
  expect(ended.state).toBe('compensated')
  expect(undone).toEqual([{ name: 'charge', isKnown: false, result: undefined }])
  expect(await inconsistentCounters(shop)).toEqual([])
})

test('compensation continues where a worker died in the middle of it', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const undone: string[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_, ctx) => {
        for (const name of ['one', 'two', 'three']) await stepWithUndo(ctx, name, { by: 'refund' }, () => name)
      },
    }),
  )
  flows.register(defineUndo('refund', { run: (_, { name }, ctx) => void undone.push(`${name} ${ctx.attempt}`) }))
  const before = workerOf(shop.store, { handlers: ['pay'] })
  await before.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await flow.waitUntilSettled()
  await before.stop()
  await flow.cancel({ compensate: true })

  const [claimed] = await claimAll(shop)
  await die(shop)
  await using worker = workerOf(shop.store, { pollMs: 20 })
  await worker.start()
  const ended = await flow.waitUntilSettled()

  expect(claimed?.undoId).toBe(3)
  expect(ended.state).toBe('compensated')
  expect(undone).toEqual(['three 2', 'two 1', 'one 1'])
  expect((await undosOf(shop)).map(({ state }) => state)).toEqual(['done', 'done', 'done'])
  expect(await inconsistentCounters(shop)).toEqual([])
})

test('an undo is retried; one that fails for good ends the compensation, and becomes a dead letter', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const undone: string[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_, ctx) => {
        for (const name of ['one', 'two', 'three']) await stepWithUndo(ctx, name, { by: 'refund' }, () => name)
      },
    }),
  )
  flows.register(
    defineUndo('refund', {
      retries: 1,
      backoff: { baseMs: 1 },
      run: (_, { name }, ctx) => {
        undone.push(`${name} ${ctx.attempt}`)
        if (name === 'two' || ctx.attempt === 1) throw new Error(`no refund of ${name}`)
      },
    }),
  )
  await using worker = workerOf(shop.store)
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await flow.waitUntilSettled()

  await flow.cancel({ compensate: true })
  const ended = await flow.waitUntilSettled()

  expect(ended).toMatchObject({ state: 'compensationFailed', isSettled: true, pending: 0, deadLetters: 1 })
  expect(undone).toEqual(['three 1', 'three 2', 'two 1', 'two 2'])
  expect(await undosOf(shop)).toEqual([
    { step: 'one', state: 'recorded' },
    { step: 'two', state: 'failed' },
    { step: 'three', state: 'done' },
  ])
  expect((await shop.store.deadLetters.list()).items).toMatchObject([
    { handler: 'refund', attempts: 2, lastError: { message: 'no refund of two' } },
  ])
  expect(await flow.cancel({ compensate: true })).toEqual(ended)
  expect(await inconsistentCounters(shop)).toEqual([])
})

test('a handler that fails for good compensates the workflow, if it is configured to', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const undone: string[] = []
  const packing = deferred<void>()
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_, ctx) => {
        await stepWithUndo(ctx, 'charge', { by: 'refund' }, () => 'receipt-1')
        return ctx.emit('OrderPaid', { method: 'card' })
      },
    }),
  )
  flows.register(defineHandler('remind', { on: 'OrderPaid', delayMs: 60_000, run: () => {} }))
  flows.register(
    defineHandler('pack', {
      events: shopEvents,
      on: 'OrderPaid',
      run: async (_, ctx) => {
        packing.resolve()
        await new Promise(resolve => ctx.signal.addEventListener('abort', resolve))
        undone.push('packing stopped')
      },
    }),
  )
  flows.register(
    defineHandler('ship', {
      events: shopEvents,
      on: 'OrderPaid',
      ordered: true,
      retries: 1,
      backoff: { baseMs: 1 },
      onDeadLetter: 'compensate',
      run: async (_, ctx) => {
        await packing.promise
        await stepWithUndo(ctx, 'send', { by: 'refund' }, () => {
          throw new Error('no parcels')
        })
      },
    }),
  )
  flows.register(defineUndo('refund', { run: (_, { name, isKnown }) => void undone.push(`${name} ${isKnown}`) }))
  await using worker = workerOf(shop.store, { pollMs: 60_000, leaseMs: 60_000 })
  await worker.start()

  const flow = await flows.publish('OrderPlaced', { total: 1 })
  const ended = await flow.waitUntilSettled()

  expect(ended).toMatchObject({ state: 'compensated', reason: 'ship has failed: no parcels', deadLetters: 1 })
  expect(undone).toEqual(['packing stopped', 'send false', 'charge true'])
  expect((await shop.store.deadLetters.list()).items).toMatchObject([{ handler: 'ship', attempts: 2 }])
  const cancelled = await shop.query(`select handler, outcome from ~workflow_activity where kind = 'cancelled'
    order by handler`)
  expect(cancelled).toEqual([
    { handler: 'pack', outcome: 'stopping' },
    { handler: 'remind', outcome: 'delayed' },
  ])
  expect(await inconsistentCounters(shop)).toEqual([])
})

test('events and writes of an undo are stored with its end, and run no handlers', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const seen: string[] = []
  await shop.query('create table ~refunds (step text)')
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_, ctx) => {
        for (const name of ['one', 'two']) await stepWithUndo(ctx, name, { by: 'refund' }, () => name)
      },
    }),
  )
  flows.register(
    defineHandler('watch', { events: shopEvents, on: 'OrderPaid', run: event => void seen.push(event.type) }),
  )
  flows.register(
    defineUndo('refund', {
      events: shopEvents,
      run: (_, { name }, { emit }) =>
        complete(
          tx => tx.query(shop.named('insert into ~refunds values ($1)'), [name]),
          emit('OrderPaid', { method: 'cash' }),
        ),
    }),
  )
  await using worker = workerOf(shop.store)
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await flow.waitUntilSettled()

  await flow.cancel({ compensate: true })
  const ended = await flow.waitUntilSettled()

  expect(ended).toMatchObject({ state: 'compensated', lastType: 'OrderPaid' })
  const events = await shop.store.events.read(`workflow-${flow.correlationId}`).toArray()
  expect(events.map(({ type, headers }) => [type, headers.workflow])).toEqual([
    ['OrderPlaced', undefined],
    ['OrderPaid', { hops: 1, handler: 'refund' }],
    ['OrderPaid', { hops: 1, handler: 'refund' }],
  ])
  expect(await shop.query('select step from ~refunds')).toEqual([{ step: 'two' }, { step: 'one' }])
  expect(seen).toEqual([])
})

test('a workflow without undos is compensated immediately, and its open executions are removed', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  flows.register(defineHandler('pay', { on: 'OrderPlaced', delayMs: 60_000, run: () => {} }))
  await using worker = workerOf(shop.store)
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await waitUntil(async () => (await flow.status()).pending === 1)

  const status = await flow.cancel({ compensate: true })

  expect(status).toMatchObject({ state: 'compensated', isSettled: true, pending: 0 })
  expect(await inconsistentCounters(shop)).toEqual([])
})

test('a lane keeps its place until its stopping attempt has ended', async () => {
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
  await using idle = workerOf(shop.store, { handlers: [] })
  await idle.start()
  for (const correlationId of ['a', 'b']) await flows.publish('OrderPlaced', { total: 1 }, { correlationId })
  await waitUntil(async () => (await shop.query('select * from ~workflow_executions')).length === 2)
  await using worker = workerOf(shop.store)
  await worker.start()
  await waitUntil(
    async () => (await shop.query(`select * from ~workflow_executions where state = 'held'`)).length === 1,
  )

  await flows.get('a').cancel({ compensate: true })
  const states = await shop.query('select state from ~workflow_executions order by position')
  const wrong = await inconsistentCounters(shop)
  release.resolve()
  await flows.get('b').waitUntilSettled()

  expect(states).toEqual([{ state: 'stopping' }, { state: 'blocked' }])
  expect(wrong).toEqual([])
  expect(seen).toEqual(['a', 'b'])
  expect(await flows.get('a').status()).toMatchObject({ state: 'compensated' })
  expect(await inconsistentCounters(shop)).toEqual([])
})

test('compensation reaches the children of the workflow, also if they have ended', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const undone: string[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: (_, ctx) => stepWithUndo(ctx, 'charge', { by: 'refund' }, () => {}),
    }),
  )
  flows.register(defineUndo('refund', { run: (_, __, ctx) => void undone.push(ctx.correlationId) }))
  await using worker = workerOf(shop.store)
  await worker.start()
  const headers = { workflow: { parent: 'order' } }
  const order = await flows.publish('OrderPlaced', { total: 1 }, { correlationId: 'order' })
  await order.waitUntilSettled()
  const gift = await flows.publish('OrderPlaced', { total: 1 }, { correlationId: 'gift', headers })
  await gift.waitUntilSettled()

  await order.cancel({ compensate: true })
  const ends = [await order.waitUntilSettled(), await gift.waitUntilSettled()]

  expect(ends.map(({ state }) => state)).toEqual(['compensated', 'compensated'])
  expect(undone.sort()).toEqual(['gift', 'order'])
})
