import { expect, test } from 'vitest'
import { InvalidEvent } from '../../src/core/errors.ts'
import { defineEvents } from '../../src/events/definition.ts'
import { defineUpcaster } from '../../src/events/read/upcast.ts'
import { complete, emit } from '../../src/workflows/emit.ts'
import { NonRetryable, RetryLater } from '../../src/workflows/errors.ts'
import type { AnyHandlerOptions } from '../../src/workflows/handler.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, type Shop, shopEvents } from '../support/shop.ts'
import { executionStates, letTimePass } from '../support/suspended-executions.ts'
import { waitUntil } from '../support/wait.ts'
import { openFailingPayments } from './failing-payments.ts'

/** Runs one order through a failing handler, and returns its dead letter. */
async function letterOf(
  run: () => unknown,
  options: Omit<Partial<AnyHandlerOptions>, 'name'> = {},
  shop?: Shop,
): Promise<{ reason: string; attempts: number; lastError: { message: string } }> {
  const { store } = shop ?? (await openShop())
  const flows = store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      ...(options as object),
      backoff: { baseMs: 1 },
      run: run as never,
    }),
  )
  await using worker = workerOf(store, { pollMs: 50 })
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await flow.waitUntilSettled()
  const [deadLetter] = (await store.deadLetters.list()).items
  return { ...deadLetter!, reason: deadLetter!.reason! }
}

const fails = (): never => {
  throw new Error('no money')
}

test('SB-19: a dead letter has the true reason', async () => {
  const { store } = await openShop({ workflows: { maxHops: 2, maxEmitted: 2 } })
  const flows = store.workflows
  const retries = { retries: 2, backoff: { baseMs: 1 } }
  const paid = emit('OrderPaid', { method: 'card' as const })
  flows.register(defineHandler('failed', { events: shopEvents, on: 'OrderPlaced', retries: 0, run: fails }))
  flows.register(defineHandler('maxRetries', { events: shopEvents, on: 'OrderPlaced', ...retries, run: fails }))
  flows.register(
    defineHandler('timeout', { on: 'OrderPlaced', ...retries, timeoutMs: 20, run: () => new Promise<never>(() => {}) }),
  )
  flows.register(
    defineHandler('nonRetryable', {
      on: 'OrderPlaced',
      ...retries,
      run: () => {
        throw new NonRetryable({ reason: 'the card is stolen' })
      },
    }),
  )
  flows.register(
    defineHandler('invalidResult', { on: 'OrderPlaced', ...retries, run: () => ({ paid: true }) as never }),
  )
  flows.register(
    defineHandler('invalidEmission', {
      events: shopEvents,
      on: 'OrderPlaced',
      ...retries,
      run: (_, { emit }) => emit('OrderPaid', { method: 1n as never }),
    }),
  )
  flows.register(defineHandler('tooManyEmitted', { on: 'OrderPlaced', ...retries, run: () => [paid, paid, paid] }))
  flows.register(
    defineHandler('hops', {
      events: shopEvents,
      on: ['OrderPlaced', 'OrderShipped'],
      ...retries,
      run: (_, { emit }) => emit('OrderShipped', { parcel: 'x' }),
    }),
  )
  await using worker = workerOf(store)
  await worker.start()

  await (await flows.publish('OrderPlaced', { total: 1 })).waitUntilSettled()

  const deadLetters = (await store.deadLetters.list()).items
  expect(deadLetters).toHaveLength(8)
  for (const { handler, reason, attempts } of deadLetters)
    expect([reason, attempts]).toEqual([handler, ['maxRetries', 'timeout'].includes(handler!) ? 3 : 1])
})

test('the refusal of an emitted event when it is stored is the reason as well', async () => {
  const shop = await openShop()
  const id = crypto.randomUUID()
  await shop.store.events.append('order-1', { type: 'OrderShipped', data: { parcel: 'x' }, id })

  const deadLetter = await letterOf(() => emit('OrderShipped', { parcel: 'y' }, { id }), { retries: 2 }, shop)

  expect(deadLetter).toMatchObject({ reason: 'invalidEmission', attempts: 1 })
})

test('a schema violation of an emitted event is the reason as well', async () => {
  const events = defineEvents({
    OrderPlaced: standard(() => true),
    OrderPaid: standard(data => (data as { method: string }).method === 'card'),
  })
  const shop = await openShop({ events: events as never })

  const deadLetter = await letterOf(() => emit('OrderPaid', { method: 'shells' }), {}, shop)

  expect(deadLetter).toMatchObject({ reason: 'invalidEmission' })
  expect(deadLetter.lastError.message).toContain('does not fit its schema')
})

