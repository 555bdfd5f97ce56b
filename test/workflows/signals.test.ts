import { expect, test } from 'vitest'
import { defineHandler } from '../../src/workflows/handler.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, outcome, shopEvents } from '../support/shop.ts'
import { executionStates, letTimePass, untilSuspended } from '../support/suspended-executions.ts'
import { waitUntil } from '../support/wait.ts'

const quick = { baseMs: 1 }
const worker = { pollMs: 20 }

test('a handler waits for an event of its workflow without occupying a worker, and gets it', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  flows.register(
    defineHandler('ship', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_event, ctx) => {
        const paid = await ctx.waitForEvent('OrderPaid')
        return ctx.emit('OrderShipped', { parcel: `${paid.data.method} ${paid.correlationId === ctx.correlationId}` })
      },
    }),
  )
  await using running = workerOf(shop.store, worker)
  await running.start()
  const flow = await flows.publish('OrderPlaced', { total: 99 })
  await untilSuspended(shop)

  await flows.publish('OrderPaid', { method: 'card' })
  await flow.signal('OrderPaid', { method: 'cash' })
  const shipped = await flow.waitForEvent('OrderShipped')
  const status = await flow.waitUntilSettled()

  expect(shipped.data.parcel).toBe('cash true')
  expect(status.state).toBe('settled')
  expect(await shop.query('select 1 as n from ~workflow_waits')).toEqual([])
})

test('an event that came before the wait is found', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  let release = (): void => {}
  const held = new Promise<void>(resolve => {
    release = resolve
  })
  const got: string[] = []
  flows.register(
    defineHandler('ship', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_event, ctx) => {
        await ctx.step('prepare', () => held)
        got.push((await ctx.waitForEvent('OrderPaid')).data.method)
      },
    }),
  )
  await using running = workerOf(shop.store, worker)
  await running.start()

  const flow = await flows.publish('OrderPlaced', { total: 99 })
  await flow.signal('OrderPaid', { method: 'card' })
  await waitUntil(async () => (await flow.status()).lastType === 'OrderPaid')
  release()
  await flow.waitUntilSettled()

  expect(got).toEqual(['card'])
})

test("with since: 'event' an event older than the event of the handler does not match", async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const got: string[] = []
  flows.register(
    defineHandler('rate', {
      events: shopEvents,
      on: 'OrderShipped',
      run: async (_event, ctx) => {
        got.push((await ctx.waitForEvent('OrderPaid', { timeoutMs: 60_000, since: 'event' }))?.data.method ?? 'none')
      },
    }),
  )
  await using running = workerOf(shop.store, worker)
  await running.start()

  const flow = await flows.publish('OrderPaid', { method: 'card' })
  await flow.signal('OrderShipped', { parcel: 'parcel-1' })
  await untilSuspended(shop)
  await letTimePass(shop, 60_000)
  await flow.waitUntilSettled()

  expect(got).toEqual(['none'])
})

test('a signal that came before the event of its handler is not lost', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const got: string[] = []
  flows.register(
    defineHandler('rate', {
      events: shopEvents,
      on: 'OrderShipped',
      run: async (_event, ctx) => void got.push((await ctx.waitForEvent('OrderPaid')).data.method),
    }),
  )
  await using running = workerOf(shop.store, worker)
  await running.start()

  const flow = await flows.publish('OrderPaid', { method: 'card' })
  await flow.signal('OrderShipped', { parcel: 'parcel-1' })
  await flow.waitUntilSettled()

  expect(got).toEqual(['card'])
})

test('each signal is given to one execution of a handler, the oldest first, and to every handler', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const got: string[] = []
  const other: string[] = []
  const handlerOf = (name: string, list: string[]) =>
    defineHandler(name, {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async ({ data }, ctx) => {
        list.push(`${data.total} ${(await ctx.waitForEvent('OrderShipped')).data.parcel}`)
      },
    })
  flows.register(handlerOf('track', got))
  flows.register(handlerOf('mail', other))
  await using running = workerOf(shop.store, worker)
  await running.start()

  // The first signal comes before both executions wait, the second when one of them still does.
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await flow.signal('OrderShipped', { parcel: 'a' })
  await waitUntil(() => got.length + other.length === 2)
  await flow.signal('OrderShipped', { parcel: 'b' })
  await waitUntil(async () => (await flow.status()).lastType === 'OrderShipped')
  await flow.signal('OrderPlaced', { total: 2 })
  await flow.waitUntilSettled()

  expect([got, other]).toEqual([
    ['1 a', '2 b'],
    ['1 a', '2 b'],
  ])
  expect(await shop.query('select handler, position from ~workflow_signals order by handler, position')).toHaveLength(4)
})

