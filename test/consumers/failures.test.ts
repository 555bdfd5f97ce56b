import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { connect as connectTo, createServer, type Socket } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { consumer } from '../../src/consumers/consumer.ts'
import { pause, reset } from '../../src/consumers/operator.ts'
import type { Failure, FailureEnd } from '../../src/consumers/run/policy.ts'
import { runOnce, runUntilIdle } from '../../src/consumers/run/run.ts'
import { readStatus } from '../../src/consumers/status.ts'
import { waitForConsumer } from '../../src/consumers/wait-for.ts'
import { defineUpcaster } from '../../src/events/read/upcast.ts'
import {
  type ConsumerParts,
  effectsOf,
  makeEffects,
  openConsumerParts,
  quick,
  recorder,
} from '../support/consumer-parts.ts'
import { connect, onServer, openShop, paid, placed, type Shop, shipped } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

async function openWorkshop(
  options: Parameters<typeof openConsumerParts>[1] = {},
): Promise<{ shop: Shop; consumers: ConsumerParts }> {
  const shop = await openShop()
  await makeEffects(shop)
  return { shop, consumers: openConsumerParts(shop, options) }
}

const types = async (shop: Shop, name: string): Promise<string[]> =>
  (await effectsOf(shop, name)).map(effect => effect.type)

test('an unknown name is refused with the nearest known name', async () => {
  const { shop, consumers } = await openWorkshop()
  consumers.register(recorder(shop, 'order-totals'))
  await consumers.start()

  const unknown = { code: 'consumer_not_found', consumer: 'order-total', nearest: 'order-totals' }
  expect(() => consumers.find('order-total')).toThrow(expect.objectContaining(unknown))
  await expect(pause(consumers.log, ['order-total'])).rejects.toMatchObject(unknown)
  await expect(reset(consumers.log, ['order-total'], 0)).rejects.toMatchObject(unknown)
  await expect(waitForConsumer(consumers, 'order-total', 1)).rejects.toMatchObject(unknown)
  await expect(consumers.start({ only: [{ kind: 'projection', name: 'order-total' }] })).rejects.toMatchObject(unknown)
})

test('a second consumer with the same name is refused', async () => {
  const { shop, consumers } = await openWorkshop()
  consumers.register(recorder(shop, 'totals'))

  const again = (): unknown => consumers.register(recorder(shop, 'totals'))

  expect(again).toThrow(expect.objectContaining({ code: 'duplicate_consumer', consumer: 'totals' }))
})

test('invalid options are refused where they are given', async () => {
  const { shop, consumers } = await openWorkshop()

  for (const options of [{ batchSize: 0 }, { leaseMs: 1 }, { timeoutMs: 0 }, { from: -1 }, { batchSize: 1.5 }])
    expect(() => recorder(shop, 'totals', options)).toThrow(expect.objectContaining({ code: 'invalid_option' }))
  expect(() => recorder(shop, '')).toThrow(expect.objectContaining({ code: 'invalid_name' }))
  for (const options of [{ leaseMs: 1 }, { standby: true }, { only: 'totals' as never }, { node: 'a' } as never])
    await expect(consumers.start(options)).rejects.toMatchObject({ code: 'invalid_option' })
})

test('waiting for a position that is not reached ends with its limit', async () => {
  const { shop, consumers } = await openWorkshop()
  await runUntilIdle(consumers, [recorder(shop, 'totals')])

  const waiting = waitForConsumer(consumers, 'totals', 1, { timeoutMs: 20 })

  await expect(waiting).rejects.toMatchObject({ code: 'timed_out' })
})

