import { expect, test } from 'vitest'
import { deferred } from '../../src/core/abort.ts'
import { defineUndo, recordUndo, settleUndo, type UndoPlace } from '../../src/workflows/cancel/undo.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { pruneAttempts } from '../../src/workflows/retention.ts'
import { claim, drawFences } from '../../src/workflows/work/claim.ts'
import { logOf } from '../support/consumer-parts.ts'
import { enterWorker, workerOf } from '../support/run-worker.ts'
import { openShop, type Shop, shopEvents } from '../support/shop.ts'
import { stepWithUndo } from '../support/step-with-undo.ts'
import { waitUntil } from '../support/wait.ts'

/** An execution of `pay` that the test runs itself, as a worker would. */
async function claimPay(shop: Shop): Promise<UndoPlace> {
  const flows = shop.store.workflows
  flows.register(defineHandler('pay', { on: 'OrderPlaced', run: () => {} }))
  flows.register(defineUndo('refund', { run: () => {} }))
  const worker = workerOf(shop.store, { handlers: [] })
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await waitUntil(async () => (await flow.status()).pending === 1)
  const rows = await shop.query<{ id: number }>('select id from ~workflow_routes')
  const routes = rows.map(({ id }) => id)
  const log = logOf(shop)
  await enterWorker(log, { owner: 'test/1', leaseMs: 60_000, concurrency: 1, routes })
  const [claimed] = await claim(log, {
    owner: 'test/1',
    fence: await drawFences(log)(),
    routes,
    limit: 1,
    ahead: 0,
    graceMs: 60_000,
  })
  await worker.stop()
  return { executionId: claimed!.id, fence: claimed!.fence, kind: 'step', step: 'charge' }
}

test('an undo recorded by a later attempt of its step replaces the earlier one', async () => {
  const shop = await openShop()
  const log = logOf(shop)
  const place = await claimPay(shop)

  await recordUndo(log, shop.database, place, { by: 'refund', data: { card: 1 } })
  await recordUndo(log, shop.database, { ...place, step: 'send' }, { by: 'refund' })
  await recordUndo(log, shop.database, place, { by: 'refund', data: { card: 2 } })
  await settleUndo(log, shop.database, place, '"receipt-1"')

  const undos = await shop.query('select step, data, is_known, result from ~workflow_undos order by id')
  expect(undos).toEqual([
    { step: 'charge', data: { card: 2 }, is_known: true, result: 'receipt-1' },
    { step: 'send', data: null, is_known: false, result: null },
  ])
})

test('a step that is run again with edited data gets a new undo with its new result', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const reported: unknown[] = []
  const again = deferred<void>()
  const charged = deferred<string>()
  const receipts = [() => 'receipt-1', () => charged.promise]
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 0,
      run: async (_, ctx) => {
        await stepWithUndo(ctx, 'charge', { by: 'refund' }, () => {
          if (receipts.length === 1) again.resolve()
          return receipts.shift()!()
        })
        throw new Error('no paper for the receipt')
      },
    }),
  )
  flows.register(defineUndo('refund', { run: (_, { isKnown, result }) => void reported.push([isKnown, result]) }))
  await using worker = workerOf(store)
  await worker.start()
  const id = crypto.randomUUID()
  const flow = await flows.publish('OrderPlaced', { total: 1 }, { id })
  await flow.waitUntilSettled()

  await store.deadLetters.retry('pay', id, { data: { total: 2 } })
  await again.promise
  await flow.cancel({ compensate: true })
  charged.resolve('receipt-2')
  await flow.waitUntilSettled()

  expect(reported).toEqual([[false, undefined]])
})

test('an undo is recorded only under the fence of its attempt', async () => {
  const shop = await openShop()
  const log = logOf(shop)
  const place = await claimPay(shop)
  const undo = { by: 'refund' }

  const stale = recordUndo(log, shop.database, { ...place, fence: place.fence - 1 }, undo)
  await expect(stale).rejects.toMatchObject({ code: 'execution_lost' })
  await shop.query(`update ~workflow_executions set state = 'stopping'`)
  await expect(recordUndo(log, shop.database, place, undo)).rejects.toMatchObject({ code: 'execution_lost' })

  expect(await shop.query('select * from ~workflow_undos')).toEqual([])
})

