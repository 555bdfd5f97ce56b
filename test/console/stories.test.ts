import { afterAll, beforeAll, expect, test } from 'vitest'
import { waitUntil } from '../support/wait.ts'
import { type ConsoleShop, openConsoleShop } from './console-shop.ts'
import { closeBrowser, expectQuiet, visit } from './visit.ts'

let shop: ConsoleShop

beforeAll(async () => {
  shop = await openConsoleShop()
})

afterAll(async () => {
  await closeBrowser()
  await shop[Symbol.asyncDispose]()
})

test('an event that is appended elsewhere appears in the list; while the page is paused it is counted', async () => {
  await shop.place({ stream: 'order-first' })
  await using seen = await visit(`${shop.url}/events`)
  const { page } = seen
  await page.getByText('order-first@1').first().waitFor()

  await shop.place({ stream: 'order-live' })
  await page.getByText('order-live@1').first().waitFor()

  await page.keyboard.press('p')
  await page.getByRole('button', { name: 'Paused' }).waitFor()
  await shop.place({ stream: 'order-paused' })
  await page.getByRole('button', { name: /Paused, \d+ new/ }).waitFor()
  expect(await page.getByText('order-paused@1').count()).toBe(0)

  await page.keyboard.press('p')
  await page.getByText('order-paused@1').first().waitFor()
  expectQuiet(seen)
})

test('a dead letter is retried with edited data, and is replayed', async () => {
  await shop.place({ stream: 'order-expired', customer: 'Dev', card: 'expired' })
  const open = async () => (await shop.store.deadLetters.list({ state: 'open' })).items
  await waitUntil(async () => (await open()).length === 1, { everyMs: 50 })
  await using seen = await visit(`${shop.url}/dead-letters`)
  const { page } = seen
  await page.getByText('the card of Dev has expired').first().waitFor()

  await page.getByRole('button', { name: 'Edit and retry' }).click()
  const editor = page.getByRole('textbox', { name: 'Data for this retry' })
  await editor.click()
  await page.keyboard.press('Control+a')
  await page.keyboard.insertText('{ "customer": "Dev", "cents": 1250, "items": ["lamp"], "card": "good" }')
  await page.getByRole('button', { name: 'Retry with 1 change' }).click()

  await page.getByText('A retry with your data is requested.').waitFor()
  await waitUntil(async () => (await open()).length === 0, { everyMs: 50 })
  await page.getByText('No dead letter is open').first().waitFor()
  expectQuiet(seen)
})

test('of two operators that act on one dead letter at the same time, the second one learns that the first was faster', async () => {
  await shop.place({ stream: 'order-twice', customer: 'Eve', card: 'expired' })
  await waitUntil(async () => (await shop.store.deadLetters.list({ state: 'open' })).items.length === 1, {
    everyMs: 50,
  })
  const [dead] = (await shop.store.deadLetters.list({ state: 'open' })).items
  await using seen = await visit(`${shop.url}/dead-letters`)
  const { page } = seen
  await page.getByRole('button', { name: 'Resolve…' }).click()
  await page.getByRole('textbox', { name: 'Why' }).fill('paid in cash')

  await shop.store.deadLetters.resolve('charge', dead!.eventId, { note: 'resolved elsewhere' })
  await page.getByRole('button', { name: 'Resolve it' }).click()

  await page.getByText(/Another operator was faster/).waitFor()
})

test('a workflow that waits is sent its event from the page, and settles there', async () => {
  const workflow = await shop.place({ stream: 'order-globe', items: ['globe'] })
  await waitUntil(async () => (await shop.store.workflows.get(workflow).status()).state === 'waiting', { everyMs: 50 })
  await using seen = await visit(`${shop.url}/workflows/${workflow}`)
  const { page } = seen
  await page.getByText('check waits for StockCounted').first().waitFor()

  await page.getByRole('textbox', { name: 'Data' }).fill('{ "item": "globe", "shelf": 5 }')
  await page.getByRole('button', { name: 'Send StockCounted' }).click()

  await page.locator('.head .badge', { hasText: 'Settled' }).waitFor()
  expectQuiet(seen)
})

test('a rebuild is begun from the page, and is still known after a reload', async () => {
  await using seen = await visit(`${shop.url}/projections/orders`)
  const { page } = seen
  await page.getByRole('button', { name: 'Rebuild…' }).click()

  await page.getByRole('button', { name: 'Rebuild orders' }).click()
  await page.getByText('The rebuild of orders has begun.').waitFor()
  await page.goto(`${shop.url}/operations`)
  await page.getByText('Rebuild of orders').first().waitFor()
  await page.reload()

  await page.getByRole('row', { name: /Rebuild of orders.*Done/ }).waitFor()
  await page.getByRole('row', { name: /projections.rebuild.*Done/ }).waitFor()
  expectQuiet(seen)
})

test('after a restart of the server the page comes back by itself, and no event is missing', async () => {
  await using seen = await visit(`${shop.url}/events`)
  const { page } = seen
  await page.getByRole('button', { name: 'Live' }).waitFor()
  await page.getByRole('table', { name: 'Events, newest first' }).waitFor()

  await shop.restart()
  await shop.place({ stream: 'order-restarted', items: [] })
  await page.getByText('order-restarted@1').first().waitFor()

  await waitUntil(async () => {
    const texts = await page.locator('.page-events tbody td:first-child').allTextContents()
    const shown = texts.filter(text => text !== '').map(text => Number(text.replace('#', '')))
    const { items } = await shop.store.events.list({ order: 'newest', limit: shown.length })
    return shown.join() === items.map(event => event.position).join()
  })
})

test('a list is read page by page while it scrolls, back to the first event', async () => {
  const events = Array.from({ length: 1_200 }, (_, at) => ({
    ...{ stream: `bulk-${at % 10}`, type: 'OrderShipped', data: { carrier: `carrier ${at}` } },
  }))
  await shop.store.events.import(events)
  await using seen = await visit(`${shop.url}/events?category=bulk`)
  const { page } = seen
  await page.getByText('carrier 1199').first().waitFor()

  await waitUntil(async () => {
    await page.keyboard.press('End')
    return (await page.getByText('carrier 0', { exact: true }).count()) > 0
  })

  await page.getByText('The beginning of what matches.').waitFor()
  expectQuiet(seen)
})

test('a list of 20,000 rows scrolls with few of them in the document', async () => {
  const { items } = await shop.store.events.list({ order: 'newest', limit: 1 })
  const rows = Array.from({ length: 20_000 }, (_, at) => ({ ...items[0], id: `row-${at}`, position: 20_000 - at }))
  await using seen = await visit('about:blank')
  const { page } = seen
  await page.route('**/api/v1/events?*', route => route.fulfill({ json: { items: rows, next: null, reached: 1 } }))
  await page.goto(`${shop.url}/events`)
  await page.getByText('#20000', { exact: true }).waitFor()

  await waitUntil(async () => {
    await page.keyboard.press('End')
    return (await page.getByText('#1', { exact: true }).count()) > 0
  })

  expect(await page.locator('.page-events tbody tr').count()).toBeLessThan(200)
})
