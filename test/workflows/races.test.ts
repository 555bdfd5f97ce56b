/** Races between two workers, or a worker and an operator. */
import { expect, test } from 'vitest'
import { deferred } from '../../src/core/abort.ts'
import { complete } from '../../src/workflows/emit.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { rescueExpired, rescueWorker } from '../../src/workflows/work/rescue.ts'
import { inconsistencies } from '../chaos/workflows/check-workflows.ts'
import { workerOf } from '../support/run-worker.ts'
import { onServer, openShop, type Shop, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'
import { completedOutcome, registerManualWorker } from './manual-worker.ts'

test('of a lost attempt and the next one only the next counts, also if both end at once', async () => {
  const shop = await openShop()
  await laneOf(shop, 2)
  const released = deferred<void>()
  const worker = await registerManualWorker(shop, database => ({
    ...database,
    runArrays: async statement => {
      if (statement.label === 'workflows.complete') await released.promise
      return database.runArrays(statement)
    },
  }))
  const [first] = await worker.claim()
  await shop.query(`update ~workflow_executions set deadline_at = now() - interval '1 second' where state = 'running'`)
  await rescueExpired(worker.log)
  const [again] = await worker.claim()

  // While the first of these runs, the others wait together.
  const other = worker.completer.complete(completedOutcome({ ...first!, id: first!.id, fence: -1 }))
  const lost = worker.completer.complete(completedOutcome(first!))
  const kept = worker.completer.complete(completedOutcome(again!))
  released.resolve()

  expect(await Promise.all([other, lost, kept])).toEqual(['refused', 'refused', 'stored'])
  expect(await inconsistencies(shop.query)).toEqual([])
  expect(await shop.query(`select 1 from ~workflow_activity where kind = 'completed'`)).toHaveLength(1)
})

test.runIf(onServer)(
  'a worker that completes the head of a lane while it is removed as dead leaves no claimed executions behind',
  async () => {
    const shop = await openShop()
    await laneOf(shop, 3)
    const dying = await registerManualWorker(shop)
    const [head, next] = await dying.claim()
    await shop.query(`update ~runners set heartbeat_at = '-infinity'`)
    const [found, goOn] = [deferred<void>(), deferred<void>()]
    const rescuer = await registerManualWorker(shop, database => ({
      ...database,
      transaction: (work, options) =>
        database.transaction(
          tx =>
            work({
              ...tx,
              runArrays: async statement => {
                if (statement.label === 'workflows.release') {
                  found.resolve()
                  await goOn.promise
                }
                return tx.runArrays(statement)
              },
            }),
          options,
        ),
    }))

    // The rescue has seen that the head is running; then it ends, and the next begins.
    const rescued = rescueWorker(rescuer.log, dying.owner)
    await found.promise
    expect(await dying.completer.complete(completedOutcome(head!), next!.id)).toBe('continued')
    goOn.resolve()
    await rescued

    const left = await shop.query('select state, worker from ~workflow_executions order by position')
    expect(left).toEqual([
      { state: 'ready', worker: null },
      { state: 'blocked', worker: null },
    ])
    expect(await inconsistencies(shop.query)).toEqual([])
  },
)

test('a worker without a row claims nothing, because its executions would never be taken over', async () => {
  const shop = await openShop()
  await laneOf(shop, 1)
  const worker = await registerManualWorker(shop)
  await shop.query('delete from ~runners')

  const claimed = await worker.claim()

  expect(claimed).toEqual([])
})

test.runIf(onServer)(
  'a completion that is stopped in the middle holds up its workflow no longer than a lease',
  async () => {
    const shop = await openShop()
    const flows = shop.store.workflows
    const begun = deferred<void>()
    const shipped = deferred<number>()
    let tries = 0
    flows.register(
      defineHandler('pay', {
        on: 'OrderPlaced',
        retries: 0,
        run: async () =>
          complete(async tx => {
            await tx.query('select 1')
            begun.resolve()
            if (++tries === 1) await new Promise(() => {})
          }),
      }),
    )
    flows.register(defineHandler('file', { on: 'OrderShipped', run: async () => shipped.resolve(tries) }))
    await using worker = workerOf(shop.store, { leaseMs: 400, pollMs: 50 })
    await worker.start()
    const flow = await flows.publish('OrderPlaced', { total: 1 }, { correlationId: 'order' })
    await begun.promise

    await flows.publish('OrderShipped', { parcel: 'p' }, { correlationId: 'order' })
    await shipped.promise
    const status = await flow.waitUntilSettled()

    expect(tries).toBeGreaterThan(1)
    expect(status.state).toBe('settled')
  },
)

test('in an unordered lane a delayed execution takes its place when its time has come', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const done: number[] = []
  const perKey = { perKey: 1, key: () => 'shop' }
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      concurrency: perKey,
      delayMs: 30,
      run: async event => {
        done.push(event.data.total)
      },
    }),
  )
  await using worker = workerOf(shop.store)
  await worker.start()

  const all = await Promise.all([1, 2, 3].map(total => flows.publish('OrderPlaced', { total })))
  for (const flow of all) await flow.waitUntilSettled()

  expect(done.sort()).toEqual([1, 2, 3])
  expect(await shop.query('select * from ~workflow_lanes')).toEqual([])
})

