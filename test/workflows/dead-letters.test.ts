import { expect, test } from 'vitest'
import { defineProcessor } from '../../src/consumers/processor.ts'
import { emit } from '../../src/workflows/emit.ts'
import { WorkflowNotActive } from '../../src/workflows/errors.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, outcome, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'
import { openWorkerProcesses } from '../support/worker-processes.ts'
import { openFailingPayments } from './failing-payments.ts'

test('SB-20: dead letters of handlers and of consumers share one table, one list and the same states', async () => {
  const { store, place } = await openFailingPayments()
  const id = await place(1, 'order-1')

  const [deadLetter] = (await store.deadLetters.list()).items
  const same = await store.deadLetters.list({ of: { handler: 'pay' } })

  expect(deadLetter).toMatchObject({
    ...{ handler: 'pay', eventId: id, state: 'open', attempts: 1, reason: 'failed', correlationId: 'order-1' },
    ...{ executionId: expect.any(String), fingerprint: expect.any(String), lastError: { message: 'no money for 1' } },
  })
  expect(deadLetter).not.toHaveProperty('consumer')
  expect(same).toEqual({ items: [deadLetter], next: undefined })
  expect(await store.deadLetters.show('pay', id)).toMatchObject({ event: { id, data: { total: 1 } } })
  expect((await store.deadLetters.stats()).items).toMatchObject([{ handler: 'pay', open: 1 }])
})

for (const [name, of] of Object.entries({
  'the name of the handler': 'pay',
  'its definition': defineHandler('pay', { on: 'OrderPlaced', run: () => {} }),
  'the word handler and its name': { handler: 'pay' },
}))
  test(`SB-21: a retry requested by ${name} runs the handler again, and closes the dead letter with its emitted events`, async () => {
    const payments = await openFailingPayments()
    const id = await payments.place(1, 'order-1')
    payments.fix()

    const asked = await payments.store.deadLetters.retry(of, id)
    await payments.until(id, 'replayed')
    const status = await payments.flows.get('order-1').waitUntilSettled()

    expect(asked).toEqual({ requested: 1, isRunning: true })
    expect(status).toMatchObject({ state: 'settled', deadLetters: 0, lastType: 'OrderPaid' })
    expect(payments.tried).toEqual([1, 1])
    expect(await payments.store.deadLetters.show('pay', id)).toMatchObject({
      ...{ attempts: 2, retryAt: undefined, history: [{ from: 'retrying', to: 'replayed' }] },
    })
  })

test('SB-22: a fresh schema has everything that dead letters need', async () => {
  const { store } = await openShop()

  expect(await store.schema.check()).toMatchObject({ isHealthy: true })
})

test('SB-23: of two concurrent retries with different data one is refused', async () => {
  const { store, worker, place, query } = await openFailingPayments()
  const id = await place(1)
  await worker.stop()

  const asked = await Promise.all([
    outcome(store.deadLetters.retry('pay', id, { data: { total: 2 } })),
    outcome(store.deadLetters.retry('pay', id, { data: { total: 3 } })),
  ])

  expect(asked.filter(({ value }) => value?.requested === 1)).toHaveLength(1)
  expect(asked.find(({ error }) => error !== undefined)?.error).toMatchObject({ code: 'retry_pending', eventId: id })
  const won = asked[0]!.value === undefined ? 3 : 2
  expect(await query('select edited->$1 as data from ~dead_letters', ['data'])).toEqual([{ data: { total: won } }])
})

test('SB-23: a retry that several workers see runs once', async () => {
  const payments = await openFailingPayments()
  const ids = []
  for (let total = 1; total <= 5; total++) ids.push(await payments.place(total))
  payments.fix()
  for (let n = 0; n < 3; n++) await workerOf(payments.store, { pollMs: 20 }).start()

  await Promise.all(ids.map(id => payments.store.deadLetters.retry('pay', id)))
  for (const id of ids) await payments.until(id, 'replayed')

  expect([...payments.tried].sort()).toEqual([1, 1, 2, 2, 3, 3, 4, 4, 5, 5])
  expect(await payments.query(`select count(*)::int as n from ~events where type = 'OrderPaid'`)).toEqual([{ n: 5 }])
})

