import { expect, onTestFinished, test } from 'vitest'
import { pause, reset, resume } from '../../src/consumers/operator.ts'
import { defineProcessor } from '../../src/consumers/processor.ts'
import { runOnce } from '../../src/consumers/run/run.ts'
import { readStatus } from '../../src/consumers/status.ts'
import { waitForConsumer } from '../../src/consumers/wait-for.ts'
import { deferred } from '../../src/core/abort.ts'
import { openPostgres } from '../../src/database/postgres/postgres.ts'
import { defineSubscription } from '../../src/subscriptions/subscription.ts'
import { fakeClock } from '../../src/testing/fakes.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import {
  type ConsumerParts,
  effectsOf,
  makeEffects,
  openConsumerParts,
  quick,
  recorder,
} from '../support/consumer-parts.ts'
import { postgresUrl } from '../support/engines.ts'
import { onServer, openShop, outcome, paid, placed, type Shop, shipped, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

async function openWorkshop(
  options: Parameters<typeof openConsumerParts>[1] = {},
): Promise<{ shop: Shop; consumers: ConsumerParts }> {
  const shop = await openShop()
  await makeEffects(shop)
  return { shop, consumers: openConsumerParts(shop, options) }
}

const effects = async (shop: Shop, name: string): Promise<number> => (await effectsOf(shop, name)).length

test('a runner applies existing and new events', async () => {
  const { shop, consumers } = await openWorkshop()
  consumers.register(recorder(shop, 'totals'))
  await shop.store.events.append('order-1', [placed(), paid])

  await consumers.start()
  const { position } = await shop.store.events.append('order-1', shipped())
  await waitForConsumer(consumers, 'totals', position)

  expect((await effectsOf(shop, 'totals')).map(effect => effect.type)).toEqual([
    'OrderPlaced',
    'OrderPaid',
    'OrderShipped',
  ])
})

test('a runner runs consumers that are registered later, and stops those that are removed', async () => {
  const { shop, consumers } = await openWorkshop()
  const runner = await consumers.start()
  const { position } = await shop.store.events.append('order-1', placed())

  const remove = consumers.register(recorder(shop, 'totals'))
  await waitForConsumer(consumers, 'totals', position)
  remove()
  await waitUntil(() => runner.holds().length === 0)

  expect(await effects(shop, 'totals')).toBe(1)
})

test('RB-07: a consumer that fails forever does not stop the others', async () => {
  const { shop, consumers } = await openWorkshop()
  const fail = (): never => {
    throw new Error('no')
  }
  consumers.register(recorder(shop, 'broken', { before: fail, retries: 1e6, backoff: quick, onFailure: 'deadLetter' }))
  consumers.register(recorder(shop, 'totals'))
  await consumers.start()

  for (let n = 1; n <= 5; n++) await shop.store.events.append(`order-${n}`, placed())
  await waitForConsumer(consumers, 'totals', 5)

  expect(await effects(shop, 'totals')).toBe(5)
  expect(await effects(shop, 'broken')).toBe(0)
})

test('RB-08: of two runners in one process exactly one holds a consumer', async () => {
  const { shop, consumers } = await openWorkshop()
  const consumer = recorder(shop, 'totals')
  consumers.register(consumer)
  const runners = await Promise.all([consumers.start(), consumers.start()])

  for (let n = 1; n <= 20; n++) await shop.store.events.append(`order-${n}`, placed())
  await waitForConsumer(consumers, 'totals', 20)

  expect(runners.flatMap(runner => runner.holds())).toEqual(['totals'])
  expect((await runOnce(consumers, consumer)).result).toBe('leasedByOther')
  expect(await effects(shop, 'totals')).toBe(20)
})

test('two runners share the consumers evenly, and one that stops hands over its own immediately', async () => {
  const { shop, consumers } = await openWorkshop()
  for (const n of ['a', 'b', 'c', 'd', 'e']) consumers.register(recorder(shop, n))
  const other = openConsumerParts(shop)
  for (const n of ['a', 'b', 'c', 'd', 'e']) other.register(recorder(shop, n))
  const first = await consumers.start()
  expect(first.holds()).toHaveLength(5)

  const second = await other.start()
  await waitUntil(() => second.holds().length === 2 && first.holds().length === 3)
  await first.stop()
  await waitUntil(() => second.holds().length === 5)

  expect(second.holds().sort()).toEqual(['a', 'b', 'c', 'd', 'e'])
})

test('runners that can run different consumers agree on the distribution', async () => {
  const shop = await openShop()
  await makeEffects(shop)
  const [first, second] = [openConsumerParts(shop), openConsumerParts(shop)]
  for (const host of [first, second]) for (const name of ['a', 'b']) host.register(recorder(shop, name))
  const all = await first.start()
  const some = await second.start({ only: [{ kind: 'projection', name: 'b' }] })

  await waitUntil(() => all.holds().join() === 'a' && some.holds().join() === 'b')
})

test('RB-13: a reset during a running batch wins, and is durable (RB-18)', async () => {
  const { shop, consumers } = await openWorkshop()
  const [entered, go] = [deferred<void>(), deferred<void>()]
  let isFirst = true
  const consumer = recorder(shop, 'totals', {
    before: async event => {
      if (event.position !== 3 || !isFirst) return
      isFirst = false
      entered.resolve()
      await go.promise
    },
  })
  consumers.register(consumer)
  await shop.store.events.append('order-1', [placed(), paid])
  await runOnce(consumers, consumer)
  await shop.store.events.append('order-1', shipped())
  // Embedded, no other call reaches the database while a transaction is open: the reset comes before or after it.
  if (onServer) {
    const ticking = outcome(runOnce(consumers, consumer))
    await entered.promise
    await reset(consumers.log, ['totals'], 1)
    go.resolve()

    expect(await ticking).toMatchObject({ error: { code: 'lease_lost' } })
  } else await reset(consumers.log, ['totals'], 1)

  const [status] = await readStatus(consumers.log)
  expect(status).toMatchObject({ checkpoint: 1 })
  isFirst = false
  await runOnce(consumers, consumer)
  expect((await effectsOf(shop, 'totals')).map(effect => effect.position)).toEqual([1, 2, 2, 3])
})

test('a reset reaches a running runner', async () => {
  const { shop, consumers } = await openWorkshop()
  consumers.register(recorder(shop, 'totals'))
  await consumers.start()
  await shop.store.events.append('order-1', [placed(), paid])
  await waitForConsumer(consumers, 'totals', 2)

  await reset(consumers.log, ['totals'], 0)
  consumers.wake.changed()
  await waitUntil(async () => (await effects(shop, 'totals')) === 4)

  expect((await effectsOf(shop, 'totals')).map(effect => effect.position)).toEqual([1, 2, 1, 2])
})

test('a paused consumer waits, also in a runner, and continues where it was', async () => {
  const { shop, consumers } = await openWorkshop()
  consumers.register(recorder(shop, 'totals'))
  const runner = await consumers.start()
  await shop.store.events.append('order-1', placed())
  await waitForConsumer(consumers, 'totals', 1)

  await pause(consumers.log, ['totals'])
  consumers.wake.changed()
  await waitUntil(() => runner.holds().length === 0)
  await shop.store.events.append('order-1', paid)
  expect(await effects(shop, 'totals')).toBe(1)
  await resume(consumers.log, ['totals'])
  consumers.wake.changed()
  await waitForConsumer(consumers, 'totals', 2)

  expect(await effects(shop, 'totals')).toBe(2)
})

test('a consumer stopped by its policy is paused with its error, and the pause is logged', async () => {
  const { shop, consumers } = await openWorkshop()
  const fail = (): never => {
    throw new Error('the shop is closed')
  }
  consumers.register(recorder(shop, 'totals', { before: fail, retries: 0, onFailure: 'stop' }))
  const failed = deferred<[string, unknown]>()
  await shop.store.events.append('order-1', placed())

  await consumers.start({}, { onFailure: (name, error) => failed.resolve([name, error]) })

  expect(await failed.promise).toMatchObject(['totals', { message: 'the shop is closed' }])
  const [status] = await readStatus(consumers.log)
  expect(status).toMatchObject({ isPaused: true, attempts: 1, lastError: { message: 'the shop is closed' } })
})

test('RB-22: stop lets a running batch end, and releases the leases', async () => {
  const { shop, consumers } = await openWorkshop()
  const [entered, go] = [deferred<void>(), deferred<void>()]
  consumers.register(
    recorder(shop, 'totals', {
      before: async () => {
        entered.resolve()
        await go.promise
      },
    }),
  )
  const runner = await consumers.start()
  await shop.store.events.append('order-1', placed())
  await entered.promise

  const stopping = Promise.all([runner.stop(), runner.stop()])
  go.resolve()
  await stopping

  const [status] = await readStatus(consumers.log)
  expect(status).toMatchObject({ checkpoint: 1, lease: undefined })
  expect(await effects(shop, 'totals')).toBe(1)
  expect(runner.isRunning).toBe(false)
})

test('RB-22: stop cuts off a handler that does not return, and its batch is rolled back', async () => {
  const { shop, consumers } = await openWorkshop()
  const entered = deferred<void>()
  let signal: AbortSignal | undefined
  const consumer = recorder(shop, 'totals')
  consumers.register({
    ...consumer,
    async handle(events, ctx) {
      await consumer.handle(events, ctx)
      signal = ctx.signal
      entered.resolve()
      await new Promise(() => {})
    },
  })
  const runner = await consumers.start()
  await shop.store.events.append('order-1', placed())
  await entered.promise

  await runner.stop({ timeoutMs: 20 })

  expect(signal!.aborted).toBe(true)
  expect(await effects(shop, 'totals')).toBe(0)
  expect((await readStatus(consumers.log))[0]).toMatchObject({ checkpoint: 0, lease: undefined, attempts: 0 })
})

test('after a runner was stopped, another one can be started', async () => {
  const { shop, consumers } = await openWorkshop()
  consumers.register(recorder(shop, 'totals'))
  const first = await consumers.start()
  await first.stop()

  const second = await consumers.start()
  await shop.store.events.append('order-1', placed())
  await waitForConsumer(consumers, 'totals', 1)

  expect([first.isRunning, second.isRunning]).toEqual([false, true])
})

test.runIf(onServer)('a runner works with a single connection', async () => {
  const shop = await openShop()
  await makeEffects(shop)
  const database = await openPostgres({ url: postgresUrl(), maxConnections: 1 })
  onTestFinished(() => database.close(1_000))
  const consumers = openConsumerParts(shop, { database })
  consumers.register(recorder(shop, 'totals', { leaseMs: 1_000 }))
  consumers.register(recorder(shop, 'others', { leaseMs: 1_000 }))
  const runner = await consumers.start()

  for (let n = 1; n <= 20; n++) await shop.store.events.append(`order-${n}`, [placed(), paid])
  await waitForConsumer(consumers, 'totals', 40)
  await waitForConsumer(consumers, 'others', 40)
  await runner.stop()

  expect(await effects(shop, 'totals')).toBe(40)
})

test('many consumers at the end of the log share one read', async () => {
  const { shop, consumers } = await openWorkshop({ pollMs: 600_000 })
  for (let n = 0; n < 12; n++) consumers.register(recorder(shop, `totals-${n}`))
  await consumers.start()
  await shop.store.events.append('order-1', placed())
  for (let n = 0; n < 12; n++) await waitForConsumer(consumers, `totals-${n}`, 1)
  // A consumer that was late has to read separately: not all of them are late each time.
  const readInRound = async (): Promise<number> => {
    const before = consumers.log.telemetry.counters().events_read_total
    const { position } = await shop.store.events.append('order-1', [paid, shipped()])
    for (let n = 0; n < 12; n++) await waitForConsumer(consumers, `totals-${n}`, position)
    return consumers.log.telemetry.counters().events_read_total - before
  }
  await waitUntil(async () => (await readInRound()) < 12, { what: 'a read that many consumers share' })
})

test('the store stops its runners when it is closed', async () => {
  const { store } = await openShop()
  const runner = await store.start()

  await store.close()

  expect(runner.isRunning).toBe(false)
})

test('with a clock that stands still everything runs, and every wait for it ends', async () => {
  const { store } = await openShop({ clock: fakeClock() })
  const totals = defineProcessor('totals', { events: shopEvents, on: { OrderPlaced: () => {} } })
  const mailer = defineSubscription('mailer', { events: shopEvents, run: () => {} })
  const ship = defineHandler('ship', {
    events: shopEvents,
    on: 'OrderPlaced',
    run: (_, { emit }) => emit('OrderShipped', { parcel: 'a' }),
  })
  await store.register(totals, mailer, ship)
  await using _runner = await store.start()

  const workflow = await store.workflows.publish('OrderPlaced', { total: 1 })
  await workflow.waitUntilSettled()
  await store.consumers.pause(totals)
  await store.consumers.resume(totals)
  await store.subscriptions.repartition('mailer', 3)
  // Positions that are drawn and given back wake no follower.
  const undone = store.transaction(async tx => {
    await store.events.append('order-1', placed(), { tx })
    throw new Error('out of stock')
  })
  await expect(undone).rejects.toThrow('out of stock')
  const { position } = await store.events.append('order-1', placed())

  for (const each of [totals, mailer]) await store.consumers.waitFor(each, position)
  await store.consumers.waitFor('workflows', position)
})
