import { expect, test } from 'vitest'
import type { Awaitable } from '../../src/core/core.ts'
import type { HandlerOptions } from '../../src/workflows/handler.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import type { HandlerContext } from '../../src/workflows/steps/context.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, outcome, type Shop, type ShopMap, shopEvents } from '../support/shop.ts'
import { executionStates, letTimePass, untilSuspended } from '../support/suspended-executions.ts'
import { waitUntil } from '../support/wait.ts'

const worker = { pollMs: 20 }

/** A handler whose code is replaced while it sleeps. */
async function replaced(
  before: (ctx: HandlerContext<ShopMap>) => Promise<unknown>,
  after: (ctx: HandlerContext<ShopMap>) => Promise<unknown>,
  options: Partial<HandlerOptions<ShopMap, 'OrderPlaced', 'OrderPaid'>> = {},
): Promise<Shop & { code: { run: (ctx: HandlerContext<ShopMap>) => Awaitable<unknown> }; correlationId: string }> {
  const shop = await openShop()
  const flows = shop.store.workflows
  const code = { run: before }
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      ...options,
      run: async (_event, ctx) => {
        await code.run(ctx)
      },
    }),
  )
  const running = workerOf(shop.store, worker)
  await running.start()
  const { correlationId } = await flows.publish('OrderPlaced', { total: 99 })
  await untilSuspended(shop)
  code.run = after
  await letTimePass(shop, 60_000)
  return { ...shop, code, correlationId }
}

async function errorOf({ query }: Shop): Promise<{ code: string; message: string }> {
  const [row] = await query<{ error: { code: string; message: string } }>(
    `select error from ~workflow_activity where kind = 'parked' order by position desc limit 1`,
  )
  return row!.error
}

test.each<[string, (ctx: HandlerContext<ShopMap>) => Promise<unknown>, string]>([
  [
    'another name',
    ctx => ctx.step('second', () => 1),
    'step "second" as call 1 where an earlier run had recorded step "first"',
  ],
  [
    'another kind',
    ctx => ctx.tx('first', async () => 1),
    'tx "first" as call 1 where an earlier run had recorded step "first"',
  ],
  [
    'another order',
    ctx => Promise.all([ctx.sleep('a minute', 60_000), ctx.step('first', () => 1)]),
    'sleep "a minute" as call 1 where an earlier run had recorded step "first"',
  ],
])('a handler that reaches %s than before is parked', async (_what, after, said) => {
  const before = async (ctx: HandlerContext<ShopMap>): Promise<void> => {
    await ctx.step('first', () => 1)
    await ctx.sleep('a minute', 60_000)
  }

  const shop = await replaced(before, after)
  await waitUntil(async () => (await executionStates(shop)) === '1 parked')
  const error = await errorOf(shop)

  expect(error.code).toBe('non_deterministic')
  expect(error.message).toContain('Handler "pay" called')
  expect(error.message).toContain(said)
  expect(await shop.store.workflows.get(shop.correlationId).status()).toMatchObject({
    state: 'parked',
    pending: 1,
    parked: 1,
  })
})

test('a catch in the handler does not hide the mismatch, and no step of the wrong code is run', async () => {
  const log: string[] = []
  const shop = await replaced(
    ctx => ctx.sleep(60_000),
    async ctx => {
      await ctx.step('new', () => log.push('run')).catch(() => log.push('caught'))
      log.push('after')
    },
  )

  await waitUntil(async () => (await executionStates(shop)) === '1 parked')

  expect(log).toEqual([])
})

