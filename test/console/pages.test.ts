import type { Locator, Page } from 'playwright-core'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { waitUntil } from '../support/wait.ts'
import { type ConsoleShop, openConsoleShop } from './console-shop.ts'
import { closeBrowser, expectQuiet, type Visit, violations, visit } from './visit.ts'

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
  // Two entries of the audit.
  await shop.store.consumers.pause('orders')
  await shop.store.consumers.resume('orders')
})

afterAll(async () => {
  await shop[Symbol.asyncDispose]()
  await closeBrowser()
})

/** By path: the words that its title has, and the name of what a person does there first. */
const pages: readonly (readonly [name: string, path: () => string, title: RegExp, action: RegExp])[] = [
  ['overview', () => '/', /needs? a person|runs by itself/, /^Position/],
  ['events', () => '/events', /Events/, /^Filter$/],
  ['an event', () => `/events?open=${deadLetter}`, /Events/, /Why not processed yet/],
  ['streams', () => '/streams', /Streams/, /^Filter$/],
  ['a stream', () => '/streams/order-1', /order-1/, /^Archive/],
  ['documents', () => '/documents', /Documents/, /^customers/],
  ['a collection', () => '/documents/customers', /customers/, /^Filter$/],
  ['a document', () => '/documents/customers/c-1', /c-1/, /^Edit/],
  ['projections', () => '/projections', /readers?/, /^Pause/],
  ['a projection', () => '/projections/orders', /orders/, /^Rebuild…/],
  ['subscriptions', () => '/subscriptions', /Subscriptions/, /^mailer/],
  ['workflows', () => '/workflows', /Workflows/, /^Filter$/],
  ['a workflow', () => `/workflows/${workflow}`, /OrderPlaced/, /^Replay/],
  ['dead letters', () => '/dead-letters', /Dead letters/, /^Retry$/],
  ['handlers', () => '/handlers', /Handlers|handler/, /^Pause/],
  ['schedules', () => '/schedules', /Schedules/, /^Pause/],
  ['runners', () => '/runners', /runner/, /^Drain/],
  ['health', () => '/health', /healthy|problem|warning/, /^Look again/],
  ['operations', () => '/operations', /operation/, /^orders$/],
  ['settings', () => '/settings', /Settings/, /^As the system$/],
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

test('the inspectors, the palette, the keys and a question have no violation either', async () => {
  await using seen = await visit(`${shop.url}/subscriptions?open=mailer&group=default`)
  const { page } = seen
  const found: string[] = []
  const look = async (): Promise<void> => {
    found.push(...(await violations(page)))
  }
  await page.getByRole('complementary', { name: 'Subscription mailer' }).waitFor()
  await look()
  for (const [path, name] of [
    ['/handlers?open=charge', 'Handler charge'],
    ['/schedules?open=nightly-report', 'Schedule nightly-report'],
    ['/events?do=append', 'New event'],
  ] as const) {
    await page.goto(shop.url + path)
    await page.getByRole('complementary', { name }).waitFor()
    await look()
  }
  await page.keyboard.press('?')
  await page.getByRole('dialog', { name: 'Keys' }).waitFor()
  await look()
  await page.keyboard.press('Escape')
  await page.keyboard.press('Control+k')
  await page.getByRole('combobox', { name: 'Find or do anything' }).waitFor()
  await look()
  await page.goto(`${shop.url}/projections/orders`)
  await page.getByRole('button', { name: 'Reset…' }).click()
  await page.getByRole('dialog').waitFor()
  await look()

  expect(found).toEqual([])
  expectQuiet(seen)
})

test('the main action of every page is reached with the keyboard alone', async () => {
  await using seen = await visit(`${shop.url}/`)
  const { page } = seen
  const missed: string[] = []
  for (const [name, path, title, action] of pages) {
    await page.goto(shop.url + path())
    await page.getByRole('heading', { level: 1, name: title }).first().waitFor()
    // Present before it is looked for: a page fills itself while the keys are pressed.
    await named(page, action).waitFor()
    await page.keyboard.press('Tab')
    await page.keyboard.press('Enter')
    if (!(await tabTo(page, action))) missed.push(name)
  }

  expect(missed).toEqual([])
})

test('a table is walked by j and k, its rows are copied by c, and the command of a page by y', async () => {
  await using seen = await visit(`${shop.url}/streams`)
  const { page } = seen
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write'])
  await page.getByRole('link', { name: 'order-1', exact: true }).waitFor()

  await page.keyboard.press('j')
  await page.keyboard.press('j')
  await page.keyboard.press('k')
  const focused = await page.evaluate('document.activeElement.textContent')
  await page.keyboard.press('c')
  await page.getByText('Copied.').waitFor()
  const row = JSON.parse(String(await page.evaluate('navigator.clipboard.readText()')))
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { level: 1, name: String(focused) }).waitFor()
  await page.goto(`${shop.url}/projections/orders`)
  await page.getByText('rillflow consumers status orders').first().waitFor()
  await page.keyboard.press('y')
  await page.getByText('Copied.').waitFor()

  expect(row).toMatchObject({ stream: focused })
  expect(await page.evaluate('navigator.clipboard.readText()')).toBe('rillflow consumers status orders')
  expectQuiet(seen)
})

