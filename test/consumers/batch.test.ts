import { expect, test } from 'vitest'
import { deadLetter, failFast, logAndSkip } from '../../src/consumers/run/policy.ts'
import { runUntilIdle, tickOnce } from '../../src/consumers/run/run.ts'
import { readStatus } from '../../src/consumers/status.ts'
import { effectsOf, makeEffects, openConsumerParts, quick, recorder } from '../support/consumer-parts.ts'
import { openShop, paid, placed, shipped } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

test('runOnce applies a batch and returns the number of its events', async () => {
  const shop = await openShop()
  await makeEffects(shop)
  await shop.store.events.append('order-1', [placed(), paid, shipped()])
  const consumers = openConsumerParts(shop)
  const totals = recorder(shop, 'totals', { batchSize: 2 })

  const ticks = [
    await tickOnce(consumers, totals),
    await tickOnce(consumers, totals),
    await tickOnce(consumers, totals),
  ]

  expect(ticks).toEqual([
    { result: 'processed', count: 2 },
    { result: 'processed', count: 1 },
    { result: 'idle', count: 0 },
  ])
  expect((await effectsOf(shop, 'totals')).map(effect => effect.type)).toEqual([
    'OrderPlaced',
    'OrderPaid',
    'OrderShipped',
  ])
})

test('RB-25: a consumer reads only the types it wants, and its checkpoint moves past the others', async () => {
  const shop = await openShop()
  await makeEffects(shop)
  await shop.store.events.append('order-1', [placed(), paid, shipped()])
  const consumers = openConsumerParts(shop)
  const totals = recorder(shop, 'totals', { types: ['OrderPaid'] })

  const count = await runUntilIdle(consumers, [totals])

  const [status] = await readStatus(consumers.log, { names: ['totals'] })
  expect(count).toBe(1)
  expect(await effectsOf(shop, 'totals')).toMatchObject([{ type: 'OrderPaid' }])
  expect(status).toMatchObject({ checkpoint: 3, lag: 0, lagSeconds: 0 })
})

test('RB-02: after a failure the next run reports the wait, and waits double up to the cap', async () => {
  const shop = await openShop()
  await makeEffects(shop)
  await shop.store.events.append('order-1', placed())
  const consumers = openConsumerParts(shop)
  const fail = (): never => {
    throw new Error('no')
  }
  const policy = deadLetter({ retries: 9, baseMs: 600_000, maxMs: 1_500_000, jitter: 0 })
  const totals = recorder(shop, 'totals', { before: fail, policy })
  const waits: number[] = []

  for (let n = 0; n < 4; n++) {
    expect(await tickOnce(consumers, totals)).toMatchObject({ result: 'backoff', count: 0 })
    expect((await tickOnce(consumers, totals)).result).toBe('backoff')
    const [status] = await readStatus(consumers.log, { names: ['totals'] })
    expect(status!.attempts).toBe(n + 1)
    waits.push(Math.round(status!.retryInMs! / 100_000) * 100)
    await shop.query(`update ~consumers set retry_at = now()`)
  }

  expect(waits).toEqual([600, 1_200, 1_500, 1_500])
})

test('RB-03: an event is tried once and then as often as the policy allows, while the checkpoint waits', async () => {
  const shop = await openShop()
  await makeEffects(shop)
  await shop.store.events.append('order-1', [placed(), paid])
  const consumers = openConsumerParts(shop)
  const attempts: number[] = []
  const totals = recorder(shop, 'totals', {
    policy: deadLetter({ retries: 3, ...quick }),
    before: (event, _tx, attempt) => {
      if (event.type !== 'OrderPlaced') return
      attempts.push(attempt)
      throw new Error(`no ${attempt}`)
    },
  })
  const checkpoints: number[] = []

  await waitUntil(async () => {
    const { result } = await tickOnce(consumers, totals)
    checkpoints.push((await readStatus(consumers.log, { names: ['totals'] }))[0]!.checkpoint)
    return result === 'idle'
  })

  expect(attempts).toEqual([1, 2, 3, 4])
  expect(new Set(checkpoints)).toEqual(new Set([0, 1, 2]))
  expect(await effectsOf(shop, 'totals')).toMatchObject([{ type: 'OrderPaid' }])
  const errors = ['no 1', 'no 2', 'no 3', 'no 4'].map(message => ({ message }))
  const deadLetters = await shop.query('select state, attempts, errors from ~dead_letters')
  expect(deadLetters).toMatchObject([{ state: 'open', attempts: 4, errors }])
})

