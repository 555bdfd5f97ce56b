import { afterAll, beforeAll, expect, test } from 'vitest'
import { waitUntil } from '../support/wait.ts'
import { type ConsoleShop, openConsoleShop } from './console-shop.ts'
import { closeBrowser, expectQuiet, violations, visit } from './visit.ts'

let shop: ConsoleShop
let workflow = ''
let deadLetter = ''

beforeAll(async () => {
  shop = await openConsoleShop()
  workflow = await shop.place({ stream: 'order-1', items: ['lamp', 'atlas'] })
  await shop.place({ stream: 'order-2', customer: 'Dev', card: 'expired' })
  await shop.place({ stream: 'order-3', items: ['globe'] })
  await shop.store.documents('customers').put('c-1', { name: 'Ada', city: 'London' })
  await waitUntil(async () => (await shop.store.deadLetters.list()).items.length > 0, { everyMs: 50 })
  await waitUntil(async () => (await shop.store.workflows.get(workflow).status()).isSettled, { everyMs: 50 })
  await waitUntil(async () => (await shop.store.documents('orders').get('order-1')) !== undefined, { everyMs: 50 })
  deadLetter = (await shop.store.deadLetters.list()).items[0]!.eventId
})

afterAll(async () => {
  await shop[Symbol.asyncDispose]()
  await closeBrowser()
})

/** By path: the words that its title has. */
const pages: readonly (readonly [name: string, path: () => string, title: RegExp])[] = [
  ['overview', () => '/', /needs? a person|runs by itself/],
  ['events', () => '/events', /Events/],
  ['an event', () => `/events?open=${deadLetter}`, /Events/],
  ['streams', () => '/streams', /Streams/],
  ['a stream', () => '/streams/order-1', /order-1/],
  ['documents', () => '/documents', /Documents/],
  ['a collection', () => '/documents/customers', /customers/],
  ['a document', () => '/documents/customers/c-1', /c-1/],
  ['projections', () => '/projections', /readers?/],
  ['a projection', () => '/projections/orders', /orders/],
  ['subscriptions', () => '/subscriptions', /Subscriptions/],
  ['workflows', () => '/workflows', /Workflows/],
  ['a workflow', () => `/workflows/${workflow}`, /OrderPlaced/],
  ['dead letters', () => '/dead-letters', /Dead letters/],
  ['handlers', () => '/handlers', /Handlers|handler/],
  ['schedules', () => '/schedules', /Schedules/],
  ['runners', () => '/runners', /runner/],
  ['health', () => '/health', /healthy|problem|warning/],
  ['operations', () => '/operations', /operation/],
  ['settings', () => '/settings', /Settings/],
]

for (const [name, path, title] of pages)
  test(`the page of ${name} opens from a link, in both themes, without a violation or a complaint`, async () => {
    await using seen = await visit(shop.url + path())

    await seen.page.getByRole('heading', { level: 1, name: title }).first().waitFor()
    await seen.page.getByRole('status', { name: 'Loading' }).first().waitFor({ state: 'detached' })

    const inLight = await violations(seen.page)
    await seen.page.emulateMedia({ colorScheme: 'dark' })
    expect([inLight, await violations(seen.page, ['color-contrast'])]).toEqual([[], []])
    expectQuiet(seen)
  })

test('no page is wider than a phone of 390 pixels', async () => {
  await using seen = await visit(`${shop.url}/`, { width: 390 })

  const wide: string[] = []
  for (const [name, path, title] of pages) {
    await seen.page.goto(shop.url + path())
    const heading =
      name === 'an event'
        ? seen.page.getByRole('complementary', { name: /^Event / })
        : seen.page.getByRole('heading', { level: 1, name: title }).first()
    await heading.waitFor()
    const over = await seen.page.evaluate('document.documentElement.scrollWidth - innerWidth')
    if (Number(over) > 0) wide.push(`${name} by ${over}`)
  }

  expect(wide).toEqual([])
  expectQuiet(seen)
})

test('every page of the rail is reached by the keys g and its letter', async () => {
  await using seen = await visit(`${shop.url}/`)
  await seen.page.getByRole('heading', { level: 1 }).waitFor()

  for (const [key, title] of [
    ['e', /Events/],
    ['s', /Streams/],
    ['p', /readers?/],
    ['w', /Workflows/],
    ['l', /Dead letters/],
    ['r', /runner/],
  ] as const) {
    await seen.page.keyboard.press('g')
    await seen.page.keyboard.press(key)
    await seen.page.getByRole('heading', { level: 1, name: title }).first().waitFor()
  }

  expectQuiet(seen)
})

test('the palette finds a stream by the beginning of its name, and Enter opens it', async () => {
  await using seen = await visit(`${shop.url}/`)
  await seen.page.getByRole('heading', { level: 1 }).waitFor()

  await seen.page.keyboard.press('Control+k')
  await seen.page.getByRole('combobox').fill('order-1')
  await seen.page.getByRole('option', { name: /^order-1/ }).waitFor()
  await seen.page.keyboard.press('Enter')

  await seen.page.getByRole('heading', { level: 1, name: 'order-1' }).waitFor()
  expectQuiet(seen)
})
