import { expect, test } from 'vitest'
import { deferred } from '../../src/core/abort.ts'
import { isRillflowError } from '../../src/core/errors.ts'
import { NonRetryable } from '../../src/workflows/errors.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import type { HandlerContext } from '../../src/workflows/steps/context.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, outcome, shopEvents } from '../support/shop.ts'
import { executionStates, letTimePass, untilSuspended } from '../support/suspended-executions.ts'
import { waitUntil } from '../support/wait.ts'

const quick = { baseMs: 1 }
const worker = { pollMs: 20 }

test('a step is run once, and later runs get its result', async () => {
  const { store, query } = await openShop()
  const flows = store.workflows
  const charged: number[] = []
  const seen: unknown[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 3,
      backoff: quick,
      run: async (event, ctx) => {
        const receipt = await ctx.step('charge', () => ({ receipt: charged.push(event.data.total) }))
        const nothing = await ctx.step('tell', async () => {})
        seen.push([receipt, nothing])
        if (ctx.attempt < 3) throw new Error('not yet')
        return ctx.emit('OrderPaid', { method: 'card' })
      },
    }),
  )
  await using running = workerOf(store, worker)
  await running.start()

  const flow = await flows.publish('OrderPlaced', { total: 99 })
  const status = await flow.waitUntilSettled()

  expect(status.state).toBe('settled')
  expect(charged).toEqual([99])
  expect(seen).toEqual(Array.from({ length: 3 }, () => [{ receipt: 1 }, undefined]))
  expect(await query('select * from ~workflow_steps')).toEqual([])
})

test('the first run sees the result as it is stored, not as the step returned it', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const seen: unknown[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 1,
      backoff: quick,
      run: async (_event, ctx) => {
        seen.push(await ctx.step('when', () => ({ at: new Date(0), left: undefined, none: null })))
        if (ctx.attempt === 1) throw new Error('not yet')
      },
    }),
  )
  await using running = workerOf(store, worker)
  await running.start()

  await (await flows.publish('OrderPlaced', { total: 99 })).waitUntilSettled()

  expect(seen).toEqual([
    { at: '1970-01-01T00:00:00.000Z', none: null },
    { at: '1970-01-01T00:00:00.000Z', none: null },
  ])
})

test('another worker continues where the first one was lost', async () => {
  const shop = await openShop()
  const other = await shop.sibling()
  const done: string[] = []
  const isStuck = deferred<void>()
  let hangs = true
  for (const { workflows } of [shop.store, other])
    workflows.register(
      defineHandler('pay', {
        events: shopEvents,
        on: 'OrderPlaced',
        run: async (_event, ctx) => {
          await ctx.step('reserve', () => done.push('reserve'))
          if (hangs) {
            isStuck.resolve()
            await new Promise<never>(() => {})
          }
          await ctx.step('charge', () => done.push('charge'))
        },
      }),
    )
  const first = workerOf(shop.store, worker)
  await first.start()
  const flow = await shop.store.workflows.publish('OrderPlaced', { total: 99 })
  await isStuck.promise

  hangs = false
  await using second = workerOf(other, worker)
  await second.start()
  await first.stop({ drainMs: 0 })
  const status = await flow.waitUntilSettled()

  expect(status.state).toBe('settled')
  expect(done).toEqual(['reserve', 'charge'])
})

test('a step whose run was taken over is refused, and the first result stays', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const errors: unknown[] = []
  const results: unknown[] = []
  let release = (): void => {}
  const held = new Promise<void>(resolve => {
    release = resolve
  })
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 0,
      run: async (_event, ctx) => {
        const mine = results.length
        results.push(undefined)
        if (mine === 0) {
          const late = ctx.step('charge', async () => {
            await held
            return 'of the first'
          })
          errors.push((await outcome(late)).error)
          errors.push((await outcome(ctx.step('more', () => 1))).error)
        } else results[mine] = await ctx.step('charge', () => 'of the second')
      },
    }),
  )
  await using running = workerOf(shop.store, worker)
  await running.start()
  const flow = await flows.publish('OrderPlaced', { total: 99 })
  await waitUntil(() => results.length === 1)

  await shop.query(`update ~workflow_executions set state = 'ready', worker = null, fence = 0`)
  await flow.waitUntilSettled()
  release()
  await waitUntil(() => errors.length === 2)

  expect(results).toEqual([undefined, 'of the second'])
  expect(errors.every(error => isRillflowError(error, 'execution_lost'))).toBe(true)
})

