import { expect, test } from 'vitest'
import type { Failure } from '../../src/consumers/run/policy.ts'
import { defineUpcaster } from '../../src/events/read/upcast.ts'
import { runSubscription } from '../support/run-subscription.ts'
import { openShop, outcome, paid, placed, shipped, take } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'
import { quick, several } from './deliveries.ts'

const manual = { ack: 'manual' } as const

test('a rejected event holds up its stream, and other streams continue', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', [placed(), paid])
  await store.events.append('order-2', [placed(), paid])
  const deliveries = store.subscribe('mailer', manual)[Symbol.asyncIterator]()

  const [first] = await several(deliveries, 1)
  await first!.nack({ delayMs: 600_000, reason: 'not now' })
  const others = several(deliveries, 3)
  await store.events.append('order-3', placed())

  expect(first).toMatchObject({ stream: 'order-1', version: 1, deliveries: 1 })
  expect((await others).map(event => event.stream)).toEqual(['order-2', 'order-2', 'order-3'])
  await deliveries.return!()
})

test('a rejected event is delivered again before the events of its stream that wait for it', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', [placed(), paid, shipped()])
  const deliveries = store.subscribe('mailer', { ...manual, ...quick })[Symbol.asyncIterator]()
  const seen: string[] = []

  for (const outcome of ['nack', 'nack', 'ack', 'ack', 'ack'] as const) {
    const [event] = await several(deliveries, 1)
    seen.push(`${event!.version} (${event!.deliveries})`)
    await event![outcome]()
  }

  expect(seen).toEqual(['1 (1)', '1 (2)', '1 (3)', '2 (1)', '3 (1)'])
  await deliveries.return!()
})

test('the number of rejections of an event, and its due time, outlive its consumer', async () => {
  const { store, query } = await openShop()
  await store.events.append('order-1', placed())
  await store.events.append('order-2', placed())
  const deliveries = store.subscribe('mailer', manual)[Symbol.asyncIterator]()
  const [first] = await several(deliveries, 1)
  await first!.nack({ delayMs: 600_000 })
  await deliveries.return!()

  const early = await take(store.subscribe('mailer', manual), 1)
  await query('update ~deliveries set retry_at = now()')
  const late = await take(store.subscribe('mailer', manual), 1)

  expect(early).toMatchObject([{ stream: 'order-2', deliveries: 1 }])
  expect(late).toMatchObject([{ stream: 'order-1', deliveries: 2 }])
})

test('AB-15: after the maximum of deliveries only that event is dead-lettered, and its stream continues', async () => {
  const { store, query } = await openShop()
  await store.events.append('order-1', [placed(), paid])
  const seen: string[] = []

  await using mailer = runSubscription(store, 'mailer:eu', {
    ...quick,
    retries: 2,
    run: event => {
      seen.push(`${event.version} (${event.deliveries})`)
      if (event.type === 'OrderPlaced') throw new Error('no such address')
    },
  })
  await waitUntil(async () => (await store.consumers.status('mailer:eu')).lag === 0)
  await mailer.stop()

  expect(seen).toEqual(['1 (1)', '1 (2)', '1 (3)', '2 (1)'])
  const deadLetters = await query('select consumer, version, attempts, state from ~dead_letters')
  expect(deadLetters).toEqual([{ consumer: 'mailer:eu/default', version: 1, attempts: 3, state: 'open' }])
  expect(await store.consumers.status('mailer:eu')).toMatchObject({ deadLetters: 1 })
})

test('by default an event is delivered at most four times', async () => {
  const { store, query } = await openShop()
  await store.events.append('order-1', placed())
  const deliveries = store.subscribe('mailer', manual)[Symbol.asyncIterator]()

  for (let n = 1; n <= 4; n++) {
    const [delivery] = await several(deliveries, 1)
    expect(delivery!.deliveries).toBe(n)
    await delivery!.nack({ delayMs: 0 })
  }

  expect(await query('select attempts from ~dead_letters')).toEqual([{ attempts: 4 }])
  await deliveries.return!()
})