test('SB-23: only an open dead letter can be retried or resolved, and the error names its state', async () => {
  const { store, place } = await openFailingPayments()
  const id = await place(1)

  await store.deadLetters.resolve('pay', id, { note: 'paid by cheque' })

  for (const ask of [
    () => store.deadLetters.retry('pay', id),
    () => store.deadLetters.retry('pay', id, { data: { total: 2 } }),
    () => store.deadLetters.resolve('pay', id, { note: 'again' }),
    () => store.deadLetters.retry('pay', id),
  ]) {
    const { error } = await outcome<unknown>(ask())
    expect(error).toMatchObject({ code: 'dead_letter_conflict', state: 'resolved' })
  }
  expect(await store.deadLetters.show('pay', id)).toMatchObject({
    ...{
      state: 'resolved',
      note: 'paid by cheque',
      history: [{ from: 'open', to: 'resolved', note: 'paid by cheque' }],
    },
  })
})

test('a dead letter that is being retried can be neither resolved nor retried, unless its execution is gone', async () => {
  const { store, worker, place, query } = await openFailingPayments()
  const id = await place(1)
  await worker.stop()
  const [deadLetter] = await query<{ execution: string; position: number }>(
    'select execution, position from ~dead_letters',
  )
  await query(`update ~dead_letters set state = 'retrying'`)
  await query(
    `insert into ~workflow_executions (id, position, rank, route, is_retry, state, correlation_id)
    values ($1, $2, 0, 1, true, 'ready', 'order-1')`,
    [deadLetter!.execution, deadLetter!.position],
  )

  const { error } = await outcome(store.deadLetters.resolve('pay', id, { note: 'paid by cheque' }))
  await query('delete from ~workflow_executions')
  await store.deadLetters.resolve('pay', id, { note: 'paid by cheque' })

  expect(error).toMatchObject({ code: 'dead_letter_conflict', state: 'retrying' })
  expect(await store.deadLetters.show('pay', id)).toMatchObject({ state: 'resolved' })
})

test('SB-24: a dead letter that fails again is the same, open, with the attempts added up', async () => {
  const { store, flows, place, until, query } = await openFailingPayments({ retries: 1, backoff: { baseMs: 1 } })
  const id = await place(1, 'order-1')

  for (let n = 2; n <= 3; n++) {
    await store.deadLetters.retry('pay', id)
    await waitUntil(async () => (await store.deadLetters.show('pay', id)).attempts === 2 * n)
  }
  await until(id, 'open')

  const deadLetter = await store.deadLetters.show('pay', id)
  expect(deadLetter).toMatchObject({ state: 'open', reason: 'maxRetries', retryAt: undefined })
  expect(deadLetter.errors.map(error => error.message)).toEqual(Array.from({ length: 6 }, () => 'no money for 1'))
  expect(await flows.get('order-1').status()).toMatchObject({ state: 'failed', deadLetters: 1, pending: 0 })
  expect(await query('select failures from ~dead_letters')).toEqual([{ failures: 3 }])
})

test('a dead letter is retried with other data, which the handler sees as the data of its event', async () => {
  const payments = await openFailingPayments()
  const id = await payments.place(1)
  payments.fix()

  await payments.store.deadLetters.retry('pay', id, { data: { total: 7 } })
  await payments.until(id, 'replayed')

  expect(payments.tried).toEqual([1, 7])
  expect(await payments.store.deadLetters.show('pay', id)).toMatchObject({
    ...{ event: { data: { total: 1 } }, edited: { data: { total: 7 } } },
  })
})