test('a parked execution continues when it is resumed with matching code, and has lost no attempt', async () => {
  const log: string[] = []
  const fitting = async (ctx: HandlerContext<ShopMap>): Promise<void> => {
    await ctx.step('first', () => log.push('first'))
    await ctx.sleep(60_000)
    log.push(`slept ${ctx.attempt}`)
    if (ctx.attempt === 1) throw new Error('not yet')
  }
  const shop = await replaced(fitting, ctx => ctx.step('other', () => 1), { retries: 1, backoff: { baseMs: 1 } })
  await waitUntil(async () => (await executionStates(shop)) === '1 parked')
  const [parked] = await shop.query<{ id: string }>('select id from ~workflow_executions')

  shop.code.run = fitting
  await shop.store.workflows.executions.resume(parked!.id)
  const status = await shop.store.workflows.get(shop.correlationId).waitUntilSettled()

  expect(status.state).toBe('settled')
  expect(log).toEqual(['first', 'slept 1', 'slept 2'])
})

test('an execution of a lane keeps its place while it is parked, and when it is resumed', async () => {
  const log: string[] = []
  const fitting = async (ctx: HandlerContext<ShopMap>): Promise<void> => {
    await ctx.sleep(60_000)
    log.push('head')
  }
  const shop = await replaced(fitting, ctx => ctx.step('other', () => 1), { ordered: true })
  const flow = shop.store.workflows.get(shop.correlationId)
  await waitUntil(async () => (await executionStates(shop)) === '1 parked')
  const [parked] = await shop.query<{ id: string }>('select id from ~workflow_executions')
  await flow.signal('OrderPlaced', { total: 1 })
  await waitUntil(async () => (await executionStates(shop)) === '1 blocked, 1 parked')

  shop.code.run = fitting
  await shop.store.workflows.executions.resume(parked!.id)
  await untilSuspended(shop)
  await letTimePass(shop, 60_000)
  await flow.waitUntilSettled()

  expect(log).toEqual(['head', 'head'])
  expect(await shop.query('select 1 as n from ~workflow_lanes')).toEqual([])
})

test('only parked executions can be resumed', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  flows.register(
    defineHandler('pay', { events: shopEvents, on: 'OrderPlaced', run: (_event, ctx) => ctx.sleep(60_000) }),
  )
  await using running = workerOf(shop.store, worker)
  await running.start()
  await flows.publish('OrderPlaced', { total: 99 })
  await untilSuspended(shop)
  const [row] = await shop.query<{ id: string }>('select id from ~workflow_executions')

  const refused = await Promise.all(
    [row!.id, '00000000-0000-8000-8000-000000000000', 'no id'].map(id => outcome(flows.executions.resume(id))),
  )

  expect(refused.map(({ error }) => error)).toMatchObject([
    { code: 'execution_not_parked', state: 'suspended' },
    { code: 'execution_not_parked', state: 'gone' },
    { code: 'execution_not_parked', state: 'gone' },
  ])
})

test('more calls after the remembered ones, and branches that end in another order, are not a mismatch', async () => {
  const log: string[] = []
  const branch = async (ctx: HandlerContext<ShopMap>, name: string, ms: number): Promise<void> => {
    await ctx.step(`${name} 1`, () => new Promise(resolve => setTimeout(resolve, ms)))
    await ctx.step(`${name} 2`, () => {})
    await ctx.step(`${name} 3`, () => {})
  }
  const before = async (ctx: HandlerContext<ShopMap>): Promise<void> => {
    // The later call ends first.
    await Promise.all([branch(ctx, 'slow', 60), branch(ctx, 'quick', 5), branch(ctx, 'middle', 30)])
    await ctx.sleep(60_000)
  }
  const shop = await replaced(before, async ctx => {
    await before(ctx)
    log.push(await ctx.step('more', () => 'more'))
  })

  const status = await shop.store.workflows.get(shop.correlationId).waitUntilSettled()

  expect(status.state).toBe('settled')
  expect(log).toEqual(['more'])
})

/** Parked, because its code was replaced while it slept. */
async function parked(options: Partial<HandlerOptions<ShopMap, 'OrderPlaced', 'OrderPaid'>> = {}) {
  const shop = await replaced(
    ctx => ctx.step('first', () => 1).then(() => ctx.sleep(60_000)),
    ctx => ctx.step('other', () => 1),
    options,
  )
  await waitUntil(async () => (await executionStates(shop)) === '1 parked')
  return shop
}

