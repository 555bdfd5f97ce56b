import { expect, test } from 'vitest'
import { emit } from '../../src/workflows/emit.ts'
import { DuplicateHandler } from '../../src/workflows/errors.ts'
import { openShop, paid, placed } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

test('any event of the log runs its handlers, whichever call appended it', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const seen: string[] = []
  flows.on(['OrderPlaced', 'OrderPaid'], { name: 'watch' }, event => void seen.push(event.type))
  await using worker = flows.worker()
  await worker.start()

  await store.events.append('order-1', [placed(), paid], { correlationId: 'order-1' })
  await flows.flow('order-1').settled()

  expect(seen.sort()).toEqual(['OrderPaid', 'OrderPlaced'])
})

test('a handler of all types runs for each event, and an event without a handler is not an error', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const seen: string[] = []
  flows.on('*', { name: 'audit', when: event => event.type !== 'OrderPaid' }, event => void seen.push(event.type))
  await using worker = flows.worker()
  await worker.start()

  await store.events.append('order-1', [placed(), paid], { correlationId: 'order-1' })
  const status = await flows.flow('order-1').settled()

  expect(seen).toEqual(['OrderPlaced'])
  expect(status.state).toBe('settled')
})

test('SB-35: handlers and events need no registration of types, and an emitted event without a handler is stored', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  flows.on('OrderPlaced', { name: 'pay' }, () => emit('OrderPaid', { method: 'cash' }))
  await using worker = flows.worker()
  await worker.start()

  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await flow.settled()

  const events = await store.events.read(`workflow-${flow.correlationId}`).toArray()
  expect(events.map(event => event.type)).toEqual(['OrderPlaced', 'OrderPaid'])
})

test('SB-37: an emitted event has the event of its handler as its cause, and one hop more', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  flows.on('OrderPlaced', { name: 'pay' }, () => emit('OrderPaid', { method: 'cash' }))
  flows.on('OrderPaid', { name: 'ship', inline: true }, () => emit('OrderShipped', { parcel: 'p' }))
  await using worker = flows.worker()
  await worker.start()

  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await flow.settled()

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
  flows.on('OrderPlaced', { name: 'pay' }, event => void seen.push(event.data.total))
  const flow = await flows.publish('OrderPlaced', { total: 2 })
  await using worker = flows.worker()
  await worker.start()

  await flow.settled()

  expect(seen).toEqual([2])
})

test('a handler that begins at a position gets the earlier events in order, and then continues', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const seen: number[] = []
  flows.on('OrderPaid', { name: 'first' }, () => {})
  await using early = flows.worker()
  await early.start()
  for (let total = 1; total <= 20; total++) await flows.publish('OrderPlaced', { total }, { correlationId: 'order-1' })
  await early.stop()
  const options = { name: 'late', startFrom: 'beginning', ordered: true } as const
  flows.on('OrderPlaced', options, event => void seen.push(event.data.total))
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
  shop.store.workflows.on('OrderPlaced', { name: 'pay' }, () => void seen.push('pay'))
  other.workflows.on('OrderPlaced', { name: 'mail' }, () => void seen.push('mail'))
  // The first is the dispatcher, and knows nothing of the second's handler.
  await using first = shop.store.workflows.worker()
  await first.start()
  await other.workflows.register()

  const flow = await shop.store.workflows.publish('OrderPlaced', { total: 1 })
  await waitUntil(async () => seen.length === 1 && (await flow.status()).pending === 1)
  await using second = other.workflows.worker()
  await second.start()
  await flow.settled()

  expect(seen).toEqual(['pay', 'mail'])
})

test('an execution ends on the version it was dispatched to, and new events go to the newest', async () => {
  const shop = await openShop()
  const other = await shop.sibling()
  const seen: string[] = []
  const old = shop.store.workflows
  old.on('OrderPlaced', { name: 'pay' }, event => void seen.push(`old ${event.data.total}`))
  const before = await old.publish('OrderPlaced', { total: 1 })
  other.workflows.on('OrderPlaced', { name: 'pay', version: 2 }, event => void seen.push(`new ${event.data.total}`))
  await other.workflows.register()
  const after = await old.publish('OrderPlaced', { total: 2 })
  await using worker = old.worker()
  await worker.start()

  await before.settled()
  await using newer = other.workflows.worker()
  await newer.start()
  await after.settled()

  expect(seen).toEqual(['old 1', 'new 2'])
})

test('SB-45: a handler is identified by its name: two with one name and version are refused', async () => {
  const { store } = await openShop()
  store.workflows.on('OrderPlaced', { name: 'pay' }, () => {})

  expect(() => store.workflows.on('OrderPaid', { name: 'pay' }, () => {})).toThrow(DuplicateHandler)
  store.workflows.on('OrderPaid', { name: 'pay', version: 2 }, () => {})
})

test('init is called when a worker starts, before it claims anything', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const seen: string[] = []
  flows.on('OrderPlaced', { name: 'pay', init: () => void seen.push('init') }, () => void seen.push('run'))
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await using worker = flows.worker()
  await worker.start()

  await flow.settled()

  expect(seen).toEqual(['init', 'run'])
})

test('a store lists the handlers it has the code of', async () => {
  const { store, sibling } = await openShop()
  const other = await sibling()
  store.workflows.on('OrderPlaced', { name: 'pay' }, () => {})
  store.workflows.on('OrderPlaced', { name: 'pay', version: 2 }, () => {})
  store.workflows.on('OrderPaid', { name: 'ship' }, () => {})

  await store.workflows.register()

  expect(store.workflows.registered()).toEqual(['pay', 'ship'])
  expect(other.workflows.registered()).toEqual([])
})
