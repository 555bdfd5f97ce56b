import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { expect, onTestFinished, test } from 'vitest'
import { defineProcessor } from '../../src/consumers/processor.ts'
import { channels } from '../../src/telemetry/telemetry.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { freshSchema } from '../support/engines.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, outcome, paid, placed, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

/** Messages published about one schema while the test runs. */
function listenTo(channel: string, schema: string): Record<string, unknown>[] {
  const messages: Record<string, unknown>[] = []
  const listen = (message: unknown): void => {
    const fields = message as Record<string, unknown>
    if (fields.schema === schema) messages.push(fields)
  }
  subscribe(channel, listen)
  onTestFinished(() => void unsubscribe(channel, listen))
  return messages
}

test('an append is published with its streams, the number of its events and its duration', async () => {
  const { store, schema } = await openShop()
  const messages = listenTo(channels.append, schema)

  await store.events.append('order-1', [placed(), paid])
  await store.events.appendMany([
    { stream: 'order-2', events: placed() },
    { stream: 'order-3', events: placed() },
  ])

  expect(messages).toEqual([
    { schema, streams: ['order-1'], events: 2, durationMs: expect.any(Number) },
    { schema, streams: ['order-2', 'order-3'], events: 2, durationMs: expect.any(Number) },
  ])
})

test('schema changes are published on the channel and logged', async () => {
  const schema = freshSchema()
  const messages = listenTo(channels.migrate, schema)
  const logged: [object, string][] = []
  const info = (fields: object, message: string): void => void logged.push([fields, message])

  await openShop({ schema, logger: { debug() {}, info, warn() {}, error() {} } })

  expect(messages.length).toBeGreaterThan(0)
  expect(messages[0]).toEqual({ schema, object: expect.any(String), reason: expect.any(String) })
  expect(logged.map(([fields]) => fields)).toEqual(messages)
})

test('a refused append is published with its error', async () => {
  const { store, schema } = await openShop()
  const messages = listenTo(channels.append, schema)

  const { error } = await outcome(store.events.append('order-1', placed(), { expected: 'exists' }))

  expect(messages).toMatchObject([{ streams: ['order-1'], error }])
})

test('a group of appends is published with its size', async () => {
  const { store, schema } = await openShop()
  const messages = listenTo(channels.group, schema)

  await Promise.all(Array.from({ length: 50 }, (_, n) => store.events.append(`order-${n}`, placed(n))))

  const appends = messages.map(message => message.appends as number)
  expect(appends.reduce((sum, each) => sum + each, 0)).toBe(50)
  expect(Math.max(...appends)).toBeGreaterThan(10)
})

test('counters count stored, refused, repeated, read and imported events', async () => {
  const { store } = await openShop()
  const fresh = store.metrics()
  await store.events.append('order-1', [placed(), paid], { idempotencyKey: 'k' })
  await store.events.append('order-1', [placed(), paid], { idempotencyKey: 'k' })
  await outcome(store.events.append('order-1', placed(), { expected: 'empty' }))
  await store.events.import([{ stream: 'order-2', ...placed() }])
  await store.events.readAll().toArray()

  const counted = store.metrics()

  expect(Object.values(fresh).every(count => count === 0)).toBe(true)
  expect(counted).toMatchObject({
    events_appended_total: 2,
    event_appends_total: 2,
    event_repeats_total: 1,
    event_conflicts_total: 1,
    events_imported_total: 1,
    events_read_total: 3,
  })
  expect(counted).not.toBe(store.metrics())
})

test('every channel begins with the name of the library, and is unique', () => {
  const names = Object.values(channels)

  expect(names.every(name => /^rillflow:[a-z]+\.[a-z]+$/.test(name))).toBe(true)
  expect(new Set(names).size).toBe(names.length)
})

test('events are counted for every writer, also handlers, but not those of a transaction that is rolled back', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: (_, { emit }) => emit('OrderPaid', { method: 'card' }),
    }),
  )
  await using worker = workerOf(store)
  await worker.start()

  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await flow.waitUntilSettled({ timeoutMs: 60_000 })
  // Others may see a commit before this process has its answer.
  await waitUntil(() => store.metrics().events_appended_total === 2)
  await store.transaction(tx => store.events.append('order-1', [paid, paid], { tx }))
  const undone = store.transaction(async tx => {
    await store.events.append('order-2', paid, { tx })
    throw new Error('no')
  })
  await expect(undone).rejects.toThrow('no')

  expect(store.metrics().events_appended_total).toBe(4)
})

test.each([
  ['throws', (): never => fail()],
  ['rejects', async (): Promise<never> => fail()],
])('a logger that %s does not affect the work that it reports on', async (_, write) => {
  let calls = 0
  const report = (() => {
    calls++
    return write()
  }) as () => void
  const { store } = await openShop({ logger: { debug: report, info: report, warn: report, error: report } })
  await store.register(
    defineProcessor('mailer', {
      events: shopEvents,
      on: { OrderPlaced: () => Promise.reject(new Error('no network')) },
      ...{ retries: 0, onFailure: 'skip' },
    }),
  )
  await store.start()

  await store.events.append('order-1', placed())
  await store.consumers.waitFor('mailer', 1)

  expect(calls).toBeGreaterThan(0)
})

function fail(): never {
  throw new Error('the disk is full')
}