test('other data applies to one retry only', async () => {
  const { store, place, tried } = await openFailingPayments()
  const id = await place(1)

  await store.deadLetters.retry('pay', id, { data: { total: 7 } })
  await waitUntil(async () => (await store.deadLetters.show('pay', id)).attempts === 2)
  await store.deadLetters.retry('pay', id)
  await waitUntil(async () => (await store.deadLetters.show('pay', id)).attempts === 3)

  expect(tried).toEqual([1, 7, 1])
})

test('all matching dead letters are requested, at the given rate', async () => {
  const payments = await openFailingPayments()
  const first = await payments.place(1, 'order-1')
  const second = await payments.place(2, 'order-2')
  const third = await payments.place(3, 'order-2')
  await payments.worker.stop()
  const { deadLetters } = payments.store

  const none = await deadLetters.retryAll({ reason: 'timeout' })
  const asked = await deadLetters.retryAll({ correlationId: 'order-2', reason: 'failed' }, { perSecond: 0.01 })
  const rest = await deadLetters.retryAll({}, { perSecond: 0.01 })

  expect([none.requested, asked.requested, rest.requested]).toEqual([0, 2, 1])
  const at = new Map(
    (await deadLetters.list()).items.map(deadLetter => [deadLetter.eventId, deadLetter.retryAt!.getTime()]),
  )
  expect([third, first].map(id => at.get(id)! - at.get(second)!)).toEqual([100_000, 200_000])
})

test('requested dead letters run when their time comes', async () => {
  const payments = await openFailingPayments()
  const ids = []
  for (let total = 1; total <= 4; total++) ids.push(await payments.place(total))
  payments.fix()

  const asked = await payments.store.deadLetters.retryAll({ of: 'pay' }, { perSecond: 50 })
  for (const id of ids) await payments.until(id, 'replayed')

  expect(asked).toEqual({ requested: 4, isRunning: true })
  // Those that are due meanwhile run in parallel.
  expect(payments.tried.slice(4).sort()).toEqual([1, 2, 3, 4])
})

test('similar failures form one group, with the latest error and both times', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 0,
      run: event => {
        throw new Error(event.data.total < 10 ? `no money for order ${event.data.total}` : 'the bank is closed')
      },
    }),
  )
  await using worker = workerOf(store)
  await worker.start()
  for (const total of [1, 2, 99, 3]) await (await flows.publish('OrderPlaced', { total })).waitUntilSettled()

  const [many, one] = (await store.deadLetters.groups()).items

  expect(many).toMatchObject({ handler: 'pay', count: 3, reason: 'failed', latestError: { at: expect.any(Date) } })
  expect(many!.latestError.message).toBe('no money for order 3')
  expect(many!.firstFailedAt.getTime()).toBeLessThan(many!.lastFailedAt.getTime())
  expect(one).toMatchObject({ count: 1, latestError: { message: 'the bank is closed' } })
  expect((await store.deadLetters.list({ fingerprint: many!.fingerprint })).items).toHaveLength(3)
  expect((await store.deadLetters.groups({ of: 'ship' })).items).toEqual([])
  expect((await store.deadLetters.groups({ state: 'resolved' })).items).toEqual([])
})

test('dead letters of handlers are listed in pages, and by subject', async () => {
  const { store, place, query } = await openFailingPayments()
  for (const [total, order] of [
    [1, 'a'],
    [2, 'a'],
    [3, 'b'],
  ] as const)
    await place(total, `order-${order}`)
  await query(`insert into ~dead_letters (consumer, event_id, position, stream, version, type, attempts, errors,
      first_failed_at, last_failed_at)
    select 'mailer', event_id, position, stream, version, type, 1, errors, last_failed_at, last_failed_at from ~dead_letters limit 1`)
  const seen: string[] = []

  for (let after: string | undefined, isLast = false; !isLast; isLast = after === undefined) {
    const page = await store.deadLetters.list({ limit: 2, after })
    seen.push(...page.items.map(({ handler, consumer, correlationId }) => `${handler ?? consumer} ${correlationId}`))
    after = page.next
  }

  expect(seen).toEqual(['pay order-a', 'pay order-a', 'pay order-b', 'mailer undefined'])
  expect((await store.deadLetters.list({ of: 'pay' })).items).toHaveLength(3)
  expect((await store.deadLetters.list({ correlationId: 'order-a', state: 'open' })).items).toHaveLength(2)
  expect((await store.deadLetters.list({ correlationId: 'order-b', reason: 'failed' })).items).toHaveLength(1)
  expect((await store.deadLetters.list({ of: 'ship' })).items).toEqual([])
  expect((await store.deadLetters.list({ reason: 'timeout' })).items).toEqual([])
})

