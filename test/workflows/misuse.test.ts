import { expect, test } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { ConnectionLost } from '../../src/database/errors.ts'
import { batch, complete, emit, type HandlerResult } from '../../src/workflows/emit.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { openDatabase } from '../support/engines.ts'
import { recording } from '../support/query-plans.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, outcome, placed, type Shop, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

/** Publishes one order for a handler that returns this, and returns its dead letters. */
async function reasonFor(shop: Shop, returns: () => unknown): Promise<unknown> {
  const flows = shop.store.workflows
  flows.register(
    defineHandler('pay', {
      on: 'OrderPlaced',
      retries: 3,
      backoff: { baseMs: 1 },
      run: () => returns() as HandlerResult<never>,
    }),
  )
  await using worker = workerOf(shop.store)
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await flow.waitUntilSettled()
  return shop.query('select reason, attempts from ~dead_letters')
}

const garbage: Record<string, () => unknown> = {
  'a number': () => 42,
  'a plain object': () => ({ type: 'OrderPaid', data: {} }),
  'a list with something else in it': () => [emit('OrderPaid', {}), 'OrderPaid'],
  'a batch of something else': () => batch([7 as never]),
}

for (const [what, returns] of Object.entries(garbage))
  test(`a handler that returns ${what} fails for good, and none of its events is emitted`, async () => {
    const shop = await openShop()

    const deadLetters = await reasonFor(shop, returns)

    expect(deadLetters).toEqual([{ reason: 'invalid_result', attempts: 1 }])
    expect((await shop.store.events.readAll().toArray()).length).toBe(1)
  })

test('a payload that JSON cannot represent is refused with its path', async () => {
  const shop = await openShop()

  const deadLetters = await reasonFor(shop, () => emit('OrderPaid', { method: 10n }))

  expect(deadLetters).toEqual([{ reason: 'invalid_emission', attempts: 1 }])
  expect((await shop.store.deadLetters.list()).items[0]!.lastError.message).toContain('data.method')
})

test('SB-08: events that cause each other in a cycle end in a dead letter', async () => {
  const { store } = await openShop({ workflows: { maxHops: 6 } })
  const flows = store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: (_, { emit }) => emit('OrderPaid', { method: 'card' }),
    }),
  )
  flows.register(
    defineHandler('place', {
      events: shopEvents,
      on: 'OrderPaid',
      run: (_, { emit }) => emit('OrderPlaced', { total: 1 }),
    }),
  )
  await using worker = workerOf(store)
  await worker.start()

  const flow = await flows.publish('OrderPlaced', { total: 1 })
  const status = await flow.waitUntilSettled()

  expect(status).toMatchObject({ state: 'failed', deadLetters: 1 })
  expect((await store.events.readAll().toArray()).length).toBe(7)
  expect((await store.deadLetters.list()).items[0]).toMatchObject({ lastError: { code: 'hops_exceeded' } })
})

test('one run may emit a limited number of events', async () => {
  const { store } = await openShop({ workflows: { maxEmitted: 3 } })
  const flows = store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: ({ data }, { emit }) => Array.from({ length: data.total }, () => emit('OrderPaid', { method: 'card' })),
    }),
  )
  await using worker = workerOf(store)
  await worker.start()

  const few = await flows.publish('OrderPlaced', { total: 3 })
  const many = await flows.publish('OrderPlaced', { total: 4 })

  expect((await few.waitUntilSettled()).state).toBe('settled')
  expect((await many.waitUntilSettled()).state).toBe('failed')
})

test('a type that a handler has not declared is not emitted', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      emits: ['OrderShipped'],
      run: () => emit('OrderPaid', {}) as never,
    }),
  )
  await using worker = workerOf(store)
  await worker.start()

  const flow = await flows.publish('OrderPlaced', { total: 3 })

  expect((await flow.waitUntilSettled()).state).toBe('failed')
})

test('an attempt that takes too long is aborted, and its late result does not count', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const seen: string[] = []
  let end = (): void => {}
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      timeoutMs: 40,
      retries: 50,
      backoff: { baseMs: 1 },
      run: async (_, ctx) => {
        if (ctx.attempt > 1) return ctx.emit('OrderPaid', { method: 'card' })
        await new Promise<void>(resolve => ctx.signal.addEventListener('abort', () => resolve()))
        seen.push((ctx.signal.reason as Error).name)
        await new Promise<void>(resolve => {
          end = resolve
        })
        return ctx.emit('OrderPaid', { method: 'cash' })
      },
    }),
  )
  await using worker = workerOf(store)
  await worker.start()

  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await flow.waitUntilSettled()
  end()
  await new Promise(resolve => setImmediate(resolve))

  expect(seen).toEqual(['ExecutionTimeout'])
  const paid = await store.events.readAll({ types: ['OrderPaid'] }).toArray()
  expect(paid.map(event => event.data)).toEqual([{ method: 'card' }])
})

