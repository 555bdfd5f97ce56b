import { expect, test } from 'vitest'
import { recordDeadLetter } from '../../src/workflows/dead-letters/record.ts'
import type { Handler } from '../../src/workflows/handler.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import type { Claimed } from '../../src/workflows/work/claim.ts'
import { logOf } from '../support/consumer-parts.ts'
import { freshSchema } from '../support/engines.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, type Shop } from '../support/shop.ts'

/** Number of execution rows that a claim of ten reads. */
async function rowsRead({ database, named }: Shop, route: number): Promise<number> {
  return database.transaction(async tx => {
    const read = async (): Promise<number> => {
      const [row] = await tx.query<{ n: number }>(
        named(`select coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::int as n
          from pg_stat_xact_user_tables where relid = '~workflow_executions'::regclass`),
      )
      return row!.n
    }
    const before = await read()
    const claimed = await tx.query(named(`select * from ~workflow_claim('w-1', 1, array[$1::integer], 10, 0, 1000)`), [
      route,
    ])
    expect(claimed.length).toBe(10)
    return (await read()) - before
  })
}

test('SB-41: a claim reads as many rows with thousands pending in one workflow as with a few', async () => {
  // Not one that was used before: statistics that another test has left would change the plans.
  const shop = await openShop({ schema: freshSchema() })
  const { store, query } = shop
  store.workflows.register(defineHandler('pay', { on: 'OrderPlaced', run: () => {} }))
  await store.workflows.sync()
  const [route] = await query<{ id: number }>('select id from ~workflow_routes')
  await query(`insert into ~runners (id, fence, role, started_at, consumers, lease_ms, concurrency, routes, heartbeat_at)
    values ('w-1', 0, 'active', now(), '{}', 60000, 1, '{1}', now())`)
  await query(
    `insert into ~workflows (correlation_id, first_position, last_position, last_type) values ('order-1', 1, 1, 'x')`,
  )
  const fill = (from: number, to: number): Promise<unknown> =>
    query(
      `insert into ~workflow_executions (id, position, rank, route, correlation_id, state)
      select gen_random_uuid(), n, n, $3, 'order-1', 'ready' from generate_series($1::int, $2::int) as n`,
      [from, to, route!.id],
    )
  await fill(1, 100)
  await rowsRead(shop, route!.id)
  const few = await rowsRead(shop, route!.id)
  await fill(101, 8_000)

  const many = await rowsRead(shop, route!.id)

  expect(many).toBeLessThanOrEqual(few + 20)
})

test('an execution ends at the same cost in a lane with thousands of others as in one with a few', async () => {
  // Not one that was used before: statistics that another test has left would change the plans.
  const shop = await openShop({ schema: freshSchema() })
  const { store, query, database, named } = shop
  store.workflows.register(defineHandler('ship', { on: 'OrderPlaced', ordered: true, run: () => {} }))
  await store.workflows.sync()
  await query(`insert into ~runners (id, fence, role, started_at, consumers, lease_ms, concurrency, routes, heartbeat_at)
    select 'w-1', 0, 'active', now(), '{}', 60000, 1, array_agg(id), now() from ~workflow_routes`)
  await query(
    `insert into ~workflows (correlation_id, first_position, last_position, last_type, open)
    values ('order-1', 1, 1, 'x', 8000)`,
  )
  await query(`insert into ~workflow_lanes (lane, ordered, open, active, width, granted)
    values ('ship/order-1', true, 8000, 1, 1, 0)`)
  const fill = (from: number, to: number): Promise<unknown> =>
    query(
      `insert into ~workflow_executions (id, position, rank, route, correlation_id, lane, state)
      select gen_random_uuid(), n, n, r.id, 'order-1', 'ship/order-1', case when n = 1 then 'ready' else 'blocked' end
      from ~workflow_routes as r, generate_series($1::int, $2::int) as n`,
      [from, to],
    )
  /** Claims the head of the lane with those behind it, and ends it; the next one is ready then. Returns the rows read. */
  const endNext = (kind: 'done' | 'release', fence: number): Promise<number> =>
    database.transaction(async tx => {
      const read = async (): Promise<number> => {
        const [row] = await tx.query<{ n: number }>(
          named(`select coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::int as n
            from pg_stat_xact_user_tables where relid = '~workflow_executions'::regclass`),
        )
        return row!.n
      }
      const before = await read()
      const claimed = await tx.query<{ id: string; state: string }>(
        named(`select (c.execution).id, (c.execution).state
          from ~workflow_claim('w-1', $1::bigint, array(select id from ~workflow_routes), 10, 15, 1000) as c`),
        [fence],
      )
      expect(claimed.length).toBe(16)
      const [head] = claimed.filter(({ state }) => state === 'running')
      const [ended] = await tx.query<{ n: number }>(
        named(`select cardinality(accepted) as n from ~workflow_complete('w-1', '{order-1}', '{ship/order-1}',
          array[$1::uuid], array[$2::bigint], array[$3], '{completed}', '{null}', '{0}', '{1}', null, null, null, 0, false)`),
        [head!.id, fence, kind],
      )
      expect(ended!.n).toBe(1)
      return (await read()) - before
    })
  const endSome = async (fence: number): Promise<number> =>
    (await endNext('release', fence)) + (await endNext('done', fence + 1))
  await fill(1, 100)
  await endSome(1)
  const few = await endSome(3)
  await fill(101, 8_000)

  const many = await endSome(5)
  await query('analyze ~workflow_executions')
  const known = await endSome(7)

  expect(many).toBeLessThanOrEqual(few + 40)
  expect(known).toBeLessThanOrEqual(few + 40)
})

