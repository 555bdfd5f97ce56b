import { expect, onTestFinished, test } from 'vitest'
import type { Database } from '../../src/database/database.ts'
import { openPostgres } from '../../src/database/postgres/postgres.ts'
import { identifier, type Statement } from '../../src/database/sql.ts'
import { defineProjection } from '../../src/projections/projection.ts'
import type { Store } from '../../src/store.ts'
import { fakeClock } from '../../src/testing/fakes.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { orders } from '../aggregates/orders.ts'
import { openDatabase, postgresUrl } from '../support/engines.ts'
import { onServer, outcome, placed, type ShopMap, shopEvents, take } from '../support/shop.ts'
import { statementsDuring } from '../support/statement-recording.ts'
import { openTenantStore, prefixOf } from '../support/tenant-store.ts'
import { waitUntil } from '../support/wait.ts'

const names = ['acme', 'globex', 'initech']

/** Records the orders of each tenant that its projection and its handler have seen. */
function watching(): { seen: string[]; register: (store: Store<ShopMap>) => void; of(tenant: string): string[] } {
  const seen: string[] = []
  const register = (store: Store<ShopMap>): void => {
    const reported = (what: string) => (event: { stream: string }) =>
      void seen.push(`${store.schema.name.split('_').at(-1)} ${what} ${event.stream}`)
    void store.projections.register(defineProjection('orders', { on: { OrderPlaced: reported('projected') } }))
    store.workflows.register(
      defineHandler('greet', { events: shopEvents, on: 'OrderPlaced', run: reported('handled') }),
    )
  }
  return {
    seen,
    register,
    of: tenant => seen.filter(line => line.startsWith(tenant)).map(line => line.slice(tenant.length + 1)),
  }
}

test('RB-26: one runner serves all tenants, also those created while it runs', async () => {
  const { register, of } = watching()
  const store = await openTenantStore({ register, pollMs: 50 })
  for (const tenant of names) await store.tenants.ensure(tenant)
  for (const tenant of names) await store.tenant(tenant).events.append('order-1', placed())
  await using runner = await store.start({ pollMs: 20, concurrency: 2 })

  await waitUntil(() => names.every(tenant => of(tenant).includes('projected order-1')))
  await store.tenants.ensure('umbrella')
  await waitUntil(() => runner.active().includes('umbrella'))
  for (const tenant of [...names, 'umbrella']) await store.tenant(tenant).workflows.publish('OrderPlaced', { total: 1 })

  await waitUntil(() => [...names, 'umbrella'].every(tenant => of(tenant).some(line => line.startsWith('handled'))))
})

test('the snapshotters of all tenants run, each on its own streams', async () => {
  const register = (store: Store<ShopMap>): Promise<void> => store.register(orders({ every: 3, lifecycle: 'async' }))
  const store = await openTenantStore({ register, pollMs: 50 })
  for (const tenant of ['acme', 'globex']) await store.tenants.ensure(tenant)
  await using _runner = await store.start({ pollMs: 20 })

  await store.tenant('acme').events.append('order-1', [placed(), placed(), placed()])
  await store.tenant('globex').events.append('order-1', placed())

  const snapshots = (tenant: string) =>
    store
      .tenant(tenant)
      .transaction(tx =>
        tx.query(
          `select stream, version::int from ${identifier(store.tenant(tenant).schema.name, 'snapshots').quoted}`,
        ),
      )
  await waitUntil(async () => (await snapshots('acme')).length === 1)
  expect(await snapshots('acme')).toEqual([{ stream: 'order-1', version: 3 }])
  expect(await snapshots('globex')).toEqual([])
})

test('a tenant without work sleeps, and is woken by events: here, in another process, or by time', async () => {
  const { register, of } = watching()
  const store = await openTenantStore({ register, pollMs: 50 })
  await store.tenants.ensure('acme')
  const other = await openTenantStore({ tenantPrefix: prefixOf((await store.tenants.list()).items) })
  await using runner = await store.start({ pollMs: 20, idleMs: 50 })
  await waitUntil(() => runner.active().length === 0)

  await other.tenant('acme').events.append('order-1', placed())
  await waitUntil(() => of('acme').includes('projected order-1') && of('acme').includes('handled order-1'))
  await waitUntil(() => runner.active().length === 0)
  store.tenant('acme').workflows.register(defineHandler('later', { on: 'OrderPaid', delayMs: 400, run: () => {} }))
  await store.tenant('acme').workflows.sync()
  const flow = await store.tenant('acme').workflows.publish('OrderPaid', { method: 'card' })

  expect((await flow.waitUntilSettled({ timeoutMs: 60_000 })).state).toBe('settled')
})

