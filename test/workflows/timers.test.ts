import { expect, test } from 'vitest'
import { deferred } from '../../src/core/abort.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, outcome, shopEvents } from '../support/shop.ts'
import { executionStates, letTimePass, untilSuspended } from '../support/suspended-executions.ts'
import { waitUntil } from '../support/wait.ts'

const quick = { baseMs: 1 }
const worker = { pollMs: 20 }

test('a sleep survives the end of its worker, and costs no attempt', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const log: string[] = []
  flows.register(
    defineHandler('remind', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_event, ctx) => {
        const at = await ctx.step('ask', () => log.push('asked'))
        await ctx.sleep('a day', 86_400_000)
        log.push(`reminded ${at} attempt ${ctx.attempt}`)
      },
    }),
  )
  const first = workerOf(shop.store, worker)
  await first.start()
  const flow = await flows.publish('OrderPlaced', { total: 99 })
  await untilSuspended(shop)
  const waiting = await flow.status()
  await first.stop()

  await using second = workerOf(shop.store, worker)
  await second.start()
  await letTimePass(shop, 86_400_000)
  const status = await flow.waitUntilSettled()

  expect(waiting).toMatchObject({ state: 'waiting', pending: 1, isSettled: false })
  expect(status.state).toBe('settled')
  expect(log).toEqual(['asked', 'reminded 1 attempt 1'])
})

test('a sleeping execution occupies no place: one at a time, many can sleep', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const woken = new Set<number>()
  flows.register(
    defineHandler('remind', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (event, ctx) => {
        await ctx.sleep(60_000)
        woken.add(event.data.total)
      },
    }),
  )
  await using running = workerOf(shop.store, { ...worker, concurrency: 1 })
  await running.start()

  await Promise.all(Array.from({ length: 40 }, (_, total) => flows.publish('OrderPlaced', { total })))
  await untilSuspended(shop, 40)
  await letTimePass(shop, 60_000)
  await waitUntil(async () => (await executionStates(shop)) === '')

  expect(woken.size).toBe(40)
})

test('a short sleep stays in memory', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const runs: number[] = []
  flows.register(
    defineHandler('remind', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_event, ctx) => {
        const began = performance.now()
        await ctx.sleep(40)
        await ctx.sleep(0)
        runs.push(performance.now() - began)
      },
    }),
  )
  await using running = workerOf(shop.store, worker)
  await running.start()

  await (await flows.publish('OrderPlaced', { total: 99 })).waitUntilSettled()
  const kinds = await shop.query<{ kind: string }>('select kind from ~workflow_activity order by position')

  expect(kinds.map(({ kind }) => kind)).toEqual(['dispatched', 'started', 'completed'])
  expect(runs).toHaveLength(1)
  expect(runs[0]).toBeGreaterThanOrEqual(39)
})

test('code around a sleep cannot mistake it for a failure', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const log: string[] = []
  flows.register(
    defineHandler('remind', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 0,
      run: async (_event, ctx) => {
        try {
          log.push('begin')
          await ctx.sleep(60_000)
          log.push('slept')
        } catch (error) {
          log.push(`caught ${error}`)
        } finally {
          log.push('finally')
        }
      },
    }),
  )
  await using running = workerOf(shop.store, worker)
  await running.start()

  const flow = await flows.publish('OrderPlaced', { total: 99 })
  await untilSuspended(shop)
  await letTimePass(shop, 60_000)
  await flow.waitUntilSettled()

  expect(log).toEqual(['begin', 'begin', 'slept', 'finally'])
})

test('a run is suspended only when its parallel steps have ended, and no step is repeated', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const log: string[] = []
  let release = (): void => {}
  const held = new Promise<void>(resolve => {
    release = resolve
  })
  flows.register(
    defineHandler('remind', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_event, ctx) => {
        const branch = async (name: string, wait: Promise<void> | undefined): Promise<string> => {
          await ctx.step(`${name} 1`, async () => {
            await wait
            log.push(`${name} 1`)
          })
          await ctx.sleep(`${name} sleeps`, 60_000)
          return ctx.step(`${name} 2`, () => `${name} 2 after ${log.push(`${name} 2`)}`)
        }
        const all = await Promise.all([branch('slow', held), branch('quick', undefined)])
        log.push(all.length === 2 ? 'both' : 'one')
      },
    }),
  )
  await using running = workerOf(shop.store, worker)
  await running.start()
  const flow = await flows.publish('OrderPlaced', { total: 99 })
  await waitUntil(() => log.includes('quick 1'))
  const meanwhile = await executionStates(shop)

  release()
  await untilSuspended(shop)
  await letTimePass(shop, 60_000)
  const status = await flow.waitUntilSettled()

  expect(meanwhile).toBe('1 running')
  expect(status.state).toBe('settled')
  expect([...log].sort()).toEqual(['both', 'quick 1', 'quick 2', 'slow 1', 'slow 2'])
})