test('an error of the library that the handler itself received is an error of the handler', async () => {
  const deadLetter = await letterOf(
    () => {
      throw new InvalidEvent({ type: 'OrderPaid', path: 'data', reason: 'is of another shop' })
    },
    { retries: 1 },
  )

  expect(deadLetter).toMatchObject({ reason: 'maxRetries', attempts: 2 })
})

test('writes that fail with the completion are retried, and are a failure like any other', async () => {
  const deadLetter = await letterOf(() => complete(tx => tx.query('select 1 / 0')), { retries: 1 })

  expect(deadLetter).toMatchObject({ reason: 'maxRetries', attempts: 2, lastError: { code: '22012' } })
})

test('an error can say that no retry helps, and so can the handler', async () => {
  const refused = Object.assign(new Error('the card is stolen'), { retryable: false })
  const said = letterOf(
    () => {
      throw refused
    },
    { retries: 3 },
  )
  const reported = letterOf(fails, { retries: 3, isRetryable: error => (error as Error).message !== 'no money' })
  const broken = letterOf(fails, {
    retries: 1,
    isRetryable: () => {
      throw new Error('a mistake')
    },
  })

  expect(await said).toMatchObject({ reason: 'nonRetryable', attempts: 1 })
  expect(await reported).toMatchObject({ reason: 'nonRetryable', attempts: 1 })
  expect(await broken).toMatchObject({ reason: 'maxRetries', attempts: 2 })
})

test('an event that cannot be upcast becomes a dead letter, which can be retried with data in the newest shape', async () => {
  const upcasters = [
    defineUpcaster('OrderPlaced', {
      from: 1,
      to: 2,
      run: (data: { total: unknown }) => {
        if (typeof data.total !== 'number') throw new Error('no number')
        return { total: data.total * 100 }
      },
    }),
  ]
  const payments = await openFailingPayments({}, { upcasters })
  payments.fix()
  const { eventIds } = await payments.store.events.append('order-1', {
    ...{ type: 'OrderPlaced', data: { total: 'many' as never }, schemaVersion: 1, correlationId: 'order-1' },
  })
  const id = eventIds[0]!
  await waitUntil(async () => (await payments.store.deadLetters.list()).items.length === 1)

  const before = await payments.store.deadLetters.show('pay', id)
  await payments.store.deadLetters.retry('pay', id, { data: { total: 700 } })
  await payments.until(id, 'replayed')

  expect(before).toMatchObject({ reason: 'undecodable', lastError: { code: 'event_undecodable' } })
  expect(payments.tried).toEqual([700])
})

test('other data is validated like the event', async () => {
  const events = defineEvents({
    OrderPlaced: standard(data => typeof (data as { total: unknown }).total === 'number'),
    OrderPaid: standard(() => true),
  })
  const { store, place } = await openFailingPayments({}, { events: events as never })
  const id = await place(1)

  for (const data of [{ total: 'many' }, { total: 1n }, undefined])
    await expect(store.deadLetters.retry('pay', id, { data })).rejects.toMatchObject({ code: 'invalid_event' })
  expect(await store.deadLetters.show('pay', id)).toMatchObject({ state: 'open', retryAt: undefined })
})

test('an event over which several workers die becomes a dead letter', async () => {
  const { store, query } = await openShop()
  const flows = store.workflows
  flows.register(defineHandler('pay', { on: 'OrderPlaced', delayMs: 60_000, run: () => undefined }))
  await using worker = workerOf(store, { pollMs: 20 })
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await waitUntil(async () => (await query('select 1 from ~workflow_executions')).length === 1)

  await query('update ~workflow_executions set crashes = 4, attempt = 4, run_at = now()')
  await flow.waitUntilSettled()

  expect((await store.deadLetters.list()).items).toMatchObject([{ reason: 'crashed', attempts: 5 }])
})

test('an execution that is not completed by its deadline becomes a dead letter', async () => {
  const deadLetter = await letterOf(fails, { retries: 100, deadlineMs: 60 })

  expect(deadLetter).toMatchObject({ reason: 'deadline', lastError: { code: 'deadline_passed' } })
})