test('a handler that never returns is rolled back and counts as failed, and other consumers continue', async () => {
  const { shop, consumers } = await openWorkshop()
  await shop.store.events.append('order-1', [placed(), paid, shipped()])
  const signals: AbortSignal[] = []
  const good = recorder(shop, 'totals')
  const stuck = consumer(
    {
      name: 'totals',
      kind: 'projection',
      filter: {},
      async handle(events, ctx) {
        await good.handle(events, ctx)
        const bad = events.find(event => event.type === 'OrderPaid')
        if (bad === undefined) return
        ctx.at(bad)
        signals.push(ctx.signal)
        await new Promise(() => {})
      },
    },
    // A machine that stalls may be too slow for a good handler as well, but not repeatedly.
    { timeoutMs: 500, retries: 3, backoff: quick, onFailure: 'deadLetter' },
  )

  await waitUntil(async () => (await runOnce(consumers, stuck)).result === 'idle')

  expect(await types(shop, 'totals')).toEqual(['OrderPlaced', 'OrderShipped'])
  expect(signals.every(signal => signal.aborted)).toBe(true)
  const deadLetters = await shop.query<{ errors: object[] }>('select errors from ~dead_letters')
  expect(deadLetters).toMatchObject([{ errors: Array.from({ length: 4 }, () => ({ code: 'consumer_timeout' })) }])
})

test('a handler that waits for a socket is rolled back after its time limit, while other calls wait their turn', async () => {
  const { shop, consumers } = await openWorkshop()
  const sockets = new Set<Socket>()
  const server = createServer(socket => sockets.add(socket)).listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  await shop.store.events.append('order-1', placed())
  const waitsForSocket = recorder(shop, 'totals', {
    timeoutMs: 1_000,
    retries: 0,
    onFailure: 'skip',
    before: async () => {
      const client = connectTo((server.address() as AddressInfo).port, '127.0.0.1')
      sockets.add(client)
      await once(client, 'data')
    },
  })

  const ticking = runOnce(consumers, waitsForSocket)
  await waitUntil(() => sockets.size > 0)
  const [tick, appended] = await Promise.all([ticking, shop.store.events.append('order-2', placed())])

  expect(tick).toMatchObject({ result: 'processed', count: 1, error: { code: 'consumer_timeout', timeoutMs: 1_000 } })
  expect(appended.version).toBe(1)
  expect(await types(shop, 'totals')).toEqual([])
})

test('an event that cannot be upcast follows the policy, and the events around it are applied', async () => {
  const fail = (): never => {
    throw new Error('unreadable')
  }
  const { shop, consumers } = await openWorkshop({
    upcasters: [defineUpcaster('OrderPaid', { from: 1, to: 2, run: fail })],
  })
  await shop.store.events.append('order-1', [placed(), paid, shipped()])

  await runUntilIdle(consumers, [recorder(shop, 'totals', { retries: 0, onFailure: 'deadLetter' })])

  expect(await types(shop, 'totals')).toEqual(['OrderPlaced', 'OrderShipped'])
  const deadLetters = await shop.query('select type, errors from ~dead_letters')
  expect(deadLetters).toMatchObject([{ type: 'OrderPaid', errors: [{ code: 'upcaster_failed' }] }])
})

test('a filter that throws is a failure of the event it was called with', async () => {
  const { shop, consumers } = await openWorkshop()
  await shop.store.events.append('order-1', [placed(), paid, shipped()])
  const picky = {
    ...recorder(shop, 'totals', { retries: 0, onFailure: 'skip' }),
    filter: {
      where: (event: { type: string }) => {
        if (event.type === 'OrderPaid') throw new Error('no')
        return event.type === 'OrderShipped'
      },
    },
  }

  await runUntilIdle(consumers, [picky])

  expect(await types(shop, 'totals')).toEqual(['OrderShipped'])
})

test('a custom policy decides event by event', async () => {
  const { shop, consumers } = await openWorkshop()
  await shop.store.events.append('order-1', [placed(), paid, shipped()])
  const asked: string[] = []
  const fail = (): never => {
    throw new Error('no')
  }
  const onFailure = ({ event, attempt }: Failure): FailureEnd | 'retry' => {
    asked.push(`${event.type} ${attempt}`)
    if (event.type === 'OrderPlaced') return attempt < 3 ? 'retry' : 'skip'
    return event.type === 'OrderPaid' ? 'deadLetter' : 'stop'
  }
  const totals = recorder(shop, 'totals', { before: fail, onFailure, backoff: quick })

  await waitUntil(async () => (await runOnce(consumers, totals)).result === 'stopped')

  expect(asked).toEqual(['OrderPlaced 1', 'OrderPlaced 2', 'OrderPlaced 3', 'OrderPaid 1', 'OrderShipped 1'])
  expect(await shop.query('select type from ~dead_letters')).toEqual([{ type: 'OrderPaid' }])
  expect((await readStatus(consumers.log))[0]).toMatchObject({ isPaused: true, checkpoint: 2 })
})

