import { afterAll, beforeAll, expect, test } from 'vitest'
import { waitUntil } from '../support/wait.ts'
import { type ConsoleShop, openConsoleShop } from './console-shop.ts'
import { closeBrowser, expectQuiet, violations, visit } from './visit.ts'

/** One shop for all: the tests are in the order of its life. */
let shop: ConsoleShop

beforeAll(async () => {
  shop = await openConsoleShop()
})

afterAll(async () => {
  await closeBrowser()
  await shop[Symbol.asyncDispose]()
})

test('a server with a token asks for it; a wrong one is refused, the right one opens the console', async () => {
  const token = 'a-token-of-the-shop-that-is-long-enough'
  await using guarded = await shop.store.server({ port: 0, token, console: true })
  await using seen = await visit(`${guarded.url}/streams`)
  const { page } = seen
  await page.getByRole('heading', { name: 'Rillflow console' }).waitFor()
  expect(await violations(page)).toEqual([])

  await page.getByLabel('Token').fill('wrong')
  await page.getByRole('button', { name: 'Open the console' }).click()
  await page.getByRole('alert').waitFor()

  await page.getByLabel('Token').fill(token)
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { level: 1, name: 'Streams' }).waitFor()
})

test('the lists of an empty store say why they are empty, and what to do next', async () => {
  await using seen = await visit(`${shop.url}/events`)
  const { page } = seen

  for (const [path, title, next] of [
    ['/events', 'The log is empty', /rillflow events append/],
    ['/streams', 'There is no stream yet', /rillflow events append/],
    ['/workflows', 'There is no workflow yet', /rillflow workflows publish/],
    ['/dead-letters', 'No dead letter is open', /used up its retries/],
    ['/operations', 'No operator has done anything yet', /command line/],
    ['/documents/customers', 'It has no documents', undefined],
  ] as const) {
    await page.goto(shop.url + path)
    await page.getByRole('heading', { name: title }).waitFor()
    if (next !== undefined) await page.getByText(next).first().waitFor()
  }

  expectQuiet(seen)
})

test('an empty store shows the first steps, and the overview as soon as there is an event', async () => {
  await using seen = await visit(shop.url)
  const { page } = seen
  await page.getByRole('heading', { name: 'The store is open and empty' }).waitFor()
  expect(await violations(page)).toEqual([])

  await shop.place({ stream: 'order-1', card: 'expired' })

  await page.getByRole('heading', { level: 1, name: /needs? a person|runs by itself/ }).waitFor()
  expectQuiet(seen)
})

test('a session that may only read sees the buttons, with the reason why they cannot be pressed', async () => {
  await using reading = await shop.store.server({ port: 0, console: { access: 'read' } })
  await waitUntil(async () => (await shop.store.deadLetters.list()).items.length === 1, { everyMs: 50 })
  await using seen = await visit(`${reading.url}/dead-letters`)
  const { page } = seen

  const retry = page.getByRole('button', { name: /^Retry\b.*needs the role operate/ })
  await retry.waitFor()
  await retry.click({ force: true })

  expect(await retry.getAttribute('aria-disabled')).toBe('true')
  const status = await page.evaluate(async () => {
    const headers = { 'content-type': 'application/json' }
    return (await fetch('/api/v1/dead-letters/retry', { method: 'POST', headers, body: '{"all":true}' })).status
  })
  expect(status).toBe(403)
  expect((await shop.store.deadLetters.list({ state: 'open' })).items.length).toBe(1)
})

test('payloads and names of strangers are shown as text, with exact numbers', async () => {
  const { store } = shop
  const stream = 'order-ä /%2f "ö" 🛒<b>'
  const data = {
    html: '<script>document.title = "taken"</script></script>',
    turned: '\u202Egnp.exe',
    '': 'an empty key',
    deep: JSON.parse('['.repeat(150) + ']'.repeat(150)) as unknown,
  }
  await store.events.append(stream, { type: 'OrderShipped', data } as never)
  await store.transaction(tx =>
    tx.query(`update shop.events set data = data || '{"exact": 9223372036854775808.000000001}' where stream = $1`, [
      stream,
    ]),
  )
  const { items } = await store.events.list({ order: 'newest', streams: [stream] })
  await using seen = await visit(`${shop.url}/events?open=${items[0]!.id}`)
  const { page } = seen

  await page.getByText('9223372036854775808.000000001').first().waitFor()
  await page.getByText('<script>document.title').first().waitFor()
  await page.goto(`${shop.url}/streams/${encodeURIComponent(stream)}`)
  await page.getByRole('heading', { level: 1, name: stream }).waitFor()

  expect(await page.title()).not.toBe('taken')
  expectQuiet(seen)
})

test('without its server a page says so, keeps what it shows, and tries again', async () => {
  await using seen = await visit(`${shop.url}/events`)
  const { page } = seen
  await page.getByText('order-1@1').first().waitFor()

  await shop.server.close()

  await page.getByRole('button', { name: /Lost, again in/ }).waitFor()
  expect(await page.getByText('order-1@1').count()).toBeGreaterThan(0)
})
