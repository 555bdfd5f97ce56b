/** How a store uses the connections it is given. The embedded engine has one, and nothing to choose. */
import pg from 'pg'
import { expect, onTestFinished, test } from 'vitest'
import { openStore, type Store } from '../../src/store.ts'
import { postgresUrl } from '../support/engines.ts'
import { connect, onServer, openShop, outcome, paid, placed, type ShopMap, take, waitersFor } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

/** Uses a little of everything a store can do. */
async function exercise(store: Store<ShopMap>): Promise<void> {
  const tailing = take(store.events.tail({ from: 'start' }), 60)
  await Promise.all(Array.from({ length: 30 }, (_, n) => store.events.append(`order-${n % 4}`, placed(n))))
  await store.transaction(async tx => {
    await store.events.append('order-0', paid, { tx })
    await store.events.append('order-9', placed(), { tx, idempotencyKey: 'k' })
  })
  await store.events.append('order-9', placed(), { idempotencyKey: 'k' })
  await store.events.import(Array.from({ length: 28 }, (_, n) => ({ stream: 'order-8', ...placed(n) })))

  const events = await store.events.readAll().toArray()
  expect(events).toHaveLength(60)
  expect((await tailing).map(event => event.id)).toEqual(events.map(event => event.id))
  expect(await store.events.readAll({ types: ['OrderPaid'], pageSize: 1 }).toArray()).toHaveLength(1)
  expect(await store.events.read('order-8', { pageSize: 5, direction: 'backwards' }).toArray()).toHaveLength(28)
  await store.events.waitFor(events.at(-1)!.position)
  await store.streams.archive('order-9')
  await expect(store.events.append('order-9', paid)).rejects.toMatchObject({ code: 'stream_archived' })
}

test("everything works on the engine's default connections", async () => {
  const { store } = await openShop()

  await exercise(store)
})

if (onServer) {
  test('everything works with a single connection', async () => {
    const { sibling } = await openShop()

    await exercise(await sibling({ maxConnections: 1 }))
  })

  test('with a single connection a stream held by another transaction delays only its own appends', async () => {
    const { sibling, named } = await openShop()
    const store = await sibling({ maxConnections: 1 })
    const client = await connect()
    await store.events.append('order-held', placed(0))
    await client.query('begin')
    await client.query(named(`select 1 from ~streams where stream = 'order-held' for update`))

    const held = Promise.all([1, 2, 3].map(n => store.events.append('order-held', placed(n))))
    const others = await Promise.all(Array.from({ length: 20 }, (_, n) => store.events.append(`order-${n}`, placed(n))))
    await client.query('commit')

    expect(others).toHaveLength(20)
    expect((await held).map(result => result.version)).toEqual([2, 3, 4])
  })

  test('everything works without prepared statements, and none remains on the server', async () => {
    const { sibling } = await openShop()
    const store = await sibling({ prepare: false, maxConnections: 2 })

    await exercise(store)

    const left = await store.transaction(tx => tx.query('select name from pg_prepared_statements'))
    expect(left).toEqual([])
  })

  test('everything works on a pool of the user, which stays open', async () => {
    const { schema } = await openShop()
    const pool = new pg.Pool({ connectionString: postgresUrl(), max: 3 })
    onTestFinished(() => pool.end())
    const store = await openStore<ShopMap>({ pool, schema })

    await exercise(store)
    await store.close()

    expect((await pool.query('select 1 as one')).rows).toEqual([{ one: 1 }])
  })

  test('a store on a pool of the user is notified of appends of other processes', async () => {
    const { schema, store: other } = await openShop()
    const { hostname, port, username, password, pathname } = new URL(postgresUrl())
    const config = { host: hostname, port: Number(port), user: username, password, database: pathname.slice(1) }
    const pool = new pg.Pool({ ...config, max: 2 })
    onTestFinished(() => pool.end())
    await using store = await openStore<ShopMap>({ pool, schema, pollMs: 600_000 })

    const tailing = take(store.events.tail({ from: 'start' }), 1)
    await other.events.append('order-1', placed())

    expect(await tailing).toHaveLength(1)
  })

  test('parsers that the user set for the whole driver neither change nor interfere', async () => {
    const { store } = await openShop()
    const oids = [20, 1184, 3802, 114, 1016] as const
    const before = oids.map(oid => pg.types.getTypeParser(oid as 20))
    for (const oid of oids) pg.types.setTypeParser(oid as number, () => 'spoilt')
    onTestFinished(() => {
      for (const [at, oid] of oids.entries()) pg.types.setTypeParser(oid as number, before[at]!)
    })

    const result = await store.events.append('order-1', placed(7))
    const event = await store.events.read('order-1').first()
    const { rows } = await (await connect()).query('select 1::bigint as mine')

    expect(result.position).toBe(1)
    expect(event).toMatchObject({ data: { total: 7 }, createdAt: expect.any(Date), position: 1 })
    expect(rows).toEqual([{ mine: 'spoilt' }])
  })

  test('a database whose transactions are serializable by default loses nothing', async () => {
    const client = await connect()
    const name = `shop_${process.pid}_${Date.now()}`
    await client.query(`create database ${name}`)
    await client.query(`alter database ${name} set default_transaction_isolation = 'serializable'`)
    onTestFinished(async () => {
      const last = new pg.Client(postgresUrl())
      await last.connect()
      await last.query(`drop database ${name} with (force)`)
      await last.end()
    })
    const url = new URL(postgresUrl())
    url.pathname = `/${name}`
    const open = (migrate: boolean) => openStore<ShopMap>({ url: url.href, migrate, maxConnections: 4 })
    await using store = await open(true)
    await using other = await open(false)

    await exercise(store)
    const tailing = take(other.events.tail({ from: await store.events.head() }), 80)
    const outcomes = await Promise.all(
      Array.from({ length: 80 }, (_, n) =>
        outcome((n % 2 === 0 ? store : other).events.append('order-hot', placed(n))),
      ),
    )

    expect(outcomes.filter(each => each.error !== undefined)).toEqual([])
    expect(new Set((await tailing).map(event => event.version)).size).toBe(80)
  })

  test('closing cuts off an append that waits for a stream held elsewhere, and reports that its outcome is unknown', async () => {
    const { sibling, named } = await openShop()
    const store = await sibling({ closeMs: 50 })
    await store.events.append('order-held', placed())
    const client = await connect()
    await client.query('begin')
    await client.query(named(`select 1 from ~streams where stream = 'order-held' for update`))
    const held = outcome(store.events.append('order-held', paid))
    await waitUntil(async () => (await waitersFor(client)) > 0)

    await store.close()

    const { error } = await held
    expect(error).toMatchObject({ code: 'outcome_unknown', eventIds: [expect.any(String)] })
    await client.query('rollback')
  })

  test('an append that meets a broken connection is sent again and stored once', async () => {
    const { sibling, schema } = await openShop()
    const store = await sibling({ maxConnections: 2 })
    await store.events.append('order-1', placed())
    const client = await connect()
    await client.query('select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1', [schema])

    const results = await Promise.all([1, 2, 3].map(n => store.events.append('order-1', placed(n))))

    expect(results.map(result => [result.version, result.repeated])).toEqual([
      [2, false],
      [3, false],
      [4, false],
    ])
  })
}