test('retention also applies to a tenant that sleeps', async () => {
  const clock = fakeClock()
  const { register } = watching()
  const store = await openTenantStore({ clock, register, pollMs: 50, retention: { idempotencyKeysMs: 0 } })
  const { schema } = await store.tenants.ensure('acme')
  await store.tenant('acme').events.append('order-1', placed(), { idempotencyKey: 'first' })
  await using runner = await store.start({ pollMs: 20, idleMs: 50 })
  await waitUntil(() => runner.active().length === 0)
  const database = await openDatabase()
  const text = `select 1 from ${identifier(schema, 'idempotency_keys')}`
  const keys = () => database.runArrays({ label: 'test.keys', text, values: [] })
  expect(await keys()).toHaveLength(1)

  clock.advance(6 * 60 * 60_000)

  await waitUntil(async () => (await keys()).length === 0)
})

test('runners can be limited to some tenants', async () => {
  const { register, of } = watching()
  const store = await openTenantStore({ register, pollMs: 50 })
  for (const tenant of names) await store.tenants.ensure(tenant)
  await using _runner = await store.start({ tenants: ['acme', 'globex'], pollMs: 20 })

  for (const tenant of names) await store.tenant(tenant).events.append('order-1', placed())

  const isSeen = (tenant: string): boolean => new Set(of(tenant)).size === 2
  await waitUntil(() => isSeen('acme') && isSeen('globex'))
  expect(of('initech')).toEqual([])
})

test('a tenant whose projection fails holds up no other tenant, and the failure is logged', async () => {
  const failures: string[] = []
  const seen: string[] = []
  const store = await openTenantStore({
    pollMs: 50,
    register: tenant =>
      void tenant.projections.register(
        defineProjection('orders', {
          retries: 0,
          onFailure: 'stop',
          on: {
            OrderPlaced: () => {
              if (tenant.schema.name.endsWith('acme')) throw new Error('broken')
              seen.push(tenant.schema.name)
            },
          },
        }),
      ),
  })
  for (const tenant of names) await store.tenants.ensure(tenant)
  await using _runner = await store.start({ pollMs: 20, onFailure: tenant => failures.push(tenant) })

  for (const tenant of names) await store.tenant(tenant).events.append('order-1', placed())

  await waitUntil(() => seen.length === 2 && failures.includes('acme'))
})

test('a tenant that was dropped and created again is served again', async () => {
  const { register, of } = watching()
  const store = await openTenantStore({ register, pollMs: 50 })
  await store.tenants.ensure('acme')
  await using _runner = await store.start({ pollMs: 500 })
  await store.tenant('acme').events.append('order-1', placed())
  await waitUntil(() => of('acme').includes('projected order-1'))

  await store.tenants.drop('acme', { force: true })
  await store.tenants.ensure('acme')
  await store.tenant('acme').events.append('order-2', placed())

  await waitUntil(() => of('acme').includes('projected order-2'))
})

test('a dead letter that another process was retrying when it ended wakes its tenant', async () => {
  let isMended = false
  const fixed = (): void => {
    if (!isMended) throw new Error('broken')
  }
  const orders = defineProjection('orders', { retries: 0, onFailure: 'deadLetter', on: { OrderPlaced: fixed } })
  const store = await openTenantStore({ register: own => own.projections.register(orders), pollMs: 50 })
  const { schema } = await store.tenants.ensure('acme')
  const acme = store.tenant('acme')
  await acme.events.append('order-1', placed())
  await acme.consumers.runUntilIdle()
  await using runner = await store.start({ pollMs: 20, idleMs: 50 })
  await waitUntil(() => runner.active().length === 0)

  isMended = true
  const deadLetters = identifier(schema, 'dead_letters')
  const text = `update ${deadLetters} set state = 'retrying', retry_at = now(), fence = 0`
  await (await openDatabase()).run({ label: 'test.taken', text, values: [] })

  await waitUntil(async () => (await acme.deadLetters.list({ state: 'replayed' })).items.length === 1)
})

