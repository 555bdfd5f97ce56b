import { expect, test } from 'vitest'
import { drawTo } from '../support/numbers.ts'
import { openShop } from '../support/shop.ts'
import { openFeed, serve } from './api.ts'

test('the newest events are shown, a page at a time, and each page says what it cost', async () => {
  const { store } = await openShop()
  for (let total = 1; total <= 3; total++)
    await store.events.append(`order-${total}`, { type: 'OrderPlaced', data: { total } })
  const { get } = await serve(store)

  const first = await get('/events?limit=2')
  const second = await get(`/events?limit=2&after=${first.body.next}`)

  expect(first.body.items.map((event: { stream: string }) => event.stream)).toEqual(['order-3', 'order-2'])
  expect(second.body).toMatchObject({ items: [{ stream: 'order-1', position: expect.any(Number) }], next: null })
  expect(first.headers.get('server-timing')).toMatch(/^db;dur=[\d.]+;desc="\d+ statements?"$/)
})

test('names with slashes, per cent signs, spaces and emoji work in paths', async () => {
  const { store } = await openShop()
  const { get } = await serve(store)
  for (const stream of ['order/1', 'order%2F1', 'order 1', 'order-🛒', 'order?a=1#b']) {
    await store.events.append(stream, { type: 'OrderPlaced', data: { total: 1 } })

    const { status, body } = await get(`/streams/${encodeURIComponent(stream)}/events`)

    expect([status, body.items?.[0]?.stream]).toEqual([200, stream])
  }
})

test('an error has its code, its sentence and its data, and an unexpected one has no text', async () => {
  const { store } = await openShop()
  const { get } = await serve(store)

  const missing = await get('/streams/order-404')
  const wrong = await get('/events?limit=501')
  const misspelt = await get('/events?typ=OrderPlaced')
  const nowhere = await get('/orders')

  expect(missing).toMatchObject({
    status: 404,
    body: { error: { code: 'stream_not_found', data: { stream: 'order-404' } } },
  })
  expect(wrong).toMatchObject({ status: 400, body: { error: { code: 'invalid_option', retryable: false } } })
  expect(misspelt.body.error.message).toContain('Did you mean "types"?')
  expect(nowhere).toMatchObject({ status: 404, body: { error: { code: 'not_found' } } })
})

test('data that is very large is left out of lists and shown with its event', async () => {
  const { store } = await openShop()
  const note = 'x'.repeat(100_000)
  const { eventIds } = await store.events.append('order-1', { type: 'OrderPlaced', data: { total: 1, note } })
  const { get } = await serve(store)

  const list = await get('/events')
  const one = await get(`/events/${eventIds[0]}`)

  expect(list.body.items[0]).toMatchObject({ data: null, isCut: true })
  expect(one.body.data.note).toHaveLength(100_000)
})

test('an event that is appended reaches the live feed, and one that comes back continues where it was', async () => {
  const { store } = await openShop()
  const { url } = await serve(store)
  const place = (total: number) => store.events.append('order-1', { type: 'OrderPlaced', data: { total } })

  const feed = await openFeed(`${url}/api/v1/live?topics=events,figures`)
  await place(1)
  const first = await feed.next('events')
  feed.close()
  await place(2)
  await place(3)
  const again = await openFeed(`${url}/api/v1/live?topics=events`, first.id)
  const missed = await again.next('events')
  again.close()

  expect(first.data).toMatchObject([{ type: 'OrderPlaced', data: { total: 1 } }])
  expect(missed.data).toMatchObject([{ data: { total: 2 } }, { data: { total: 3 } }])
})

test('a client that was away for long gets a gap and continues now', async () => {
  const { store, query } = await openShop()
  const { url } = await serve(store)
  await store.events.append('order-1', { type: 'OrderPlaced', data: { total: 1 } })
  await drawTo(query, 'events_position', 10000)
  await store.events.append('order-1', { type: 'OrderPlaced', data: { total: 2 } })

  const feed = await openFeed(`${url}/api/v1/live?topics=events`, 'e1.a')
  const gap = await feed.next('gap')
  await store.events.append('order-1', { type: 'OrderPlaced', data: { total: 3 } })
  const { data } = await feed.next('events')
  feed.close()

  expect(gap.data).toEqual([{ topic: 'events', from: 1, to: 10_001 }])
  expect(data).toMatchObject([{ data: { total: 3 } }])
})

test('a sender has at most four live feeds, and a feed that ends makes room', async () => {
  const { store } = await openShop()
  const { url } = await serve(store)
  const address = `${url}/api/v1/live?topics=events`
  const feeds = await Promise.all([1, 2, 3, 4].map(() => openFeed(address)))

  const fifth = await fetch(address)
  feeds[0]!.close()

  expect(fifth.status).toBe(429)
  await expect.poll(async () => (await openFeed(address).catch(() => undefined)) !== undefined).toBe(true)
})

test('figures are read once for all viewers', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', { type: 'OrderPlaced', data: { total: 1 } })
  const { get } = await serve(store)

  const [first, second] = await Promise.all([get('/overview'), get('/overview')])
  const history = await get('/history?range=5m')

  expect(first.body).toMatchObject({ position: expect.any(Number), deadLetters: { count: 0, isCapped: false } })
  expect(second.body.at).toBe(first.body.at)
  expect(history.body.series.map((each: { name: string }) => each.name)).toContain('eventsPerSecond')
})

test('a flood of events becomes a gap, and the feed continues after it', async () => {
  const { store } = await openShop()
  const { url } = await serve(store)
  const feed = await openFeed(`${url}/api/v1/live?topics=events`)
  const flood = Array.from({ length: 1_500 }, (_, n) => ({ type: 'OrderPlaced' as const, data: { total: n } }))
  await store.events.append('order-1', flood.slice(0, 750))
  await store.events.append('order-2', flood.slice(750))

  const gap = await feed.next('gap')
  await store.events.append('order-3', { type: 'OrderPlaced', data: { total: 9_999 } })
  const { data } = await feed.next('events')
  feed.close()

  expect(gap.data).toMatchObject([{ topic: 'events', to: 1_500 }])
  expect(data).toMatchObject([{ stream: 'order-3', data: { total: 9_999 } }])
})
