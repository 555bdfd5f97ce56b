import { expect, test } from 'vitest'
import { defineProcessor } from '../../src/consumers/processor.ts'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { openShop, shopEvents } from '../support/shop.ts'

const orders = defineDocumentProjection('orders', {
  events: shopEvents,
  initial: () => ({ total: 0 }),
  evolve: { OrderPlaced: (_, { data }) => ({ total: data.total }) },
})
const payments = defineProcessor('payments', { events: shopEvents, on: { OrderPaid: () => {} } })
const failing = defineProcessor('mailer', {
  events: shopEvents,
  retries: 0,
  onFailure: 'deadLetter',
  on: {
    OrderPlaced() {
      throw new Error('the mail server is down')
    },
  },
})
const charge = defineHandler('charge', {
  events: shopEvents,
  on: 'OrderPlaced',
  async run(_, { waitForEvent }) {
    await waitForEvent('OrderPaid')
  },
})

test('an event that nothing runs for is explained, with the line that mends it', async () => {
  const { store } = await openShop({ projections: [orders], processors: [payments], handlers: [charge] })
  const { eventIds } = await store.events.append('order-1', { type: 'OrderPlaced', data: { total: 1 } })

  const explained = await store.explain(eventIds[0]!)

  const found = explained!.verdicts.map(({ name, state, reason, fix }) => [name, state, reason, fix])
  expect(explained!.isDone).toBe(false)
  expect(found).toContainEqual(['orders', 'blocked', 'notRunning', 'rillflow run'])
  expect(found).toContainEqual(['payments', 'none', 'filteredOut', undefined])
  expect(found).toContainEqual(['charge', 'waiting', 'dispatcherBehind', 'rillflow run'])
})

test('a paused projection, a dead letter and a handler that waits have different verdicts', async () => {
  const { store } = await openShop({ projections: [orders], processors: [failing], handlers: [charge] })
  await store.consumers.pause(orders)
  await using _ = await store.start()
  const workflow = await store.workflows.publish('OrderPlaced', { total: 1 }, { stream: 'order-1' })
  await store.consumers.waitFor('mailer', (await store.events.head()) as number)
  await expect.poll(async () => (await workflow.status()).state).toBe('waiting')
  const [event] = await store.events.read('order-1').toArray()

  const ofEvent = await store.explain(event!.id)
  const ofWorkflow = await store.explain({ workflow: workflow.correlationId })

  const found = ofEvent!.verdicts.map(({ name, state, reason }) => `${name}: ${state}, ${reason}`)
  expect(found).toEqual(
    expect.arrayContaining([
      'orders: blocked, paused',
      'mailer: blocked, deadLetter',
      'charge: waiting, suspended',
      'workflows: done, done',
    ]),
  )
  expect(ofEvent!.verdicts.find(({ name }) => name === 'charge')!.message).toContain('waits for an event OrderPaid')
  expect(ofWorkflow).toMatchObject({ isDone: false, verdicts: [{ name: 'charge', reason: 'suspended' }] })
})

test('an event that is processed is done, and an unknown one is not explained', async () => {
  const { store } = await openShop({ projections: [orders] })
  const { eventIds } = await store.events.append('order-1', { type: 'OrderPlaced', data: { total: 1 } })
  await store.consumers.runUntilIdle(orders)

  const explained = await store.explain(eventIds[0]!)

  expect(explained).toMatchObject({ isDone: true, verdicts: [{ name: 'orders', state: 'done' }] })
  expect(await store.explain('01936f1c-5d0e-7c11-a4e2-51a6e3c0a001')).toBeUndefined()
})