test('steps with one name are numbered in the order of their calls', async () => {
  const { store, query } = await openShop()
  const flows = store.workflows
  const runs: string[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 1,
      backoff: quick,
      run: async (_event, ctx) => {
        const results: string[] = []
        for (const item of ['a', 'b', 'c']) results.push(await ctx.step('pack', () => item))
        await ctx.step('pack#2', () => 'named so')
        if (ctx.attempt === 1) {
          const rows = await query<{ name: string }>('select name from ~workflow_steps order by ordinal')
          runs.push(rows.map(({ name }) => name).join(' '))
          throw new Error('not yet')
        }
        runs.push(results.join(' '))
      },
    }),
  )
  await using running = workerOf(store, worker)
  await running.start()

  await (await flows.publish('OrderPlaced', { total: 99 })).waitUntilSettled()

  expect(runs).toEqual(['pack pack#2 pack#3 pack#2#2', 'a b c'])
})

test('a step that fails is run again by the next attempt, and completed steps are not', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const runs: string[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 2,
      backoff: quick,
      run: async (_event, ctx) => {
        const one = async (name: string): Promise<void> => {
          await ctx.step(name, () => {
            runs.push(`${name} ${ctx.attempt}`)
            if (name === 'b' && ctx.attempt < 3) throw new Error('not yet')
          })
          await ctx.step(`${name} after`, () => runs.push(`${name} after ${ctx.attempt}`))
        }
        const all = await Promise.allSettled(['a', 'b', 'c'].map(one))
        if (all.some(({ status }) => status === 'rejected')) throw new Error('not all')
      },
    }),
  )
  await using running = workerOf(store, worker)
  await running.start()

  const status = await (await flows.publish('OrderPlaced', { total: 99 })).waitUntilSettled()

  expect(status.state).toBe('settled')
  expect([...runs].sort()).toEqual(['a 1', 'a after 1', 'b 1', 'b 2', 'b 3', 'b after 3', 'c 1', 'c after 1'])
})

test('steps that run when the handler fails are awaited, and stored', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const runs: string[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 1,
      backoff: quick,
      run: async (_event, ctx) => {
        const slow = ctx.step('slow', async () => {
          runs.push('slow')
          await new Promise(resolve => setTimeout(resolve, 30))
        })
        const failing = ctx.step('failing', () => {
          if (ctx.attempt === 1) throw new Error('not yet')
        })
        await Promise.all([slow, failing])
      },
    }),
  )
  await using running = workerOf(store, worker)
  await running.start()

  const status = await (await flows.publish('OrderPlaced', { total: 99 })).waitUntilSettled()

  expect(status.state).toBe('settled')
  expect(runs).toEqual(['slow'])
})

test('a caught error is thrown again after a wait, and the handler takes the same path', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const ways: string[] = []
  let runs = 0
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 0,
      run: async (_event, ctx) => {
        const charged = await outcome(
          ctx.step('card', () => {
            runs++
            throw Object.assign(new RangeError('no money'), { code: 'declined' })
          }),
        )
        const { name, code, message } = charged.error as Error & { code: string }
        const way = await ctx.step(`after ${code}`, () => 'cash')
        await ctx.sleep(60_000)
        ways.push(`${name} ${message} ${way}`)
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
  expect(ways).toEqual(['RangeError no money cash'])
  expect(runs).toBe(1)
})

test('the retry information of an error is kept over a wait', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 5,
      run: async (_event, ctx) => {
        const refuse = (): never => {
          throw new NonRetryable({ reason: 'no such card' })
        }
        const { error } = await outcome(ctx.step('card', refuse))
        await ctx.sleep(60_000)
        throw error
      },
    }),
  )
  await using running = workerOf(shop.store, worker)
  await running.start()

  const flow = await flows.publish('OrderPlaced', { total: 99 })
  await untilSuspended(shop)
  await letTimePass(shop, 60_000)
  await flow.waitUntilSettled()

  expect(await shop.query('select reason, attempts from ~dead_letters')).toEqual([
    { reason: 'non_retryable', attempts: 1 },
  ])
})