test('a policy can skip an event, or end the subscription with its error', async () => {
  const { store, query } = await openShop()
  await store.events.append('order-1', [placed(), paid])
  const fail = (): never => {
    throw new Error('no such address')
  }

  const skipping = runSubscription(store, 'skipping', { retries: 0, onFailure: 'skip', run: fail })
  const stopping = runSubscription(store, 'stopping', { retries: 0, onFailure: 'stop', run: fail })
  const { error } = await outcome(stopping.ended)
  await waitUntil(async () => (await store.consumers.status('skipping')).lag === 0)
  await skipping.stop()

  expect(error).toMatchObject({ message: 'no such address' })
  expect(await store.consumers.status('stopping')).toMatchObject({
    checkpoint: 0,
    lastError: { message: 'no such address' },
  })
  expect(await query('select * from ~dead_letters')).toEqual([])
})

test('a custom policy gets the attempt and the error', async () => {
  const { store, query } = await openShop()
  await store.events.append('order-1', placed())
  const asked: string[] = []
  const onFailure = ({ attempt, error }: Failure): 'retry' | 'deadLetter' => {
    asked.push(`${attempt} ${String(error)}`)
    return attempt < 2 ? 'retry' : 'deadLetter'
  }
  const backoff = { baseMs: 1, maxMs: 1 }
  const deliveries = store.subscribe('mailer', { ...manual, onFailure, backoff })[Symbol.asyncIterator]()

  for (let n = 1; n <= 2; n++) await (await several(deliveries, 1))[0]!.nack({ reason: 'busy' })

  expect(asked).toEqual(['1 busy', '2 busy'])
  expect(await query('select attempts from ~dead_letters')).toEqual([{ attempts: 2 }])
  await deliveries.return!()
})

test('an event that cannot be read, or whose filter fails, is dead-lettered and does not block', async () => {
  const broken = defineUpcaster('OrderPaid', {
    from: 1,
    to: 2,
    run: () => {
      throw new Error('unreadable')
    },
  })
  const { store, query, sibling } = await openShop()
  await store.events.append('order-1', [placed(1), paid, shipped(), placed(13)])
  const reading = await sibling({ upcasters: [broken] })
  const where = (event: { data: unknown }): boolean => {
    if ((event.data as { total?: number }).total === 13) throw new Error('unlucky')
    return true
  }

  const seen = await take(reading.subscribe('mailer', { where, ack: 'auto' }), 2)
  await using _rest = runSubscription(reading, 'mailer', { where, run: () => {} })
  await waitUntil(async () => (await store.consumers.status('mailer')).lag === 0)

  expect(seen.map(event => event.version)).toEqual([1, 3])
  const deadLetters = await query<{ version: number }>('select version from ~dead_letters order by version')
  expect(deadLetters.map(deadLetter => deadLetter.version)).toEqual([2, 4])
})

test('AB-14: a group processes ten thousand events, including rejected ones', async () => {
  const { store } = await openShop()
  const count = 10_000
  await store.events.import(
    (function* () {
      for (let n = 0; n < count; n++) yield { stream: `order-${n % 97}`, type: 'OrderPlaced', data: { total: n } }
    })(),
  )
  const seen = new Map<string, number[]>()
  const given = new Set<number>()

  await using drain = runSubscription(store, 'drain', {
    group: 'workers',
    types: ['OrderPlaced'],
    ...quick,
    run: event => {
      const { total } = event.data
      if (total % 997 === 0 && !given.has(total)) {
        given.add(total)
        throw new Error('once more')
      }
      seen.set(event.stream, [...(seen.get(event.stream) ?? []), event.version])
    },
  })
  await waitUntil(async () => (await store.consumers.status('drain', { group: 'workers' })).lag === 0, {
    deadlineMs: 50_000,
  })
  await drain.stop()

  const versions = [...seen.values()]
  expect(versions.reduce((sum, each) => sum + each.length, 0)).toBe(count)
  for (const each of versions) expect(each).toEqual(each.map((_, n) => n + 1))
  expect(given.size).toBe(11)
})
