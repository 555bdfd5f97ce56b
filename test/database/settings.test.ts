/** Settings of a server or a driver that change the text of values: they change nothing, or are refused at open. */
import pg from 'pg'
import { expect, onTestFinished, test } from 'vitest'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import { openStore, type StoreOptions } from '../../src/store.ts'
import { freshSchema, postgresUrl } from '../support/engines.ts'
import { connect, openShop, outcome, paid, placed, type ShopMap, shopEvents, take } from '../support/shop.ts'

const totals = defineDocumentProjection('totals', {
  events: shopEvents,
  lifecycle: 'inline',
  initial: () => ({ total: 0 }),
  evolve: { OrderPlaced: (state, { data }) => ({ total: state.total + data.total }) },
})

/** A database of its own with these settings, dropped when the test is over. */
async function databaseWith(settings: Record<string, string>, more = ''): Promise<string> {
  const client = await connect()
  const name = `shop_${freshSchema()}`
  await client.query(`create database ${name} ${more}`)
  for (const [setting, value] of Object.entries(settings))
    await client.query(`alter database ${name} set ${setting} = '${value}'`)
  onTestFinished(async () => {
    const last = new pg.Client(postgresUrl())
    await last.connect()
    await last.query(`drop database ${name} with (force)`)
    await last.end()
  })
  const url = new URL(postgresUrl())
  url.pathname = `/${name}`
  return url.href
}

/** Uses what reads dates, arrays, uuids and names. */
async function exercise(options: StoreOptions<ShopMap>): Promise<void> {
  await using store = await openStore<ShopMap>({ projections: [totals], logger: false, migrate: true, ...options })
  const appended = await store.events.append('order-1', [placed(7), paid])
  await store.documents('customers').put('c-1', { name: 'Ada' })
  const [first] = await store.events.readAll().toArray()
  const tailed = await take(store.events.tail({ from: 'start' }), 2)
  expect(first).toMatchObject({ id: appended.eventIds[0], position: 1, data: { total: 7 } })
  expect(Math.abs(first!.createdAt.getTime() - Date.now())).toBeLessThan(600_000)
  expect(tailed).toHaveLength(2)
  expect(await store.documents(totals).get('order-1')).toMatchObject({
    data: { total: 7 },
    updatedAt: expect.any(Date),
  })
  expect(await store.documents('customers').get('c-1')).toMatchObject({ data: { name: 'Ada' } })
  expect((await store.schema.check()).problems).toEqual([])
}

test('a database whose dates have another style works', async () => {
  await exercise({ url: await databaseWith({ datestyle: 'German, DMY' }) })
})

test('settings that change the text of values are refused at open, with the statement that sets them right', async () => {
  const wrong = { array_nulls: 'off', quote_all_identifiers: 'on', bytea_output: 'escape' }

  for (const [setting, value] of Object.entries(wrong)) {
    const { error } = await outcome(openStore({ url: await databaseWith({ [setting]: value }), migrate: true }))
    expect(error).toMatchObject({
      ...{ code: 'setting_unsupported', setting, value, retryable: false },
      message: expect.stringContaining(`alter role … in database … set ${setting} = `),
    })
  }
})

test('a pool of the user with another style of dates or another encoding is refused', async () => {
  for (const [setting, value] of [
    ['datestyle', 'SQL'],
    ['client_encoding', 'LATIN1'],
  ] as const) {
    const pool = new pg.Pool({ connectionString: postgresUrl(), max: 1 })
    onTestFinished(() => pool.end())
    await pool.query(`set ${setting} = '${value}'`)

    const { error } = await outcome(openStore({ pool, schema: freshSchema() }))

    expect(error).toMatchObject({ code: 'setting_unsupported', setting })
  }
})

test('a database that is not UTF-8 is refused at open', async () => {
  const url = await databaseWith({}, `encoding 'LATIN1' locale 'C' template template0`)

  const { error } = await outcome(openStore({ url, migrate: true }))

  expect(error).toMatchObject({
    ...{ code: 'setting_unsupported', setting: 'server_encoding', value: 'LATIN1', expected: 'UTF8' },
    message: expect.stringContaining('create database'),
  })
})

test('the doctor finds a setting that was changed while the store was open', async () => {
  const url = await databaseWith({})
  await using store = await openStore({ url, migrate: true, maxConnections: 1, maxUses: 1 })
  const client = await connect(url)
  await client.query(
    `do $$ begin execute format('alter database %I set array_nulls = off', current_database()); end $$`,
  )

  const { findings } = await store.doctor()

  expect(findings).toContainEqual(
    expect.objectContaining({
      check: 'server.settings',
      level: 'error',
      message: expect.stringContaining('array_nulls'),
    }),
  )
})

test('parsers of the user for uuid, text and arrays, set for the whole driver, break nothing', async () => {
  const oids = [16, 20, 23, 25, 1043, 2950, 2951, 1007, 1009, 1184, 3802]
  const before = oids.map(oid => pg.types.getTypeParser(oid))
  for (const oid of oids) pg.types.setTypeParser(oid, () => 'spoilt' as never)
  onTestFinished(() => {
    for (const [at, oid] of oids.entries()) pg.types.setTypeParser(oid, before[at]! as never)
  })

  await exercise({ url: await databaseWith({}) })
})

test('a pool of the user with binary: true, pipeline: true or only the method connect works', async () => {
  const url = await databaseWith({})
  const pools = [{ binary: true }, { pipeline: true }, {}].map(more => {
    const pool = new pg.Pool({ connectionString: url, max: 3, ...more } as pg.PoolConfig)
    onTestFinished(() => pool.end())
    return pool
  })
  const minimal = { connect: () => pools[2]!.connect(), query: (text: string) => pools[2]!.query(text) }

  for (const [at, pool] of [pools[0]!, pools[1]!, minimal].entries())
    await exercise({
      pool: pool as pg.Pool,
      schema: `shop_${at}`,
      channel: `shop_${at}`,
      pollMs: 50,
    })

  expect((await pools[0]!.query('select 1::integer as one')).rows).toEqual([{ one: 1 }])
})

test('a transaction of a client with binary: true takes appends and reads', async () => {
  const { store } = await openShop()
  const client = new pg.Client({ connectionString: postgresUrl(), binary: true } as pg.ClientConfig)
  await client.connect()
  onTestFinished(() => client.end())

  await client.query('begin')
  const appended = await store.events.append('order-1', placed(3), { tx: client })
  await client.query('commit')

  expect(appended).toMatchObject({ version: 1, position: 1 })
})

test('pg-native and clients that cannot COPY are refused at open, with a sentence', async () => {
  const pool = new pg.Pool({ connectionString: postgresUrl(), max: 1 })
  onTestFinished(() => pool.end())
  const clients: ((client: pg.PoolClient) => object)[] = [
    client => Object.assign(Object.create(client), { native: {} }),
    client => ({
      query: (query: pg.QueryConfig) => client.query(query.text, query.values),
      release: () => client.release(),
    }),
    client => ({ release: () => client.release() }),
  ]

  for (const make of clients) {
    const given = { connect: async () => make(await pool.connect()) } as unknown as StoreOptions['pool']
    expect((await outcome(openStore({ pool: given }))).error).toMatchObject({ code: 'invalid_option', option: 'pool' })
  }
  expect((await outcome(openStore({ pool: { query() {} } as never }))).error).toMatchObject({ option: 'pool' })
})