test('in an unordered lane an execution released for later makes room, and returns', async () => {
  const shop = await openShop()
  await laneOf(shop, 2, { concurrency: { perKey: 1, key: () => 'shop' } })
  await using worker = workerOf(shop.store, { handlers: ['pay'] })
  await shop.query('update ~workflow_routes set paused_at = now()')
  await worker.start()
  await waitUntil(async () => (await shop.query('select 1 from ~workflow_lanes')).length === 1)
  await worker.stop()
  await shop.query('update ~workflow_routes set paused_at = null')
  const manual = await registerManualWorker(shop)
  const [first] = await manual.claim()

  await manual.completer.complete({ ...completedOutcome(first!), kind: 'release', activity: 'released', delayMs: 10 })
  const during = await inconsistencies(shop.query)
  await worker.start()
  await shop.store.workflows.get('order').waitUntilSettled()

  expect(during).toEqual([])
  expect(await shop.query('select * from ~workflow_lanes')).toEqual([])
})

test('in a lane each execution waits for its own time, however early its turn comes', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  flows.register(defineHandler('pay', { on: 'OrderPlaced', ordered: true, delayMs: 150, run: async () => {} }))
  await using worker = workerOf(shop.store)
  await worker.start()

  for (const total of [1, 2, 3]) {
    await flows.publish('OrderPlaced', { total }, { correlationId: 'order' })
    await waitUntil(async () => (await shop.query('select 1 from ~workflow_activity')).length >= total)
  }
  await flows.get('order').waitUntilSettled()
  const waits = await shop.query<{ ms: number }>(`
    select extract(epoch from s.at - e.created_at) * 1000 as ms
    from ~events as e
    join ~workflow_activity as s on s.event_position = e.position and s.kind = 'started'`)

  expect(waits).toHaveLength(3)
  for (const { ms } of waits) expect(Number(ms)).toBeGreaterThanOrEqual(149)
})

/** A lane of a workflow with this many unclaimed executions. */
async function laneOf({ store, query }: Shop, count: number, options: object = { ordered: true }): Promise<void> {
  const flows = store.workflows
  flows.register(defineHandler('pay', { on: 'OrderPlaced', ...options, run: async () => {} }))
  flows.register(defineHandler('idle', { on: 'OrderShipped', run: async () => {} }))
  await using dispatching = workerOf(store, { handlers: ['idle'] })
  await dispatching.start()
  for (let total = 1; total <= count; total++) await flows.publish('OrderPlaced', { total }, { correlationId: 'order' })
  await waitUntil(async () => (await query('select 1 from ~workflow_executions')).length === count)
}