test('an attempt that runs at the deadline is cut off there, however much of its timeout is left', async () => {
  let aborted: unknown
  const hangs = (_event: unknown, ctx: { signal: AbortSignal }): Promise<never> =>
    new Promise(() => ctx.signal.addEventListener('abort', () => (aborted = ctx.signal.reason)))

  let deadLetter: unknown
  // On a busy machine its deadline may pass before it has begun: then another one is tried.
  for (let round = 0; round < 20 && aborted === undefined; round++)
    deadLetter = await letterOf(hangs as never, { retries: 100, deadlineMs: 100 })

  expect(deadLetter).toMatchObject({ reason: 'deadline', attempts: 1, lastError: { code: 'deadline_passed' } })
  expect(aborted).toMatchObject({ code: 'deadline_passed' })
})

test('an execution whose next attempt is later than its deadline fails at its deadline', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  flows.register(
    defineHandler('pay', {
      on: 'OrderPlaced',
      retries: 100,
      deadlineMs: 60_000,
      run: () => {
        throw new RetryLater({ delayMs: 3_600_000, reason: 'the bank is closed' })
      },
    }),
  )
  await using worker = workerOf(shop.store, { pollMs: 50 })
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await waitUntil(async () => (await executionStates(shop)) === '1 delayed')
  await letTimePass(shop, 60_000)
  await flow.waitUntilSettled()

  const [deadLetter] = (await shop.store.deadLetters.list()).items
  expect(deadLetter).toMatchObject({ reason: 'deadline', attempts: 2, lastError: { code: 'deadline_passed' } })
})

test('a deleted event leaves no dead letter, but is shown in the activity', async () => {
  const { store, query } = await openShop()
  const flows = store.workflows
  flows.register(defineHandler('pay', { on: 'OrderPlaced', delayMs: 60_000, run: () => undefined }))
  await using worker = workerOf(store, { pollMs: 20 })
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await waitUntil(async () => (await query('select 1 from ~workflow_executions')).length === 1)

  await query('delete from ~events')
  await query('update ~workflow_executions set run_at = now()')
  await flow.waitUntilSettled()

  expect((await store.deadLetters.list()).items).toEqual([])
  expect(await query(`select outcome, error->>'code' as code from ~workflow_activity where kind = 'failed'`)).toEqual([
    { outcome: 'event_gone', code: 'event_gone' },
  ])
})

test('a dead letter whose event is deleted before its retry is open again, and says so', async () => {
  const { store, place, query } = await openFailingPayments()
  const id = await place(1)
  await query('delete from ~events')

  await store.deadLetters.retry('pay', id)
  await waitUntil(async () => (await store.deadLetters.show('pay', id)).attempts === 2)

  expect(await store.deadLetters.show('pay', id)).toMatchObject({
    ...{ state: 'open', reason: 'eventGone', event: undefined, lastError: { code: 'event_gone' } },
  })
})

test('SB-08: events that cause each other in a cycle end in a dead letter after 50 hops, and others are not held up', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  let placed = 0
  flows.register(
    defineHandler('place-again', {
      events: shopEvents,
      on: 'OrderPlaced',
      ordered: true,
      run: (event, { emit }) => {
        placed++
        return event.data.total === 0 ? undefined : emit('OrderPlaced', { total: event.data.total })
      },
    }),
  )
  await using worker = workerOf(store)
  await worker.start()

  const circle = await flows.publish('OrderPlaced', { total: 1 }, { headers: { workflow: { hops: 45 } } })
  const other = await flows.publish('OrderPlaced', { total: 0 })
  const ended = await circle.waitUntilSettled()

  expect(ended).toMatchObject({ state: 'failed', deadLetters: 1, pending: 0 })
  expect((await other.waitUntilSettled()).state).toBe('settled')
  expect(placed).toBe(6 + 1)
  expect((await store.deadLetters.list()).items).toMatchObject([
    { reason: 'hops', lastError: { code: 'hops_exceeded' } },
  ])
})

test('SB-08: a poison event is dead-lettered after its retries, and its lane continues', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const ran: number[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      ordered: true,
      retries: 2,
      backoff: { baseMs: 1 },
      run: event => {
        ran.push(event.data.total)
        if (event.data.total === 1) throw new Error('poison')
      },
    }),
  )
  await using worker = workerOf(store)
  await worker.start()

  for (const total of [1, 2, 3]) await flows.publish('OrderPlaced', { total }, { correlationId: 'order-1' })
  const status = await flows.get('order-1').waitUntilSettled()

  expect(ran).toEqual([1, 1, 1, 2, 3])
  expect(status).toMatchObject({ state: 'failed', deadLetters: 1 })
})