test('without a worker for the handler a retry reports that, and runs when a worker comes', async () => {
  const payments = await openFailingPayments()
  const id = await payments.place(1)
  payments.fix()
  await payments.worker.stop()

  const asked = await payments.store.deadLetters.retry('pay', id)
  await payments.worker.start()
  await payments.until(id, 'replayed')

  expect(asked).toEqual({ requested: 1, isRunning: false })
})

test('a consumer cannot have a name that its dead letters would share with a handler', async () => {
  const { store } = await openShop()

  const processor = defineProcessor('handler:pay', { on: { OrderPlaced: async () => {} } })
  await expect(store.register(processor)).rejects.toMatchObject({ code: 'invalid_name', given: 'handler:pay' })
})

test('requests for missing dead letters fail, or report that there are none', async () => {
  const { store } = await openFailingPayments()
  const nobody = crypto.randomUUID()

  for (const ask of [
    () => store.deadLetters.show('pay', nobody),
    () => store.deadLetters.retry('pay', nobody),
    () => store.deadLetters.retry('pay', nobody, { data: { total: 1 } }),
    () => store.deadLetters.resolve('pay', 'no uuid', { note: 'gone' }),
  ]) {
    const { error } = await outcome<unknown>(ask())
    expect(error).toMatchObject({ code: 'dead_letter_not_found', of: 'pay' })
  }
  const unknown = await outcome(store.deadLetters.retryAll({ of: 'pai' }))
  expect(unknown.error).toMatchObject({ code: 'consumer_not_found', nearest: 'pay' })
  const unknownHandler = await outcome(store.deadLetters.retryAll({ of: { handler: 'pai' } }))
  expect(unknownHandler.error).toMatchObject({ code: 'handler_not_found', handler: 'pai', nearest: 'pay' })
  expect(await store.deadLetters.retryAll({ of: 'pay' })).toEqual({ requested: 0, isRunning: true })
  expect(await store.deadLetters.retryAll({ of: { handler: 'pay' } })).toEqual({ requested: 0, isRunning: true })
})

for (const state of ['cancelled', 'compensating', 'compensated', 'compensationFailed'])
  test(`dead letters of a workflow that is ${state} can only be resolved`, async () => {
    const { store, place, query } = await openFailingPayments()
    const id = await place(1, 'order-1')
    await query('update ~workflows set state = $1', [state])

    const { error } = await outcome(store.deadLetters.retry('pay', id))
    const other = await outcome(store.deadLetters.retry({ handler: 'pay' }, id))
    const all = await store.deadLetters.retryAll()
    await store.deadLetters.resolve('pay', id, { note: 'the customer is gone' })

    expect(error).toBeInstanceOf(WorkflowNotActive)
    expect(error).toMatchObject({ code: 'workflow_not_active', correlationId: 'order-1', state })
    expect(other.error).toBeInstanceOf(WorkflowNotActive)
    expect(all.requested).toBe(0)
  })

test('a retry requested before its workflow was cancelled is dropped', async () => {
  const { store, worker, place, query, tried } = await openFailingPayments()
  const id = await place(1)
  await worker.stop()
  await store.deadLetters.retry('pay', id)
  await query(`update ~workflows set state = 'cancelled'`)

  await worker.start()
  await waitUntil(async () => (await store.deadLetters.show('pay', id)).retryAt === undefined)

  expect(await store.deadLetters.show('pay', id)).toMatchObject({ state: 'open', attempts: 1 })
  expect(tried).toEqual([1])
})

