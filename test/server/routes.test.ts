import { afterAll, expect, test } from 'vitest'
import { shopConfig } from '../../src/cli/commands/dev/shop.ts'
import { routes } from '../../src/server/api/routes/routes.ts'
import { openStore, type Store } from '../../src/store.ts'
import { freshSchema, openDatabase } from '../support/engines.ts'
import { waitUntil } from '../support/wait.ts'
import { openFeed, type Served, serve } from './api.ts'

let opened: Promise<{ store: Store; served: Served }> | undefined
afterAll(async () => (await opened)?.store.close())

/** The shop of `rillflow dev`, running: one for all tests of this file, each of which places its own orders. */
async function openRunningShop(): Promise<{ store: Store; served: Served; failed: string; shipped: string }> {
  opened ??= startShop()
  const { store, served } = await opened
  const place = (card: 'good' | 'expired') =>
    store.workflows.publish(
      'OrderPlaced',
      { customer: 'Ada', cents: 100, items: ['teapot', 'lamp'], card },
      { stream: store.newId('order') },
    )
  const good = await place('good')
  const bad = await place('expired')
  await Promise.all([good.waitUntilSettled(), bad.waitUntilSettled()])
  return { store, served, failed: bad.correlationId, shipped: good.correlationId }
}

async function startShop(): Promise<{ store: Store; served: Served }> {
  const store = await openStore({
    ...shopConfig,
    schedules: [],
    logger: false,
    database: await openDatabase(),
    schema: freshSchema(),
    migrate: true,
  })
  await store.start()
  return { store, served: await serve(store) }
}

test('every list and every page of the console is answered', async () => {
  const { store, served, failed, shipped } = await openRunningShop()
  const { items } = await store.deadLetters.list({ correlationId: failed })
  const letter = items[0]!
  const { stream } = letter
  const values: Record<string, string> = {
    ...{ 'GET /search': '?q=order', 'GET /consumers/:name': 'orders', 'GET /subscriptions/:name': '' },
  }
  const parameters: Record<string, string> = {
    ...{ stream, position: '1', owner: 'charge', event: letter.eventId, name: 'orders' },
  }
  const found: string[] = []
  for (const { key, method, path } of routes) {
    const isSkipped =
      /^GET \/(live|streams\/:stream\/states|schedules\/|subscriptions\/|tenants|collections\/:name\/:id\/history)/.test(
        key,
      )
    if (method !== 'GET' || isSkipped) continue
    const id = path.startsWith('/events') ? letter.eventId : path.startsWith('/collections') ? stream : shipped
    const filled = path.replace(/:(\w+)/g, (_, name: string) => parameters[name] ?? id)
    const { status, body } = await served.get(`${filled}${key === 'GET /search' ? values[key] : ''}`)
    if (status !== 200) found.push(`${key} (${filled}): ${status} ${JSON.stringify(body)}`)
  }

  expect(found).toEqual([])
  expect((await served.get(`/search?q=${failed}`)).body.items).toMatchObject([{ kind: 'event' }, { kind: 'workflow' }])
  expect((await served.get('/handlers')).body.items[0].policy).toMatchObject({ retries: expect.any(Number) })
  expect((await served.get('/dead-letters/groups')).body.items).toMatchObject([{ handler: 'charge' }])
})

test('a dead letter is retried with other data, and the order is shipped after all', async () => {
  const { store, served, failed } = await openRunningShop()
  const { body } = await served.get(`/dead-letters?state=open&correlationId=${failed}`)
  const { eventId } = body.items[0]
  const data = { customer: 'Ada', cents: 100, items: ['teapot'], card: 'good' }

  const retried = await served.send('POST', `/dead-letters/charge/${eventId}/retry`, { data })
  const status = await store.workflows.get(failed).waitUntilSettled()

  expect(retried).toMatchObject({ status: 200, body: { requested: 1, isRunning: true } })
  expect(status).toMatchObject({ state: 'settled', lastType: 'OrderShipped' })
  const again = await served.send('POST', `/dead-letters/charge/${eventId}/retry`, { data })
  expect(again).toMatchObject({ status: 409, body: { error: { code: 'dead_letter_conflict' } } })
})

test('all dead letters are resolved only if the request says so', async () => {
  const { store, served, failed } = await openRunningShop()
  const unsaid = await served.send('POST', '/dead-letters/resolve', { note: 'a known customer' })
  const said = await served.send('POST', '/dead-letters/resolve', { note: 'a known customer', correlationId: failed })

  expect(unsaid.status).toBe(400)
  expect(said.body).toEqual({ resolved: 1 })
  expect((await store.deadLetters.list({ correlationId: failed })).items).toMatchObject([{ state: 'resolved' }])
})

