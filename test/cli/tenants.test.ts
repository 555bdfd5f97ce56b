import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { identifier } from '../../src/database/sql.ts'
import { freshSchema, openDatabase, postgresUrl } from '../support/engines.ts'
import { waitUntil } from '../support/wait.ts'
import { type Folder, onServer, openFolder, patienceMs } from './shop.ts'

const prefix = `${freshSchema()}_`
let tenanted: Folder

/** Some tests start the program six times. */
const patient = { timeout: patienceMs }

beforeAll(async () => {
  tenanted = await openFolder({
    config: `
      import { defineConfig, defineDocumentProjection, defineHandler } from 'rillflow'
      export default defineConfig({
        tenancy: 'schema',
        slowStatementMs: 60_000,
        tenantPrefix: '${prefix}',
        projections: [defineDocumentProjection('totals', {
          initial: () => ({ total: 0 }),
          evolve: { OrderPlaced: (order, event) => ({ total: order.total + event.data.total }) },
        })],
        handlers: [defineHandler('pay', { on: 'OrderPlaced', run: (_, { emit }) => emit('OrderPaid', {}) })],
      })
    `,
  })
  for (const tenant of ['acme', 'globex'])
    expect(await tenanted.run(`tenants ensure ${tenant}`)).toMatchObject({ code: 0 })
  const placed = ['events', 'append', 'order-1', 'OrderPlaced', '{"total":5}', '--tenant', 'acme']
  expect(await tenanted.run(placed)).toMatchObject({ code: 0 })
}, patienceMs)

afterAll(async () => {
  if (!onServer) return
  const database = await openDatabase()
  await database.transaction(async tx => {
    const found = await tx.query<{ name: string }>(
      'select nspname as name from pg_namespace where starts_with(nspname, $1)',
      [prefix],
    )
    for (const { name } of found) await tx.query(`drop schema ${identifier(name)} cascade`)
  })
})

test('tenants are listed with their state', patient, async () => {
  await tenanted.shows('tenants list', {
    text: [/^TENANT +SERVER +SCHEMA +STATE\nacme +default +\w+_acme +active\nglobex /],
    json: { items: [{ tenant: 'acme', schema: `${prefix}acme` }, { tenant: 'globex' }] },
  })
  await tenanted.shows('tenants status', {
    text: [/^TENANT .*\nacme +default +\d+ +0 +0 +[\d.]+ kB/],
    json: [{ tenant: 'acme', head: 1, drift: [], pending: [] }, { tenant: 'globex' }],
  })
})

test('the status of one tenant saves the names of all tenants for the shell', patient, async () => {
  expect(await tenanted.run('status --tenant acme')).toMatchObject({ code: 0 })

  const names = await readFile(join(tenanted.cache, 'rillflow', 'names'), 'utf8')
  expect(names).toBe('consumer\ttotals\nprojection\ttotals\nhandler\tpay\ntenant\tacme\ntenant\tglobex\n')
})

test('--tenant names the tenant of every command, and without it none is chosen', patient, async () => {
  await tenanted.shows('events tail --tenant acme', {
    text: [/^ +#1 .*order-1@1 +OrderPlaced/],
    json: [{ position: 1, type: 'OrderPlaced' }],
    isNdjson: true,
  })

  // Each line would start the embedded engine again, and show nothing more.
  if (!onServer) return
  const env = { RILLFLOW_TENANT: 'acme' }
  const [without, fromEnvironment, all, down, unknown, both] = await Promise.all([
    tenanted.run('events tail'),
    tenanted.run('events tail --json', { env }),
    tenanted.run('tenants list --json', { env }),
    tenanted.run('schema down --tenant acme --yes'),
    tenanted.run('events tail --tenant hooli'),
    tenanted.run('tenants list --tenant acme'),
  ])

  expect(without).toMatchObject({ code: 2, stdout: '', stderr: expect.stringContaining('try: --tenant NAME') })
  expect(JSON.parse(fromEnvironment.stdout)).toMatchObject({ position: 1, type: 'OrderPlaced' })
  expect(JSON.parse(all.stdout).items).toHaveLength(2)
  expect(down).toMatchObject({ code: 2, stderr: expect.stringContaining('try: rillflow tenants drop NAME') })
  expect(unknown).toMatchObject({ code: 1, stderr: expect.stringContaining('There is no tenant "hooli"') })
  expect(both).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('--tenant cannot be used: this command is about all tenants'),
  })
})

test('a line about tenants, or one that names a tenant, says by that that the store has tenants', patient, async () => {
  await writeFile(join(tenanted.path, 'plain.mjs'), `export default { tenantPrefix: '${prefix}' }`)

  await tenanted.shows('tenants list --config plain.mjs', {
    text: [/^TENANT +SERVER +SCHEMA +STATE\nacme /],
    json: { items: [{ tenant: 'acme' }, { tenant: 'globex' }] },
  })
  expect(await tenanted.run('events tail --tenant acme --config plain.mjs')).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('OrderPlaced'),
  })
  expect(await tenanted.run('events tail --tenant hooli --config plain.mjs')).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('There is no tenant "hooli"'),
  })
})

test('checks visit all tenants', patient, async () => {
  await tenanted.shows('health schema --all-tenants', {
    text: [/^ok +Tenant acme, schema \w+_acme, .*\nok +Tenant globex, schema \w+_globex, /],
    json: [
      { tenant: 'acme', isHealthy: true },
      { tenant: 'globex', isHealthy: true },
    ],
  })
  const examined = await tenanted.run('doctor --all-tenants')
  expect(examined.stdout).toMatch(/^acme\nok +schema [\s\S]*\nglobex\nok +schema /)
  if (!onServer) return
  const database = await openDatabase()
  await database.transaction(tx => tx.query(`drop index "${prefix}globex"."events_created_at"`).then(() => undefined))

  const drifted = await tenanted.run('health schema --all-tenants --json')

  expect(drifted.code).toBe(3)
  expect(JSON.parse(drifted.stdout)).toMatchObject([
    { tenant: 'acme', isHealthy: true },
    { tenant: 'globex', isHealthy: false },
  ])
  await database.transaction(tx => tx.query(`drop schema "${prefix}globex" cascade`).then(() => undefined))
  expect(await tenanted.run('tenants ensure globex')).toMatchObject({ code: 0 })
})

