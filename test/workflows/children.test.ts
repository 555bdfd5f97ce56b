import { expect, test } from 'vitest'
import { defineHandler } from '../../src/workflows/handler.ts'
import { openShop, outcome, shopEvents } from '../support/shop.ts'
import { executionStates, untilSuspended } from '../support/suspended-executions.ts'
import { waitUntil } from '../support/wait.ts'

const quick = { baseMs: 1 }
const worker = { pollMs: 20 }

test('a handler starts a workflow, waits for its end without occupying a worker, and gets its result', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const ends: unknown[] = []
  flows.register(
    defineHandler('order', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_event, ctx) => {
        const parcel = await ctx.start('OrderShipped', { parcel: 'a' })
        const end = await parcel.waitUntilSettled()
        ends.push(end.correlationId === parcel.correlationId && end.correlationId !== ctx.correlationId, end.state)
        return ctx.emit('OrderPaid', { method: 'card' })
      },
    }),
  )
  let release = (): void => {}
  const held = new Promise<void>(resolve => {
    release = resolve
  })
  flows.register(defineHandler('deliver', { on: 'OrderShipped', run: () => held }))
  await using running = flows.worker({ ...worker, pollMs: 2_000 })
  await running.start()
  const flow = await flows.publish('OrderPlaced', { total: 99 })

  await waitUntil(async () => (await executionStates(shop)) === '1 running, 1 suspended')
  const meanwhile = await flow.status()
  release()
  const status = await flow.waitUntilSettled()
  const [child] = await shop.query<{ correlation_id: string; parent: string }>(
    'select correlation_id, parent from ~workflows where parent is not null',
  )

  expect(meanwhile.state).toBe('waiting')
  expect(status).toMatchObject({ state: 'settled', lastType: 'OrderPaid' })
  expect(ends).toEqual([true, 'settled'])
  expect(child!.parent).toBe(flow.correlationId)
  expect(await flows.get(child!.correlation_id).status()).toMatchObject({ parent: flow.correlationId })
})

test('a child workflow is started once, however often its parent is run', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const started: string[][] = []
  flows.register(
    defineHandler('order', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 2,
      backoff: quick,
      run: async (_event, ctx) => {
        const children = [
          await ctx.start('OrderShipped', { parcel: 'a' }),
          await ctx.start('OrderShipped', { parcel: 'b' }),
          await ctx.start('OrderShipped', { parcel: 'c' }, { key: 'third' }),
          await ctx.start('OrderShipped', { parcel: 'd' }, { correlationId: `parcel of ${ctx.correlationId}` }),
        ]
        started.push(children.map(({ correlationId }) => correlationId))
        if (ctx.attempt < 3) throw new Error('not yet')
      },
    }),
  )
  await using running = flows.worker(worker)
  await running.start()

  const flow = await flows.publish('OrderPlaced', { total: 99 })
  const status = await flow.waitUntilSettled()
  const rows = await shop.query<{ parcel: string; correlation_id: string; stream: string }>(
    `select data->>'parcel' as parcel, correlation_id, stream from ~events where type = 'OrderShipped' order by position`,
  )

  expect(status.state).toBe('settled')
  expect(started).toHaveLength(3)
  expect(new Set(started.map(ids => ids.join())).size).toBe(1)
  expect(rows.map(({ parcel }) => parcel).join('')).toBe('abcd')
  expect(rows.map(row => row.correlation_id)).toEqual(started[0])
  expect(rows.every(row => row.stream === `workflow-${row.correlation_id}`)).toBe(true)
  expect(started[0]![3]).toBe(`parcel of ${flow.correlationId}`)
})

test('a child that fails has also settled, and its result says so', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const ends: unknown[] = []
  flows.register(
    defineHandler('order', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_event, ctx) => {
        ends.push(await (await ctx.start('OrderShipped', { parcel: 'a' })).waitUntilSettled())
      },
    }),
  )
  flows.register(
    defineHandler('deliver', {
      on: 'OrderShipped',
      retries: 0,
      run: () => {
        throw new Error('nobody at home')
      },
    }),
  )
  await using running = flows.worker(worker)
  await running.start()

  const status = await (await flows.publish('OrderPlaced', { total: 99 })).waitUntilSettled()

  expect(status.state).toBe('settled')
  expect(ends).toMatchObject([{ state: 'failed', deadLetters: 1, lastType: 'OrderShipped' }])
})

