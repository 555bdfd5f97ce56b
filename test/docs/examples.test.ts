/** Every example runs with one command, exits by itself, and prints the promised output. */
import { execFile } from 'node:child_process'
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { copyStore, shortLived } from '../support/embedded.ts'
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

  expect(printed).toMatch(/^# pass 4$/m)
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

test('the tenants are isolated, and one is exported and imported again', { timeout: patienceMs }, async () => {
  const printed = await runExample('multi-tenant/multi-tenant.ts')

  expect(printed).toContain('(none)     tenant_required')
  expect(printed).toContain('tea-house: 2 × teapot, 58.00 €')
  expect(printed).toContain('book-shop: 1 × teapot, 9.90 €')
  expect(printed).toContain('Left: tea-house\n')
  expect(printed).toContain('The book cellar still has its order: teapot for 990 cents.')
})

test('the embedded script remembers its sales from one run to the next', { timeout: patienceMs }, async () => {
  const first = await runExample('embedded-script/embedded-script.ts')
  const second = await runExample('embedded-script/embedded-script.ts', 'cake', '2')

  expect(first).toContain('1 × tea: 2.50 €. 9 left on the shelf.\nSale number 1;')
  expect(second).toContain('2 × cake: 7.80 €. 8 left on the shelf.\nSale number 2; 10.30 €')
})

test('every example is run here', () => {
  expect(readdirSync(join(root, 'examples'))).toEqual(['billing-workflow', 'embedded-script', 'multi-tenant', 'shop'])
})

/** As a user runs it, but with data in a folder of the test. */
async function runExample(path: string, ...args: string[]): Promise<string> {
  const flags = [...shortLived, '--import', import.meta.resolve('tsx')]
  const command = [...flags, join(root, 'examples', path), ...args]
  const env = { ...process.env, NO_COLOR: '1', RILLFLOW_FOLDER: till }
  const { stdout } = await run(process.execPath, command, { cwd: folder, env, timeout: patienceMs })
  return stdout
}
