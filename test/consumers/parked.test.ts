/** `onFailure: 'park'`: a failed event holds back its own stream, and the others go on. */
import { expect, test } from 'vitest'
import { runOnce } from '../../src/consumers/run/run.ts'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import { defineSubscription } from '../../src/subscriptions/subscription.ts'
import { seeded } from '../chaos/seeded-random.ts'
import { effectsOf, makeEffects, openConsumerParts, recorder } from '../support/consumer-parts.ts'
import { openShop, paid, placed, type Shop, shipped, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

const parks = { retries: 0, onFailure: 'park' } as const

/** A projection that writes a row for each event, and fails at the events of which it is told. */
async function openPicky(shop: Shop, { at = 'each' }: { at?: 'each' | 'page' } = {}) {
  await makeEffects(shop)
  const consumers = openConsumerParts(shop)
  const bad = new Set<number>()
  const before = (event: { position: number }): void => {
    if (bad.has(event.position)) throw new Error(`cannot apply ${event.position}`)
  }
  const self = recorder(shop, 'totals', { ...parks, before })
  // Without `at`, the failing event of a page is not known, and each is applied in a savepoint.
  const consumer =
    at === 'each'
      ? self
      : ({ ...self, handle: (events, ctx) => self.handle(events, { ...ctx, at() {} }) } as typeof self)
  return {
    bad,
    run: async () => {
      while ((await runOnce(consumers, consumer)).result === 'processed') {}
    },
    applied: async () => (await effectsOf(shop, 'totals')).map(({ position }) => position),
    states: async () =>
      (await shop.store.deadLetters.list({ of: 'totals' })).items.map(({ position, state }) => `${position} ${state}`),
    idAt: async (position: number) =>
      (await shop.store.events.readAll({ from: position - 1, limit: 1 }).toArray())[0]!.id,
  }
}

/** Orders 1 and 2 by turns: positions 1, 3, 5 … and 2, 4, 6 … */
async function twoOrders({ store }: Shop, rounds: number): Promise<void> {
  for (let n = 0; n < rounds; n++)
    for (const order of ['order-1', 'order-2']) await store.events.append(order, placed(n))
}

test.each(['each', 'page'] as const)(
  'later events of a failed stream are parked, those of others applied (%s)',
  async at => {
    const shop = await openShop()
    const { bad, run, applied, states } = await openPicky(shop, { at })
    await twoOrders(shop, 3)
    bad.add(3)

    await run()

    expect(await applied()).toEqual([1, 2, 4, 6])
    expect(await states()).toEqual(['3 open', '5 parked'])
    const [failed, parked] = (await shop.store.deadLetters.list({ of: 'totals' })).items
    expect(failed).toMatchObject({ reason: 'park', attempts: 1, lastError: { message: 'cannot apply 3' } })
    expect(parked).toMatchObject({ reason: 'park', attempts: 0, stream: 'order-1', lastError: { name: 'Parked' } })
    expect((await shop.store.deadLetters.stats()).items).toMatchObject([{ open: 1, parked: 1 }])
  },
)

test('a retry applies the failed event and then, in order, all that waited for it, also those that came later', async () => {
  const shop = await openShop()
  const { bad, run, applied, states, idAt } = await openPicky(shop)
  await twoOrders(shop, 3)
  bad.add(1)
  await run()
  await twoOrders(shop, 1)
  await run()
  bad.clear()

  await shop.store.deadLetters.retry('totals', await idAt(1))
  await shop.store.events.append('order-1', paid)
  await run()

  expect(await applied()).toEqual([2, 4, 6, 8, 1, 3, 5, 7, 9])
  expect(await states()).toEqual(['1 replayed', '3 replayed', '5 replayed', '7 replayed'])
})

test('an event that waited and fails itself holds back the rest', async () => {
  const shop = await openShop()
  const { bad, run, applied, states, idAt } = await openPicky(shop)
  await twoOrders(shop, 4)
  bad.add(1).add(5)
  await run()
  bad.delete(1)

  await shop.store.deadLetters.retry('totals', await idAt(1))
  await run()

  expect(await applied()).toEqual([2, 4, 6, 8, 1, 3])
  expect(await states()).toEqual(['1 replayed', '3 replayed', '5 open', '7 parked'])
})

test('an operator who resolves or deletes the failed event lets the next one go on; a parked one cannot be retried', async () => {
  const shop = await openShop()
  const { bad, run, applied, states, idAt } = await openPicky(shop)
  await twoOrders(shop, 3)
  bad.add(1).add(2)
  await run()
  const { deadLetters } = shop.store

  await expect(deadLetters.retry('totals', await idAt(5))).rejects.toThrow(
    'An earlier event of its stream holds it back',
  )
  await deadLetters.resolve('totals', await idAt(5), { note: 'not wanted' })
  await deadLetters.resolve('totals', await idAt(1), { note: 'a test order' })
  await deadLetters.delete('totals', await idAt(2))
  await run()
  await twoOrders(shop, 1)
  await run()

  expect(await states()).toEqual(['1 resolved', '3 replayed', '4 replayed', '5 resolved', '6 replayed'])
  expect(await applied()).toEqual([3, 4, 6, 7, 8])
})

test('whatever operators do meanwhile, every stream is applied in order, and none stays parked', async () => {
  const shop = await openShop()
  const { bad, run, applied, idAt } = await openPicky(shop)
  const random = seeded(7)
  const { deadLetters, events } = shop.store
  const operators = async (): Promise<void> => {
    for (const { position, eventId } of (await deadLetters.list({ of: 'totals', state: 'open' })).items) {
      bad.delete(position)
      const act = random()
      if (act < 0.4) await deadLetters.retry('totals', eventId).catch(() => {})
      else if (act < 0.7) await deadLetters.resolve('totals', eventId, { note: 'by chance' }).catch(() => {})
    }
  }
  for (let round = 0; round < 12; round++) {
    for (let n = 0; n < 6; n++) {
      const { position } = await events.append(`order-${Math.floor(random() * 3)}`, placed(n))
      if (random() < 0.2) bad.add(position)
    }
    await Promise.all([run(), operators(), operators()])
  }
  bad.clear()
  await deadLetters.retryAll({ of: 'totals' }, { perSecond: 1_000_000 })
  await waitUntil(async () => {
    await run()
    return (await deadLetters.stats()).items.every(({ open, retrying, parked }) => open + retrying + parked === 0)
  })

  const done = new Set(await applied())
  const all = await events.readAll().toArray()
  const resolved = (await deadLetters.list({ of: 'totals', state: 'resolved', limit: 1_000 })).items
  expect(done.size + resolved.length).toBe(all.length)
  for (const stream of ['order-0', 'order-1', 'order-2']) {
    const own = (await effectsOf(shop, 'totals')).filter(each => each.stream === stream).map(each => each.position)
    expect(own).toEqual(own.toSorted((a, b) => a - b))
  }
  expect(await idAt(1)).toBeDefined()
})

test('a projection that was rebuilt or reset has nothing parked from before', async () => {
  let isBroken = true
  const totals = defineDocumentProjection('totals', {
    events: shopEvents,
    ...parks,
    initial: () => ({ total: 0 }),
    evolve: {
      OrderPlaced: (order, { data }) => {
        if (isBroken && data.total === 1) throw new Error('one is not a price')
        return { total: order.total + data.total }
      },
    },
  })
  const { store } = await openShop({ projections: [totals] })
  for (const total of [1, 2, 4]) await store.events.append('order-1', placed(total))
  await store.consumers.runUntilIdle(totals)
  const before = await store.documents(totals).get('order-1')

  isBroken = false
  await store.projections.rebuild(totals)

  expect(before).toBeUndefined()
  expect((await store.documents(totals).get('order-1'))?.data).toEqual({ total: 7 })
  expect((await store.deadLetters.stats()).items).toMatchObject([{ open: 0, parked: 0, replayed: 3 }])
})

test('a subscription parks the stream of a failed event, delivers others, and goes on in order after a retry', async () => {
  const seen: string[] = []
  let isBroken = true
  const mailer = defineSubscription('mailer', {
    events: shopEvents,
    ...parks,
    concurrency: 3,
    run: event => {
      if (isBroken && event.stream === 'order-1' && event.version === 2) throw new Error('no such address')
      seen.push(`${event.stream}/${event.version}`)
    },
  })
  const shop = await openShop({ subscriptions: [mailer] })
  const { store } = shop
  for (const order of ['order-1', 'order-2']) await store.events.append(order, [placed(), paid, shipped(), shipped()])
  await using _runner = await store.start()
  await waitUntil(async () => (await store.consumers.status(mailer)).lag === 0 && seen.length === 5)
  await store.events.append('order-1', shipped('late'))
  await waitUntil(async () => (await store.deadLetters.stats()).items[0]?.parked === 3)
  const before = [...seen]

  isBroken = false
  const [failed] = (await store.deadLetters.list({ of: mailer, state: 'open' })).items
  await store.deadLetters.retry(mailer, failed!.eventId)
  await waitUntil(() => seen.length === 9)
  await store.events.append('order-1', paid)
  await waitUntil(() => seen.length === 10)

  expect(before.filter(each => each.startsWith('order-1'))).toEqual(['order-1/1'])
  expect(seen.filter(each => each.startsWith('order-1'))).toEqual([1, 2, 3, 4, 5, 6].map(n => `order-1/${n}`))
  expect(seen.filter(each => each.startsWith('order-2'))).toEqual([1, 2, 3, 4].map(n => `order-2/${n}`))
})

test('the next holder of a subscription knows the streams that were parked', async () => {
  const seen: string[] = []
  let isBroken = true
  const mailer = defineSubscription('mailer', {
    events: shopEvents,
    ...parks,
    run: event => {
      if (isBroken && event.stream === 'order-1') throw new Error('no such address')
      seen.push(`${event.stream}/${event.version}`)
    },
  })
  const { store } = await openShop({ subscriptions: [mailer] })
  await store.events.append('order-1', placed())
  const first = await store.start()
  await waitUntil(async () => (await store.deadLetters.stats()).items[0]?.open === 1)
  await first.stop()

  isBroken = false
  await store.events.append('order-1', paid)
  await store.events.append('order-2', placed())
  await using _runner = await store.start()
  await waitUntil(async () => seen.includes('order-2/1') && (await store.deadLetters.stats()).items[0]?.parked === 1)

  expect(seen).toEqual(['order-2/1'])
})

test('a subscription that is divided by a key of its own cannot park streams', () => {
  const define = () => defineSubscription('mailer', { ...parks, partitionBy: () => 'all', run: () => {} })

  expect(define).toThrow("cannot have onFailure: 'park'")
})