test('SB-09: the waits between attempts grow up to a limit, and part of each is random', async () => {
  const { store, query } = await openShop()
  const flows = store.workflows
  const backoff = { baseMs: 100_000, maxMs: 300_000 }
  flows.register(defineHandler('pay', { events: shopEvents, on: 'OrderPlaced', retries: 4, backoff, run: fails }))
  await using worker = workerOf(store, { pollMs: 10 })
  await worker.start()
  const orders = 5
  for (let total = 0; total < orders; total++) await flows.publish('OrderPlaced', { total })
  const waits: number[][] = []

  for (let attempt = 1; attempt <= 4; attempt++) {
    let rows: { ms: number }[] = []
    await waitUntil(async () => {
      rows = await query(
        `select extract(epoch from run_at - clock_timestamp())::float8 * 1000 as ms from ~workflow_executions
        where state = 'delayed' and attempt = $1`,
        [attempt],
      )
      return rows.length === orders
    })
    waits.push(rows.map(row => row.ms))
    await query('update ~workflow_executions set run_at = now()')
  }

  for (const [at, most] of [100_000, 200_000, 300_000, 300_000].entries())
    for (const ms of waits[at]!) {
      expect(ms).toBeGreaterThan(most / 2 - 10_000)
      expect(ms).toBeLessThanOrEqual(most)
    }
  expect(new Set(waits[0]!.map(Math.round)).size).toBeGreaterThan(1)
})

test('an error can say when to try again', async () => {
  const { store, query } = await openShop()
  const flows = store.workflows
  const options = { retries: 1, backoff: { baseMs: 1 } }
  flows.register(
    defineHandler('pay', {
      on: 'OrderPlaced',
      ...options,
      run: () => {
        throw new RetryLater({ delayMs: 7_000_000, reason: 'the bank is closed' })
      },
    }),
  )
  flows.register(
    defineHandler('ship', {
      on: 'OrderPlaced',
      ...options,
      run: () => {
        throw Object.assign(new Error('too many'), { retryAfterMs: 9_000_000 })
      },
    }),
  )
  await using worker = workerOf(store)
  await worker.start()
  await flows.publish('OrderPlaced', { total: 1 })
  const waits = () =>
    query<{
      seconds: number
    }>(`select round(extract(epoch from run_at - clock_timestamp()) / 1000)::int * 1000 as seconds
      from ~workflow_executions where state = 'delayed' order by 1`)

  await waitUntil(async () => (await waits()).length === 2)

  expect(await waits()).toEqual([{ seconds: 7_000 }, { seconds: 9_000 }])
})

test('SB-36: an inline handler that keeps failing becomes a dead letter after its retries, not before', async () => {
  const deadLetter = await letterOf(fails, { inline: true, retries: 2 })

  expect(deadLetter).toMatchObject({ reason: 'maxRetries', attempts: 3 })
})

test('SB-46: the dead letter and the end of the execution are one transaction: neither exists without the other', async () => {
  let unstored = 0
  const error = (_: object, message: string): void => {
    if (message === 'An outcome was not stored.') unstored++
  }
  const { store, query } = await openShop({ logger: { debug() {}, info() {}, warn() {}, error } })
  const flows = store.workflows
  flows.register(defineHandler('pay', { events: shopEvents, on: 'OrderPlaced', retries: 0, run: fails }))
  await using worker = workerOf(store, { pollMs: 20 })
  const expire = (): Promise<unknown> => query(`update ~workflow_executions set deadline_at = '-infinity'`)

  await query(`alter table ~dead_letters add constraint full_up check (consumer = 'nobody')`)
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await waitUntil(() => unstored === 1)
  await expire()
  await waitUntil(() => unstored === 2)
  const [left] = await query('select crashes from ~workflow_executions')
  const during = await flow.status()
  await query('alter table ~dead_letters drop constraint full_up')
  await expire()
  const after = await flow.waitUntilSettled()

  expect(left).toEqual({ crashes: 1 })
  expect(during).toMatchObject({ isSettled: false, pending: 1, deadLetters: 0 })
  expect(after).toMatchObject({ state: 'failed', pending: 0, deadLetters: 1 })
})

function standard(isValid: (data: unknown) => boolean) {
  const validate = (value: unknown) =>
    isValid(value) ? { value } : { issues: [{ message: 'is not what it should be', path: ['total'] }] }
  return { '~standard': { version: 1 as const, vendor: 'shop', validate } }
}
