import { expect, test } from 'vitest'
import { encodeCursor } from '../../src/core/page.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import type { ListWorkflowsOptions } from '../../src/workflows/insight/list.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, outcome, type Shop, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

/** Five orders: one failed, one waits for a day, three have settled. */
async function openOrders(): Promise<Shop & { ids(options: ListWorkflowsOptions): Promise<string[]> }> {
  const shop = await openShop()
  const flows = shop.store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 0,
      run: (event, { emit }) => {
        if (event.data.total === 2) throw new Error('no money')
        return event.data.total === 4 ? emit('OrderPaid', { method: 'card' }) : undefined
      },
    }),
  )
  flows.register(defineHandler('ship', { on: 'OrderPaid', delayMs: 86_400_000, run: () => {} }))
  const worker = workerOf(shop.store)
  await worker.start()
  for (const total of [1, 2, 3, 4, 5])
    await flows.publish('OrderPlaced', { total }, { correlationId: `order-${total}` })
  const settled = [1, 2, 3, 5].map(total => flows.get(`order-${total}`).waitUntilSettled())
  await Promise.all(settled)
  await worker.stop()
  const ids = async (options: ListWorkflowsOptions): Promise<string[]> => {
    const { items: workflows } = await flows.list(options)
    return workflows.map(workflow => workflow.correlationId)
  }
  return { ...shop, ids }
}

test('workflows are listed with their status, newest first, in pages', async () => {
  const { store } = await openOrders()
  const flows = store.workflows

  const first = await flows.list({ limit: 2 })
  const second = await flows.list({ limit: 2, after: first.next })
  const third = await flows.list({ limit: 2, after: second.next })

  const pages = [first, second, third].map(page => page.items.map(workflow => workflow.correlationId))
  expect(pages).toEqual([['order-5', 'order-4'], ['order-3', 'order-2'], ['order-1']])
  expect(third.next).toBeUndefined()
  expect(second.items[1]).toEqual(await flows.get('order-2').status())
  expect(JSON.parse(JSON.stringify(first))).toMatchObject({ next: first.next })
})

test('workflows are listed that wait for a retry, in pages, with the executions and when they are tried again', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const run = (): never => {
    throw new Error('the bank is closed')
  }
  flows.register(
    defineHandler('pay', { events: shopEvents, on: 'OrderPlaced', backoff: { baseMs: 3_600_000, jitter: 0 }, run }),
  )
  flows.register(defineHandler('ship', { on: 'OrderPaid', delayMs: 86_400_000, run: () => {} }))
  await using worker = workerOf(store)
  await worker.start()
  const ids = ['order-1', 'order-2', 'order-3']
  for (const correlationId of ids) await flows.publish('OrderPlaced', { total: 1 }, { correlationId })
  // Delayed, too, but it has not failed.
  await flows.publish('OrderPaid', { method: 'card' }, { correlationId: 'order-4' })
  await waitUntil(async () => (await flows.executions.list({ state: 'delayed' })).items.length === 4)

  const first = await flows.list({ isRetrying: true, limit: 2 })
  const second = await flows.list({ isRetrying: true, limit: 2, after: first.next })
  const [open] = (await flows.executions.list({ correlationId: 'order-1' })).items

  const found = [...first.items, ...second.items].map(({ correlationId }) => correlationId)
  expect(found).toEqual(ids.toReversed())
  expect(open).toMatchObject({ state: 'delayed', attempt: 1, dueAt: expect.any(Date) })
  expect(open!.dueAt!.getTime()).toBeGreaterThan(open!.queuedAt.getTime() + 200_000)
})

test('workflows are filtered by state', async () => {
  const { ids } = await openOrders()

  expect(await ids({ state: 'failed' })).toEqual(['order-2'])
  expect(await ids({ state: 'running' })).toEqual(['order-4'])
  expect(await ids({ state: 'settled', limit: 2 })).toEqual(['order-5', 'order-3'])
  expect(await ids({ state: ['running', 'failed'] })).toEqual(['order-4', 'order-2'])
  expect(await ids({ state: 'cancelled' })).toEqual([])
})

test('workflows are filtered by begin and by parent', async () => {
  const { ids, query } = await openOrders()
  await query(`update ~workflows set started_at = ~later('2020-01-05Z', first_position * -86400000.0)`)
  await query(`update ~workflows set parent = 'order-1' where correlation_id in ('order-3', 'order-5')`)
  const [third] = await query<{ at: Date }>(`select started_at as at from ~workflows where correlation_id = 'order-3'`)

  expect(await ids({ startedAfter: third!.at })).toEqual(['order-3', 'order-2', 'order-1'])
  expect(await ids({ startedBefore: third!.at })).toEqual(['order-5', 'order-4'])
  expect(await ids({ parent: 'order-1' })).toEqual(['order-5', 'order-3'])
  expect(await ids({ parent: 'order-1', startedAfter: third!.at, limit: 1 })).toEqual(['order-3'])
})

test('a page reads at most a thousand workflows, and says where the next one begins', async () => {
  const { store, query } = await openShop()
  await query(`
    insert into ~workflows (correlation_id, first_position, last_position, last_type)
    select 'order-' || n, n, n, 'OrderPlaced'
    from generate_series(1, 1500) as n`)
  await query(`update ~workflows set state = 'cancelled' where correlation_id = 'order-100'`)

  const first = await store.workflows.list({ state: 'cancelled', limit: 10 })
  const second = await store.workflows.list({ state: 'cancelled', limit: 10, after: first.next })

  expect(first).toMatchObject({ items: [], next: encodeCursor([501]) })
  expect(second).toMatchObject({ items: [{ correlationId: 'order-100' }], next: undefined })
})

test('a page with a time filter reads at most ten thousand times', async () => {
  const { store, query } = await openShop()
  await query(`
    insert into ~workflows (correlation_id, first_position, last_position, last_type, started_at)
    select 'order-' || n, n, n, 'OrderPlaced', case when n = 1 then '2020-01-01Z'::timestamptz else now() end
    from generate_series(1, 12000) as n`)
  const startedBefore = new Date('2021-01-01')

  const first = await store.workflows.list({ startedBefore })
  const second = await store.workflows.list({ startedBefore, after: first.next })

  expect(first).toMatchObject({ items: [], next: encodeCursor([2001]) })
  expect(second).toMatchObject({ items: [{ correlationId: 'order-1' }], next: undefined })
})

test('invalid filters are refused', async () => {
  const { store } = await openShop()
  const refused = async (options: object): Promise<unknown> =>
    (await outcome(store.workflows.list(options as ListWorkflowsOptions))).error

  expect(await refused({ state: 'asleep' })).toMatchObject({ code: 'invalid_option', option: 'state' })
  expect(await refused({ limit: 0 })).toMatchObject({ code: 'invalid_option', option: 'limit' })
  expect(await refused({ after: '5' })).toMatchObject({ code: 'invalid_option', option: 'after' })
  expect(await refused({ startedAfter: 'today' })).toMatchObject({ code: 'invalid_option', option: 'startedAfter' })
})
