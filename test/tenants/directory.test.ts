/** Tenants on two servers, with a directory on the first of them. */

import { expect, onTestFinished, test } from 'vitest'
import { deferred } from '../../src/core/abort.ts'
import { openPostgres } from '../../src/database/postgres/postgres.ts'
import { identifier } from '../../src/database/sql.ts'
import { defineProjection } from '../../src/projections/projection.ts'
import { openStore, type Store, type StoreOptions, type TenantedStore } from '../../src/store.ts'
import { readOccupant } from '../../src/transfer/move/moved-marker.ts'
import { complete } from '../../src/workflows/emit.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { startProxy } from '../chaos/tcp-proxy.ts'
import { freshSchema, postgresUrl } from '../support/engines.ts'
import { startServer } from '../support/postgres-server.ts'
import { workerOf } from '../support/run-worker.ts'
import { connect, outcome, placed, type ShopMap, shopEvents } from '../support/shop.ts'
import { totals } from '../support/tenant-store.ts'
import { waitUntil } from '../support/wait.ts'
import { secondServer } from '../transfer/move/two-servers.ts'

interface Country {
  readonly store: TenantedStore<ShopMap>
  readonly servers: Readonly<Record<string, string>>
  /** Of the directory. */
  readonly schema: string
  readonly tenantPrefix: string
  /** Like another process. */
  another(options?: Partial<StoreOptions<ShopMap>>): Promise<TenantedStore<ShopMap>>
}

async function openCountry(options: Partial<StoreOptions<ShopMap>> = {}): Promise<Country> {
  const servers = { 'eu-1': postgresUrl(), 'eu-2': (await secondServer()).url }
  const schema = freshSchema()
  const tenantPrefix = `${schema}_`
  const another = async (more: Partial<StoreOptions<ShopMap>> = {}): Promise<TenantedStore<ShopMap>> => {
    const tenancy = { directory: postgresUrl(), schema, servers }
    const given = { events: shopEvents, tenantPrefix, migrate: true, pollMs: 50, ...options, ...more }
    const store = await openStore<ShopMap>({ ...given, tenancy })
    onTestFinished(() => store.close())
    return store
  }
  onTestFinished(async () => {
    for (const url of Object.values(servers)) {
      const database = await openPostgres({ url, maxConnections: 1 })
      const rows = await database.transaction(tx =>
        tx.query<{ name: string }>('select nspname as name from pg_namespace where starts_with(nspname, $1)', [schema]),
      )
      for (const { name } of rows)
        await database.run({ label: 'test.drop', text: `drop schema ${identifier(name)} cascade`, values: [] })
      await database.close(1_000)
    }
  })
  return { store: await another(), another, servers, schema, tenantPrefix }
}

test('tenants go to the server with the fewest, or to the requested one, and every process finds them there', async () => {
  const { store, another } = await openCountry()

  await store.tenants.ensure('acme')
  await store.tenants.ensure('globex')
  await store.tenants.ensure('initech', { server: 'eu-2' })
  await store.tenant('acme').events.append('order-1', placed(1))
  await store.tenant('globex').events.append('order-1', placed(2))

  const places = (await store.tenants.list()).items.map(({ tenant, server, state }) => [tenant, server, state])
  expect(places).toEqual([
    ['acme', 'eu-1', 'active'],
    ['globex', 'eu-2', 'active'],
    ['initech', 'eu-2', 'active'],
  ])
  const other = await another()
  expect([await totals(other.tenant('acme')), await totals(other.tenant('globex'))]).toEqual([[1], [2]])
  await expect(store.tenants.ensure('acme', { server: 'eu-2' })).rejects.toMatchObject({ code: 'tenant_elsewhere' })
  await expect(store.tenants.ensure('x', { server: 'us-1' })).rejects.toMatchObject({ code: 'server_not_found' })
  await expect(other.tenant('nobody').events.append('order-1', placed())).rejects.toMatchObject({
    code: 'tenant_not_found',
  })
})

