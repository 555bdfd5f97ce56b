import { expect, test } from 'vitest'
import { defineUndo } from '../../src/workflows/cancel/undo.ts'
import { batch, compensate } from '../../src/workflows/emit.ts'
import { defineHandler, type FailureEnd } from '../../src/workflows/handler.ts'
import { defineJoin } from '../../src/workflows/joins/join.ts'
import { defineSchedule } from '../../src/workflows/schedules/schedule.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, outcome, placed, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

const fails = (): never => {
  throw new Error('no money')
}

test('a definition is a frozen value that knows its kind and its name, and no store', () => {
  const run = () => {}
  const defined = [
    defineHandler('pay', { on: 'OrderPlaced', run }),
    defineJoin('clear', { on: 'OrderPaid', run }),
    defineUndo('refund', { run }),
    defineSchedule('report', { everyMs: 1_000, run }),
  ]

  expect(defined.map(({ kind, name }) => `${kind} ${name}`)).toEqual([
    'handler pay',
    'join clear',
    'undo refund',
    'schedule report',
  ])
  expect(defined.every(each => Object.isFrozen(each))).toBe(true)
})

test('handlers that a store is opened with get the events from then on, also when a worker starts later', async () => {
  const seen: number[] = []
  const pay = defineHandler('pay', {
    events: shopEvents,
    on: 'OrderPlaced',
    run: event => {
      seen.push(event.data.total)
    },
  })
  const { store } = await openShop({ handlers: [pay] })

  await store.events.append('order-1', placed(1, { correlationId: 'order-1' }))
  await using worker = workerOf(store)
  await worker.start()
  await store.workflows.get('order-1').waitUntilSettled()

  expect(seen).toEqual([1])
})

test('a handler that begins beyond the end of the log is refused', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', placed())

  const late = outcome(store.register(defineHandler('pay', { on: 'OrderPlaced', from: 900, run: () => {} })))

  expect((await late).error).toMatchObject({
    code: 'invalid_option',
    option: 'from',
    message: expect.stringContaining('the log ends at 1'),
  })
})

test.each([[undefined], ['pay'], [{ name: 'pay', run() {} }]])(
  '%o is not registered: it is not a definition',
  async given => {
    const { store } = await openShop()

    expect(() => store.workflows.register(given as never)).toThrow(/Make it with defineHandler/)
  },
)

for (const [end, expected] of Object.entries({
  skip: { state: 'settled', deadLetters: 0 },
  deadLetter: { state: 'failed', deadLetters: 1 },
}))
  test(`after its retries a handler that says '${end}' leaves the workflow ${expected.state}`, async () => {
    const { store } = await openShop()
    const attempts: number[] = []
    await store.register(
      defineHandler('pay', {
        on: 'OrderPlaced',
        ...{ retries: 1, backoff: { baseMs: 1 }, onFailure: end as FailureEnd },
        run: (_, { attempt }) => {
          attempts.push(attempt)
          fails()
        },
      }),
    )
    await using worker = workerOf(store, { pollMs: 20 })
    await worker.start()

    const flow = await store.workflows.publish('OrderPlaced', { total: 1 })

    expect(await flow.waitUntilSettled()).toMatchObject(expected)
    expect(attempts).toEqual([1, 2])
  })

test("a handler that says 'stop' is paused, and continues with the same event when it is resumed", async () => {
  const { store } = await openShop()
  let isBroken = true
  await store.register(
    defineHandler('pay', { on: 'OrderPlaced', retries: 0, onFailure: 'stop', run: () => void (isBroken && fails()) }),
  )
  await using worker = workerOf(store, { pollMs: 20 })
  await worker.start()
  const flow = await store.workflows.publish('OrderPlaced', { total: 1 })

  const { error } = await outcome(flow.waitUntilSettled({ timeoutMs: 1_000 }))
  isBroken = false
  await store.workflows.handlers.resume('pay')
  const status = await flow.waitUntilSettled()

  expect(error).toMatchObject({ code: 'timed_out', message: expect.stringContaining('the handler is paused') })
  expect(status).toMatchObject({ state: 'settled', deadLetters: 0 })
})

test('a function decides after every failure, and sets the limit itself', async () => {
  const { store } = await openShop()
  const asked: string[] = []
  await store.register(
    defineHandler('pay', {
      on: 'OrderPlaced',
      backoff: { baseMs: 1 },
      onFailure: ({ error, attempt }) => {
        asked.push(`${(error as Error).message} ${attempt}`)
        return attempt < 5 ? 'retry' : 'skip'
      },
      run: fails,
    }),
  )
  await using worker = workerOf(store, { pollMs: 20 })
  await worker.start()

  const status = await (await store.workflows.publish('OrderPlaced', { total: 1 })).waitUntilSettled()

  expect(asked).toEqual([1, 2, 3, 4, 5].map(n => `no money ${n}`))
  expect(status).toMatchObject({ state: 'settled', deadLetters: 0 })
})