/** Records the statements. */
async function listened(): Promise<{ database: Database; asked: Statement[] }> {
  const database = await openDatabase()
  const asked: Statement[] = []
  const run = ((statement: Statement) => {
    asked.push(statement)
    return database.run(statement)
  }) as typeof database.run
  const runArrays = (statement: Statement): Promise<unknown[][]> => {
    asked.push(statement)
    return database.runArrays(statement)
  }
  return { asked, database: { ...database, run, runArrays } }
}

test('a runner that is stopped while it starts runs nothing', async () => {
  const { database, asked } = await listened()
  const { register } = watching()
  const store = await openTenantStore({ register, database })
  await store.tenants.ensure('acme')

  const starting = outcome(store.start())
  await waitUntil(() => asked.some(({ label }) => label === 'tenants.idle'))
  await store.close()

  const { error } = await starting
  expect(error).toMatchObject({ code: 'store_closed' })
  const before = asked.length
  await new Promise(resolve => setTimeout(resolve, 100))
  expect(asked).toHaveLength(before)
})

test('the number of queries while all tenants sleep does not depend on their number, and each gets its turn', async () => {
  const { database, asked } = await listened()
  const { register } = watching()
  const store = await openTenantStore({ register, database })
  for (const tenant of [...names, 'umbrella']) await store.tenants.ensure(tenant)
  await using runner = await store.start({ pollMs: 20, idleMs: 20 })
  const count = (label: string): number => asked.filter(each => each.label === label).length
  await waitUntil(() => runner.active().length === 0)

  const looks = (): Statement[] => asked.filter(({ label }) => label === 'tenants.idle')
  const labels = new Set(['events.settle', 'tenants.heads', 'tenants.idle', 'tenants.schemas'])
  const isQuiet = (): boolean =>
    asked.every(({ label }) => labels.has(label)) && looks().length <= count('tenants.heads') / 2 + 1
  let began = 0
  // Notifications sent when they went to sleep may still arrive, and cause a query.
  await waitUntil(
    async () => {
      asked.length = 0
      began = performance.now()
      await waitUntil(() => count('tenants.heads') >= 40 && count('tenants.schemas') > 0)
      return isQuiet()
    },
    { what: 'forty rounds in which nobody is asked about out of turn', deadlineMs: 60_000 },
  )

  expect(new Set(asked.map(({ label }) => label))).toEqual(labels)
  expect(new Set(looks().map(({ text }) => text)).size).toBe(names.length + 1)
  // The list of tenants is read every five polls, each up to a fifth shorter.
  expect(count('tenants.schemas')).toBeLessThanOrEqual((performance.now() - began) / (5 * 20 * 0.8) + 1)
})

if (onServer) {
  test('appends of many tenants reach other processes by few notifications, and the readers of each tenant', async () => {
    const store = await openTenantStore()
    const tenants = Array.from({ length: 12 }, (_, n) => `shop-${n}`)
    for (const tenant of tenants) await store.tenants.ensure(tenant)
    const prefix = prefixOf((await store.tenants.list()).items)
    const database = await openPostgres({ url: postgresUrl() })
    onTestFinished(() => database.close(1_000))
    const other = await openTenantStore({ database, tenantPrefix: prefix, pollMs: 600_000 })
    const tailing = tenants.map(tenant => other.tenant(tenant).events.tail({ from: 'start' }))
    const seen = tailing.map(tail => take(tail, 4))
    // Every reader waits for a hint now: it has seen the first event.
    const first = tenants.map(tenant => store.tenant(tenant).events.append('order-0', placed()))
    await Promise.all(first)

    const sent = await statementsDuring(async () => {
      for (let n = 1; n <= 3; n++)
        for (const tenant of tenants) await store.tenant(tenant).events.append(`order-${n}`, placed())
      await Promise.all(seen)
    })

    const notifications = sent.filter(text => text.includes('/* database.notify */'))
    expect((await Promise.all(seen)).map(events => events.length)).toEqual(tenants.map(() => 4))
    expect(notifications.length).toBeGreaterThan(0)
    expect(notifications.length).toBeLessThan(3 * tenants.length)
  })
}