test('clocks that are off by minutes decide nothing: neither due times nor which workers live', async () => {
  const shop = await openShop()
  const off = (minutes: number) => ({
    ...systemClock,
    now: () => new Date(Date.now() + minutes * 60_000),
  })
  const late = await shop.sibling({ clock: off(-10) })
  const early = await shop.sibling({ clock: off(10) })
  const seen: string[] = []
  for (const [name, store] of Object.entries({ late, early }))
    store.workflows.register(
      defineHandler('pay', {
        events: shopEvents,
        on: 'OrderPlaced',
        delayMs: 60,
        retries: 2,
        backoff: { baseMs: 1 },
        run: (_, ctx) => {
          seen.push(name)
          if (ctx.attempt < 3) throw new Error('not yet')
        },
      }),
    )
  await using first = workerOf(late, { leaseMs: 60_000 })
  await using second = workerOf(early, { leaseMs: 60_000 })
  await first.start()
  await second.start()

  const flows = await Promise.all([1, 2, 3, 4].map(total => late.workflows.publish('OrderPlaced', { total })))
  for (const flow of flows) expect((await flow.waitUntilSettled()).state).toBe('settled')

  expect(seen.length).toBe(12)
  expect(await shop.query('select count(*)::int as n from ~runners')).toEqual([{ n: 2 }])
})

test('an execution whose handler no process has stays, and continues when one has it', async () => {
  const shop = await openShop()
  const other = await shop.sibling()
  let runs = 0
  shop.store.workflows.register(defineHandler('mail', { on: 'OrderPlaced', run: () => {} }))
  other.workflows.register(defineHandler('pay', { on: 'OrderPlaced', run: () => void runs++ }))
  await other.workflows.sync()
  await using worker = workerOf(shop.store)
  await worker.start()
  const flow = await shop.store.workflows.publish('OrderPlaced', { total: 1 })
  await waitUntil(async () => (await flow.status()).pending === 1)

  await using late = workerOf(other)
  await late.start()
  await flow.waitUntilSettled()

  expect(runs).toBe(1)
})

test('writes that a completion did not await are refused, and so are appends in it', async () => {
  const { store, query, named } = await openShop()
  const flows = store.workflows
  await query('create table ~ledger (line text not null)')
  const codes: unknown[] = []
  let late: Promise<unknown> = Promise.resolve()
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 0,
      run: (_, { emit }) =>
        complete(
          async tx => {
            await tx.query(named('insert into ~ledger values ($1)'), ['in time'])
            codes.push((await outcome(store.events.append('order-1', placed(), { tx }))).error)
            late = new Promise(resolve => setImmediate(resolve)).then(() =>
              outcome(tx.query(named('insert into ~ledger values ($1)'), ['late'])),
            )
          },
          emit('OrderPaid', { method: 'card' }),
        ),
    }),
  )
  await using worker = workerOf(store)
  await worker.start()

  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await flow.waitUntilSettled()

  expect(await late).toMatchObject({ error: { code: 'transaction_closed' } })
  expect(codes).toMatchObject([{ code: 'invalid_option' }])
  expect(await query('select line from ~ledger')).toEqual([{ line: 'in time' }])
})

test('a handler whose own database is unavailable is retried less and less often, without using up attempts, and this is logged', async () => {
  const delays: number[] = []
  const database = recording(await openDatabase(), ({ label, values }) => {
    if (label !== 'workflows.complete') return
    const [[detail], [delayMs]] = [values[7] as string[], values[8] as number[]]
    if (detail === 'interrupted') delays.push(delayMs!)
  })
  const { store, query } = await openShop({ database })
  const flows = store.workflows
  flows.register(
    defineHandler('pay', {
      on: 'OrderPlaced',
      retries: 0,
      run: () => {
        if (delays.length < 4) throw new ConnectionLost({ reason: 'the bank is away' })
      },
    }),
  )
  await using worker = workerOf(store, { pollMs: 20 })
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })

  await waitUntil(async () => {
    await query(`update ~workflow_executions set run_at = now() where state = 'delayed'`)
    return delays.length === 4 && (await flow.status()).isSettled
  })
  const status = await flow.status()

  expect(delays[0]).toBeLessThan(501)
  expect(delays[3]).toBeGreaterThan(1_000)
  expect(status).toMatchObject({ state: 'settled', deadLetters: 0 })
  const { items: attempts } = await flows.attempts({ handler: 'pay' })
  expect(attempts.map(({ kind, attempt }) => [kind, attempt])).toEqual([
    ['completed', 1],
    ...Array(4).fill(['failed', 1]),
  ])
  expect(attempts[1]).toMatchObject({ outcome: 'interrupted', error: { code: 'connection_lost' } })
})
