import { channel } from 'node:diagnostics_channel'
import { expect, test } from 'vitest'
import { defineProjection } from '../../src/projections/projection.ts'
import { channels } from '../../src/telemetry/telemetry.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { defineSchedule } from '../../src/workflows/schedules/schedule.ts'
import { parseSequence } from '../support/parse-sequence-diagram.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, outcome, paid, placed, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

/** Without the times, which are never the same. */
function messagesOf(mermaid: string): string[] {
  return parseSequence(mermaid).messages.map(message => message.replace(/ \([\d.]+ ms\)$/, ''))
}

test('a trace lists the documents and events that a request touched, in order', async () => {
  const { store } = await openShop()
  const customers = store.documents<{ name: string }>('customers')
  await customers.put('ada', { name: 'Ada' })
  await store.events.append('elsewhere-1', paid)

  const { value, crumbs, isWhole, mermaid } = await store.trace(async () => {
    await customers.get('ada')
    await store.events.append('order-1', [placed(), paid])
    await outcome(store.events.append('order-1', paid, { expected: 9 }))
    return 42
  })

  expect([value, isWhole]).toEqual([42, true])
  expect(crumbs.map(({ kind, name, what, from }) => [kind, name, what, from])).toEqual([
    ['document', 'customers', 'get, 1 document', undefined],
    ['append', 'order-1', 'OrderPlaced, OrderPaid', undefined],
    ['append', 'order-1', 'OrderPaid', undefined],
  ])
  expect(crumbs[1]!.events.map(({ stream, type }) => [stream, type])).toEqual([
    ['order-1', 'OrderPlaced'],
    ['order-1', 'OrderPaid'],
  ])
  expect(crumbs[2]!.error).toMatchObject({ code: 'version_conflict' })
  expect(messagesOf(mermaid())).toEqual([
    'request ->> documents customers: get, 1 document',
    'request ->> events: append OrderPlaced, OrderPaid to order-1',
    'request -x events: append OrderPaid to order-1, failed',
  ])
})

test('effects are traced while it runs: projections, handlers and their emitted events, and nothing of other requests', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  await store.projections.register(
    defineProjection('totals', { events: shopEvents, on: { OrderPlaced: async () => {} } }),
  )
  flows.register(
    defineHandler('charge', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_, { emit }) => {
        await store.events.append('ledger-1', { type: 'OrderShipped', data: { parcel: 'p' } })
        return emit('OrderPaid', { method: 'card' })
      },
    }),
  )
  flows.register(defineHandler('ship', { on: 'OrderPaid', run: async () => {} }))
  await using worker = workerOf(store)
  await worker.start()

  const traced = store.trace(async () => {
    const flow = await flows.publish('OrderPlaced', { total: 1 })
    await flow.waitUntilSettled({ timeoutMs: 60_000 })
    await store.consumers.runUntilIdle()
    return flow.correlationId
  })
  const other = await flows.publish('OrderPlaced', { total: 2 })
  await other.waitUntilSettled({ timeoutMs: 60_000 })
  const { value: id, crumbs, mermaid } = await traced

  const stream = crumbs[0]!.name
  expect(stream).toContain(id)
  expect(messagesOf(mermaid()).sort()).toEqual(
    [
      `request ->> events: append OrderPlaced to ${stream}`,
      'events -->> handler charge: OrderPlaced, attempt 1',
      'handler charge ->> events: append OrderShipped to ledger-1',
      'handler charge ->> events: emit OrderPaid',
      'events -->> handler ship: OrderPaid, attempt 1',
      'events -->> projection totals: OrderPlaced',
    ].sort(),
  )
  const at = (name: string): number => crumbs.findIndex(crumb => crumb.kind === 'handler' && crumb.name === name)
  const emission = crumbs.findIndex(({ kind }) => kind === 'emit')
  expect([crumbs[at('charge')]!.from, crumbs[emission]!.from, crumbs[at('ship')]!.from]).toEqual([
    0,
    at('charge'),
    emission,
  ])
})

test('a session is one step, with its documents and events; an inline projection is part of it', async () => {
  const { store } = await openShop()
  const totals = defineProjection('totals', { events: shopEvents, on: { OrderPlaced: async () => {} } })
  await store.projections.register({ ...totals, lifecycle: 'inline' })
  const customers = store.documents<{ name: string }>('customers')

  const { mermaid } = await store.trace(async () => {
    const session = store.session()
    session.documents(customers).put('ada', { name: 'Ada' })
    session.events.append('order-1', placed())
    await session.save()
  })

  const messages = messagesOf(mermaid())
  expect(messages).toContain('request ->> events: save OrderPlaced to order-1')
  expect(messages).toContain('events -->> projection totals: OrderPlaced (inline)')
  expect(messages.filter(message => message.includes(' append '))).toEqual([])
  expect(messages.some(message => message.startsWith('request ->> documents customers: '))).toBe(true)
})

test('two concurrent requests do not see each other', async () => {
  const { store } = await openShop()
  const touch = (stream: string) => store.trace(() => store.events.append(stream, placed()))

  const [first, second] = await Promise.all([touch('order-1'), touch('order-2')])

  expect([first, second].map(({ crumbs }) => crumbs.map(({ name }) => name))).toEqual([['order-1'], ['order-2']])
})

test('the number of breadcrumbs is limited, and a cut is marked', async () => {
  const { store } = await openShop()

  const { crumbs, isWhole, mermaid } = await store.trace(
    async () => {
      for (let n = 0; n < 5; n++) await store.events.append('order-1', placed())
    },
    { maxCrumbs: 3 },
  )

  expect([crumbs.length, isWhole]).toEqual([3, false])
  expect(parseSequence(mermaid()).notes).toEqual(['not everything is shown'])
})

test('names with special characters are drawn unchanged in a diagram', async () => {
  const { store } = await openShop()
  const name = 'end; note #1 "<b>" : -->> x'

  const { mermaid } = await store.trace(() => store.events.append(name, placed()))

  expect(messagesOf(mermaid())).toEqual([`request ->> events: append OrderPlaced to ${name}`])
})

test('a request that fails rejects as usual, and afterwards there is no listener', async () => {
  const { store } = await openShop()

  const { error } = await outcome(store.trace(() => Promise.reject(new Error('no'))))

  expect(error).toEqual(new Error('no'))
  await waitUntil(() => !channel(channels.span).hasSubscribers && !channel(channels.documents).hasSubscribers)
})

test('a schedule run by a worker that the request started is traced with its emitted events, and so is a loop over its events', async () => {
  const { store } = await openShop()
  store.workflows.register(
    defineSchedule('nightly', {
      events: shopEvents,
      everyMs: 86_400_000,
      run: ({ emit }) => emit('OrderPlaced', { total: 1 }),
    }),
  )

  const { crumbs, mermaid } = await store.trace(async () => {
    await using worker = workerOf(store)
    await worker.start()
    await store.workflows.schedules.trigger('nightly')
    for await (const _ of store.subscribe('mailer')) break
  })

  expect(crumbs.map(({ kind, name, what, from }) => [kind, name, what, from])).toEqual([
    ['schedule', 'nightly', 'OrderPlaced', undefined],
    ['subscription', 'mailer', 'OrderPlaced', 0],
  ])
  expect(messagesOf(mermaid())).toEqual([
    'request ->> events: schedule nightly: OrderPlaced',
    'events -->> subscription mailer: OrderPlaced',
  ])
})
