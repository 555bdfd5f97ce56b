/** Executions that begin with their dispatch, on a worker of the same process that has room for them. */
import { expect, test } from 'vitest'
import { deferred } from '../../src/core/abort.ts'
import type { Database } from '../../src/database/database.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { openDatabase } from '../support/engines.ts'
import { lossyDatabase } from '../support/lossy-database.ts'
import { workerOf } from '../support/run-worker.ts'
import { connect, onServer, openShop, placed, type Shop, shopEvents } from '../support/shop.ts'
import { executionStates } from '../support/suspended-executions.ts'
import { waitUntil } from '../support/wait.ts'

/** Dispatches for a worker that exists only as a row, with this much room; returns the number of begun executions. */
async function dispatchFor(
  { query }: Pick<Shop, 'query'>,
  owner: string,
  fence: number,
  limit: number,
): Promise<number> {
  const [row] = await query<{ begun: number; outcome: string }>(
    `with page as (
      select e.position, e.correlation_id, e.type, e.event_id
      from ~events as e
      where e.position > (select checkpoint from ~consumers where name = 'workflows')
      order by e.position)
    select d.outcome, coalesce(cardinality(d.begun), 0) as begun
    from (
      select array_agg(correlation_id) as ids, array_agg(event_id) as events, array_agg(position) as positions,
        array_agg(type) as types, array_agg(true) as wanted, array_agg(1) as ones, min(position) as first,
        max(position) as last, (select id from ~workflow_routes) as route
      from page) as p
    cross join ~consumers as c
    cross join lateral ~workflow_dispatch_page('workflows', c.fence, coalesce((c.definition->>'routes')::integer, 0), c.checkpoint,
      p.first, p.last, p.ids, p.wanted, p.ones, p.positions, p.positions, p.types, p.events, p.positions,
      array_fill(p.route, array[cardinality(p.ids)]), p.ids, $1::text, $2::bigint, array[p.route], $3::integer, 1000, null, null, null, null) as d
    where c.name = 'workflows'`,
    [owner, fence, limit],
  )
  expect(row!.outcome).toBe('done')
  return row!.begun
}

async function enter({ query }: Pick<Shop, 'query'>, owner: string): Promise<void> {
  await query(
    `insert into ~runners (id, fence, role, started_at, consumers, lease_ms, concurrency, routes, heartbeat_at)
    values ($1, 0, 'active', now(), '{}', 600000, 1, '{1}', now())`,
    [owner],
  )
}

async function openOrders(count: number): Promise<Shop> {
  const shop = await openShop()
  shop.store.workflows.register(defineHandler('pay', { on: 'OrderPlaced', run: () => {} }))
  await shop.store.workflows.sync()
  await place(shop, count)
  return shop
}

async function place({ store }: Shop, count: number): Promise<void> {
  for (let n = 0; n < count; n++) await store.events.append(`order-${n}`, placed(n))
}

test('as many executions as there is room for begin with their dispatch, and any worker can take the rest', async () => {
  const shop = await openOrders(5)
  await enter(shop, 'worker-1')

  const begun = await dispatchFor(shop, 'worker-1', 7, 2)

  expect(begun).toBe(2)
  expect(await executionStates(shop)).toBe('3 ready, 2 running')
  expect(
    await shop.query('select kind, count(*)::int as n from ~workflow_activity group by kind order by min(position)'),
  ).toEqual([
    { kind: 'dispatched', n: 5 },
    { kind: 'started', n: 2 },
  ])
  expect(await shop.query('select sum(open)::int as open from ~workflows')).toEqual([{ open: 5 }])
})

test('nothing begins before older ready executions, nor for a worker that others consider dead', async () => {
  const shop = await openOrders(1)
  const gone = await dispatchFor(shop, 'worker-1', 7, 10)
  await enter(shop, 'worker-1')
  await place(shop, 1)

  const late = await dispatchFor(shop, 'worker-1', 8, 10)

  expect([gone, late]).toEqual([0, 0])
  expect(await executionStates(shop)).toBe('2 ready')
})