test('a handler that returns compensate() undoes what its workflow has done', async () => {
  const { store } = await openShop()
  const undone: unknown[] = []
  await store.register(
    defineUndo('refund', { run: data => void undone.push(data) }),
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (event, { step, emit }) => {
        await step('charge', () => 'receipt 7', { undo: { by: 'refund', data: { total: event.data.total } } })
        return emit('OrderPaid', { method: 'card' })
      },
    }),
    defineHandler('ship', { on: 'OrderPaid', run: () => compensate('no stock left') }),
  )
  await using worker = workerOf(store, { pollMs: 20 })
  await worker.start()

  const status = await (await store.workflows.publish('OrderPlaced', { total: 8 })).waitUntilSettled()

  expect(status).toMatchObject({ state: 'compensated' })
  expect(undone).toEqual([{ total: 8 }])
})

test('a publish that is repeated with its key finds the same workflow, and with other content is refused', async () => {
  const { store, query } = await openShop()
  const first = await store.workflows.publish('OrderPlaced', { total: 1 }, { idempotencyKey: 'click-1' })

  const again = await store.workflows.publish('OrderPlaced', { total: 1 }, { idempotencyKey: 'click-1' })
  const other = await outcome(store.workflows.publish('OrderPlaced', { total: 2 }, { idempotencyKey: 'click-1' }))

  expect(again.correlationId).toBe(first.correlationId)
  expect(await query('select type from ~events')).toEqual([{ type: 'OrderPlaced' }])
  expect(other.error).toMatchObject({ code: 'idempotency_mismatch', key: 'click-1' })
})

test('a wait that takes too long names the thing it waited for', async () => {
  const { store } = await openShop()
  await store.register(defineHandler('pay', { on: 'OrderPlaced', run: () => {} }))
  const flow = await store.workflows.publish('OrderPlaced', { total: 1 })

  const { error } = await outcome(flow.waitUntilSettled({ timeoutMs: 200 }))

  expect(error).toMatchObject({
    code: 'timed_out',
    message: expect.stringContaining('Start a runner with its handlers'),
  })
})

test('a wait for an event says that the workflow has settled without it, and rejects with the reason of its signal', async () => {
  const { store } = await openShop()
  await store.register(defineHandler('pay', { on: 'OrderPlaced', run: () => {} }))
  await using worker = workerOf(store, { pollMs: 20 })
  await worker.start()
  const flow = await store.workflows.publish('OrderPlaced', { total: 1 })
  await flow.waitUntilSettled()

  const late = await outcome(flow.waitForEvent('OrderShipped', { timeoutMs: 50 }))
  const aborted = await outcome(flow.waitForEvent('OrderShipped', { signal: AbortSignal.abort('closing time') }))

  expect(late.error).toMatchObject({ code: 'timed_out', missing: 'The workflow has settled without one.' })
  expect(aborted.error).toBe('closing time')
})

const days = 24 * 3600 * 1000

test('a delay, a deadline and the time limit of a join may be longer than the 24.8 days of a timer', async () => {
  const { store, query } = await openShop()
  const run = (): void => {}
  await store.register(
    defineHandler('remind', { events: shopEvents, on: 'OrderPlaced', delayMs: 30 * days, deadlineMs: 400 * days, run }),
    defineHandler('split', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: (_, { emit }) => batch([emit('OrderPaid', { method: 'card' }), emit('OrderPaid', { method: 'cash' })]),
    }),
    defineJoin('clear', { events: shopEvents, on: 'OrderPaid', joinTimeoutMs: 90 * days, policy: 'all', run }),
  )
  await using worker = workerOf(store)
  await worker.start()
  await store.workflows.publish('OrderPlaced', { total: 1 })
  const inDays = (column: string): string => `round(extract(epoch from ${column} - clock_timestamp()) / 86400)::int`

  await waitUntil(async () => (await query('select from ~workflow_joins')).length > 0)
  const waiting = await query(
    `select ${inDays('run_at')} as run, ${inDays('expires_at')} as expires from ~workflow_executions where state = 'delayed'`,
  )
  const tooLong = (): unknown => defineHandler('remind', { on: 'OrderPlaced', delayMs: 200 * 365 * days, run })

  expect(waiting).toEqual([{ run: 30, expires: 400 }])
  expect(tooLong).toThrow('delayMs')
})