test('a tenant is moved under writes, projections and handlers without loss or duplicates', async () => {
  const seen: number[] = []
  const handled: number[] = []
  const register = (own: Store<ShopMap>): void => {
    void own.projections.register(
      defineProjection('orders', {
        events: shopEvents,
        on: { OrderPlaced: event => void seen.push(event.data.total) },
      }),
    )
    own.workflows.register(
      defineHandler('greet', {
        events: shopEvents,
        on: 'OrderPlaced',
        run: event => void handled.push(event.data.total),
      }),
    )
  }
  const { store, another } = await openCountry({ register })
  await store.tenants.ensure('acme', { server: 'eu-1' })
  const [writer, running] = [await another({ register: () => {} }), await another()]
  await using runner = await running.start({ pollMs: 50 })
  await waitUntil(() => runner.active().includes('acme'))
  const done = new AbortController()
  const acknowledged: number[] = []
  const refusals = new Set<string>()
  const write = async (lane: number): Promise<void> => {
    for (let n = lane; !done.signal.aborted; n += 3)
      for (;;) {
        try {
          await writer.tenant('acme').events.append(`order-${n}`, placed(n), { expected: 'empty' })
          acknowledged.push(n)
          break
        } catch (error) {
          refusals.add((error as { code: string }).code)
          if (!(error as { retryable: boolean }).retryable) throw error
        }
      }
  }
  const writing = [0, 1, 2].map(write)
  await waitUntil(() => acknowledged.length > 20)

  const moved = await store.tenants.move('acme', { server: 'eu-2' })
  const atMove = acknowledged.length
  await waitUntil(() => acknowledged.length > atMove + 20)
  done.abort()
  await Promise.all(writing)

  expect(moved).toMatchObject({ server: 'eu-2', state: 'active' })
  expect([...refusals].filter(code => code !== 'tenant_moving')).toEqual([])
  const sorted = (list: readonly number[]): number[] => [...list].sort((a, b) => a - b)
  expect(sorted(await totals(store.tenant('acme')))).toEqual(sorted(acknowledged))
  const all = acknowledged.length
  await waitUntil(() => new Set(seen).size >= all && new Set(handled).size >= all, { deadlineMs: 60_000 })
  expect(new Set(seen)).toEqual(new Set(acknowledged))
  expect(new Set(handled)).toEqual(new Set(acknowledged))
  const positions: number[] = []
  for await (const { position } of store.tenant('acme').events.readAll()) positions.push(position)
  expect(positions).toEqual([...positions].sort((a, b) => (a < b ? -1 : 1)))
})

test.each(['while', 'after'] as const)(
  'an outcome that a worker stores %s its tenant moves is stored at the new place, once, and costs no attempt',
  async when => {
    const runs: string[] = []
    const goOn = deferred<void>()
    const receipts = (schema: string): string => `${identifier(schema, 'receipts')}`
    const register = (own: Store<ShopMap>): void => {
      const flows = own.workflows
      const insert = `insert into ${receipts(own.schema.name)} values ($1)`
      const work = async (name: string): Promise<void> => {
        runs.push(name)
        await goOn.promise
      }
      flows.register(
        defineHandler('emitting', {
          events: shopEvents,
          on: 'OrderPlaced',
          run: async (_, { emit }) => {
            await work('emitting')
            return emit('OrderPaid', { method: 'card' })
          },
        }),
      )
      flows.register(
        defineHandler('writing', {
          on: 'OrderPlaced',
          run: async () => {
            await work('writing')
            return complete(tx => tx.query(insert, ['writing']))
          },
        }),
      )
      flows.register(
        defineHandler('stepping', {
          events: shopEvents,
          on: 'OrderPlaced',
          run: async (_event, ctx) => {
            await work('stepping')
            await ctx.tx('book', tx => tx.query(insert, ['stepping']).then(() => 1))
          },
        }),
      )
      flows.register(defineHandler('later', { on: 'OrderPaid', run: () => void runs.push('later') }))
    }
    const { store, another } = await openCountry({ register })
    await store.tenants.ensure('acme', { server: 'eu-1' })
    // This process learns of the move only by its outcome.
    const acme = (await another({ pollMs: 600_000 })).tenant('acme')
    await acme.transaction(tx => tx.query(`create table ${receipts(acme.schema.name)} (handler text primary key)`))
    await using worker = workerOf(acme, { pollMs: 600_000, leaseMs: 600_000 })
    await worker.start()
    const flow = await acme.workflows.publish('OrderPlaced', { total: 1 })
    await waitUntil(() => runs.length === 3)

    await store.tenants.move('acme', { server: 'eu-2' }, when === 'while' ? { onProgress: () => goOn.resolve() } : {})
    goOn.resolve()
    const status = await flow.waitUntilSettled({ timeoutMs: 60_000 })

    expect(status).toMatchObject({ state: 'settled', deadLetters: 0 })
    expect(new Set(runs)).toEqual(new Set(['emitting', 'later', 'stepping', 'writing']))
    const { items: attempts } = await acme.workflows.attempts({ correlationId: flow.correlationId })
    expect(new Set(attempts.map(({ attempt }) => attempt))).toEqual(new Set([1]))
    const types = (await acme.events.readAll().toArray()).map(({ type }) => type)
    expect(types.sort()).toEqual(['OrderPaid', 'OrderPlaced'])
    const rows = await acme.transaction(tx => tx.query(`select * from ${receipts(acme.schema.name)} order by 1`))
    expect(rows).toEqual([{ handler: 'stepping' }, { handler: 'writing' }])
  },
)

