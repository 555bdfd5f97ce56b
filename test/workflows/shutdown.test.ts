/** The state that a worker leaves when it stops, and the effect of a failing event on others. */
import { expect, test } from 'vitest'
import { enter, heartbeat, servesNoMore } from '../../src/consumers/runners/row.ts'
import { deferred } from '../../src/core/abort.ts'
import { complete } from '../../src/workflows/emit.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { rescueWorker } from '../../src/workflows/work/rescue.ts'
import { logOf } from '../support/consumer-parts.ts'
import { workerOf } from '../support/run-worker.ts'
import { onServer, openShop, type Shop, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

/** Too long to expire during the test: the observed effects were not caused by an expired lease. */
const leaseMs = 600_000

test('SB-40: a worker that stops lets running attempts end, and claims nothing more', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const [begun, goOn] = [deferred<void>(), deferred<void>()]
  const runs: number[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (event, { emit }) => {
        runs.push(event.data.total)
        begun.resolve()
        await goOn.promise
        return emit('OrderPaid', { method: 'card' })
      },
    }),
  )
  const worker = workerOf(shop.store, { leaseMs, concurrency: 1 })
  await worker.start()
  const first = await flows.publish('OrderPlaced', { total: 1 })
  await begun.promise

  const stopped = worker.stop()
  const second = await flows.publish('OrderPlaced', { total: 2 })
  goOn.resolve()
  await stopped

  expect(runs).toEqual([1])
  expect(worker.isRunning).toBe(false)
  expect(await activity(shop, first.correlationId)).toEqual(['dispatched', 'started 1', 'completed 1'])
  expect(await second.status()).toMatchObject({ isSettled: false })
})

test('SB-40: executions that a worker had claimed and not begun are free as soon as it stops', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const [begun, goOn] = [deferred<void>(), deferred<void>()]
  const runs: number[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async event => {
        runs.push(event.data.total)
        begun.resolve()
        await goOn.promise
      },
    }),
  )
  await flows.sync()
  for (const total of [1, 2, 3, 4]) await placed(shop, total)
  const worker = workerOf(shop.store, { leaseMs, concurrency: 1 })
  await worker.start()
  await begun.promise

  const stopped = worker.stop()
  goOn.resolve()
  await stopped
  const left = await shop.query('select state, worker, attempt from ~workflow_executions')
  await using next = workerOf(shop.store, { leaseMs })
  await next.start()
  await flows.get('order').waitUntilSettled()

  expect(left).toEqual([1, 2, 3].map(() => ({ state: 'ready', worker: null, attempt: 0 })))
  expect(runs.sort()).toEqual([1, 2, 3, 4])
})

test('SB-40: attempts that do not end in time are cut off and free immediately, without a failure and without effects', async () => {
  const shop = await openShop()
  await shop.query('create table ~receipts (attempt integer)')
  const flows = shop.store.workflows
  const [begun, goOn] = [deferred<void>(), deferred<void>()]
  const signals: AbortSignal[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_event, ctx) => {
        signals.push(ctx.signal)
        begun.resolve()
        if (signals.length === 1) await goOn.promise
        return complete(tx => tx.query(shop.named('insert into ~receipts values ($1)'), [signals.length]))
      },
    }),
  )
  const worker = workerOf(shop.store, { leaseMs })
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await begun.promise

  await worker.stop({ drainMs: 0 })
  const left = await shop.query('select state, worker, attempt from ~workflow_executions')
  const workers = await shop.query('select id from ~runners')
  goOn.resolve()
  await using next = workerOf(shop.store, { leaseMs })
  await next.start()
  const status = await flow.waitUntilSettled()

  expect(signals[0]!.aborted).toBe(true)
  expect(left).toEqual([{ state: 'ready', worker: null, attempt: 0 }])
  expect(workers).toEqual([])
  expect(status).toMatchObject({ state: 'settled', deadLetters: 0 })
  expect(await shop.query('select attempt from ~receipts')).toEqual([{ attempt: 2 }])
  expect(await activity(shop, flow.correlationId)).toEqual([
    ...['dispatched', 'started 1', 'released 1 stopped', 'started 1', 'completed 1'],
  ])
})

test.runIf(onServer)(
  'SB-40: a heartbeat that was sent before a worker left does not store its routes again',
  async () => {
    const shop = await openShop()
    const log = logOf(shop)
    const serves = { routes: [1], concurrency: 16 }
    const runner = await enter(log, { id: 'one', name: undefined, role: 'active', leaseMs, serves })
    const [released, left] = [deferred<void>(), deferred<void>()]
    const leaving = log.database.transaction(async tx => {
      await servesNoMore(log, tx, 'one')
      released.resolve()
      await left.promise
    })
    await released.promise
    const late = heartbeat(log, { ...runner, leaseMs }, [], [])
    await waitUntil(() => isWaiting(shop))

    left.resolve()
    await leaving
    const view = await late

    expect(view).toMatchObject({ role: 'active', isServing: false })
  },
)

