import { expect, test } from 'vitest'
import { defineHandler } from '../../src/workflows/handler.ts'
import { openShop, shopEvents } from '../support/shop.ts'

test('a published event runs its handlers, and their emitted events run others', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const shipped: string[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: (event, { emit }) => emit('OrderPaid', { method: event.data.total > 50 ? 'card' : 'cash' }),
    }),
  )
  flows.register(
    defineHandler('ship', {
      events: shopEvents,
      on: 'OrderPaid',
      run: async (event, ctx) => {
        shipped.push(`${event.data.method} ${ctx.attempt}`)
      },
    }),
  )
  await using worker = flows.worker()
  await worker.start()

  const flow = await flows.publish('OrderPlaced', { total: 99 })
  const status = await flow.waitUntilSettled()

  expect(shipped).toEqual(['card 1'])
  expect(status).toMatchObject({ state: 'settled', pending: 0, lastType: 'OrderPaid' })
})

test('a hundred workflows settle', async () => {
  const { store, query } = await openShop()
  const flows = store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: (_, { emit }) => emit('OrderPaid', { method: 'card' }),
    }),
  )
  flows.register(defineHandler('ship', { on: 'OrderPaid', ordered: true, run: async () => {} }))
  await using worker = flows.worker()
  await worker.start()

  const all = await Promise.all(Array.from({ length: 100 }, (_, total) => flows.publish('OrderPlaced', { total })))
  await Promise.all(all.map(flow => flow.waitUntilSettled({ timeoutMs: 100_000 })))

  expect(await query('select count(*)::int as n from ~workflow_executions')).toEqual([{ n: 0 }])
  expect(await query('select count(*)::int as n from ~workflow_lanes')).toEqual([{ n: 0 }])
  expect(await query('select kind, count(*)::int as n from ~workflow_activity group by 1 order by 1')).toEqual([
    { kind: 'completed', n: 200 },
    { kind: 'dispatched', n: 200 },
    { kind: 'started', n: 200 },
  ])
})

test('a handler that fails is retried, then its event becomes a dead letter', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  let tries = 0
  flows.register(
    defineHandler('pay', {
      on: 'OrderPlaced',
      retries: 2,
      backoff: { baseMs: 1 },
      run: () => {
        throw new Error(`no money ${++tries}`)
      },
    }),
  )
  await using worker = flows.worker()
  await worker.start()

  const flow = await flows.publish('OrderPlaced', { total: 99 })
  const status = await flow.waitUntilSettled()
  const deadLetters = await store.deadLetters.list()

  expect(tries).toBe(3)
  expect(status.state).toBe('failed')
  expect(deadLetters).toMatchObject([{ consumer: 'handler:pay', attempts: 3, lastError: { message: 'no money 3' } }])
})

test("an event published in a session is stored with the session's writes, or not at all", async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const customers = store.documents<{ orders: number }>('customers')
  let paid = 0
  flows.register(defineHandler('pay', { on: 'OrderPlaced', run: () => void paid++ }))
  await using worker = flows.worker()
  await worker.start()
  await using session = store.session()
  session.documents(customers).put('ada', { orders: 1 })

  const { correlationId } = session.publish('OrderPlaced', { total: 1 }, { correlationId: 'order-1' })
  expect(await store.events.readAll().toArray()).toEqual([])
  await session.save()
  await flows.get(correlationId).waitUntilSettled()

  expect(paid).toBe(1)
  expect((await customers.get('ada'))?.data).toEqual({ orders: 1 })
})

test('an event published inside a transaction is stored with it, or not at all', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const seen: number[] = []
  flows.register(
    defineHandler('pay', { events: shopEvents, on: 'OrderPlaced', run: event => void seen.push(event.data.total) }),
  )
  await using worker = flows.worker()
  await worker.start()
  const failing = store.transaction(async tx => {
    await flows.publish('OrderPlaced', { total: 1 }, { tx })
    throw new Error('changed my mind')
  })
  await expect(failing).rejects.toThrow('changed my mind')

  const flow = await store.transaction(tx => flows.publish('OrderPlaced', { total: 2 }, { tx }))
  await flow.waitUntilSettled()

  expect(seen).toEqual([2])
})

test('SB-32: an id is published once, whether published or emitted; with other content it is an error', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  let runs = 0
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: (_, { emit }) => {
        runs++
        return emit('OrderPaid', { method: 'card' }, { key: 'once' })
      },
    }),
  )
  await using worker = flows.worker()
  await worker.start()
  const id = '0192f0c0-0000-7000-8000-000000000001'

  const [first, second] = await Promise.all([1, 2].map(() => flows.publish('OrderPlaced', { total: 1 }, { id })))
  await first!.waitUntilSettled()
  const emitted = (await store.events.readAll({ types: ['OrderPaid'] }).toArray())[0]!
  const again = { id: emitted.id, correlationId: id, stream: emitted.stream }
  await flows.publish('OrderPaid', { method: 'card' }, again)

  expect(second!.correlationId).toBe(first!.correlationId)
  expect(runs).toBe(1)
  await expect(flows.publish('OrderPlaced', { total: 2 }, { id })).rejects.toMatchObject({ code: 'duplicate_event_id' })
  await expect(flows.publish('OrderPaid', { method: 'cash' }, again)).rejects.toMatchObject({
    code: 'duplicate_event_id',
  })
  expect((await store.events.readAll().toArray()).length).toBe(2)
})

test('SB-27: an event can be published on any day: nothing is partitioned by date', async () => {
  const { query, schema } = await openShop()

  const partitioned = await query(
    `select relname from pg_class where relnamespace = $1::regnamespace and relkind = 'p'`,
    [schema],
  )

  expect(partitioned).toEqual([])
})

test('SB-33: the event itself makes publishing repeatable, without a separate table that grows', async () => {
  const { store, query } = await openShop()
  const id = '0192f0c0-0000-7000-8000-000000000002'

  for (let repeat = 0; repeat < 3; repeat++) await store.workflows.publish('OrderPlaced', { total: 1 }, { id })

  expect(await query('select count(*)::int as n from ~events')).toEqual([{ n: 1 }])
  expect(await query('select count(*)::int as n from ~idempotency_keys')).toEqual([{ n: 0 }])
})