test('SB-42: work is picked up immediately, however seldom a worker polls, and many executions at a time', async () => {
  const { store, query } = await openShop()
  const flows = store.workflows
  flows.register(defineHandler('pay', { on: 'OrderPlaced', run: () => {} }))
  await using worker = workerOf(store, { pollMs: 600_000, leaseMs: 600_000 })
  await worker.start()

  // All at one moment: executions that come one by one may be claimed one by one.
  const all = await store.transaction(async tx => {
    const flowing = []
    for (let total = 0; total < 60; total++) flowing.push(await flows.publish('OrderPlaced', { total }, { tx }))
    return flowing
  })
  for (const flow of all) await flow.waitUntilSettled({ timeoutMs: 100_000 })

  const [claims] = await query<{ n: number }>(
    `select count(distinct xmin::text)::int as n from ~workflow_activity where kind = 'started'`,
  )
  expect(claims!.n).toBeLessThan(60)
})

test("a dead letter has its earlier attempts; that of a first attempt reads nothing of its workflow's activity", async () => {
  const shop = await openShop()
  const { store, query, database, named } = shop
  const thirdTime = '00000000-0000-7000-8000-000000000003'
  store.workflows.register(defineHandler('pay', { on: 'OrderPlaced', run: () => {} }))
  await store.workflows.publish('OrderPlaced', { total: 1 }, { correlationId: 'order-1' })
  await query(
    `insert into ~workflow_activity
      (position, event_position, execution, version, attempt, kind, outcome, handler, correlation_id, error)
    select n, 1, case when n in (4001, 4002) then $1::uuid else gen_random_uuid() end, 1, 1, 'failed', 'retry', 'pay',
      'order-1', jsonb_build_object('message', 'try ' || n)
    from generate_series(1, 5000) as n`,
    [thirdTime],
  )
  const [event] = await store.events.readAll().toArray()
  const looksAt = (id: string, attempt: number): Promise<number> =>
    database.transaction(async tx => {
      const read = async (): Promise<number> => {
        const [row] = await tx.query<{ n: number }>(
          named(`select coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::int as n
            from pg_stat_xact_user_tables where relid = '~workflow_activity'::regclass`),
        )
        return row!.n
      }
      const before = await read()
      const execution = { id, event, attempt, fence: 1, correlationId: 'order-1' } as unknown as Claimed
      const failed = {
        execution,
        handler: { name: 'pay' } as Handler,
        error: new Error('no money'),
        reason: 'failed',
        parksLane: false,
      } as const
      await recordDeadLetter(logOf(shop), tx, failed)
      const looks = (await read()) - before
      const [deadLetter] = await tx.query<{ n: number }>(
        named('select jsonb_array_length(errors) as n from ~dead_letters'),
      )
      expect(deadLetter!.n).toBe(attempt)
      await tx.query(named('delete from ~dead_letters'))
      return looks
    })

  const first = await looksAt('00000000-0000-7000-8000-000000000002', 1)
  await looksAt(thirdTime, 3)

  expect(first).toBe(0)
})