test('a worker that was slow, and that another one took for dead, goes on to work', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const runs: string[] = []
  flows.register(
    defineHandler('pay', { events: shopEvents, on: 'OrderPlaced', run: event => void runs.push(event.id) }),
  )
  await using worker = workerOf(shop.store, { leaseMs: 300, pollMs: 20 })
  await worker.start()

  await shop.query(`update ~runners set heartbeat_at = '-infinity'`)
  await rescueWorker(logOf(shop), worker.id!)
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await flow.waitUntilSettled({ timeoutMs: 60_000 })

  expect(runs).toHaveLength(1)
})

test('SB-40: a lane that is cut off in the middle continues in order', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const begun = deferred<void>()
  const runs: number[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      ordered: true,
      run: async event => {
        runs.push(event.data.total)
        if (event.data.total !== 2 || runs.length > 2) return
        begun.resolve()
        await new Promise(() => {})
      },
    }),
  )
  await flows.sync()
  for (const total of [1, 2, 3, 4]) await placed(shop, total)
  const worker = workerOf(shop.store, { leaseMs })
  await worker.start()
  await begun.promise

  await worker.stop({ drainMs: 0 })
  await using next = workerOf(shop.store, { leaseMs })
  await next.start()
  await flows.get('order').waitUntilSettled()

  expect(runs).toEqual([1, 2, 2, 3, 4])
})

test('SB-40: a store that closes stops its workers, and their executions are free', async () => {
  const shop = await openShop()
  const other = await shop.sibling({ closeMs: 10_000 })
  const begun = deferred<void>()
  other.workflows.register(
    defineHandler('pay', {
      on: 'OrderPlaced',
      run: async () => {
        begun.resolve()
        await new Promise(() => {})
      },
    }),
  )
  await workerOf(other, { leaseMs, drainMs: 0 }).start()
  await shop.store.workflows.publish('OrderPlaced', { total: 1 })
  await begun.promise

  await other.close()

  expect(await shop.query('select state, worker from ~workflow_executions')).toEqual([{ state: 'ready', worker: null }])
  expect(await shop.query('select id from ~runners')).toEqual([])
})

test('SB-47: an event that fails holds up no other, and a wait is for one workflow only', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const paid: number[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 1_000,
      backoff: { baseMs: 3_600_000 },
      run: async (event, { emit }) => {
        if (event.data.total === 0) throw new Error('no money')
        paid.push(event.data.total)
        return emit('OrderPaid', { method: 'card' })
      },
    }),
  )
  flows.register(defineHandler('ship', { on: 'OrderPaid', ordered: true, run: async () => {} }))
  await using worker = workerOf(shop.store, { concurrency: 2 })
  await worker.start()

  const bad = await flows.publish('OrderPlaced', { total: 0 })
  const good = await Promise.all([1, 2, 3, 4, 5].map(total => flows.publish('OrderPlaced', { total })))
  const settled = await Promise.all(good.map(flow => flow.waitUntilSettled()))
  await waitUntil(async () => (await shop.query(`select 1 from ~workflow_executions where attempt = 1`)).length === 1)

  expect(paid.sort()).toEqual([1, 2, 3, 4, 5])
  expect(settled.map(({ state }) => state)).toEqual(good.map(() => 'settled'))
  expect(await bad.status()).toMatchObject({ isSettled: false, pending: 1 })
  await expect(bad.waitUntilSettled({ timeoutMs: 50 })).rejects.toMatchObject({ code: 'timed_out' })
})

test('SB-47: the emitted events of a handler and its completion are stored together or not at all', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 1,
      backoff: { baseMs: 1 },
      run: (_event, ctx) =>
        complete(
          async tx => {
            await tx.query('select 1')
            if (ctx.attempt === 1) throw new Error('no room')
          },
          ctx.emit('OrderPaid', { method: 'card' }),
        ),
    }),
  )
  await using worker = workerOf(shop.store)
  await worker.start()

  const flow = await flows.publish('OrderPlaced', { total: 1 })
  const status = await flow.waitUntilSettled()

  expect(status).toMatchObject({ state: 'settled', lastType: 'OrderPaid' })
  expect(await shop.query(`select 1 from ~events where type = 'OrderPaid'`)).toHaveLength(1)
  expect(await activity(shop, flow.correlationId)).toEqual([
    ...['dispatched', 'started 1', 'failed 1 retry', 'started 2', 'completed 2'],
  ])
})

async function placed({ store }: Shop, total: number): Promise<void> {
  await store.workflows.publish('OrderPlaced', { total }, { correlationId: 'order' })
}

/** The activity of the executions of a workflow, line by line. */
async function activity({ query }: Shop, correlationId: string): Promise<string[]> {
  const rows = await query<{ line: string }>(
    `select kind || case when attempt = 0 then '' else ' ' || attempt end || coalesce(' ' || outcome, '') as line
    from ~workflow_activity
    where correlation_id = $1
    order by position`,
    [correlationId],
  )
  return rows.map(({ line }) => line)
}

/** Whether a heartbeat of this shop waits for a lock. */
async function isWaiting(shop: Shop): Promise<boolean> {
  const waiting = await shop.query(
    `select from pg_locks as l join pg_stat_activity as a using (pid)
    where not l.granted and a.query like '%runners.heartbeat%' and a.query like $1`,
    [`%${shop.schema}%`],
  )
  return waiting.length > 0
}