test('of two executions of a handler that wait, the older one gets the first signal and the other one the second', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const got: string[] = []
  flows.register(
    defineHandler('track', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async ({ data }, ctx) => {
        got.push(`${data.total} ${(await ctx.waitForEvent('OrderShipped')).data.parcel}`)
      },
    }),
  )
  await using running = workerOf(shop.store, worker)
  await running.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await flow.signal('OrderPlaced', { total: 2 })
  await waitUntil(async () => (await executionStates(shop)) === '2 suspended')

  await flow.signal('OrderShipped', { parcel: 'a' })
  await waitUntil(() => got.length === 1)
  await flow.signal('OrderShipped', { parcel: 'b' })
  await flow.waitUntilSettled()

  expect(got).toEqual(['1 a', '2 b'])
})

test('a handler that runs again and again, by its own event, gets one signal each time', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const got: string[] = []
  flows.register(
    defineHandler('again', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async ({ data }, ctx) => {
        got.push((await ctx.waitForEvent('OrderShipped')).data.parcel)
        return data.total > 1 ? ctx.emit('OrderPlaced', { total: data.total - 1 }) : undefined
      },
    }),
  )
  const flow = await flows.publish('OrderPlaced', { total: 3 })
  for (const parcel of ['a', 'b', 'c']) await flow.signal('OrderShipped', { parcel })
  await using running = workerOf(shop.store, worker)
  await running.start()
  await flow.waitUntilSettled()

  expect(got).toEqual(['a', 'b', 'c'])
})

test('a wait takes only a matching event; others are left for other waits', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const got: string[] = []
  flows.register(
    defineHandler('ship', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_event, ctx) => {
        const cash = await ctx.waitForEvent('OrderPaid', { match: { method: 'cash' } })
        const any = await ctx.waitForEvent('OrderPaid')
        got.push(cash.data.method, any.data.method)
      },
    }),
  )
  await using running = workerOf(shop.store, worker)
  await running.start()
  const flow = await flows.publish('OrderPlaced', { total: 99 })
  await untilSuspended(shop)

  await flow.signal('OrderPaid', { method: 'card' })
  await waitUntil(async () => (await flow.status()).lastType === 'OrderPaid')
  const between = await executionStates(shop)
  await flow.signal('OrderPaid', { method: 'cash' })
  await flow.waitUntilSettled()

  expect(between).toBe('1 suspended')
  expect(got).toEqual(['cash', 'card'])
})

test('two waits take two events, one after the other or both at once', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const got: string[] = []
  flows.register(
    defineHandler('in turn', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_event, ctx) => {
        const first = await ctx.waitForEvent('OrderShipped')
        const second = await ctx.waitForEvent('OrderShipped')
        got.push(`${first.data.parcel} then ${second.data.parcel}`)
      },
    }),
  )
  flows.register(
    defineHandler('at once', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_event, ctx) => {
        const both = await Promise.all([ctx.waitForEvent('OrderShipped'), ctx.waitForEvent('OrderShipped')])
        got.push(both.map(({ data }) => data.parcel).join(' and '))
      },
    }),
  )
  await using running = workerOf(shop.store, worker)
  await running.start()
  const flow = await flows.publish('OrderPlaced', { total: 99 })
  await untilSuspended(shop, 2)

  await flow.signal('OrderShipped', { parcel: 'a' })
  await flow.signal('OrderShipped', { parcel: 'b' })
  await flow.waitUntilSettled()

  expect([...got].sort()).toEqual(['a and b', 'a then b'])
})

test('a wait without an answer times out, and a later one still gets the event that came too late', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const got: (string | undefined)[] = []
  flows.register(
    defineHandler('ship', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_event, ctx) => {
        const inTime = await ctx.waitForEvent('OrderPaid', { timeoutMs: 60_000 })
        await ctx.step('remind', () => got.push(inTime?.data.method))
        const late = await ctx.waitForEvent('OrderPaid', { timeoutMs: 60_000 })
        got.push(late?.data.method)
      },
    }),
  )
  await using running = workerOf(shop.store, worker)
  await running.start()
  const flow = await flows.publish('OrderPlaced', { total: 99 })
  await untilSuspended(shop)

  await letTimePass(shop, 60_000)
  await waitUntil(() => got.length === 1)
  await flow.signal('OrderPaid', { method: 'card' })
  await flow.waitUntilSettled()

  expect(got).toEqual([undefined, 'card'])
})

test('a short wait also times out by itself', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const got: unknown[] = []
  flows.register(
    defineHandler('ship', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_event, ctx) => {
        got.push(await ctx.waitForEvent('OrderPaid', { timeoutMs: 50 }))
      },
    }),
  )
  await using running = workerOf(shop.store, { pollMs: 600_000, leaseMs: 600_000 })
  await running.start()

  await (await flows.publish('OrderPlaced', { total: 99 })).waitUntilSettled()

  expect(got).toEqual([undefined])
})

