import { expect, test } from 'vitest'
import { deferred } from '../../src/core/abort.ts'
import { encodeCursor } from '../../src/core/page.ts'
import { batch } from '../../src/workflows/emit.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { defineJoin } from '../../src/workflows/joins/join.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, outcome, paid, placed, type Shop, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

/** The expected counters, counted from the tables. */
async function countAll({ query }: Shop) {
  const [row] = await query<Record<string, number>>(`
    select
      (select count(*)::int from ~workflows) as workflows,
      (select count(*)::int from ~workflows where open > 0) as active,
      (select count(*)::int from ~events as e join ~workflows as w on w.correlation_id = e.correlation_id) as events,
      (select count(*)::int from ~workflow_activity where kind = 'dispatched') as dispatched,
      (select count(*)::int from ~workflow_activity where kind in ('completed', 'skipped')) as completed,
      (select count(*)::int from ~workflow_activity where kind = 'failed' and outcome not in ('retry', 'crashed')) as failed,
      (select count(*)::int from ~workflow_activity where kind = 'cancelled') as cancelled,
      (select count(*)::int from ~workflow_executions) as open`)
  return row!
}

async function countersOf({ store }: Shop) {
  const { workflows, events, executions } = await store.workflows.stats()
  const { dispatched, completed, failed, cancelled, open } = executions
  return {
    ...{ workflows: workflows.total, active: workflows.active, events, dispatched, completed, failed, cancelled },
    open: Object.values(open).reduce((sum, count) => sum + count, 0),
  }
}

/** Handlers of every kind: queued, ordered, inline, failing, filtering, and delayed until tomorrow. */
function register({ store }: Shop): void {
  const flows = store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: (event, { emit }) => emit('OrderPaid', { method: event.data.total % 2 ? 'card' : 'cash' }),
    }),
  )
  flows.register(
    defineHandler('check', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 1,
      backoff: { baseMs: 1 },
      run: (event, { attempt }) => {
        if (event.data.total % 3 === 0 || attempt === 1) throw new Error('odd')
      },
    }),
  )
  flows.register(
    defineHandler('ship', {
      events: shopEvents,
      on: 'OrderPaid',
      ordered: true,
      run: (_, { emit }) => [emit('OrderShipped', { parcel: 'a' }), emit('OrderShipped', { parcel: 'b' })],
    }),
  )
  flows.register(defineHandler('book', { on: 'OrderPaid', inline: true, run: () => {} }))
  flows.register(
    defineHandler('count', { events: shopEvents, on: 'OrderShipped', ordered: () => 'all', run: () => {} }),
  )
  flows.register(
    defineHandler('choose', {
      events: shopEvents,
      on: 'OrderShipped',
      when: event => event.data.parcel === 'a',
      run: () => {},
    }),
  )
  flows.register(
    defineHandler('ask', {
      events: shopEvents,
      on: 'OrderShipped',
      delayMs: 86_400_000,
      when: () => true,
      run: () => {},
    }),
  )
}

test('SB-21, SB-43: the counters match the tables after a mixed load', async () => {
  const shop = await openShop()
  const { workflows: flows } = shop.store
  register(shop)
  const workers = [workerOf(shop.store, { concurrency: 4 }), workerOf(shop.store, { concurrency: 4 })]
  await Promise.all(workers.map(worker => worker.start()))
  const publish = (total: number) => flows.publish('OrderPlaced', { total })
  const shipped = async (): Promise<number> => {
    const rows = await shop.query<{ n: number }>(`select count(*)::int as n from ~workflow_activity
      where handler in ('count', 'choose') and kind in ('completed', 'skipped')`)
    return rows[0]!.n
  }

  await Promise.all(Array.from({ length: 3 }, (_, n) => publish(n)))
  // One ends in the middle: its counts become part of the total.
  await workers[0]!.stop()
  await Promise.all(Array.from({ length: 3 }, (_, n) => publish(n)))
  await shop.store.events.append('order-1', [placed(1), paid], { correlationId: 'order-1' })
  await shop.store.events.append('elsewhere', { type: 'Unheard', data: {} } as never)
  await waitUntil(async () => (await shipped()) === 8 * 2 * 2)
  await waitUntil(
    async () =>
      (await countersOf(shop)).failed === 2 &&
      (await countersOf(shop)).open === 16 &&
      (await shop.store.workflows.stats()).executions.open.delayed === 16,
  )
  await workers[1]!.stop()

  expect(await countersOf(shop)).toEqual(await countAll(shop))
  expect(await flows.stats()).toMatchObject({
    workflows: { total: 7, active: 7, settled: 0 },
    executions: { open: { delayed: 16, ready: 0, running: 0, blocked: 0 } },
    deadLetters: { open: 2, retrying: 0, parked: 0, replayed: 0, resolved: 0 },
  })
})