test('an interrupted move is continued, or undone, and the tenant is usable all the time', async () => {
  const { store } = await openCountry()
  await store.tenants.ensure('acme', { server: 'eu-1' })
  await store.tenant('acme').events.append('order-1', placed(1))
  const cut = new AbortController()
  const cutOff = store.tenants.move('acme', { server: 'eu-2' }, { signal: cut.signal, onProgress: () => cut.abort() })
  await expect(cutOff).rejects.toMatchObject({ code: 'aborted' })

  await store.tenant('acme').events.append('order-1', placed(2))
  expect((await store.tenants.list()).items[0]).toMatchObject({ server: 'eu-1', state: 'moving' })
  await expect(store.tenants.drop('acme', { force: true })).rejects.toMatchObject({ code: 'tenant_moving' })
  expect(await store.tenants.move('acme', { server: 'eu-1' })).toMatchObject({ server: 'eu-1', state: 'active' })
  await store.tenant('acme').events.append('order-1', placed(3))
  expect(await store.tenants.move('acme', { server: 'eu-2' })).toMatchObject({ server: 'eu-2', state: 'active' })

  expect(await totals(store.tenant('acme'))).toEqual([1, 2, 3])
  expect(await store.tenants.move('acme', { server: 'eu-2' })).toMatchObject({ moved: undefined })
})

test('ensuring a tenant while it moves away does not create a second one at its old place', async () => {
  const { store, servers, schema, tenantPrefix } = await openCountry()
  await store.tenants.ensure('acme', { server: 'eu-1' })
  await store.tenant('acme').events.append('order-1', placed(1))
  await using proxy = await startProxy(servers['eu-1']!)
  const tenancy = { directory: postgresUrl(), schema, servers: { ...servers, 'eu-1': proxy.url } }
  const given = { events: shopEvents, tenancy, tenantPrefix, connectTimeoutMs: 60_000 }
  await using slow = await openStore<ShopMap>(given)
  proxy.hold('up', { newLinks: true })

  const ensuring = outcome(slow.tenants.ensure('acme'))
  // It has read the directory by now.
  await waitUntil(() => proxy.opened > 0)
  await store.tenants.move('acme', { server: 'eu-2' })
  proxy.release()

  expect((await ensuring).error).toMatchObject({ code: 'tenant_moving', retryable: true })
  const door = await openPostgres({ url: servers['eu-1']!, maxConnections: 1 })
  onTestFinished(() => door.close(1_000))
  expect(await readOccupant(door, `${tenantPrefix}acme`)).toBe('moved')
  expect(await slow.tenants.ensure('acme')).toMatchObject({ server: 'eu-2' })
  expect(await totals(slow.tenant('acme'))).toEqual([1])
})