test('requested dead letters of a retired handler do not block others, and are retried when it is resumed', async () => {
  const { store, query } = await openShop()
  const flows = store.workflows
  let isFixed = false
  const fail = (): void => {
    if (!isFixed) throw new Error('no money')
  }
  flows.register(defineHandler('pay', { events: shopEvents, on: 'OrderPlaced', retries: 0, run: fail }))
  flows.register(defineHandler('ship', { events: shopEvents, on: 'OrderPaid', retries: 0, run: fail }))
  await using worker = workerOf(store, { pollMs: 100 })
  await worker.start()
  // More than are queued in one transaction.
  await Promise.all(Array.from({ length: 101 }, (_, total) => flows.publish('OrderPlaced', { total })))
  const paid = await flows.publish('OrderPaid', { method: 'card' })
  await waitUntil(async () => (await query('select from ~dead_letters')).length === 102)
  isFixed = true

  await flows.handlers.retire('pay')
  await store.deadLetters.retryAll({}, { perSecond: 1_000 })
  const status = await paid.waitUntilSettled({ timeoutMs: 10_000 })
  const open = await query(`select from ~dead_letters where state = 'open'`)
  await flows.handlers.resume('pay')
  await waitUntil(async () => (await query(`select from ~dead_letters where state = 'open'`)).length === 0)

  expect(status.state).toBe('settled')
  expect(open).toHaveLength(101)
})

test('a retry goes to the newest version of the handler', async () => {
  const { store, sibling } = await openShop()
  store.workflows.register(
    defineHandler('pay', {
      on: 'OrderPlaced',
      retries: 0,
      run: () => {
        throw new Error('no money')
      },
    }),
  )
  const old = workerOf(store, { pollMs: 50 })
  await old.start()
  const flow = await store.workflows.publish('OrderPlaced', { total: 1 })
  await flow.waitUntilSettled()
  const newer = await sibling()
  newer.workflows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      version: 2,
      run: (_, ctx) => ctx.emit('OrderShipped', { parcel: `v${ctx.version}` }),
    }),
  )
  await using worker = workerOf(newer, { pollMs: 50 })
  await worker.start()
  const [deadLetter] = (await store.deadLetters.list()).items

  await store.deadLetters.retry('pay', deadLetter!.eventId)
  const shipped = await flow.waitForEvent('OrderShipped', { timeoutMs: 30_000 })

  expect(shipped.data.parcel).toBe('v2')
})

test('the worker that runs a retry may die: another one continues it', async () => {
  const shop = await openShop()
  const { store } = shop
  const never = new Promise<never>(() => {})
  let runs = 0
  const pay = () => {
    if (++runs === 1) throw new Error('no money')
    return runs === 2 ? never : emit('OrderPaid', { method: 'card' as const })
  }
  await using workers = await openWorkerProcesses(shop, {
    leaseMs: 1_000,
    register: process =>
      process.store.workflows.register(
        defineHandler('pay', { events: shopEvents, on: 'OrderPlaced', retries: 0, run: pay }),
      ),
  })
  const mortal = await workers.start()
  const flow = await store.workflows.publish('OrderPlaced', { total: 1 })
  await flow.waitUntilSettled()
  const [deadLetter] = (await store.deadLetters.list()).items

  await store.deadLetters.retry('pay', deadLetter!.eventId)
  await waitUntil(() => runs === 2)
  workers.kill(mortal)
  await workers.start()
  await flow.waitForEvent('OrderPaid', { timeoutMs: 30_000 })

  expect(await store.deadLetters.show('pay', deadLetter!.eventId)).toMatchObject({ state: 'replayed', attempts: 3 })
})