test('whichever of a sleep, a step and a wait ends first wins a race, in all runs', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const winners: string[] = []
  flows.register(
    defineHandler('race', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_event, ctx) => {
        const winner = await Promise.race([
          ctx.sleep(3_600_000).then(() => 'sleep'),
          ctx.waitForEvent('OrderPaid').then(() => 'paid'),
          ctx
            .step('check', () => new Promise(resolve => setTimeout(resolve, 20)))
            .then(() => ctx.waitForEvent('OrderShipped')),
        ])
        const name = typeof winner === 'string' ? winner : winner.type
        await ctx.step(`after ${name}`, () => {})
        await ctx.sleep(7_200_000)
        winners.push(name)
      },
    }),
  )
  await using running = workerOf(shop.store, worker)
  await running.start()
  const orders = await Promise.all([1, 2, 3].map(total => flows.publish('OrderPlaced', { total })))
  await untilSuspended(shop, 3)

  await orders[0]!.signal('OrderPaid', { method: 'card' })
  await orders[1]!.signal('OrderShipped', { parcel: 'a' })
  const decided = async (): Promise<number> =>
    (await shop.query(`select 1 as n from ~workflow_steps where name like 'after %'`)).length
  await waitUntil(async () => (await decided()) === 2)
  await untilSuspended(shop, 3)
  await letTimePass(shop, 3_600_000)
  await waitUntil(async () => (await decided()) === 3)
  await untilSuspended(shop, 3)
  // Too late for the race, and for the waits that lost it.
  for (const flow of orders) await flow.signal('OrderPaid', { method: 'cash' })
  await letTimePass(shop, 7_200_000)
  await Promise.all(orders.map(flow => flow.waitUntilSettled()))

  expect([...winners].sort()).toEqual(['OrderShipped', 'paid', 'sleep'])
})

test('no signal is missed, whether it comes before the wait, with it, or after', async () => {
  const shop = await openShop()
  const sender = await shop.sibling()
  const flows = shop.store.workflows
  const got = new Map<number, string>()
  flows.register(
    defineHandler('ship', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (event, ctx) => {
        const first = await ctx.waitForEvent('OrderShipped', { match: { parcel: 'a' } })
        const second = await ctx.waitForEvent('OrderShipped')
        got.set(event.data.total, `${first.data.parcel} ${second.data.parcel}`)
      },
    }),
  )
  await using running = workerOf(shop.store, { concurrency: 32 })
  await running.start()

  // One of each: all orders of the two signals at all distances.
  const count = 60
  const all = await Promise.all(
    Array.from({ length: count }, async (_, total) => {
      const flow = await flows.publish('OrderPlaced', { total })
      const other = sender.workflows.get(flow.correlationId)
      // Some at once, some spread over the time in which the waits are registered.
      for (let turns = 0; turns < (total * 7) % 60; turns++) await new Promise(resolve => setImmediate(resolve))
      const sends = [
        () => other.signal('OrderShipped', { parcel: 'a' }),
        () => flow.signal('OrderShipped', { parcel: 'b' }),
      ]
      if (total % 3 === 0) sends.reverse()
      if (total % 2 === 0) await Promise.all(sends.map(send => send()))
      else for (const send of sends) await send()
      return flow
    }),
  )
  await Promise.all(all.map(flow => flow.waitUntilSettled({ timeoutMs: 60_000 })))

  expect(got.size).toBe(count)
  expect(new Set(got.values())).toEqual(new Set(['a b']))
}, 90_000)

test('an event does not wake an execution that waits for its next attempt', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  let runs = 0
  flows.register(
    defineHandler('ship', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 1,
      backoff: { baseMs: 3_600_000 },
      run: async (_event, ctx) => {
        runs++
        const waited = ctx.waitForEvent('OrderPaid')
        await ctx.sleep(60_000)
        if (ctx.attempt === 1) throw new Error('not yet')
        await waited
      },
    }),
  )
  await using running = workerOf(shop.store, worker)
  await running.start()
  const flow = await flows.publish('OrderPlaced', { total: 99 })
  await untilSuspended(shop)
  await letTimePass(shop, 60_000)
  await waitUntil(async () => (await executionStates(shop)) === '1 delayed')

  await flow.signal('OrderPaid', { method: 'card' })
  await waitUntil(async () => (await shop.query('select 1 as n from ~workflow_waits')).length === 0)
  const between = [runs, await executionStates(shop)]
  await letTimePass(shop, 3_600_000)
  const status = await flow.waitUntilSettled()

  expect(between).toEqual([2, '1 delayed'])
  expect(status.state).toBe('settled')
})

test('an invalid event type, match or time is refused', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const codes: unknown[] = []
  flows.register(
    defineHandler('ship', {
      events: shopEvents,
      on: 'OrderPlaced',
      backoff: quick,
      retries: 0,
      run: async (_event, ctx) => {
        const calls = [
          () => ctx.waitForEvent('' as 'OrderPaid'),
          () => ctx.waitForEvent('OrderPaid', { timeoutMs: -1 }),
          () => ctx.waitForEvent('OrderPaid', { match: [] as never }),
          () => ctx.waitForEvent('OrderPaid', { match: { total: 1n } }),
        ]
        for (const call of calls) codes.push(((await outcome(call())).error as { code: string }).code)
      },
    }),
  )
  await using running = workerOf(store, worker)
  await running.start()

  await (await flows.publish('OrderPlaced', { total: 99 })).waitUntilSettled()

  expect(codes).toEqual(['invalid_name', 'invalid_option', 'invalid_option', 'invalid_event'])
})