test('an unregistered undo, or one with invalid data, is refused before its step is run', async () => {
  const shop = await openShop()
  const log = logOf(shop)
  const place = await claimPay(shop)

  const misspelt = recordUndo(log, shop.database, place, { by: 'refunt' })
  await expect(misspelt).rejects.toMatchObject({ code: 'handler_not_found', nearest: 'refund' })
  const handler = recordUndo(log, shop.database, place, { by: 'pay' })
  await expect(handler).rejects.toMatchObject({ code: 'handler_not_found' })
  const data = recordUndo(log, shop.database, place, { by: 'refund', data: { total: 1n } })
  await expect(data).rejects.toMatchObject({ code: 'invalid_event' })
})

test('the effects of an undo cannot be undone', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: (_, ctx) => stepWithUndo(ctx, 'charge', { by: 'refund' }, () => {}),
    }),
  )
  flows.register(
    defineUndo('refund', {
      events: shopEvents,
      run: (_, __, ctx) => stepWithUndo(ctx, 'pay back', { by: 'refund' }, () => {}) as Promise<undefined>,
    }),
  )
  await using worker = workerOf(shop.store)
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await flow.waitUntilSettled()

  await flow.cancel({ compensate: true })
  const ended = await flow.waitUntilSettled()

  expect(ended.state).toBe('compensationFailed')
  expect((await shop.store.deadLetters.list()).items).toMatchObject([{ lastError: { code: 'invalid_option' } }])
})

test('a name belongs to a handler or to an undo, in every process', async () => {
  const shop = await openShop()
  const other = await shop.sibling()
  shop.store.workflows.register(defineUndo('refund', { run: () => {} }))
  await shop.store.workflows.sync()

  other.workflows.register(defineHandler('refund', { on: 'OrderPlaced', run: () => {} }))

  await expect(other.workflows.sync()).rejects.toMatchObject({ code: 'invalid_option', option: 'name' })
  expect(() => shop.store.workflows.register(defineUndo('refund', { run: () => {} }))).toThrow(
    /already registered in this store/,
  )
  expect(() => shop.store.workflows.register(defineUndo('other', { run: undefined as never }))).toThrow(/no function/)
})

test('an undo whose code no worker has waits for one', async () => {
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
  flows.register(defineUndo('refund', { run: (_, { name }) => void undone.push(name) }))
  await using paying = workerOf(shop.store, { handlers: ['pay'] })
  await paying.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await flow.waitUntilSettled()
  await flow.cancel({ compensate: true })

  const before = await flow.cancel({ reason: 'never mind' })
  await using refunding = workerOf(shop.store, { handlers: ['refund'] })
  await refunding.start()
  const ended = await flow.waitUntilSettled()

  expect(before).toMatchObject({ state: 'compensating', pending: 1, reason: undefined })
  expect(ended.state).toBe('compensated')
  expect(undone).toEqual(['charge'])
})

test('undos are kept as long as they can be requested', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: (_, ctx) => stepWithUndo(ctx, 'charge', { by: 'refund' }, () => {}),
    }),
  )
  flows.register(defineHandler('wait', { on: 'OrderPaid', delayMs: 60_000, run: () => {} }))
  flows.register(defineUndo('refund', { run: () => {} }))
  await using worker = workerOf(shop.store)
  await worker.start()
  for (const correlationId of ['over', 'open', 'undone']) {
    await flows.publish('OrderPlaced', { total: 1 }, { correlationId })
    await flows.get(correlationId).waitUntilSettled()
  }
  await flows.get('open').signal('OrderPaid', { method: 'card' })
  await waitUntil(async () => (await flows.get('open').status()).pending === 1)
  await flows.get('undone').cancel({ compensate: true })
  await flows.get('undone').waitUntilSettled()

  await pruneAttempts(logOf(shop), { olderThanMs: 60_000 })
  const kept = await shop.query('select correlation_id from ~workflow_undos order by id')
  await pruneAttempts(logOf(shop), { olderThanMs: 0 })

  expect(kept).toHaveLength(3)
  expect(await shop.query('select correlation_id from ~workflow_undos')).toEqual([{ correlation_id: 'open' }])
})
