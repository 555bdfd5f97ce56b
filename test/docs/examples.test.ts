/** Every example runs with one command, exits by itself, and prints the promised output. */
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { copyStore, shortLived } from '../support/embedded.ts'
import { postgresUrl } from '../support/engines.ts'
import { root } from './pages.ts'

const run = promisify(execFile)
const patienceMs = 600_000
const folder = mkdtempSync(join(tmpdir(), 'rillflow-examples-'))
const till = join(folder, 'till')
// The shop stores its data in its working directory.
beforeAll(() => Promise.all([join(folder, '.rillflow'), till].map(copyStore)), patienceMs)
afterAll(() => rmSync(folder, { recursive: true, force: true }))

test('the shop runs twice and shows each event once, a conflict and a repeat', { timeout: patienceMs }, async () => {
  const first = await runExample('shop/main.ts')
  const second = await runExample('shop/main.ts')

  expect(first).toContain('The log is new and empty.')
  expect(second).toContain('Welcome back')
  for (const printed of [first, second]) {
    expect(printed).toContain('version_conflict')
    expect(printed).toContain('(repeated: the first outcome)')
    expect(printed).toContain("Ada's workflow is settled, the order is shipped")
    expect(printed).toContain('an order that is shipped cannot be shipped')
    expect(printed).toContain('each printed once and in order')
  }
  expect(second).toContain('Cleo   2 orders, 17800 cents')
  expect(second).toContain('Ada has visited 2 times')
})

test('the tests of the shop pass', { timeout: patienceMs }, async () => {
  const printed = await runExample('shop/order.test.ts')

  expect(printed).toMatch(/^# pass 5$/m)
  expect(printed).toMatch(/^# fail 0$/m)
})

test('the billing workflow closes a month with late payers and a bank that was down', {
  timeout: patienceMs,
}, async () => {
  const printed = await runExample('billing-workflow/billing-workflow.ts')

  expect(printed).toContain('May has ended: 4 invoices')
  expect(printed).toContain('Bo: has paid by bank transfer')
  expect(printed).toContain('Cleo: is suspended')
  expect(printed).toContain('The month is closed (settled): Ada, Bo, Dev paid; suspended: Cleo')
  expect(printed).toContain('collect failed: the bank does not answer')
})

test.each(['embedded', 'on a server'])(
  'the tenants are isolated, and one is exported and imported again, %s',
  {
    timeout: patienceMs,
  },
  async place => {
    const server = place === 'embedded' ? {} : { DATABASE_URL: await freshDatabase('two_shops') }
    const { stdout: printed } = await runFile('multi-tenant/multi-tenant.ts', [], server)

    expect(printed).toContain('(none)     tenant_required')
    expect(printed).toContain('tea-house: 2 × teapot, 58.00 €')
    expect(printed).toContain('book-shop: 1 × teapot, 9.90 €')
    expect(printed).toContain('Left: tea-house\n')
    expect(printed).toContain('The book cellar still has its order: teapot for 990 cents.')
  },
)

test('the embedded script remembers its sales from one run to the next', { timeout: patienceMs }, async () => {
  const first = await runExample('embedded-script/embedded-script.ts')
  const second = await runExample('embedded-script/embedded-script.ts', 'cake', '2')

  expect(first).toContain('1 × tea: 2.50 €. 9 left on the shelf.\nSale number 1;')
  expect(second).toContain('2 × cake: 7.80 €. 8 left on the shelf.\nSale number 2; 10.30 €')
})

test('the bank moves money 50 times at once, and a runner that is killed loses no transfer', {
  timeout: patienceMs,
}, async () => {
  const path = join(root, 'examples', 'bank', 'bank.ts')
  const cwd = mkdtempSync(join(folder, 'bank-'))
  await copyStore(join(cwd, '.rillflow'))
  const flags = [...shortLived, '--import', import.meta.resolve('tsx')]
  const waiting = spawn(process.execPath, [...flags, path, '--wait'], { cwd, stdio: ['ignore', 'pipe', 'inherit'] })
  const ended = once(waiting, 'exit')
  let before = ''
  for await (const chunk of waiting.stdout) {
    before += chunk
    if (before.includes('waits for its approval')) break
  }
  waiting.kill('SIGKILL')
  await ended

  const { stdout: after } = await run(process.execPath, [...flags, path], { cwd, timeout: patienceMs })
  const { stdout: again } = await run(process.execPath, [...flags, path], { cwd, timeout: patienceMs })

  for (const printed of [before, after, again])
    expect(printed).toContain('50 transfers at once; the bank has 2000000 cents')
  for (const printed of [after, again]) expect(printed).toContain('\nThe bank has 2000000 cents\n')
  // Every run moves one euro of Ada's; the large transfer was made once.
  expect(after).toContain('Ada has 399800 cents')
  expect(again).toContain('Ada has 399700 cents')
})

test.each(['drizzle', 'prisma'])(
  'the application with %s that exists already gets an outbox, a read model and events',
  {
    timeout: patienceMs,
  },
  async library => {
    const DATABASE_URL = await freshDatabase(`application_${library}`)
    const path = `${library}-application/${library}-application.ts`
    for (const _ of [1, 2]) {
      const { stdout } = await runFile(path, [], { DATABASE_URL })

      expect(stdout).toBe(`Order 3: the teapot is out of stock
Mails: ada@shop: thank you for order-1 · bo@shop: thank you for order-2
Again: an order that is shipped cannot be shipped
The row of the old order: shipped
ada@shop: 2 orders, 5800 cents
bo@shop: 1 orders, 2900 cents
`)
    }
  },
)

test('every example is run here', () => {
  expect(readdirSync(join(root, 'examples'))).toEqual([
    ...['bank', 'billing-workflow', 'drizzle-application', 'embedded-script', 'multi-tenant', 'prisma-application'],
    'shop',
  ])
})

async function freshDatabase(name: string): Promise<string> {
  const client = new pg.Client(postgresUrl())
  await client.connect()
  await client.query(`create database ${name}`)
  await client.end()
  const url = new URL(postgresUrl())
  url.pathname = `/${name}`
  return url.href
}

/** As a user runs it, but with data in a folder of the test. */
async function runExample(path: string, ...args: string[]): Promise<string> {
  return (await runFile(path, args)).stdout
}

function runFile(path: string, args: string[], more: Record<string, string> = {}) {
  const flags = [...shortLived, '--import', import.meta.resolve('tsx')]
  const command = [...flags, join(root, 'examples', path), ...args]
  const { DATABASE_URL: _, ...own } = process.env
  const env = { ...own, NO_COLOR: '1', RILLFLOW_FOLDER: till, ...more }
  return run(process.execPath, command, { cwd: folder, env, timeout: patienceMs })
}