test('cancelled executions, dispatched or not, and retried ones are counted as well', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
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
  flows.register(defineHandler('thank', { on: 'OrderPaid', delayMs: 86_400_000, run: () => {} }))
  const early = await flows.publish('OrderPaid', { method: 'card' })
  await early.cancel({ reason: 'too early' })
  await using worker = workerOf(shop.store)
  await worker.start()
  const late = await flows.publish('OrderPaid', { method: 'card' })
  const failing = await flows.publish('OrderPlaced', { total: 1 })
  await failing.waitUntilSettled()
  await waitUntil(async () => (await late.status()).pending === 1)

  await late.cancel({ reason: 'too late' })
  isBroken = false
  await shop.store.deadLetters.retryAll()
  await Promise.all([early, late, failing].map(flow => flow.waitUntilSettled()))

  const counted = await countersOf(shop)
  expect(counted).toEqual(await countAll(shop))
  expect(counted).toMatchObject({ workflows: 3, active: 0, events: 3, dispatched: 3, failed: 1, cancelled: 1, open: 0 })
  expect((await flows.stats()).deadLetters).toEqual({ open: 0, retrying: 0, parked: 0, replayed: 1, resolved: 0 })
})

test('an event is counted once, also if it is given to a handler that was added later', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  flows.register(defineHandler('pay', { on: 'OrderPlaced', run: () => {} }))
  const worker = workerOf(shop.store)
  await worker.start()
  const all = await Promise.all([1, 2, 3].map(total => flows.publish('OrderPlaced', { total })))
  await Promise.all(all.map(flow => flow.waitUntilSettled()))
  await worker.stop()
  const other = await shop.sibling()
  other.workflows.register(defineHandler('audit', { on: '*', from: 'start', run: () => {} }))
  await using late = workerOf(other)
  await late.start()

  await waitUntil(async () => (await countersOf(shop)).completed === 6)

  expect(await countersOf(shop)).toEqual(await countAll(shop))
  expect((await flows.stats()).workflows).toEqual({ total: 3, active: 0, settled: 3 })
})

test('running, waiting and blocked executions are counted by state', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const { promise: open, resolve: release } = deferred<void>()
  flows.register(
    defineHandler('pay', { events: shopEvents, on: 'OrderPlaced', ordered: () => 'till', run: () => open }),
  )
  flows.register(defineHandler('weigh', { on: 'OrderPlaced', concurrency: 1, run: () => open }))
  await using worker = workerOf(shop.store)
  await worker.start()
  for (let n = 0; n < 20; n++) await flows.publish('OrderPlaced', { total: n })

  await waitUntil(async () => (await flows.stats()).executions.dispatched === 40)
  await waitUntil(async () => (await flows.stats()).executions.open.running === 2)
  const { open: counts } = (await flows.stats()).executions
  release()

  expect(counts).toMatchObject({ ready: 19, running: 2, delayed: 0, parked: 0 })
  expect(counts.held + counts.blocked + counts.unkeyed).toBe(19)
})

test('batches and their joins are counted, and an execution that waits for a day is suspended', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  flows.register(
    defineHandler('split', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: (_, { emit }) => batch([1, 2, 3].map(() => emit('OrderPaid', { method: 'card' }))),
    }),
  )
  flows.register(
    defineHandler('weigh', {
      events: shopEvents,
      on: 'OrderPaid',
      run: (_, { emit }) => emit('OrderShipped', { parcel: 'p' }),
    }),
  )
  flows.register(
    defineJoin('gather', { events: shopEvents, on: 'OrderShipped', run: async (_, ctx) => ctx.sleep(86_400_000) }),
  )
  await using worker = workerOf(shop.store)
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await waitUntil(async () => (await flow.status()).state === 'waiting')

  const counted = await countersOf(shop)
  const { items: workflows } = await flows.list({ state: 'waiting' })

  expect(counted).toEqual(await countAll(shop))
  expect(counted).toMatchObject({ active: 1, events: 7, dispatched: 5, completed: 4, open: 1 })
  expect((await flows.stats()).executions.open).toMatchObject({ suspended: 1, running: 0 })
  expect(workflows).toMatchObject([{ correlationId: flow.correlationId, pending: 1 }])
})

