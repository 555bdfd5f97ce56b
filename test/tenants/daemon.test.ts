import { expect, test } from 'vitest'
import { deadLetter, failFast } from '../../src/consumers/run/policy.ts'
import type { Database } from '../../src/database/database.ts'
import { identifier, type Statement } from '../../src/database/sql.ts'
import { defineProjection } from '../../src/projections/projection.ts'
import type { Store } from '../../src/store.ts'
import { fakeClock } from '../../src/testing/fake-clock.ts'
import { orders } from '../aggregates/orders.ts'
import { openDatabase } from '../support/engines.ts'
import { openMall, prefixOf } from '../support/mall.ts'
import { placed, type ShopMap } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

const names = ['acme', 'globex', 'initech']

/** Tells which orders of which tenant were seen by its projection, and by its handler. */
function watching(): { seen: string[]; register: (store: Store<ShopMap>) => void; of(tenant: string): string[] } {
  const seen: string[] = []
  const register = (store: Store<ShopMap>): void => {
    const told = (what: string) => (event: { stream: string }) =>
      void seen.push(`${store.schema.name.split('_').at(-1)} ${what} ${event.stream}`)
    void store.projections.register(defineProjection('orders', { on: { OrderPlaced: told('projected') } }))
    store.workflows.on('OrderPlaced', { name: 'greet' }, told('handled'))
  }
  return {
    seen,
    register,
    of: tenant => seen.filter(line => line.startsWith(tenant)).map(line => line.slice(tenant.length + 1)),
  }
}

test('RB-26: one daemon serves all tenants, and those that come while it runs', async () => {
  const { register, of } = watching()
  const store = await openMall({ register, pollMs: 50 })
  for (const tenant of names) await store.tenants.ensure(tenant)
  for (const tenant of names) await store.tenant(tenant).events.append('order-1', placed())
  await using daemon = store.tenants.daemon({ pollMs: 20, worker: { concurrency: 2 } })

  await daemon.start()
  await waitUntil(() => names.every(tenant => of(tenant).includes('projected order-1')))
  await store.tenants.ensure('umbrella')
  await waitUntil(() => daemon.awake().includes('umbrella'))
  for (const tenant of [...names, 'umbrella']) await store.tenant(tenant).workflows.publish('OrderPlaced', { total: 1 })

  await waitUntil(() => [...names, 'umbrella'].every(tenant => of(tenant).some(line => line.startsWith('handled'))))
})

