import { expect, test } from 'vitest'
import { DuplicateHandler } from '../../src/workflows/errors.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { openShop, paid, placed, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

test('any event of the log runs its handlers, whichever call appended it', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const seen: string[] = []
  flows.register(
    defineHandler('watch', {
      events: shopEvents,
      on: ['OrderPlaced', 'OrderPaid'],
      run: event => void seen.push(event.type),
    }),
  )
  await using worker = flows.worker()
  await worker.start()

  await store.events.append('order-1', [placed(), paid], { correlationId: 'order-1' })
  await flows.get('order-1').waitUntilSettled()

  expect(seen.sort()).toEqual(['OrderPaid', 'OrderPlaced'])
})

test('a handler of all types runs for each event, and an event without a handler is not an error', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const seen: string[] = []
  flows.register(
    defineHandler('audit', {
      events: shopEvents,
      on: '*',
      when: event => event.type !== 'OrderPaid',
      run: event => void seen.push(event.type),
    }),
  )
  await using worker = flows.worker()
  await worker.start()

  await store.events.append('order-1', [placed(), paid], { correlationId: 'order-1' })
  const status = await flows.get('order-1').waitUntilSettled()

  expect(seen).toEqual(['OrderPlaced'])
  expect(status.state).toBe('settled')
})

test('SB-35: handlers and events need no registration of types, and an emitted event without a handler is stored', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: (_, { emit }) => emit('OrderPaid', { method: 'cash' }),
    }),
  )
  await using worker = flows.worker()
  await worker.start()

  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await flow.waitUntilSettled()

  const events = await store.events.read(`workflow-${flow.correlationId}`).toArray()
  expect(events.map(event => event.type)).toEqual(['OrderPlaced', 'OrderPaid'])
})

test('SB-37: an emitted event has the event of its handler as its cause, and one hop more', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: (_, { emit }) => emit('OrderPaid', { method: 'cash' }),
    }),
  )
  flows.register(
    defineHandler('ship', {
      events: shopEvents,
      on: 'OrderPaid',
      inline: true,
      run: (_, { emit }) => emit('OrderShipped', { parcel: 'p' }),
    }),
  )
  await using worker = flows.worker()
  await worker.start()

  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await flow.waitUntilSettled()

  const [first, second, third] = await store.events.read(`workflow-${flow.correlationId}`).toArray()
  expect(second).toMatchObject({ causationId: first!.id, headers: { workflow: { hops: 1, handler: 'pay' } } })
  expect(third).toMatchObject({ causationId: second!.id, headers: { workflow: { hops: 2, handler: 'ship' } } })
  expect(new Set([first, second, third].map(event => event!.correlationId))).toEqual(new Set([flow.correlationId]))
})

test('a new handler gets events published from then on', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const seen: number[] = []
  await flows.publish('OrderPlaced', { total: 1 })
  flows.register(
    defineHandler('pay', { events: shopEvents, on: 'OrderPlaced', run: event => void seen.push(event.data.total) }),
  )
  const flow = await flows.publish('OrderPlaced', { total: 2 })
  await using worker = flows.worker()
  await worker.start()

  await flow.waitUntilSettled()

  expect(seen).toEqual([2])
})

test('a handler that begins at a position gets the earlier events in order, and then continues', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const seen: number[] = []
  flows.register(defineHandler('first', { on: 'OrderPaid', run: () => {} }))
  await using early = flows.worker()
  await early.start()
  for (let total = 1; total <= 20; total++) await flows.publish('OrderPlaced', { total }, { correlationId: 'order-1' })
  await early.stop()
  flows.register(
    defineHandler('late', {
      events: shopEvents,
      on: 'OrderPlaced',
      from: 'start',
      ordered: true,
      run: event => void seen.push(event.data.total),
    }),
  )
  await using worker = flows.worker()
  await worker.start()

  for (let total = 21; total <= 30; total++) await flows.publish('OrderPlaced', { total }, { correlationId: 'order-1' })

  await waitUntil(() => seen.length === 30)
  expect(seen).toEqual(Array.from({ length: 30 }, (_, at) => at + 1))
})

test('in a rolling deployment events go to the stored routes, whatever code the dispatcher has', async () => {
  const shop = await openShop()
  const other = await shop.sibling()
  const seen: string[] = []
  shop.store.workflows.register(defineHandler('pay', { on: 'OrderPlaced', run: () => void seen.push('pay') }))
  other.workflows.register(defineHandler('mail', { on: 'OrderPlaced', run: () => void seen.push('mail') }))
  // The first is the dispatcher, and knows nothing of the second's handler.
  await using first = shop.store.workflows.worker()
  await first.start()
  await other.workflows.sync()

  const flow = await shop.store.workflows.publish('OrderPlaced', { total: 1 })
  await waitUntil(async () => seen.length === 1 && (await flow.status()).pending === 1)
  await using second = other.workflows.worker()
  await second.start()
  await flow.waitUntilSettled()

  expect(seen).toEqual(['pay', 'mail'])
})

test('an execution ends on the version it was dispatched to, and new events go to the newest', async () => {
  const shop = await openShop()
  const other = await shop.sibling()
  const seen: string[] = []
  const old = shop.store.workflows
  old.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: event => void seen.push(`old ${event.data.total}`),
    }),
  )
  const before = await old.publish('OrderPlaced', { total: 1 })
  other.workflows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      version: 2,
      run: event => void seen.push(`new ${event.data.total}`),
    }),
  )
  await other.workflows.sync()
  const after = await old.publish('OrderPlaced', { total: 2 })
  await using worker = old.worker()
  await worker.start()

  await before.waitUntilSettled()
  await using newer = other.workflows.worker()
  await newer.start()
  await after.waitUntilSettled()

  expect(seen).toEqual(['old 1', 'new 2'])
})

test('SB-45: a handler is identified by its name: two with one name and version are refused', async () => {
  const { store } = await openShop()
  store.workflows.register(defineHandler('pay', { on: 'OrderPlaced', run: () => {} }))

  expect(() => store.workflows.register(defineHandler('pay', { on: 'OrderPaid', run: () => {} }))).toThrow(
    DuplicateHandler,
  )
  store.workflows.register(defineHandler('pay', { on: 'OrderPaid', version: 2, run: () => {} }))
})

test('init is called when a worker starts, before it claims anything', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const seen: string[] = []
  flows.register(
    defineHandler('pay', { on: 'OrderPlaced', init: () => void seen.push('init'), run: () => void seen.push('run') }),
  )
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await using worker = flows.worker()
  await worker.start()

  await flow.waitUntilSettled()

  expect(seen).toEqual(['init', 'run'])
})

test('a store lists the handlers it has the code of', async () => {
  const { store, sibling } = await openShop()
  const other = await sibling()
  store.workflows.register(defineHandler('pay', { on: 'OrderPlaced', run: () => {} }))
  store.workflows.register(defineHandler('pay', { on: 'OrderPlaced', version: 2, run: () => {} }))
  store.workflows.register(defineHandler('ship', { on: 'OrderPaid', run: () => {} }))

  await store.workflows.sync()

  expect(store.workflows.handlers.registered()).toEqual(['pay', 'ship'])
  expect(other.workflows.handlers.registered()).toEqual([])
})