test.each([
  ['a function', () => () => 1, 'result is a function'],
  ['a big number', () => ({ n: 1n }), 'result.n is a BigInt'],
  ['too much', () => 'x'.repeat(2_000), 'takes more than 1000 bytes'],
  ['numbers that the database writes out', () => [1e308, 1e308, 1e308, 1e308], 'takes more than 1000 bytes'],
])('a result that cannot be stored ends the execution: %s', async (_what, run, said) => {
  const { store } = await openShop({ maxEventBytes: 1_000 })
  const flows = store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 5,
      run: async (_event, ctx) => {
        await ctx.step('charge', run as () => unknown)
      },
    }),
  )
  await using running = workerOf(store, worker)
  await running.start()

  await (await flows.publish('OrderPlaced', { total: 99 })).waitUntilSettled()
  const [deadLetter] = (await store.deadLetters.list()).items

  expect(deadLetter!.attempts).toBe(1)
  expect(deadLetter!.lastError!.message).toContain('Step "charge" of "pay"')
  expect(deadLetter!.lastError!.message).toContain(said)
})

test('calls of the context are refused once the handler has ended', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  let kept: HandlerContext<never> | undefined
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: (_event, ctx) => {
        kept = ctx as unknown as HandlerContext<never>
      },
    }),
  )
  await using running = workerOf(store, worker)
  await running.start()
  await (await flows.publish('OrderPlaced', { total: 99 })).waitUntilSettled()
  const late = kept as unknown as HandlerContext
  let isRun = false

  const calls: Promise<unknown>[] = [
    late.step('late', () => {
      isRun = true
    }),
    late.tx('late', async () => {}),
    late.sleep(1),
    late.waitForEvent('OrderPaid'),
    late.start('OrderPlaced', {}),
  ]
  const refused = await Promise.all(calls.map(call => outcome(call)))

  expect(refused.map(({ error }) => (error as { code: string }).code)).toEqual(
    Array.from({ length: 5 }, () => 'execution_lost'),
  )
  expect(isRun).toBe(false)
})

test('a step that is not awaited, and that fails, ends nothing', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 0,
      run: async (_event, ctx) => {
        void ctx.step('left alone', async () => {
          throw new Error('unheard')
        })
        void ctx.sleep(-1)
        await ctx.step('last', () => {})
      },
    }),
  )
  await using running = workerOf(store, worker)
  await running.start()

  const status = await (await flows.publish('OrderPlaced', { total: 99 })).waitUntilSettled()

  expect(status.state).toBe('settled')
})

test('time, ids and random numbers are the same in every run, whatever the steps in between have drawn', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const runs: unknown[][] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 2,
      backoff: quick,
      run: async (_event, ctx) => {
        const drawn: unknown[] = [ctx.now().getTime(), ctx.uuid(), ctx.uuid(), ctx.random(), ctx.random()]
        await ctx.step('charge', async () => {
          await new Promise(resolve => setTimeout(resolve, 5))
          return ctx.uuid()
        })
        drawn.push(ctx.now().getTime(), ctx.uuid(), ctx.random())
        runs.push(drawn)
        if (ctx.attempt < 3) throw new Error('not yet')
      },
    }),
  )
  await using running = workerOf(store, worker)
  await running.start()

  await (await flows.publish('OrderPlaced', { total: 99 })).waitUntilSettled()

  expect(runs).toHaveLength(3)
  expect(runs[1]).toEqual(runs[0])
  expect(runs[2]).toEqual(runs[0])
  expect(new Set(runs[0]).size).toBe(runs[0]!.length)
  expect(runs[0]![5] as number).toBeGreaterThan(runs[0]![0] as number)
})

test('no step is left unfinished when a worker is stopped in the middle of one', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const runs: string[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_event, ctx) => {
        await ctx.step('first', () => runs.push('first'))
        await ctx.step('second', async () => {
          runs.push('second')
          if (runs.length === 2) await new Promise<never>(() => {})
        })
      },
    }),
  )
  const first = workerOf(shop.store, worker)
  await first.start()
  const flow = await flows.publish('OrderPlaced', { total: 99 })
  await waitUntil(() => runs.length === 2)

  await first.stop({ drainMs: 0 })
  const between = await executionStates(shop)
  await using second = workerOf(shop.store, worker)
  await second.start()
  const status = await flow.waitUntilSettled()

  expect(between).toBe('1 ready')
  expect(status.state).toBe('settled')
  expect(runs).toEqual(['first', 'second', 'second'])
})
