/** Commands that only read change nothing, and need nothing but the rights of a reader. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { identifier } from '../../src/database/sql.ts'
import type { Store } from '../../src/store.ts'
import { freshSchema, openDatabase, postgresUrl } from '../support/engines.ts'
import { type Folder, onServer, openFolder, patienceMs, shopConfig } from './shop.ts'

const patient = { timeout: patienceMs }
const reader = freshSchema()
let shop: Folder

/** With a projection that opening the store as an application would make inline. */
const inlineConfig = shopConfig.replace(
  `defineDocumentProjection('orders', {`,
  `defineDocumentProjection('orders', {\n  lifecycle: 'inline',`,
)

const lines = [
  'status',
  'consumers list',
  'consumers status orders',
  'projections list',
  'subscriptions list',
  'subscriptions groups parcels',
  'subscriptions status parcels',
  'subscriptions tail parcels',
  'workflows list',
  'handlers list',
  'lanes list',
  'schedules list',
  'runners list',
  'dead-letters list',
  'dead-letters stats',
  'snapshots metrics',
  'events tail',
  'streams list',
  'streams show order-1',
  'streams state order-1 --of order',
  'events types',
  'projections rows order-totals',
  'documents query customers',
  'documents query orders',
  'documents get customers ada',
  'schema plan',
  'schema check',
  'health schema',
  'upkeep --dry-run',
]

beforeAll(async () => {
  shop = await openFolder({
    config: inlineConfig,
    async seed(store) {
      await store.events.append('order-1', { type: 'OrderPlaced', data: { total: 5 } })
      await store.subscriptions.create('parcels')
    },
  })
  expect(await shop.run('schema sync')).toMatchObject({ code: 0 })
  await shop.use(store => store.documents('customers').put('ada', { name: 'Ada', email: 'ada@shop.example' }))
  if (!onServer) return
  const database = await openDatabase()
  const schema = await shop.use(async store => identifier(store.schema.name))
  await database.transaction(async tx => {
    await tx.query(`create role ${identifier(reader)} login password 'reader'`)
    await tx.query(`grant usage on schema ${schema} to ${identifier(reader)}`)
    await tx.query(`grant select on all tables in schema ${schema} to ${identifier(reader)}`)
    await tx.query(`grant select on all sequences in schema ${schema} to ${identifier(reader)}`)
  })
}, patienceMs)

afterAll(async () => {
  if (!onServer) return
  const database = await openDatabase()
  await database.transaction(async tx => {
    await tx.query(`drop owned by ${identifier(reader)}`)
    await tx.query(`drop role ${identifier(reader)}`)
  })
})

test('a command that only reads leaves every table as it is, whatever the configuration defines', patient, async () => {
  const before = await shop.use(contentOf)

  for (const line of [...lines, 'doctor']) {
    const { code, stderr } = await shop.run(line)
    expect({ line, code: ends(line, code), stderr }).toEqual({ line, code: 0, stderr: '' })
  }

  expect(await shop.use(contentOf)).toEqual(before)
  expect(before.consumers).toBe(1)
  expect(before).toMatchObject({ runners: 0, workflow_routes: 0, workflow_schedules: 0 })
})

test('a command that writes stores its own change, and no definitions of the configuration', patient, async () => {
  expect(await shop.run(['events', 'append', 'order-2', 'OrderShipped', '{}'])).toMatchObject({ code: 0 })
  expect(await shop.run(['workflows', 'publish', 'OrderShipped', '{}'])).toMatchObject({ code: 0 })
  expect(await shop.run('consumers pause order-totals')).toMatchObject({ code: 0 })

  const after = await shop.use(contentOf)
  expect(after).toMatchObject({ events: 3, consumers: 2, runners: 0, workflow_routes: 0, workflow_schedules: 0 })
  const { stdout } = await shop.run('consumers status orders --json')
  expect(JSON.parse(stdout)).toMatchObject({ name: 'orders', state: 'active' })
  expect(JSON.parse(stdout)).not.toHaveProperty('progressedAt')
})

test.runIf(onServer)('a role that may only select can run every command that reads', patient, async () => {
  const env = {
    DATABASE_URL: Object.assign(new URL(postgresUrl()), { username: reader, password: 'reader' }).href,
  }

  for (const line of [...lines, 'doctor']) {
    const { code, stderr } = await shop.run(line, { env })
    expect({ line, code: ends(line, code), stderr }).toEqual({ line, code: 0, stderr: '' })
  }

  const refused = await shop.run(['events', 'append', 'order-3', 'OrderPlaced', '{}'], { env })
  expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining('permission denied') })
})

test('run stores the definitions of the configuration, and makes the projection inline', patient, async () => {
  expect(await shop.run('consumers resume order-totals')).toMatchObject({ code: 0 })

  expect(await shop.run('run --once')).toMatchObject({ code: 0 })

  expect(await shop.use(contentOf)).toMatchObject({ workflow_routes: 1, workflow_schedules: 1 })
  const { stdout } = await shop.run('consumers status orders --json')
  expect(JSON.parse(stdout)).toMatchObject({ state: 'inline', lag: 0 })
})

/** The doctor ends with 3 if it finds an error: the server of the tests runs without fsync. */
function ends(line: string, code: number | null): number | null {
  return line === 'doctor' && code === 3 ? 0 : code
}

/** The number of rows of each table. */
async function contentOf(store: Store): Promise<Record<string, number>> {
  const { name } = store.schema
  return store.transaction(async tx => {
    const tables = await tx.query<{ name: string }>(
      `select table_name as name from information_schema.tables where table_schema = $1 order by 1`,
      [name],
    )
    const counted: Record<string, number> = {}
    for (const { name: table } of tables) {
      const [found] = await tx.query<{ rows: number }>(
        `select count(*)::integer as rows from ${identifier(name, table)}`,
      )
      counted[table] = found!.rows
    }
    return counted
  })
}
