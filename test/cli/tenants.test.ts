import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { identifier } from '../../src/database/sql.ts'
import { freshSchema, openDatabase, postgresUrl } from '../support/engines.ts'
import { waitUntil } from '../support/wait.ts'
import { type Folder, onServer, openFolder, patienceMs } from './shop.ts'

const prefix = `${freshSchema()}_`
let mall: Folder

/** Some start the program half a dozen times. */
const patient = { timeout: patienceMs }

beforeAll(async () => {
  mall = await openFolder({
    config: `
      import { defineConfig, documentProjection, emit } from 'rillflow'
      export default defineConfig({
        tenancy: 'schema',
        slowStatementMs: 60_000,
        tenantPrefix: '${prefix}',
        projections: [documentProjection('totals', {
          initial: () => ({ total: 0 }),
          on: { OrderPlaced: (order, event) => ({ total: order.total + event.data.total }) },
        })],
        register(store) {
          store.workflows.on('OrderPlaced', { name: 'pay' }, () => emit('OrderPaid', {}))
        },
      })
    `,
  })
  for (const tenant of ['acme', 'globex']) expect(await mall.run(`tenants ensure ${tenant}`)).toMatchObject({ code: 0 })
  const placed = ['events', 'append', 'order-1', 'OrderPlaced', '{"total":5}', '--tenant', 'acme']
  expect(await mall.run(placed)).toMatchObject({ code: 0 })
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

test('tenants are listed, with how they are', patient, async () => {
  await mall.shows('tenants list', {
    text: [/^TENANT +SERVER +SCHEMA +STATE\nacme +default +\w+_acme +active\nglobex /],
    json: [{ tenant: 'acme', schema: `${prefix}acme` }, { tenant: 'globex' }],
  })
  await mall.shows('tenants status', {
    text: [/^TENANT .*\nacme +default +\d+ +0 +0 +[\d.]+ kB/],
    json: [{ tenant: 'acme', head: '1', drift: [], pending: [] }, { tenant: 'globex' }],
  })
})

test('the status of one leaves the names of all for the shell', patient, async () => {
  expect(await mall.run('status --tenant acme')).toMatchObject({ code: 0 })

  const names = await readFile(join(mall.cache, 'rillflow', 'names'), 'utf8')
  expect(names).toBe('projection\ttotals\nhandler\tpay\ntenant\tacme\ntenant\tglobex\n')
})

test('--tenant says whose every command is, and without it nobody is guessed', patient, async () => {
  await mall.shows('events tail --tenant acme', {
    text: [/^ +#1 .*order-1@1 +OrderPlaced/],
    json: [{ position: 1, type: 'OrderPlaced' }],
    isNdjson: true,
  })

  // Starting the embedded engine once more for each would show nothing new.
  if (!onServer) return
  const env = { RILLFLOW_TENANT: 'acme' }
  const [nameless, usual, all, down, unknown, both] = await Promise.all([
    mall.run('events tail'),
    mall.run('events tail --json', { env }),
    mall.run('tenants list --json', { env }),
    mall.run('schema down --tenant acme --yes'),
    mall.run('events tail --tenant hooli'),
    mall.run('tenants list --tenant acme'),
  ])

  expect(nameless).toMatchObject({ code: 2, stdout: '', stderr: expect.stringContaining('try: --tenant NAME') })
  expect(JSON.parse(usual.stdout)).toMatchObject({ position: 1, type: 'OrderPlaced' })
  expect(JSON.parse(all.stdout)).toHaveLength(2)
  expect(down).toMatchObject({ code: 2, stderr: expect.stringContaining('try: rillflow tenants drop NAME') })
  expect(unknown).toMatchObject({ code: 1, stderr: expect.stringContaining('There is no tenant "hooli"') })
  expect(both).toMatchObject({ code: 2, stderr: expect.stringContaining('--tenant has no place in it') })
})

test('a store that is not said to have tenants is told how to say so', patient, async () => {
  await writeFile(join(mall.path, 'plain.mjs'), 'export default {}')
  const { code, stderr } = await mall.run('tenants list --config plain.mjs')

  expect(code).toBe(2)
  expect(stderr).toContain(`try: tenancy: 'schema' in the configuration, or --tenancy schema`)
})

test('checks look at all tenants', patient, async () => {
  await mall.shows('health schema --all-tenants', {
    text: [/^ok +Schema \w+_acme .*\nok +Schema \w+_globex /],
    json: [
      { tenant: 'acme', ok: true },
      { tenant: 'globex', ok: true },
    ],
  })
  const examined = await mall.run('doctor --all-tenants')
  expect(examined.stdout).toMatch(/^acme\nok +schema [\s\S]*\nglobex\nok +schema /)
  if (!onServer) return
  const database = await openDatabase()
  await database.transaction(tx => tx.query(`drop index "${prefix}globex"."events_created_at"`).then(() => undefined))

  const drifted = await mall.run('health schema --all-tenants --json')

  expect(drifted.code).toBe(3)
  expect(JSON.parse(drifted.stdout)).toMatchObject([
    { tenant: 'acme', ok: true },
    { tenant: 'globex', ok: false },
  ])
  await database.transaction(tx => tx.query(`drop schema "${prefix}globex" cascade`).then(() => undefined))
  expect(await mall.run('tenants ensure globex')).toMatchObject({ code: 0 })
})

test('a tenant is archived, imported under another name, and dropped', patient, async () => {
  const archived = await mall.run('tenants archive acme --output kept')
  expect(archived).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/^Archived tenant acme to kept: \d+ rows of/),
  })
  const again = await mall.run('tenants archive acme --output kept --include-snapshots --json')
  expect(JSON.parse(again.stderr)).toMatchObject({ error: { code: 'export_exists' } })
  const imported = await mall.run('tenants import kept --as acme-copy --json')
  expect(JSON.parse(imported.stdout)).toMatchObject({ tenant: 'acme-copy', manifest: { position: 1 } })

  const refused = await mall.run('tenants drop acme-copy')
  const dropped = await mall.run('tenants drop acme-copy --yes')

  expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining('would drop tenant acme-copy of') })
  expect(dropped).toMatchObject({ code: 0, stdout: 'Dropped tenant acme-copy.\n' })
})

