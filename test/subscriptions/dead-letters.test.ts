import { expect, test } from 'vitest'
import type { Delivery } from '../../src/subscriptions/delivery.ts'
import { defineSubscription } from '../../src/subscriptions/subscription.ts'
import { openShop, outcome, paid, placed, type Shop, type ShopMap, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'
import { several } from './deliveries.ts'

const manual = { ack: 'manual', retries: 0, onFailure: 'deadLetter' } as const
const consumer = 'mailer/default'

test('a requested dead letter is delivered once more, and closed by its acknowledgement', async () => {
  const shop = await openShop()
  const { store } = shop
  const deliveries = store.subscribe('mailer', manual)[Symbol.asyncIterator]()
  const eventId = await makeLetter(shop, deliveries)
  const next = several(deliveries, 1)

  await store.deadLetters.retry(consumer, eventId)
  const [again] = await next
  const meanwhile = await stateOf(shop)
  await again!.ack()

  expect(again).toMatchObject({ id: eventId, deliveries: 2, isReplay: true })
  expect(meanwhile).toBe('retrying')
  expect(await stateOf(shop)).toBe('replayed')
  await deliveries.return!()
})

test('a dead letter that is rejected again is open, without a request', async () => {
  const shop = await openShop()
  const { store } = shop
  const deliveries = store.subscribe('mailer', manual)[Symbol.asyncIterator]()
  const eventId = await makeLetter(shop, deliveries)
  const next = several(deliveries, 1)

  await store.deadLetters.retry(consumer, eventId)
  await (await next)[0]!.nack({ reason: 'still no such address' })

  expect(await store.deadLetters.show(consumer, eventId)).toMatchObject({ state: 'open', attempts: 2 })
  await deliveries.return!()
})

test('a dead letter is closed with the effects of a transaction, or delivered again', async () => {
  const shop = await openShop()
  const { store, query, named } = shop
  await query('create table ~mails (id uuid)')
  const deliveries = store.subscribe('mailer', manual)[Symbol.asyncIterator]()
  const eventId = await makeLetter(shop, deliveries)
  await store.deadLetters.retry(consumer, eventId)

  for (const isGood of [false, true]) {
    const [again] = await several(deliveries, 1)
    await outcome(
      store.transaction(async tx => {
        await tx.query(named('insert into ~mails values ($1)'), [again!.id])
        await again!.ack(tx)
        if (!isGood) throw new Error('rolled back')
      }),
    )
  }

  await waitUntil(async () => (await stateOf(shop)) === 'replayed')
  expect(await query('select id from ~mails')).toEqual([{ id: eventId }])
  await deliveries.return!()
})

test('dead letters are retried by the new partitions of a group, whose streams stay parked', async () => {
  const { store } = await openShop()
  const seen: string[] = []
  let isBroken = true
  const mailer = defineSubscription('mailer', {
    ...{ events: shopEvents, retries: 0, onFailure: 'park' },
    run: event => {
      if (isBroken) throw new Error('no such address')
      seen.push(`${event.stream}/${event.version}`)
    },
  })
  await store.register(mailer)
  for (const order of ['order-1', 'order-2', 'order-3']) await store.events.append(order, [placed(), paid])
  await using _runner = await store.start()
  const parked = async () => (await store.deadLetters.list({ of: mailer, state: 'parked' })).items.length
  await waitUntil(async () => (await parked()) === 3)

  await store.subscriptions.repartition('mailer', 4)
  isBroken = false
  await store.events.append('order-1', paid)
  await waitUntil(async () => (await parked()) === 4)
  const { requested } = await store.deadLetters.retryAll({ of: mailer })
  await waitUntil(() => seen.length === 7)

  expect(requested).toBe(3)
  expect(seen.filter(each => each.startsWith('order-1'))).toEqual(['order-1/1', 'order-1/2', 'order-1/3'])
})

test('a dead letter counts as in flight', async () => {
  const shop = await openShop()
  const { store } = shop
  const deliveries = store.subscribe('mailer', { ...manual, maxInFlight: 1 })[Symbol.asyncIterator]()
  const eventId = await makeLetter(shop, deliveries)
  const next = several(deliveries, 1)
  await store.deadLetters.retry(consumer, eventId)
  const [again] = await next
  let other: unknown
  const coming = several(deliveries, 1).then(([delivery]) => {
    other = delivery
  })
  const before = store.metrics().events_read_total
  await store.events.append('order-2', paid)
  await waitUntil(() => store.metrics().events_read_total > before)

  const whileOut = other
  await again!.ack()
  await coming

  expect(whileOut).toBeUndefined()
  expect(other).toMatchObject({ stream: 'order-2', isReplay: false })
  await deliveries.return!()
})

async function makeLetter({ store }: Shop, deliveries: AsyncIterator<Delivery<ShopMap>>): Promise<string> {
  await store.events.append('order-1', placed())
  const [delivery] = await several(deliveries, 1)
  await delivery!.nack({ reason: 'no such address' })
  return delivery!.id
}

async function stateOf({ store }: Shop): Promise<string> {
  return (await store.deadLetters.list({ of: consumer })).items[0]!.state
}
