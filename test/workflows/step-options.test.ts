import { expect, test } from 'vitest'
import { NonRetryable } from '../../src/workflows/errors.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import type { StepCall, StepOptions } from '../../src/workflows/steps/steps.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, type Shop, shopEvents, take } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

const quick = { baseMs: 1, jitter: 0 }

interface Charging extends Shop {
  readonly attempts: number[]
  charge(): Promise<string>
}

/** A handler with one step, in as many attempts as it takes. */
async function openCharging(run: (call: StepCall) => unknown, options: StepOptions): Promise<Charging> {
  const shop = await openShop()
  const attempts: number[] = []
  shop.store.workflows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 0,
      async run(_, { step, emit, attempt }) {
        attempts.push(attempt)
        await step('charge-card', run, options)
        return emit('OrderPaid', { method: 'card' })
      },
    }),
  )
  const charge = async (): Promise<string> => {
    await using worker = workerOf(shop.store)
    await worker.start()
    const flow = await shop.store.workflows.publish('OrderPlaced', { total: 1 })
    return (await flow.waitUntilSettled()).state
  }
  return { ...shop, attempts, charge }
}

test('a step that hangs costs one of its calls, and not the attempt', async () => {
  const calls: number[] = []
  const aborted: unknown[] = []
  const { charge, attempts } = await openCharging(
    ({ call, signal }) => {
      calls.push(call)
      if (call > 1) return 'card'
      return new Promise(() => signal.addEventListener('abort', () => aborted.push(signal.reason)))
    },
    { timeoutMs: 20, retries: 1, backoff: quick },
  )

  expect(await charge()).toBe('settled')

  expect({ calls, attempts }).toEqual({ calls: [1, 2], attempts: [1] })
  expect(aborted).toMatchObject([{ code: 'step_timeout', step: 'charge-card', timeoutMs: 20 }])
})

test('a step is called again as its options say, and then the attempt fails with its error', async () => {
  let calls = 0
  const { charge, store } = await openCharging(
    () => {
      calls++
      throw new Error('the bank is closed')
    },
    { retries: 2, backoff: quick },
  )

  expect(await charge()).toBe('failed')

  const { items } = await store.deadLetters.list()
  expect({ calls, message: items[0]!.lastError.message, attempts: items[0]!.attempts }).toEqual({
    ...{ calls: 3, message: 'the bank is closed', attempts: 1 },
  })
})

test('an error that no other call can fix is not tried again', async () => {
  for (const [error, options] of [
    [new Error('the card has expired'), { isRetryable: (failure: unknown) => !/expired/.test(String(failure)) }],
    [new NonRetryable('no such card'), {}],
  ] as const) {
    let calls = 0
    const { charge } = await openCharging(
      () => {
        calls++
        throw error
      },
      { retries: 5, backoff: quick, ...options },
    )

    expect({ state: await charge(), calls }).toEqual({ state: 'failed', calls: 1 })
  }
})

test('an option that a step does not have, or that makes no sense, is refused', async () => {
  for (const [options, code] of [
    [{ retrys: 2 } as StepOptions, 'invalid_option'],
    [{ timeoutMs: 0 }, 'invalid_option'],
  ] as const) {
    const { store, charge } = await openCharging(() => 'card', options)

    expect(await charge()).toBe('failed')
    expect((await store.deadLetters.list()).items[0]!.lastError).toMatchObject({ code })
  }
})

test('steps are seen with their state, result, error, calls and times; so are they in the tree and in the watch', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      async run(_, { step, sleep }) {
        await step('charge-card', ({ call }) => (call === 1 ? Promise.reject(new Error('busy')) : { receipt: 'r-1' }), {
          ...{ retries: 1, backoff: quick },
        })
        await step('send-mail', () => Promise.reject(new Error('no such address'))).catch(() => {})
        await sleep('a day', 86_400_000)
      },
    }),
  )
  await using worker = workerOf(store)
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await waitUntil(async () => (await flow.status()).state === 'waiting')

  const steps = await flow.steps()
  const tree = await flow.tree()
  const lines = await take(flow.watch(), 3)

  const expected = [
    { name: 'charge-card', kind: 'step', state: 'done', attempts: 2, result: { receipt: 'r-1' }, error: undefined },
    { name: 'send-mail', state: 'failed', attempts: 1, result: undefined, error: { message: 'no such address' } },
    { name: 'a day', kind: 'sleep', state: 'waiting', attempts: undefined, dueAt: expect.any(Date) },
  ]
  expect(steps).toMatchObject(expected)
  expect(steps[0]!.startedAt!.getTime()).toBeLessThanOrEqual(steps[0]!.at.getTime())
  expect(tree.roots[0]).toMatchObject({ handlers: [{ handler: 'pay', state: 'suspended', steps: expected }] })
  expect(lines.map(({ kind, steps: seen }) => [kind, seen?.length])).toEqual([
    ['dispatched', undefined],
    ['started', undefined],
    ['suspended', 3],
  ])
})

test('the steps of a dead letter are still seen, for a retry answers from them', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 0,
      async run(_, { step }) {
        await step('charge-card', () => 'r-1')
        throw new Error('no van')
      },
    }),
  )
  await using worker = workerOf(store)
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await flow.waitUntilSettled()

  expect(await flow.steps()).toMatchObject([{ handler: 'pay', name: 'charge-card', state: 'done', result: 'r-1' }])
})