test('a tenant that is being dropped cannot be moved, and is gone afterwards', async () => {
  const { store, servers, tenantPrefix } = await openCountry()
  await store.tenants.ensure('acme', { server: 'eu-1' })
  await store.tenant('acme').events.append('order-1', placed(1))
  const reader = await connect(servers['eu-1']!)
  await reader.query('begin')
  await reader.query(`select from ${identifier(`${tenantPrefix}acme`, 'events')}`)

  const dropping = store.tenants.drop('acme', { force: true })
  await waitUntil(async () => {
    const text = `select from pg_locks where not granted and mode = 'AccessExclusiveLock' and $1::int = any(pg_blocking_pids(pid))`
    const { rows } = await reader.query<{ pid: number }>('select pg_backend_pid() as pid')
    return (await reader.query(text, [rows[0]!.pid])).rowCount === 1
  })
  const moving = await outcome(store.tenants.move('acme', { server: 'eu-2' }))
  await reader.query('rollback')
  await dropping

  expect(moving.error).toMatchObject({ code: 'tenant_moving' })
  expect((await store.tenants.list()).items).toEqual([])
  await expect(store.tenant('acme').events.append('order-1', placed(2))).rejects.toMatchObject({
    code: 'tenant_not_found',
  })
})

test('a server that is down fails only its own tenants, and they return with it', async () => {
  const { store } = await openCountry()
  const third = await startServer({ major: 18 })
  onTestFinished(() => third.stop())
  await store.tenants.addServer('eu-3', { url: third.url })
  await store.tenants.ensure('acme', { server: 'eu-1' })
  await store.tenants.ensure('globex', { server: 'eu-3' })
  await store.tenant('globex').events.append('order-1', placed(1))

  await third.stop()
  await expect(store.tenant('globex').documents('customers').get('ada')).rejects.toMatchObject({ retryable: true })
  await store.tenant('acme').events.append('order-1', placed(2))

  expect(await totals(store.tenant('acme'))).toEqual([2])
  await third.restart()
  expect(await totals(store.tenant('globex'))).toEqual([1])
})

test('a server that accepts connections and never answers holds up only its own tenants', async () => {
  const seen: string[] = []
  const register = (own: Store<ShopMap>): void =>
    void own.projections.register(
      defineProjection('orders', { events: shopEvents, on: { OrderPlaced: event => void seen.push(event.stream) } }),
    )
  const { store, another } = await openCountry({ register })
  await using proxy = await startProxy((await secondServer()).url)
  await store.tenants.addServer('eu-3', { url: proxy.url })
  await store.tenants.ensure('acme', { server: 'eu-1' })
  await store.tenants.ensure('globex', { server: 'eu-3' })
  proxy.hold('up', { newLinks: true })
  const running = await another({ connectTimeoutMs: 60_000 })

  const starting = running.start({ pollMs: 20, idleMs: 600_000 })
  await store.tenant('acme').events.append('order-1', placed())
  await waitUntil(() => seen.includes('order-1'))
  proxy.release()
  await using runner = await starting

  // A visit that has timed out by now is repeated in the next round.
  await waitUntil(() => runner.active().length > 1)
  expect(runner.active().sort()).toEqual(['acme', 'globex'])
})

test('a directory that cannot be reached, or does not exist, is reported', async () => {
  const tenancy = { directory: 'postgres://nobody@127.0.0.1:1/none' }
  await expect(openStore({ tenancy })).rejects.toMatchObject({ code: 'database_unreachable' })

  const unmade = await openStore({ tenancy: { directory: postgresUrl(), schema: freshSchema() } })
  onTestFinished(() => unmade.close())

  await expect(unmade.tenant('acme').events.append('order-1', placed())).rejects.toMatchObject({
    code: 'directory_missing',
  })
})

test('a lost directory stops no process that knows the placement, and lookups can be retried', async () => {
  const { store, schema, servers, tenantPrefix } = await openCountry()
  for (const tenant of ['acme', 'globex']) await store.tenants.ensure(tenant, { server: 'eu-1' })
  await using proxy = await startProxy(postgresUrl())
  const tenancy = { directory: proxy.url, schema, servers }
  await using other = await openStore<ShopMap>({ events: shopEvents, tenancy, tenantPrefix, resendMs: 200 })
  await other.tenant('acme').events.append('order-1', placed(1))

  proxy.accepting = false
  proxy.cutClients()
  await other.tenant('acme').events.append('order-1', placed(2))
  const asking = other.tenant('globex').events.append('order-1', placed(3))

  await expect(asking).rejects.toMatchObject({ code: 'directory_unreachable', retryable: true })
  expect(await totals(store.tenant('acme'))).toEqual([1, 2])
  proxy.accepting = true
  await other.tenant('globex').events.append('order-1', placed(3))
})