test('the winner of a race stays the winner in all later runs', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const winners: string[] = []
  const decided = deferred<void>()
  flows.register(
    defineHandler('remind', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_event, ctx) => {
        const slow = ctx.step('slow', () => decided.promise.then(() => 'step'))
        const winner = await Promise.race([slow, ctx.sleep(20).then(() => 'sleep')])
        await ctx.step(`after ${winner}`, () => decided.resolve())
        await slow
        await ctx.sleep(60_000)
        winners.push(winner)
      },
    }),
  )
  await using running = workerOf(shop.store, worker)
  await running.start()

  const flow = await flows.publish('OrderPlaced', { total: 99 })
  await untilSuspended(shop)
  await letTimePass(shop, 60_000)
  const status = await flow.waitUntilSettled()

  expect(status.state).toBe('settled')
  expect(winners).toEqual(['sleep'])
})

test('a long sleep ends in the same run if a step lasts longer than it', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  let release = (): void => {}
  const held = new Promise<void>(resolve => {
    release = resolve
  })
  const winners: string[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_event, ctx) => {
        const slow = ctx.step('slow', () => held.then(() => 'step'))
        winners.push(await Promise.race([slow, ctx.sleep(1_050).then(() => 'sleep')]))
        release()
      },
    }),
  )
  await using running = workerOf(shop.store, worker)
  await running.start()

  await (await flows.publish('OrderPlaced', { total: 99 })).waitUntilSettled()

  expect(winners).toEqual(['sleep'])
})

test('the shortest of several sleeps wakes it, and the others continue', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const log: string[] = []
  flows.register(
    defineHandler('remind', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_event, ctx) => {
        await Promise.all(
          [3, 1, 2].map(async hours => {
            await ctx.sleep(`${hours} h`, hours * 3_600_000)
            await ctx.step(`after ${hours} h`, () => log.push(`${hours}`))
          }),
        )
        log.push('all')
      },
    }),
  )
  await using running = workerOf(shop.store, worker)
  await running.start()
  const flow = await flows.publish('OrderPlaced', { total: 99 })

  for (const hour of [1, 2, 3]) {
    await waitUntil(async () => log.length === hour - 1 && (await executionStates(shop)) === '1 suspended')
    await letTimePass(shop, 3_600_000)
  }
  await flow.waitUntilSettled()

  expect(log).toEqual(['1', '2', '3', 'all'])
})

test('the time of a handler is that of its last result: after a sleep at least that much later', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const runs: number[][] = []
  flows.register(
    defineHandler('remind', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_event, ctx) => {
        const times = [ctx.now().getTime()]
        runs.push(times)
        await ctx.step('ask', () => {})
        times.push(ctx.now().getTime())
        await ctx.sleep(1_100)
        times.push(ctx.now().getTime())
        await ctx.sleep(60_000)
        times.push(ctx.now().getTime())
      },
    }),
  )
  await using running = workerOf(shop.store, worker)
  await running.start()

  const flow = await flows.publish('OrderPlaced', { total: 99 })
  await waitUntil(async () => runs.at(-1)?.length === 3 && (await executionStates(shop)) === '1 suspended')
  await letTimePass(shop, 60_000)
  await flow.waitUntilSettled()
  const last = runs.at(-1)!

  // However many runs it took: a short sleep stays in memory.
  expect(last).toHaveLength(4)
  expect(runs.length).toBeGreaterThan(1)
  for (const times of runs) expect(times).toEqual(last.slice(0, times.length))
  expect(last[2]! - last[1]!).toBeGreaterThanOrEqual(1_100)
})