test('SB-43: a failed workflow shows its latest error by time, and the number of errors', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  flows.register(
    defineHandler('zebra', {
      on: 'OrderPlaced',
      retries: 0,
      run: () => {
        throw new Error('z is the last letter')
      },
    }),
  )
  flows.register(
    defineHandler('ant', {
      on: 'OrderPaid',
      retries: 0,
      run: () => {
        throw new Error('a is the first letter')
      },
    }),
  )
  await using worker = workerOf(shop.store)
  await worker.start()
  for (const id of ['order-1', 'order-2']) {
    const flow = await flows.publish('OrderPlaced', { total: 1 }, { correlationId: id })
    await flow.waitUntilSettled()
    await flows.publish('OrderPaid', { method: 'card' }, { correlationId: id })
    await waitUntil(async () => (await flow.status()).deadLetters === 2)
  }

  const first = await flows.list({ hasDeadLetters: true, limit: 1 })
  const second = await flows.list({ state: 'failed', limit: 1, after: first.next })
  const third = await flows.list({ hasDeadLetters: true, after: second.next })

  expect([...first.items, ...second.items].map(each => each.correlationId)).toEqual(['order-2', 'order-1'])
  expect(first.items[0]).toMatchObject({
    deadLetters: 2,
    lastFailure: {
      handler: 'ant',
      reason: 'failed',
      error: { message: 'a is the first letter' },
      at: expect.any(Date),
    },
  })
  expect(third).toEqual({ items: [], next: undefined })
})

test('SB-43: attempts are kept, also those of dead letters, newest first, with their times, errors and results', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: (_, { emit }) => emit('OrderPaid', { method: 'card' }),
    }),
  )
  flows.register(
    defineHandler('ship', {
      on: 'OrderPaid',
      retries: 1,
      backoff: { baseMs: 1 },
      run: () => {
        throw new Error('no van')
      },
    }),
  )
  await using worker = workerOf(shop.store)
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await flow.waitUntilSettled()

  const { items: attempts, next } = await flows.attempts()
  const [last, retried, first] = attempts

  expect(attempts).toHaveLength(3)
  expect(next).toBeUndefined()
  expect(last).toMatchObject({ kind: 'failed', outcome: 'maxRetries', attempt: 2, error: { message: 'no van' } })
  expect(retried).toMatchObject({ kind: 'failed', outcome: 'retry', attempt: 1, handler: 'ship' })
  expect(first).toMatchObject({ kind: 'completed', result: { emitted: 1, events: [{ type: 'OrderPaid' }] } })
  for (const each of attempts)
    expect(each).toMatchObject({ queuedMs: expect.any(Number), runningMs: expect.any(Number), worker: worker.id })
})

test('attempts are filtered by workflow, handler, execution and outcome, in pages', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 0,
      run: event => {
        if (event.data.total === 2) throw new Error('no money')
      },
    }),
  )
  flows.register(
    defineHandler('book', {
      events: shopEvents,
      on: 'OrderPlaced',
      inline: true,
      run: (_, { emit }) => emit('OrderShipped', { parcel: 'p' }),
    }),
  )
  await using worker = workerOf(shop.store)
  await worker.start()
  for (const total of [1, 2, 3]) {
    const flow = await flows.publish('OrderPlaced', { total }, { correlationId: `order-${total}` })
    await flow.waitUntilSettled()
  }
  const found = async (options: Parameters<typeof flows.attempts>[0]): Promise<string[]> =>
    (await flows.attempts(options)).items.map(each => `${each.handler} ${each.correlationId}`)

  const [{ executionId } = { executionId: '' }] = (await flows.attempts({ outcome: 'failed' })).items
  const first = await flows.attempts({ handler: 'pay', limit: 2 })

  expect(await found({ correlationId: 'order-1' })).toEqual(['pay order-1', 'book order-1'])
  expect(await found({ handler: 'book' })).toEqual(['book order-3', 'book order-2', 'book order-1'])
  expect(await found({ handler: 'pay', outcome: 'completed' })).toEqual(['pay order-3', 'pay order-1'])
  expect(await found({ correlationId: 'order-2', handler: 'pay', outcome: 'failed' })).toEqual(['pay order-2'])
  expect(await found({ executionId })).toEqual(['pay order-2'])
  expect(await found({ outcome: 'inline', correlationId: 'order-2' })).toEqual(['book order-2'])
  expect(await found({ handler: 'pay', after: first.next })).toEqual(['pay order-1'])
  expect(JSON.parse(JSON.stringify(first))).toMatchObject({ next: first.next })
  expect((await outcome(flows.attempts({ executionId: 'x' }))).error).toMatchObject({ option: 'executionId' })
})

test('a page of attempts reads at most ten thousand lines, and says where the next one begins', async () => {
  const shop = await openShop()
  await shop.query(`
    insert into ~workflow_activity (position, event_position, execution, version, attempt, kind, handler, correlation_id)
    select n, 1, gen_random_uuid(), 1, 1, case when n = 5 then 'failed' else 'completed' end, 'pay', 'order-1'
    from generate_series(1, 12000) as n`)
  const { workflows: flows } = shop.store

  for (const options of [{}, { handler: 'pay' }, { correlationId: 'order-1' }]) {
    const first = await flows.attempts({ ...options, outcome: 'failed' })
    const second = await flows.attempts({ ...options, outcome: 'failed', after: first.next })

    expect(first).toMatchObject({ items: [], next: encodeCursor([2001]) })
    expect(second).toMatchObject({ items: [{ position: 5 }], next: undefined })
  }
})
