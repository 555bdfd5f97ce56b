import { expect, test } from 'vitest'
import type { RecordedEvent } from '../../src/events/definition.ts'
import { openShop, paid, placed, type ShopMap, shipped, take } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

const names = (events: readonly RecordedEvent<ShopMap>[]): string[] =>
  events.map(event => `${event.stream}/${event.version}`)

test('a subscription delivers existing and new events', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', [placed(), paid])

  const taking = take(store.subscribe('mailer'), 4)
  await store.events.append('order-2', placed())
  await store.events.append('order-1', shipped())

  expect(names(await taking)).toEqual(['order-1/1', 'order-1/2', 'order-2/1', 'order-1/3'])
})

test('RB-71: a subscription without a group resumes at its checkpoint', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', [placed(), paid, shipped()])

  const first = await take(store.subscribe('mailer'), 2)
  const second = await take(store.subscribe('mailer'), 2)

  // The second event was not acknowledged: the loop did not ask for the next one.
  expect(names(first)).toEqual(['order-1/1', 'order-1/2'])
  expect(names(second)).toEqual(['order-1/2', 'order-1/3'])
})

test('a delivery looks like its event, and can be acknowledged or rejected', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', placed(5))
  const [event] = await store.events.readAll().toArray()

  const [delivery] = await take(store.subscribe('mailer', { types: ['OrderPlaced'] }), 1)

  expect({ ...delivery }).toEqual({ ...event })
  expect(delivery!.deliveries).toBe(1)
  expect(JSON.parse(JSON.stringify(delivery))).toEqual(JSON.parse(JSON.stringify(event)))
})

test('events are delivered to a callback until it is stopped', async () => {
  const { store } = await openShop()
  const seen: string[] = []
  const mailer = store.subscribe('mailer', {
    onEvent: async event => {
      seen.push(`${event.stream}/${event.version}`)
    },
  })
  await store.events.append('order-1', [placed(), paid])
  await waitUntil(() => seen.length === 2)

  await mailer.stop()
  await mailer.ended
  await store.events.append('order-1', shipped())
  const rest = await take(store.subscribe('mailer'), 1)

  expect(seen).toEqual(['order-1/1', 'order-1/2'])
  expect(names(rest)).toEqual(['order-1/3'])
})

test('each group gets every event', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', [placed(), paid])

  const mails = await take(store.subscribe('orders', { group: 'mail' }), 2)
  const stats = await take(store.subscribe('orders', { group: 'stats' }), 2)

  expect(names(mails)).toEqual(names(stats))
  expect((await store.subscriptions.list()).map(each => each.groups)).toEqual([['mail', 'stats']])
})

test('a new group begins at the start, now, or after a position', async () => {
  const { store } = await openShop()
  const { position } = await store.events.append('order-1', [placed(), paid])
  await store.subscriptions.create('late', { startFrom: 'now' })
  await store.events.append('order-2', placed())

  expect(names(await take(store.subscribe('late'), 1))).toEqual(['order-2/1'])
  expect(names(await take(store.subscribe('after', { startFrom: position - 1 }), 1))).toEqual(['order-1/2'])
  expect(names(await take(store.subscribe('all', { startFrom: 'beginning' }), 1))).toEqual(['order-1/1'])
})

test('RB-77: a filter delivers exactly the matching events', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', [placed(), paid])
  await store.events.append('orderly-1', placed())
  await store.events.append('order-2', placed(9, { headers: { vip: true } }))

  const byType = await take(store.subscribe('a', { types: ['OrderPaid'] }), 1)
  const byCategory = await take(store.subscribe('b', { categories: ['orderly'] }), 1)
  const byHeader = await take(store.subscribe('c', { headers: { vip: true } }), 1)
  const byCode = await take(store.subscribe('d', { where: event => event.stream === 'order-2' }), 1)

  expect(names(byType)).toEqual(['order-1/2'])
  expect(names(byCategory)).toEqual(['orderly-1/1'])
  expect(names(byHeader)).toEqual(['order-2/1'])
  expect(names(byCode)).toEqual(['order-2/1'])
})