test('timeoutMs counts running time, not waiting time', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  flows.register(
    defineHandler('remind', {
      events: shopEvents,
      on: 'OrderPlaced',
      timeoutMs: 60_000,
      retries: 0,
      run: async (event, ctx) => {
        await ctx.step('work', () => new Promise(resolve => setTimeout(resolve, 20)))
        await ctx.sleep(3_600_000)
        if (event.data.total === 2) await ctx.step('more work', () => new Promise(() => {}))
      },
    }),
  )
  await using running = workerOf(shop.store, worker)
  await running.start()

  const short = await flows.publish('OrderPlaced', { total: 1 })
  const long = await flows.publish('OrderPlaced', { total: 2 })
  await untilSuspended(shop, 2)
  const [ran] = await shop.query<{ least: number }>('select min(ran_ms) as least from ~workflow_executions')
  await shop.query('update ~workflow_executions set ran_ms = 59990 where correlation_id = $1', [long.correlationId])
  await letTimePass(shop, 3_600_000)
  const [ended, cut] = await Promise.all([short.waitUntilSettled(), long.waitUntilSettled()])

  expect(ran!.least).toBeGreaterThanOrEqual(15)
  expect(ended.state).toBe('settled')
  expect(cut.state).toBe('failed')
  expect(await shop.query('select reason from ~dead_letters')).toEqual([{ reason: 'timeout' }])
})

test('deadlineMs counts all time: an execution that sleeps beyond it is woken to fail', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const log: string[] = []
  flows.register(
    defineHandler('remind', {
      events: shopEvents,
      on: 'OrderPlaced',
      deadlineMs: 60_000,
      retries: 5,
      run: async (_event, ctx) => {
        log.push('begin')
        await ctx.sleep(3_600_000)
        log.push('slept')
      },
    }),
  )
  await using running = workerOf(shop.store, worker)
  await running.start()

  const flow = await flows.publish('OrderPlaced', { total: 99 })
  await untilSuspended(shop)
  await letTimePass(shop, 60_000)
  await flow.waitUntilSettled()
  const [deadLetter] = (await shop.store.deadLetters.list()).items

  expect(log).toEqual(['begin'])
  expect(deadLetter!.lastError!.code).toBe('deadline_passed')
  expect(await shop.query('select 1 as n from ~workflow_steps')).toEqual([])
})

test('an ordered lane waits for its sleeping execution, other lanes do not', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const log: string[] = []
  flows.register(
    defineHandler('ordered', {
      events: shopEvents,
      on: ['OrderPlaced', 'OrderPaid'],
      ordered: true,
      run: async (event, ctx) => {
        if (event.type === 'OrderPlaced') await ctx.sleep(60_000)
        log.push(event.type)
      },
    }),
  )
  await using running = workerOf(shop.store, worker)
  await running.start()

  const flow = await flows.publish('OrderPlaced', { total: 99 })
  await flow.signal('OrderPaid', { method: 'card' })
  const other = await flows.publish('OrderPaid', { method: 'cash' })
  await other.waitUntilSettled()
  await waitUntil(async () => (await executionStates(shop)) === '1 blocked, 1 suspended')
  await letTimePass(shop, 60_000)
  await flow.waitUntilSettled()

  expect(log).toEqual(['OrderPaid', 'OrderPlaced', 'OrderPaid'])
})

test('an invalid time is refused', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const codes: unknown[] = []
  flows.register(
    defineHandler('remind', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 0,
      run: async (_event, ctx) => {
        for (const ms of [-1, Number.NaN, Number.POSITIVE_INFINITY, undefined])
          codes.push((await outcome(ctx.sleep(ms as number))).error)
        codes.push((await outcome(ctx.sleep('named', undefined as never))).error)
        codes.push((await outcome(ctx.sleep('', 5))).error)
      },
    }),
  )
  await using running = workerOf(store, worker)
  await running.start()

  await (await flows.publish('OrderPlaced', { total: 99 })).waitUntilSettled()

  expect(codes.map(error => (error as { code: string }).code)).toEqual([
    ...Array.from({ length: 5 }, () => 'invalid_option'),
    'invalid_name',
  ])
})

test('a failed attempt remembers how long it has slept', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const log: string[] = []
  flows.register(
    defineHandler('remind', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 1,
      backoff: quick,
      run: async (_event, ctx) => {
        await ctx.sleep(60_000)
        log.push(`slept ${ctx.attempt}`)
        if (ctx.attempt === 1) throw new Error('not yet')
      },
    }),
  )
  await using running = workerOf(shop.store, worker)
  await running.start()

  const flow = await flows.publish('OrderPlaced', { total: 99 })
  await untilSuspended(shop)
  await letTimePass(shop, 60_000)
  const status = await flow.waitUntilSettled()

  expect(status.state).toBe('settled')
  expect(log).toEqual(['slept 1', 'slept 2'])
})