test('a column that is left out stays out, until it is chosen again', async () => {
  await using seen = await visit(`${shop.url}/streams`)
  const { page } = seen
  const began = page.getByRole('columnheader', { name: 'Began' })
  await began.waitFor()

  await page.getByRole('button', { name: 'Choose columns' }).click()
  await page.getByRole('checkbox', { name: 'Began' }).uncheck()
  await began.waitFor({ state: 'detached' })
  await page.reload()
  await page.getByRole('columnheader', { name: 'Events' }).waitFor()
  expect(await began.count()).toBe(0)
  await page.getByRole('button', { name: 'Choose columns' }).click()
  await page.getByRole('checkbox', { name: 'Began' }).check()

  await began.waitFor()
  expectQuiet(seen)
})

test('without a session every page asks for the token, and shows nothing of the store', async () => {
  const token = 'a-token-of-the-shop-that-is-long-enough'
  await using guarded = await shop.store.server({ port: 0, token, console: true })
  await using seen = await visit(guarded.url)
  const shown: string[] = []

  for (const [name, path] of pages) {
    await seen.page.goto(guarded.url + path())
    await seen.page.getByRole('heading', { name: 'Rillflow console' }).waitFor()
    const text = (await seen.page.locator('body').textContent()) ?? ''
    if (/order-1|Ada|OrderPlaced/.test(text)) shown.push(name)
  }

  expect(shown).toEqual([])
})

test('a role that sees only figures gets that reason on every page, in place of the data', async () => {
  const authorize = () => ({ name: 'Vic', role: 'watch' as const })
  await using watched = await shop.store.server({ port: 0, authorize, console: true })
  await using seen = await visit(watched.url)

  for (const [name, path] of pages) {
    if (name === 'overview' || name === 'settings') continue
    await seen.page.goto(watched.url + path())
    await seen.page.getByText('This needs the role "read".').first().waitFor()
    await seen.page.getByRole('heading', { level: 1 }).first().waitFor({ state: 'attached' })
  }

  expect(unexpected(seen)).toEqual([])
})

test('while the database does not answer every page says so, with its title and the way to try again', async () => {
  await using seen = await visit(shop.url)
  const error = { code: 'database_unavailable', message: 'The database does not answer.', retryable: true, data: {} }
  await seen.page.route(/\/api\/v1(\/|\?|$)/, route => route.fulfill({ status: 503, json: { error } }))

  for (const [, path] of pages) {
    await seen.page.goto(shop.url + path())
    await seen.page.getByText(error.message).first().waitFor()
    await seen.page.getByRole('heading', { level: 1 }).first().waitFor({ state: 'attached' })
    await seen.page
      .getByRole('button', { name: /^Try now/ })
      .first()
      .waitFor({ state: 'attached' })
  }

  expect(unexpected(seen)).toEqual([])
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

/** A browser itself complains about each answer that is refused. */
function unexpected({ complaints }: Visit): string[] {
  return complaints.filter(each => !/Failed to load resource/.test(each))
}

/** Whatever can be pressed or filled in and has this name. */
function named(page: Page, name: RegExp): Locator {
  const roles = ['button', 'link', 'textbox', 'combobox', 'radio'] as const
  const [first, ...others] = roles.map(role => page.locator('main').getByRole(role, { name }))
  return others.reduce((any, each) => any.or(each), first!).first()
}

const maxTabs = 60

async function tabTo(page: Page, name: RegExp): Promise<boolean> {
  const wanted = named(page, name)
  for (let at = 0; at < maxTabs; at++) {
    await page.keyboard.press('Tab')
    if (await wanted.evaluate(element => (element as { matches(selector: string): boolean }).matches(':focus')))
      return true
  }
  return false
}
