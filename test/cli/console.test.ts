/** The console from the command line, and the commands that show what it shows. */
import { beforeAll, expect, test } from 'vitest'
import { waitUntil } from '../support/wait.ts'
import { type Folder, openFolder, patienceMs } from './shop.ts'

const patient = { timeout: patienceMs }
let shop: Folder
let event: string

beforeAll(async () => {
  shop = await openFolder({
    async seed(store) {
      const { eventIds } = await store.events.append('order-1', { type: 'OrderPlaced', data: { total: 5 } })
      event = eventIds[0]!
      await store.events.append('return-1', { type: 'OrderPlaced', data: { total: 7 } })
      await store.documents('customers').put('ada', { name: 'Ada' })
    },
  })
}, patienceMs)

test('events are listed with the newest first, and streams by category', patient, async () => {
  await shop.shows('events list --limit 1', {
    text: [/POSITION +TYPE +STREAM/, 'return-1@1'],
    json: { items: [{ stream: 'return-1', data: { total: 7 } }] },
  })
  await shop.shows('streams categories', {
    text: ['CATEGORY', 'return'],
    json: { items: [{ category: 'order', first: 'order-1' }, { category: 'return' }] },
  })
})

test('collections, groups of failures and open executions are listed', patient, async () => {
  await shop.shows('documents collections', { text: ['customers'], json: { items: [{ name: 'customers' }] } })
  await shop.shows('dead-letters groups', { text: ['There are no open dead letters.'], json: { items: [] } })
  await shop.shows('workflows executions', { text: ['There are no open executions.'], json: { items: [] } })
})

test('events why and workflows why say what is missing', patient, async () => {
  await shop.shows(`events why ${event}`, { text: [/Nothing is left to do/], json: { verdicts: expect.any(Array) } })
  const unknown = await shop.run('workflows why no-such-workflow')

  expect(unknown.code).toBe(1)
})

test('console serves the pages and the API until Ctrl-C', patient, async () => {
  const running = shop.start('console --bind 127.0.0.1:0')
  await waitUntil(() => /Console: http/.test(running.stdout()), { deadlineMs: 120_000, what: 'the address' })
  const [url] = /http:\/\/127\.0\.0\.1:\d+/.exec(running.stdout())!

  const answer = await fetch(`${url}/api/v1`)
  const body = await answer.json()
  running.interrupt()
  const { code } = await running.ended

  expect([answer.status, body]).toMatchObject([200, { role: 'read', name: 'loopback' }])
  expect(code).toBe(0)
})
