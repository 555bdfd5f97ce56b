import { expect, test } from 'vitest'
import { deferred } from '../../src/core/abort.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { openDatabase } from '../support/engines.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, type Shop, shopEvents } from '../support/shop.ts'
import { executionStates } from '../support/suspended-executions.ts'
import { waitUntil } from '../support/wait.ts'

interface Gauge {
  readonly most: () => number
  readonly run: () => Promise<void>
}

/** Counts how many run at once; each stays until the maximum was reached, and for some turns of the event loop. */
function gauge(limit: number): Gauge {
  let inside = 0
  let most = 0
  return {
    most: () => most,
    async run() {
      most = Math.max(most, ++inside)
      await waitUntil(() => most >= limit)
      for (let turns = 0; turns < 5; turns++) await new Promise(resolve => setImmediate(resolve))
      inside--
    },
  }
}

test('SB-44: at most maxConcurrency attempts of a handler run at once, in all processes together', async () => {
  const shop = await openShop()
  const other = await shop.sibling()
  const { most, run } = gauge(2)
  let done = 0
  for (const { workflows } of [shop.store, other])
    workflows.register(
      defineHandler('pay', {
        on: 'OrderPlaced',
        concurrency: 2,
        run: async () => {
          await run()
          done++
        },
      }),
    )
  await using first = workerOf(shop.store, { concurrency: 8 })
  await using second = workerOf(other, { concurrency: 8 })
  await first.start()
  await second.start()

  const totals = Array.from({ length: 40 }, (_, total) => total)
  await Promise.all(totals.map(total => shop.store.workflows.publish('OrderPlaced', { total })))
  await waitUntil(() => done === 40)

  expect(most()).toBe(2)
})

test('a limit per key does not affect other keys', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const gauges = { odd: gauge(2), even: gauge(2) }
  let done = 0
  const keyOf = (total: number): 'odd' | 'even' => (total % 2 === 1 ? 'odd' : 'even')
  const concurrency = { perKey: 2, key: (event: { data: { total: number } }) => keyOf(event.data.total) }
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      concurrency,
      run: async event => {
        await gauges[keyOf(event.data.total)].run()
        done++
      },
    }),
  )
  await using worker = workerOf(store, { concurrency: 16 })
  await worker.start()

  const totals = Array.from({ length: 60 }, (_, total) => total)
  await Promise.all(totals.map(total => flows.publish('OrderPlaced', { total })))
  await waitUntil(() => done === 60)

  expect(gauges.odd.most()).toBe(2)
  expect(gauges.even.most()).toBe(2)
})

test('at most as many attempts of a handler begin per interval as its rate allows', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  let begun = 0
  flows.register(
    defineHandler('pay', { on: 'OrderPlaced', rate: { limit: 5, perMs: 3_600_000 }, run: () => void begun++ }),
  )
  await using worker = workerOf(shop.store, { pollMs: 20 })
  await worker.start()
  const left = (states: string): Promise<void> =>
    waitUntil(async () => (await executionStates(shop)) === states, { what: `${states} left` })
  const later = (minutes: number): Promise<unknown> =>
    shop.query('update ~workflow_routes set rate_at = ~later(rate_at, -60000 * $1::integer)', [minutes])

  const totals = Array.from({ length: 15 }, (_, total) => total)
  await Promise.all(totals.map(total => flows.publish('OrderPlaced', { total })))

  // Five at once, then one in twelve minutes, and never more than five.
  await left('10 ready')
  await later(30)
  await left('8 ready')
  await later(600)
  await left('3 ready')
  await later(600)
  await left('')
  expect(begun).toBe(15)
})

test('executions beyond the rate of their handler begin on time, however seldom their worker polls', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  let begun = 0
  flows.register(defineHandler('pay', { on: 'OrderPlaced', rate: { limit: 5, perMs: 200 }, run: () => void begun++ }))
  await using worker = workerOf(store, { pollMs: 600_000, leaseMs: 600_000 })
  await worker.start()

  const totals = Array.from({ length: 15 }, (_, total) => total)
  await Promise.all(totals.map(total => flows.publish('OrderPlaced', { total })))

  await waitUntil(() => begun === 15)
})

/** A shop that counts the looks of its workers, and how often they ask for the rate. */
async function openWatched(): Promise<Shop & { readonly looks: () => number }> {
  const database = await openDatabase()
  let looks = 0
  const watched: typeof database = {
    ...database,
    run: statement => {
      if (statement.label === 'workflows.rate') looks++
      return database.run(statement)
    },
    runArrays: statement => {
      if (statement.label === 'workflows.due') looks++
      return database.runArrays(statement)
    },
  }
  return { ...(await openShop({ database: watched })), looks: () => looks }
}