test('a tenant is made of a part of another schema, chosen by a module', patient, async () => {
  const source = await openFolder({
    async seed(store) {
      await store.events.append('initech-order-1', { type: 'OrderPlaced', data: { total: 7 } })
      await store.events.append('hooli-order-1', { type: 'OrderPlaced', data: { total: 8 } })
    },
  })
  await writeFile(
    join(source.path, 'whose.mjs'),
    'export default tenant => ({ stream: ({ id }) => id.startsWith(tenant + "-") })',
  )
  await writeFile(
    join(source.path, 'rillflow.config.mjs'),
    `export default { tenancy: 'schema', tenantPrefix: '${prefix}' }`,
  )
  const schema = await source.use(async store => store.schema.name)
  const line = `tenants import initech --from-schema ${schema}`

  const alone = await source.run(line)
  const imported = await source.run(`${line} --select whose.mjs`)

  expect(alone).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('--from-schema and --select belong together'),
  })
  expect(imported).toMatchObject({
    ...{ code: 0, stdout: expect.stringContaining('Imported tenant initech: 1 stream, 1 event, 0 documents') },
  })
})

test('run runs all tenants, and ends with Ctrl-C; run --once does what there is to do for each', patient, async () => {
  await mall.shows('tenants sync', {
    text: [/^TENANT +RESULT\nacme +up to date\nglobex +up to date\n/],
    json: expect.arrayContaining([{ tenant: 'acme', steps: [] }]),
  })
  const once = await mall.run('run --once --json')
  expect(once).toMatchObject({ code: 0 })
  expect(JSON.parse(once.stdout)).toMatchObject({ tenants: onServer ? 3 : 2, snapshots: 0 })
  await mall.shows('documents get totals order-1 --tenant acme', {
    text: ['"total": 5'],
    json: { id: 'order-1', data: { total: 5 } },
  })

  const running = mall.start('run --health-bind 127.0.0.1:0')
  await waitUntil(() => running.stderr().includes('Ctrl-C ends it'), { deadlineMs: 60_000, what: 'all tenants' })
  const [url] = /http:\S+(?=\/health)/.exec(running.stderr())!
  const metrics = await (await fetch(`${url}/metrics`)).text()
  running.interrupt()

  expect(metrics).toContain('tenant="acme"')
  expect(running.stderr()).toMatch(/1 projection \(totals\), 1 handler \(pay\) for \d tenants, and for those to come/)
  expect(await running.ended).toMatchObject({ code: 130 })
})

test('a tenant is moved to another server of the directory', patient, async () => {
  const refused = await mall.run('tenants move acme eu-2')
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
    join(mall.path, 'spread.mjs'),
    `export default ${JSON.stringify({ tenancy, tenantPrefix: `${prefix}moving_` })}`,
  )
  expect(await mall.run('tenants ensure umbrella --server eu-1 --config spread.mjs')).toMatchObject({ code: 0 })

  const moved = await mall.run('tenants move umbrella eu-2 --config spread.mjs')
  const there = await mall.run('tenants move umbrella eu-2 --config spread.mjs --json')
  const unknown = await mall.run('tenants move umbrella us-1 --config spread.mjs')
  await database.run({ label: 'test.drop', text: `drop database "${other}" with (force)`, values: [] })

  expect(moved).toMatchObject({
    ...{ code: 0, stdout: expect.stringMatching(/^Moved tenant umbrella to server eu-2: .* writers waited \d/) },
  })
  expect(JSON.parse(there.stdout)).toMatchObject({ tenant: 'umbrella', server: 'eu-2', state: 'active' })
  expect(unknown).toMatchObject({ code: 1, stderr: expect.stringContaining('There is no server "us-1"') })
})