test('a projection is paused, resumed and rebuilt, and the rebuild is an operation that the feed follows', async () => {
  const { served } = await openRunningShop()
  const feed = await openFeed(`${served.url}/api/v1/live?topics=operations`)

  const paused = await served.send('POST', '/consumers/orders/pause')
  const isPaused = (await served.get('/consumers/orders')).body.isPaused
  await served.send('POST', '/consumers/orders/resume')
  const started = await served.send('POST', '/projections/orders/rebuild')
  const { data } = await feed.next('operations')
  await waitUntil(async () => (await served.get('/operations')).body.items[0].state === 'done')

  expect([paused.status, isPaused, started.status]).toEqual([200, true, 202])
  expect((data as object[])[0]).toMatchObject({ id: started.body.operation, kind: 'rebuild', target: 'orders' })
  expect((await served.send('POST', '/projections/orderz/rebuild')).status).toBe(404)
  const reset = await served.send('POST', '/consumers/orders/reset', { position: 0, confirm: 'order' })
  expect(reset).toMatchObject({ status: 400, body: { error: { data: { option: 'confirm' } } } })
})

test('workflows that match are cancelled by an operation, and a request without a condition is refused', async () => {
  const { store, served } = await openRunningShop()
  await store.workflows.handlers.pause('ship')
  const workflow = await store.workflows.publish(
    'OrderPlaced',
    { customer: 'Bo', cents: 1, items: ['lamp'], card: 'good' },
    { stream: store.newId('order') },
  )
  await workflow.waitForEvent('OrderCleared' as never)

  const unsaid = await served.send('POST', '/workflows/cancel', { reason: 'too late' })
  const begun = await served.send('POST', '/workflows/cancel', { state: ['running'], reason: 'too late' })
  await waitUntil(async () => (await workflow.status()).state === 'cancelled')
  await store.workflows.handlers.resume('ship')

  expect([unsaid.status, begun.status]).toEqual([400, 202])
  expect(await workflow.status()).toMatchObject({ state: 'cancelled', reason: 'too late' })
  await waitUntil(async () => (await served.get('/operations')).body.items[0].state === 'done')
  const { items } = await store.audit.list({ action: 'workflows.cancelAll' })
  expect(items).toMatchObject([{ outcome: 'done', parameters: { state: ['running'], reason: 'too late' } }])
})

test('a wait for a position ends when it is applied, and says what is missing when it is not', async () => {
  const { store, served } = await openRunningShop()
  const { settled } = await store.events.settled()

  const reached = await served.get(`/consumers/orders/wait?position=${settled}`)
  await store.consumers.pause('orders')
  await store.events.append('order-1', { type: 'OrderCharged', data: { cents: 1 } } as never)
  const missing = await served.get('/consumers/orders/wait?timeoutMs=50')
  await store.consumers.resume('orders')

  expect(reached).toMatchObject({ status: 200, body: { position: settled, waitedMs: expect.any(Number) } })
  expect(missing).toMatchObject({ status: 503, body: { error: { code: 'timed_out' } } })
  expect(missing.body.error.message).toContain('paused')
})

test('the figures tell how long handlers have waited and run, and whose dead letters are open', async () => {
  const { served } = await openRunningShop()
  await waitUntil(async () => (await served.get('/overview')).body.handlerTimes !== undefined, { everyMs: 500 })

  const { body } = await served.get('/overview')
  const { ranP50Ms, ranP95Ms } = body.handlerTimes

  expect(ranP50Ms).toBeGreaterThan(0)
  expect(ranP95Ms).toBeGreaterThanOrEqual(ranP50Ms)
  expect(body.deadLetters.ofHandlers).toMatchObject([{ handler: 'charge', count: expect.any(Number) }])
  expect(body.needs.map((each: { message: string }) => each.message)).toContainEqual(
    expect.stringMatching(/^"charge" has \d+ open dead letters?\.$/),
  )
})

test('an event is published once under its idempotency key', async () => {
  const { served } = await openRunningShop()
  const order = { type: 'OrderPlaced', data: { customer: 'Bo', cents: 1, items: [], card: 'good' } }
  const key = { 'idempotency-key': 'order-of-bo' }

  const first = await served.send('POST', '/workflows/publish', order, key)
  const second = await served.send('POST', '/workflows/publish', order, key)

  expect(first.status).toBe(200)
  expect(second.body).toEqual(first.body)
})

test('a document is edited with the version that was seen, and a read model is not', async () => {
  const { store, served } = await openRunningShop()
  await store.documents('customers').put('ada', { name: 'Ada' })
  const put = (version: string | undefined, data: unknown) =>
    served.send('PUT', '/collections/customers/ada', { data }, version === undefined ? {} : { 'if-match': version })

  const without = await put(undefined, { name: 'Ada L.' })
  const right = await put('"1"', { name: 'Ada L.' })
  const stale = await put('1', { name: 'Ada M.' })
  const model = await served.send('PUT', '/collections/orders/some-order', { data: {} }, { 'if-match': '1' })
  const found = await served.send('POST', '/collections/customers/query', { filter: { name: 'Ada L.' } })

  expect([without.status, right.status, stale.status, model.status]).toEqual([428, 200, 409, 409])
  expect(right.body).toEqual({ id: 'ada', version: 2 })
  expect(found.body).toMatchObject({ items: [{ id: 'ada', version: 2, data: { name: 'Ada L.' } }], next: null })
  expect((await served.send('POST', '/collections/orders/query', {})).body.items.length).toBeGreaterThan(1)
  expect((await served.send('POST', '/collections/carts/query', {})).status).toBe(404)
})