test('a breaker holds the consumer back while its target is down, without using up its retries', async () => {
  const { shop, consumers } = await openWorkshop()
  let isDown = true
  const totals = recorder(shop, 'totals', {
    retries: 1,
    backoff: quick,
    onFailure: 'deadLetter',
    breaker: { failures: 1, openMs: 5 },
    before: () => {
      if (isDown) throw new Error('the target is down')
    },
  })
  let failures = 0
  consumers.register({
    ...totals,
    handle: (events, ctx) =>
      totals.handle(events, ctx).catch(error => {
        failures++
        throw error
      }),
  })
  await shop.store.events.append('order-1', [placed(), paid])
  await consumers.start()

  await waitUntil(() => failures >= 5)
  isDown = false
  await waitForConsumer(consumers, 'totals', 2)

  expect(await shop.query('select type from ~dead_letters')).toEqual([])
  expect(await types(shop, 'totals')).toEqual(['OrderPlaced', 'OrderPaid'])
})

test('a checkpoint beyond the head stops its consumer until it is reset, and the status says so', async () => {
  const { shop, consumers } = await openWorkshop()
  const totals = recorder(shop, 'totals')
  consumers.register(totals)
  await shop.store.events.append('order-1', placed())
  await runUntilIdle(consumers, [totals])
  await shop.query('update ~consumers set checkpoint = 1000')

  await expect(runOnce(consumers, totals)).rejects.toMatchObject({ code: 'checkpoint_beyond_head', head: 1 })
  await consumers.start()
  await waitUntil(async () => (await readStatus(consumers.log))[0]?.lastError?.code === 'checkpoint_beyond_head')
  await reset(consumers.log, ['totals'], 0)
  consumers.wake.changed()
  await waitForConsumer(consumers, 'totals', 1)

  expect(await types(shop, 'totals')).toEqual(['OrderPlaced', 'OrderPlaced'])
})

test.runIf(onServer)(
  'RB-01: an append that commits late is applied in order by a consumer that is ahead of it',
  async () => {
    const { shop, consumers } = await openWorkshop()
    consumers.register(recorder(shop, 'totals'))
    await consumers.start()
    const client = await connect()

    await client.query('begin')
    await shop.store.events.append('order-1', placed(), { tx: client })
    await shop.store.events.append('order-2', paid)
    await shop.store.events.append('order-3', shipped())
    await client.query('commit')
    await waitForConsumer(consumers, 'totals', 3)

    expect((await effectsOf(shop, 'totals')).map(effect => effect.position)).toEqual([1, 2, 3])
  },
)

test.runIf(onServer)(
  'RB-07, RB-23: cut connections, also that of the listener, are opened again, and no event is lost',
  async () => {
    const { shop } = await openWorkshop()
    const application = `cut-${shop.schema}`
    const { openPostgres } = await import('../../src/database/postgres/postgres.ts')
    const { postgresUrl } = await import('../support/engines.ts')
    const url = new URL(postgresUrl())
    url.searchParams.set('application_name', application)
    const database = await openPostgres({ url: url.href })
    onTestFinished(() => database.close(1_000))
    const consumers = openConsumerParts(shop, { database, pollMs: 100 })
    consumers.register(recorder(shop, 'totals'))
    consumers.register(recorder(shop, 'others'))
    await consumers.start()
    await shop.store.events.append('order-1', placed())
    await waitForConsumer(consumers, 'totals', 1)

    for (let n = 1; n <= 3; n++) {
      await shop.query(`select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1`, [
        application,
      ])
      await shop.store.events.append('order-1', paid)
      await waitUntil(async () => (await effectsOf(shop, 'totals')).length === n + 1, { deadlineMs: 30_000 })
    }

    await waitUntil(async () => (await effectsOf(shop, 'others')).length === 4, { deadlineMs: 30_000 })
    expect((await effectsOf(shop, 'totals')).map(effect => effect.position)).toEqual([1, 2, 3, 4])
  },
)