test('a worker looks again when the next rate-limited execution may begin, not continuously', async () => {
  const { store, looks } = await openWatched()
  const flows = store.workflows
  let begun = 0
  flows.register(defineHandler('pay', { on: 'OrderPlaced', rate: { limit: 1, perMs: 500 }, run: () => void begun++ }))
  await using worker = workerOf(store)
  await worker.start()

  await Promise.all([1, 2, 3, 4].map(total => flows.publish('OrderPlaced', { total })))
  await waitUntil(() => begun === 4)

  expect(looks()).toBeLessThan(40)
})

test('paused executions, and those without room, are not polled continuously because of their rate', async () => {
  const { store, looks } = await openWatched()
  const flows = store.workflows
  const over = deferred<void>()
  let begun = 0
  const rate = { limit: 2, perMs: 50 }
  flows.register(
    defineHandler('pay', {
      on: 'OrderPlaced',
      rate,
      run: async () => {
        begun++
        await over.promise
      },
    }),
  )
  flows.register(defineHandler('ship', { on: 'OrderPaid', rate, run: () => void begun++ }))
  await using worker = workerOf(store, { concurrency: 2, pollMs: 100 })
  await worker.start()
  await flows.publish('OrderPaid', { method: 'card' })
  await waitUntil(() => begun === 1)
  await flows.handlers.pause('ship')
  await flows.publish('OrderPaid', { method: 'cash' })
  await Promise.all([1, 2, 3, 4].map(total => flows.publish('OrderPlaced', { total })))
  await waitUntil(() => begun === 3)

  const before = looks()
  const since = performance.now()
  await waitUntil(() => looks() >= before + 20)
  over.resolve()

  // Ten polls with two queries each, of which a few may have been notifications.
  expect(performance.now() - since).toBeGreaterThan(400)
})

test('SB-44: a lower priority comes first, and executions that waited long enough before all others', async () => {
  const { store, query } = await openShop()
  const flows = store.workflows
  const seen: string[] = []
  flows.register(
    defineHandler('slow', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: event => void seen.push(`slow ${event.data.total}`),
    }),
  )
  flows.register(defineHandler('quick', { on: 'OrderPaid', priority: 1, run: () => void seen.push('quick') }))
  await using dispatching = workerOf(store, { handlers: [] })
  await dispatching.start()
  await flows.publish('OrderPlaced', { total: 1 })
  await waitUntil(async () => (await query('select 1 from ~workflow_executions')).length === 1)
  await query('update ~workflow_executions set rank = rank - 100000')
  await flows.publish('OrderPlaced', { total: 2 })
  await flows.publish('OrderPaid', { method: 'card' })
  await waitUntil(async () => (await query('select 1 from ~workflow_executions')).length === 3)

  await using worker = workerOf(store, { concurrency: 1 })
  await worker.start()
  await waitUntil(() => seen.length === 3)

  expect(seen).toEqual(['slow 1', 'quick', 'slow 2'])
})

test('SB-38: a delay is exact to the millisecond, not to the second', async () => {
  const { store, query } = await openShop()
  const flows = store.workflows
  flows.register(defineHandler('pay', { on: 'OrderPlaced', delayMs: 120, run: () => {} }))
  flows.register(defineHandler('remind', { on: 'OrderPlaced', delayMs: 3_600_120, run: () => {} }))
  // So rarely that only its due time can have woken it.
  await using worker = workerOf(store, { pollMs: 600_000, leaseMs: 600_000 })
  await worker.start()

  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await waitUntil(async () => (await flows.attempts({ handler: 'pay', outcome: 'completed' })).items.length === 1)

  const [waited] = await query<{ ms: number }>(`
    select (extract(epoch from a.at - e.created_at) * 1000)::float8 as ms
    from ~workflow_activity as a
    join ~events as e on e.position = a.event_position
    where a.handler = 'pay' and a.kind = 'started'`)
  const [kept] = await query<{ ms: number }>(`
    select (extract(epoch from run_at - queued_at) * 1000)::float8 as ms from ~workflow_executions`)
  expect(waited!.ms).toBeGreaterThanOrEqual(119)
  expect(Math.abs(kept!.ms - 3_600_120)).toBeLessThan(400)
  expect(await flow.status()).toMatchObject({ pending: 1 })
})

test('a delay and a limit per key can be combined', async () => {
  const { store, query } = await openShop()
  const flows = store.workflows
  const { most, run } = gauge(1)
  let done = 0
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      delayMs: 20,
      concurrency: { perKey: 1, key: () => 'till' },
      run: async () => {
        await run()
        done++
      },
    }),
  )
  await using worker = workerOf(store)
  await worker.start()

  await Promise.all([1, 2, 3].map(total => flows.publish('OrderPlaced', { total })))
  await waitUntil(() => done === 3)

  expect(most()).toBe(1)
  await waitUntil(async () => (await query('select from ~workflow_lanes')).length === 0)
})