test('RB-04: a handler that writes and then throws leaves nothing, and the events before it are kept', async () => {
  const shop = await openShop()
  await makeEffects(shop)
  await shop.store.events.append('order-1', [placed(), paid, shipped()])
  const consumers = openConsumerParts(shop)
  const totals = recorder(shop, 'totals', {
    policy: failFast(),
    after: event => {
      if (event.type === 'OrderPaid') throw new Error('no')
    },
  })

  const tick = await tickOnce(consumers, totals)

  expect(tick).toMatchObject({ result: 'stopped', count: 1, error: { message: 'no' } })
  expect(await effectsOf(shop, 'totals')).toMatchObject([{ type: 'OrderPlaced' }])
})

test.each([
  { name: 'says what it works on', silent: false },
  { name: 'does not say what it works on', silent: true },
])(
  'RB-05, RB-06: SQL that fails in a handler that $name is retried and dead-lettered, and the rest continues',
  async ({ silent }) => {
    const shop = await openShop()
    await makeEffects(shop)
    await shop.store.events.append('order-1', [placed(), paid, shipped()])
    const consumers = openConsumerParts(shop)
    const totals = recorder(shop, 'totals', {
      policy: deadLetter({ retries: 1, ...quick }),
      before: async (event, tx) => {
        if (event.type === 'OrderPaid') await tx.query(shop.named('insert into ~effects (consumer) values (null)'))
      },
    })
    const quiet = {
      ...totals,
      handle: (events, ctx) => totals.handle(events, { ...ctx, at: () => {} }),
    } as typeof totals

    await waitUntil(async () => (await tickOnce(consumers, silent ? quiet : totals)).result === 'idle')

    expect((await effectsOf(shop, 'totals')).map(effect => effect.type)).toEqual(['OrderPlaced', 'OrderShipped'])
    const deadLetters = await shop.query<{ attempts: number; errors: { code: string }[] }>(
      'select attempts, errors from ~dead_letters',
    )
    expect(deadLetters).toMatchObject([{ attempts: 2, errors: [{ code: '23502' }, { code: '23502' }] }])
  },
)

test('a handler that swallows the failure of its own statement fails all the same', async () => {
  const shop = await openShop()
  await makeEffects(shop)
  await shop.store.events.append('order-1', [placed(), paid, shipped()])
  const consumers = openConsumerParts(shop)
  const totals = recorder(shop, 'totals', {
    policy: logAndSkip(),
    after: async (event, tx) => {
      if (event.type === 'OrderPaid') await tx.query('select 1 / 0').catch(() => {})
    },
  })

  await runUntilIdle(consumers, [totals])

  expect((await effectsOf(shop, 'totals')).map(effect => effect.type)).toEqual(['OrderPlaced', 'OrderShipped'])
})

test('RB-21: events behind an empty batch are applied before the consumer counts as idle', async () => {
  const shop = await openShop()
  await makeEffects(shop)
  for (let n = 1; n <= 5; n++) await shop.store.events.append(`order-${n}`, [placed(), paid])
  const consumers = openConsumerParts(shop)
  const totals = recorder(shop, 'totals', {
    batchSize: 1,
    policy: deadLetter({ retries: 0 }),
    before: event => {
      if (event.type === 'OrderPlaced') throw new Error('no')
    },
  })

  const count = await runUntilIdle(consumers, [totals])

  expect(count).toBe(10)
  expect(await effectsOf(shop, 'totals')).toHaveLength(5)
})

test('RB-20, RB-19: a paused consumer that never failed has a status, read from its own schema only', async () => {
  const shop = await openShop()
  const other = await openShop()
  await makeEffects(shop)
  await shop.store.events.append('order-1', placed())
  const consumers = openConsumerParts(shop)
  const totals = recorder(shop, 'totals')
  await tickOnce(consumers, totals)

  await shop.query('update ~consumers set paused_at = now()')

  expect((await tickOnce(consumers, totals)).result).toBe('paused')
  const [status] = await readStatus(consumers.log)
  expect(status).toMatchObject({ name: 'totals', isPaused: true, attempts: 0, deadLetters: 0 })
  expect(status).toMatchObject({ retryInMs: undefined, lease: undefined, lastError: undefined })
  expect(await readStatus(openConsumerParts(other).log)).toEqual([])
})