test.runIf(onServer)(
  'the dispatch does not wait for a takeover of its worker: then nothing begins for it',
  async () => {
    const shop = await openOrders(1)
    await enter(shop, 'worker-1')
    const taker = await connect()
    await taker.query('begin')
    await taker.query(shop.named('select from ~runners for update'))

    const begun = await dispatchFor(shop, 'worker-1', 7, 10)
    await taker.query('rollback')

    expect(begun).toBe(0)
    expect(await executionStates(shop)).toBe('1 ready')
  },
)

test('an execution that began for a worker that never got the answer is released, and runs', async () => {
  const lossy = lossyDatabase(await openDatabase())
  const shop = await openShop({ database: lossy.database })
  const { workflows } = shop.store
  const attempts: number[] = []
  workflows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: (_, { attempt }) => void attempts.push(attempt),
    }),
  )
  await using worker = workerOf(shop.store, { pollMs: 10 })
  await worker.start()
  await (await workflows.publish('OrderPlaced', { total: 1 })).waitUntilSettled()

  lossy.loseAnswerTo('workflows.dispatch')
  const flow = await workflows.publish('OrderPlaced', { total: 2 })
  await flow.waitUntilSettled()

  expect(lossy.counts().lost).toBe(1)
  expect(attempts).toEqual([1, 1])
  expect(await shop.query(`select outcome from ~workflow_activity where kind = 'released'`)).toHaveLength(1)
})

test('an execution that has begun is not released while the answer is on its way', async () => {
  const database = await openDatabase()
  let looks = 0
  // A worker that is stopped checks its list no more.
  let isOver = false
  const late: Database = {
    ...database,
    async run(statement) {
      const rows = await database.run<never>(statement)
      const seen = looks
      if (statement.label === 'workflows.dispatch') await waitUntil(() => looks >= seen + 2 || isOver)
      return rows
    },
    async runArrays(statement) {
      if (statement.label === 'workflows.due') looks++
      return database.runArrays(statement)
    },
  }
  const shop = await openShop({ database: late })
  const { workflows } = shop.store
  let runs = 0
  workflows.register(defineHandler('pay', { on: 'OrderPlaced', run: () => void runs++ }))
  await using worker = workerOf(shop.store, { pollMs: 10 })
  await worker.start()

  for (let total = 0; total < 3; total++) await (await workflows.publish('OrderPlaced', { total })).waitUntilSettled()

  isOver = true
  expect(runs).toBe(3)
  expect(await shop.query(`select 1 from ~workflow_activity where kind = 'released'`)).toEqual([])
})

test('each execution runs once, however often its worker checks its list', async () => {
  const shop = await openShop()
  const { workflows } = shop.store
  const seen = new Map<number, number>()
  workflows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async ({ data }) => {
        seen.set(data.total, (seen.get(data.total) ?? 0) + 1)
        await new Promise(setImmediate)
      },
    }),
  )
  await using worker = workerOf(shop.store, { concurrency: 4, pollMs: 1 })
  await worker.start()

  const orders = Array.from({ length: 300 }, (_, total) => total)
  for (let at = 0; at < orders.length; at += 30)
    await Promise.all(
      orders.slice(at, at + 30).map(async total => {
        const flow = await workflows.publish('OrderPlaced', { total })
        await flow.waitUntilSettled()
      }),
    )

  expect([...seen.values()].filter(times => times !== 1)).toEqual([])
  expect(seen.size).toBe(orders.length)
  expect(await shop.query(`select 1 from ~workflow_activity where kind in ('failed', 'released')`)).toEqual([])
})

test('a stopping worker releases executions that are dispatched to it meanwhile', async () => {
  const shop = await openShop()
  const { workflows } = shop.store
  const hold = deferred<void>()
  let runs = 0
  workflows.register(
    defineHandler('pay', {
      on: 'OrderPlaced',
      run: async () => {
        runs++
        await hold.promise
      },
    }),
  )
  await using worker = workerOf(shop.store, { concurrency: 2 })
  await worker.start()
  await using dispatching = workerOf(shop.store, { handlers: [] })
  await dispatching.start()
  const publishing = Promise.all(Array.from({ length: 20 }, (_, total) => workflows.publish('OrderPlaced', { total })))
  await waitUntil(() => runs > 0)

  const stopping = worker.stop()
  await publishing
  hold.resolve()
  await stopping
  const begun = runs
  await waitUntil(async () => (await shop.query('select 1 from ~workflows')).length === 20)

  expect(await executionStates(shop)).toBe(`${20 - begun} ready`)
})
