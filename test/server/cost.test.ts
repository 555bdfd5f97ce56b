/** The cost of open pages: what a minute of looking asks of the database, however many people look. */
import { expect, onTestFinished, test } from 'vitest'
import { defineSubscription } from '../../src/subscriptions/subscription.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { openDatabase } from '../support/engines.ts'
import { recording } from '../support/query-plans.ts'
import { openShop, shopEvents } from '../support/shop.ts'
import { openFeed } from './api.ts'

const topics = 'figures,events,activity,operations'

/** A store that is served, with a handler and a subscription, and the number of statements that it has sent. */
async function openServed() {
  let statements = 0
  const database = recording(await openDatabase(), () => {
    statements++
  })
  const charge = defineHandler('charge', { events: shopEvents, on: 'OrderPaid', run: () => undefined })
  const mailer = defineSubscription('mailer', { events: shopEvents, types: ['OrderShipped'] })
  const { store } = await openShop({ database, handlers: [charge], subscriptions: [mailer] })
  await store.events.append('order-1', { type: 'OrderPlaced', data: { total: 1 } })
  const authorize = (request: Request) => ({ name: request.headers.get('x-user') ?? 'Ada', role: 'read' as const })
  const server = await store.server({ port: 0, console: true, authorize })
  onTestFinished(() => server.close())
  return { url: server.url, statements: () => statements }
}

/** Pages that are open: each follows the feed, and asks again for what it shows. Measured over some readings of figures. */
async function statementsPerSecond(viewers: number): Promise<number> {
  const { url, statements } = await openServed()
  const headers = (viewer: number) => ({ 'x-user': `viewer-${viewer}` })
  const open = async (viewer: number) => openFeed(`${url}/api/v1/live?topics=${topics}`, undefined, headers(viewer))
  const feeds = await Promise.all(Array.from({ length: viewers }, (_, viewer) => open(viewer)))
  // The history of a fresh process is read once.
  await fetch(`${url}/api/v1/history`, { headers: headers(0) })
  await Promise.all(feeds.map(feed => feed.next('figures')))

  const from = { at: performance.now(), statements: statements() }
  for (let reading = 0; reading < 4; reading++) {
    const asked = feeds.map((_, viewer) => fetch(`${url}/api/v1/overview`, { headers: headers(viewer) }))
    for (const response of await Promise.all(asked)) expect(response.status).toBe(200)
    await Promise.all(feeds.map(feed => feed.next('figures')))
  }
  return ((statements() - from.statements) * 1000) / (performance.now() - from.at)
}

test('an open console costs at most six statements a second', async () => {
  expect(await statementsPerSecond(1)).toBeLessThanOrEqual(6)
})

test('twenty open consoles cost no more than six statements a second, too', async () => {
  expect(await statementsPerSecond(20)).toBeLessThanOrEqual(6)
})