test('a tenant is exported, imported under another name, and dropped', patient, async () => {
  const exported = await tenanted.run('tenants export acme --output exported')
  expect(exported).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/^Exported tenant acme to exported: \d+ rows of/),
  })
  const again = await tenanted.run('tenants export acme --output exported --include-snapshots --json')
  expect(JSON.parse(again.stderr)).toMatchObject({ error: { code: 'export_exists' } })
  const imported = await tenanted.run('tenants import exported --as acme-copy --json')
  expect(JSON.parse(imported.stdout)).toMatchObject({ tenant: 'acme-copy', manifest: { position: 1 } })

  const refused = await tenanted.run('tenants drop acme-copy')
  const dropped = await tenanted.run('tenants drop acme-copy --yes')

  expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining('would drop tenant acme-copy of') })
  expect(dropped).toMatchObject({ code: 0, stdout: 'Dropped tenant acme-copy.\n' })
})

test('a tenant is created from a part of another schema, which a module selects', patient, async () => {
  const source = await openFolder({
    async seed(store) {
      await store.events.append('initech-order-1', { type: 'OrderPlaced', data: { total: 7 } })
      await store.events.append('hooli-order-1', { type: 'OrderPlaced', data: { total: 8 } })
    },
  })
  await writeFile(
    join(source.path, 'select-tenant.mjs'),
    'export default tenant => ({ stream: ({ id }) => id.startsWith(tenant + "-") })',
  )
  await writeFile(
    join(source.path, 'rillflow.config.mjs'),
    `export default { tenancy: 'schema', tenantPrefix: '${prefix}' }`,
  )
  const schema = await source.use(async store => store.schema.name)
  const line = `tenants import initech --from-schema ${schema}`

  const alone = await source.run(line)
  const imported = await source.run(`${line} --select select-tenant.mjs`)

  expect(alone).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('--from-schema and --select must be used together'),
  })
  expect(imported).toMatchObject({
    ...{ code: 0, stdout: expect.stringContaining('Imported tenant initech: 1 stream, 1 event, 0 documents') },
  })
})

test('run runs all tenants until Ctrl-C; run --once runs each until there is nothing left to do', patient, async () => {
  await tenanted.shows('tenants sync', {
    text: [/^TENANT +RESULT\nacme +up to date\nglobex +up to date\n/],
    json: expect.arrayContaining([{ tenant: 'acme', steps: [] }]),
  })
  const once = await tenanted.run('run --once --json')
  expect(once).toMatchObject({ code: 0 })
  expect(JSON.parse(once.stdout)).toMatchObject({ tenants: onServer ? 3 : 2, events: expect.any(Number), failed: [] })
  await tenanted.shows('documents get totals order-1 --tenant acme', {
    text: ['"total": 5'],
    json: { id: 'order-1', data: { total: 5 } },
  })

  const running = tenanted.start('run --health-bind 127.0.0.1:0')
  await waitUntil(() => running.stderr().includes('Press Ctrl-C to stop'), { deadlineMs: 60_000, what: 'all tenants' })
  const [url] = /http:\S+(?=\/health)/.exec(running.stderr())!
  const metrics = await (await fetch(`${url}/metrics`)).text()
  running.interrupt()

  expect(metrics).toContain('tenant="acme"')
  expect(running.stderr()).toMatch(
    /1 projection \(totals\), 1 handler \(pay\) for \d tenants, and for tenants that are created later/,
  )
  expect(await running.ended).toMatchObject({ code: 0 })
})

test('a tenant is moved to another server of the directory', patient, async () => {
  const refused = await tenanted.run('tenants move acme eu-2')
  expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining('tenancy: { directory') })
  if (!onServer) return
  const other = `${prefix}other`
  const database = await openDatabase()
  await database.run({ label: 'test.create', text: `create database "${other}"`, values: [] })
  const servers = {
    'eu-1': postgresUrl(),
    'eu-2': Object.assign(new URL(postgresUrl()), { pathname: `/${other}` }).href,
  }
  const tenancy = { directory: postgresUrl(), schema: `${prefix}directory`, servers }
  await writeFile(
    join(tenanted.path, 'spread.mjs'),
    `export default ${JSON.stringify({ tenancy, tenantPrefix: `${prefix}moving_` })}`,
  )
  expect(await tenanted.run('tenants ensure umbrella --server eu-1 --config spread.mjs')).toMatchObject({ code: 0 })

  const moved = await tenanted.run('tenants move umbrella eu-2 --config spread.mjs')
  const there = await tenanted.run('tenants move umbrella eu-2 --config spread.mjs --json')
  const unknown = await tenanted.run('tenants move umbrella us-1 --config spread.mjs')
  await database.run({ label: 'test.drop', text: `drop database "${other}" with (force)`, values: [] })

  expect(moved).toMatchObject({
    ...{ code: 0, stdout: expect.stringMatching(/^Moved tenant umbrella to server eu-2: .* writes paused for \d/) },
  })
  expect(JSON.parse(there.stdout)).toMatchObject({ tenant: 'umbrella', server: 'eu-2', state: 'active' })
  expect(unknown).toMatchObject({ code: 1, stderr: expect.stringContaining('The directory has no server "us-1"') })
})