test('a parked execution is a state of its own: of its workflow, of its attempts, of its tree and of the doctor', async () => {
  const { store, correlationId } = await parked()

  const { items } = await store.workflows.list({ state: 'parked' })
  const attempts = await store.workflows.attempts({ correlationId })
  const { items: executions } = await store.workflows.executions.list({ state: 'parked', correlationId })
  const { roots } = await store.workflows.get(correlationId).tree()
  const { findings } = await store.doctor()
  const waited = await outcome(store.workflows.get(correlationId).waitUntilSettled({ timeoutMs: 50 }))

  expect(items).toMatchObject([{ correlationId, state: 'parked', parked: 1, isSettled: false }])
  expect(attempts.items).toMatchObject([{ kind: 'parked', outcome: 'nonDeterministic', handler: 'pay' }])
  expect(executions).toMatchObject([{ handler: 'pay', state: 'parked', error: { code: 'non_deterministic' } }])
  expect(roots).toMatchObject([{ handlers: [{ handler: 'pay', state: 'parked' }] }])
  expect(findings.filter(({ check }) => check === 'workflows.parked')).toMatchObject([
    { level: 'warning', message: expect.stringContaining('"pay"'), fix: expect.stringContaining('workflows resume') },
  ])
  expect(waited.error).toMatchObject({ code: 'timed_out', message: expect.stringContaining('"pay" is parked') })
})

test.each(['deadLetter', 'skip', 'stop'] as const)(
  'a parked execution that is rejected becomes a dead letter, also with onFailure: %s',
  async onFailure => {
    const shop = await parked({ onFailure, retries: 5 })
    const { store, correlationId } = shop
    const { items } = await store.workflows.executions.list({ state: 'parked' })

    await store.workflows.executions.reject(items[0]!.executionId)
    const status = await store.workflows.get(correlationId).waitUntilSettled()

    expect(status).toMatchObject({
      state: 'failed',
      deadLetters: 1,
      lastFailure: { handler: 'pay', reason: 'rejected' },
    })
    expect((await store.deadLetters.list()).items).toMatchObject([{ reason: 'rejected' }])
  },
)

test('an execution that is not parked can be neither resumed nor rejected', async () => {
  const { store } = await openShop()

  const refused = [
    await outcome(store.workflows.executions.resume('01936f1c-5d0e-7c11-a4e2-51a6e3c0a001')),
    await outcome(store.workflows.executions.reject('01936f1c-5d0e-7c11-a4e2-51a6e3c0a001')),
  ]

  for (const { error } of refused) expect(error).toMatchObject({ code: 'execution_not_parked' })
  const { error } = await outcome(store.workflows.executions.list({ state: 'sleeping' as 'parked' }))
  expect(error).toMatchObject({ code: 'invalid_option', option: 'state' })
})

test('the dead letter of a rejected execution is retried with code that fits, sleeps and settles', async () => {
  const fitting = async (ctx: HandlerContext<ShopMap>): Promise<void> => {
    await ctx.step('first', () => 1)
    await ctx.sleep('a minute', 60_000)
  }
  const shop = await replaced(fitting, ctx => ctx.step('other', () => 1))
  await waitUntil(async () => (await executionStates(shop)) === '1 parked')
  const [parked] = await shop.query<{ id: string }>('select id from ~workflow_executions')
  await shop.store.workflows.executions.reject(parked!.id)
  const deadLetters = shop.store.deadLetters
  await waitUntil(async () => (await deadLetters.list({ state: 'open' })).items.length === 1)

  shop.code.run = fitting
  const [rejected] = (await deadLetters.list({ state: 'open' })).items
  await deadLetters.retry('pay', rejected!.eventId)
  await untilSuspended(shop)
  await letTimePass(shop, 60_000)
  const status = await shop.store.workflows.get(shop.correlationId).waitUntilSettled()

  expect(status).toMatchObject({ state: 'settled', deadLetters: 0 })
})