test('a child settles when its own children have', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const log: string[] = []
  flows.register(
    defineHandler('order', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (event, ctx) => {
        const { total } = event.data
        if (total > 0) await (await ctx.start('OrderPlaced', { total: total - 1 })).waitUntilSettled()
        log.push(`${total}`)
      },
    }),
  )
  await using running = flows.worker({ ...worker, concurrency: 1 })
  await running.start()

  const status = await (await flows.publish('OrderPlaced', { total: 3 })).waitUntilSettled()

  expect(status.state).toBe('settled')
  expect(log).toEqual(['0', '1', '2', '3'])
})

test('many children are started and awaited at once; one without handlers settles immediately', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const states: string[] = []
  flows.register(
    defineHandler('order', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_event, ctx) => {
        const parcels = await Promise.all(
          Array.from({ length: 20 }, (_, n) => ctx.start(n === 0 ? 'OrderPaid' : 'OrderShipped', parcelOrPayment(n))),
        )
        states.push(...(await Promise.all(parcels.map(parcel => parcel.waitUntilSettled()))).map(({ state }) => state))
      },
    }),
  )
  flows.register(
    defineHandler('deliver', {
      events: shopEvents,
      on: 'OrderShipped',
      run: async (_event, ctx) => {
        await ctx.sleep(5)
      },
    }),
  )
  await using running = flows.worker(worker)
  await running.start()

  const status = await (await flows.publish('OrderPlaced', { total: 99 })).waitUntilSettled()

  expect(status.state).toBe('settled')
  expect(states).toEqual(Array.from({ length: 20 }, () => 'settled'))
  expect(await shop.query('select 1 as n from ~workflow_waits')).toEqual([])
})

function parcelOrPayment(n: number): never {
  return (n === 0 ? { method: 'card' } : { parcel: `${n}` }) as never
}

test('the wait for a child survives the end of its worker', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  let isDelivered = false
  flows.register(
    defineHandler('order', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_event, ctx) => {
        await (await ctx.start('OrderShipped', { parcel: 'a' })).waitUntilSettled()
      },
    }),
  )
  flows.register(
    defineHandler('deliver', {
      events: shopEvents,
      on: 'OrderShipped',
      run: async (_event, ctx) => {
        await ctx.waitForEvent('OrderPaid')
        isDelivered = true
      },
    }),
  )
  const first = flows.worker(worker)
  await first.start()
  const flow = await flows.publish('OrderPlaced', { total: 99 })
  await untilSuspended(shop, 2)
  const [child] = await shop.query<{ child: string }>('select child from ~workflow_waits where child is not null')
  await first.stop()

  await using second = flows.worker(worker)
  await second.start()
  await flows.get(child!.child).signal('OrderPaid', { method: 'card' })
  const status = await flow.waitUntilSettled()

  expect(isDelivered).toBe(true)
  expect(status.state).toBe('settled')
})

test('workflows that start each other are limited in depth', async () => {
  const { store } = await openShop({ workflows: { maxHops: 5 } })
  const flows = store.workflows
  let runs = 0
  flows.register(
    defineHandler('order', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (event, ctx) => {
        runs++
        await ctx.start('OrderPlaced', { total: event.data.total + 1 })
      },
    }),
  )
  await using running = flows.worker(worker)
  await running.start()

  await flows.publish('OrderPlaced', { total: 0 })
  await waitUntil(async () => (await store.deadLetters.list()).length === 1)
  const [deadLetter] = await store.deadLetters.list()

  expect(runs).toBe(6)
  expect(deadLetter!.lastError!.code).toBe('hops_exceeded')
})

test('invalid child workflows are refused', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const codes: unknown[] = []
  flows.register(
    defineHandler('order', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 0,
      run: async (_event, ctx) => {
        const calls = [
          () => ctx.start('OrderShipped', { parcel: 1n as never }),
          () => ctx.start('' as 'OrderShipped', { parcel: 'a' }),
          () => ctx.start('OrderShipped', { parcel: 'a' }, { correlationId: ctx.correlationId }),
          () => ctx.start('OrderShipped', { parcel: 'a' }, { correlationId: '' }),
        ]
        for (const call of calls) codes.push(((await outcome(call())).error as { code: string }).code)
      },
    }),
  )
  await using running = flows.worker(worker)
  await running.start()

  await (await flows.publish('OrderPlaced', { total: 99 })).waitUntilSettled()

  expect(codes).toEqual(['invalid_event', 'invalid_name', 'invalid_option', 'invalid_name'])
  expect(await shop.query(`select 1 as n from ~events where type = 'OrderShipped'`)).toEqual([])
})