test('the snapshotters of all tenants run with them, each on its own streams', async () => {
  const register = (store: Store<ShopMap>): Promise<void> => store.register(orders({ every: 3, lifecycle: 'async' }))
  const store = await openMall({ register, pollMs: 50 })
  for (const tenant of ['acme', 'globex']) await store.tenants.ensure(tenant)
  await using daemon = store.tenants.daemon({ pollMs: 20 })
  await daemon.start()

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

test('a tenant with nothing to do sleeps, and is woken by what happens to it: here, in another process, or in time', async () => {
  const { register, of } = watching()
  const store = await openMall({ register, pollMs: 50 })
  await store.tenants.ensure('acme')
  const other = await openMall({ tenantPrefix: prefixOf(await store.tenants.list()) })
  await using daemon = store.tenants.daemon({ pollMs: 20, restMs: 50, worker: {} })
  await daemon.start()
  await waitUntil(() => daemon.awake().length === 0)

  await other.tenant('acme').events.append('order-1', placed())
  await waitUntil(() => of('acme').includes('projected order-1') && of('acme').includes('handled order-1'))
  await waitUntil(() => daemon.awake().length === 0)
  store.tenant('acme').workflows.on('OrderPaid', { name: 'later', delayMs: 400 }, () => {})
  await store.tenant('acme').workflows.register()
  const flow = await store.tenant('acme').workflows.publish('OrderPaid', { method: 'card' })

  expect((await flow.settled({ timeoutMs: 60_000 })).state).toBe('settled')
})

test('what is old is deleted of a tenant that sleeps, too', async () => {
  const clock = fakeClock()
  const { register } = watching()
  const store = await openMall({ clock, register, pollMs: 50, retention: { idempotencyKeysMs: 0 } })
  const { schema } = await store.tenants.ensure('acme')
  await store.tenant('acme').events.append('order-1', placed(), { idempotencyKey: 'first' })
  await using daemon = store.tenants.daemon({ pollMs: 20, restMs: 50 })
  await daemon.start()
  await waitUntil(() => daemon.awake().length === 0)
  const database = await openDatabase()
  const text = `select 1 from ${identifier(schema, 'idempotency_keys')}`
  const keys = () => database.runArrays({ label: 'test.keys', text, values: [] })
  expect(await keys()).toHaveLength(1)

  clock.advance(6 * 60 * 60_000)

  await waitUntil(async () => (await keys()).length === 0)
})

test('daemons take some of the tenants if they are told so', async () => {
  const { register, seen } = watching()
  const store = await openMall({ register, pollMs: 50 })
  for (const tenant of names) await store.tenants.ensure(tenant)
  await using daemon = store.tenants.daemon({ tenants: ['acme', 'globex'], pollMs: 20 })
  await daemon.start()

  for (const tenant of names) await store.tenant(tenant).events.append('order-1', placed())

  await waitUntil(() => seen.length === 2)
  expect([...seen].sort()).toEqual(['acme projected order-1', 'globex projected order-1'])
})

test('a tenant whose projection fails holds up nobody else, and is told of', async () => {
  const failures: string[] = []
  const seen: string[] = []
  const store = await openMall({
    pollMs: 50,
    register: tenant =>
      void tenant.projections.register(
        defineProjection('orders', {
          policy: failFast(),
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
  await using daemon = store.tenants.daemon({ pollMs: 20, onFailure: tenant => failures.push(tenant) })
  await daemon.start()

  for (const tenant of names) await store.tenant(tenant).events.append('order-1', placed())

  await waitUntil(() => seen.length === 2 && failures.includes('acme'))
})

test('a tenant that was dropped and made again is served again', async () => {
  const { register, of } = watching()
  const store = await openMall({ register, pollMs: 50 })
  await store.tenants.ensure('acme')
  await using daemon = store.tenants.daemon({ pollMs: 500 })
  await daemon.start()
  await store.tenant('acme').events.append('order-1', placed())
  await waitUntil(() => of('acme').includes('projected order-1'))

  await store.tenants.drop('acme', { force: true })
  await store.tenants.ensure('acme')
  await store.tenant('acme').events.append('order-2', placed())

  await waitUntil(() => of('acme').includes('projected order-2'))
})

test('a dead letter that another process was at when it ended wakes its tenant', async () => {
  let isMended = false
  const mended = (): void => {
    if (!isMended) throw new Error('broken')
  }
  const orders = defineProjection('orders', { policy: deadLetter({ retries: 0 }), on: { OrderPlaced: mended } })
  const store = await openMall({ register: own => own.projections.register(orders), pollMs: 50 })
  const { schema } = await store.tenants.ensure('acme')
  const acme = store.tenant('acme')
  await acme.events.append('order-1', placed())
  await acme.projections.runUntilIdle()
  await using daemon = store.tenants.daemon({ pollMs: 20, restMs: 50 })
  await daemon.start()
  await waitUntil(() => daemon.awake().length === 0)

  isMended = true
  const letters = identifier(schema, 'dead_letters')
  const text = `update ${letters} set state = 'retrying', retry_at = now(), fence = 0`
  await (await openDatabase()).run({ label: 'test.taken', text, values: [] })

  await waitUntil(async () => (await acme.deadLetters.list({ state: 'replayed' })).length === 1)
})

/** Tells what was asked. */
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

test('a daemon that is stopped while it starts runs nothing', async () => {
  const { database, asked } = await listened()
  const { register } = watching()
  const store = await openMall({ register, database })
  await store.tenants.ensure('acme')
  await using daemon = store.tenants.daemon()

  const starting = daemon.start()
  await waitUntil(() => asked.some(({ label }) => label === 'tenants.idle'))
  await Promise.all([daemon.stop(), starting])

  const acme = store.tenant('acme')
  await acme.events.append('order-1', placed())
  expect([daemon.isRunning, await acme.projections.runUntilIdle()]).toEqual([false, 1])
})

test('what is asked of the server while all tenants sleep does not depend on their number, and each has its turn', async () => {
  const { database, asked } = await listened()
  const { register } = watching()
  const store = await openMall({ register, database })
  for (const tenant of [...names, 'umbrella']) await store.tenants.ensure(tenant)
  await using daemon = store.tenants.daemon({ pollMs: 20, restMs: 20, worker: {} })
  await daemon.start()
  const count = (label: string): number => asked.filter(each => each.label === label).length
  await waitUntil(() => daemon.awake().length === 0)

  const looks = (): Statement[] => asked.filter(({ label }) => label === 'tenants.idle')
  const labels = new Set(['tenants.heads', 'tenants.idle', 'tenants.schemas'])
  const isQuiet = (): boolean =>
    asked.every(({ label }) => labels.has(label)) && looks().length <= count('tenants.heads') / 2 + 1
  let began = 0
  // What was told when they went to sleep is on its way for a while, and is looked at when it comes.
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
  // Who there is, is asked every five polls, of which each is up to a fifth shorter.
  expect(count('tenants.schemas')).toBeLessThanOrEqual((performance.now() - began) / (5 * 20 * 0.8) + 1)
})
