import { AsyncLocalStorage } from 'node:async_hooks'
import { expect, onTestFinished, test } from 'vitest'
import { openPostgres } from '../../src/database/postgres/postgres.ts'
import { identifier } from '../../src/database/sql.ts'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import { defineProjection } from '../../src/projections/projection.ts'
import type { Store } from '../../src/store.ts'
import { openDatabase, postgresUrl } from '../support/engines.ts'
import { onServer, placed, type ShopMap } from '../support/shop.ts'
import { openTenantStore, prefixOf, totals } from '../support/tenant-store.ts'
import { waitUntil } from '../support/wait.ts'

const orderTotals = defineDocumentProjection('orders', {
  initial: () => ({ total: 0 }),
  evolve: { OrderPlaced: (order, event) => ({ total: order.total + (event.data as { total: number }).total }) },
})

test('RB-66: each tenant has its own events, documents and sessions, on every access path', async () => {
  const store = await openTenantStore()
  await store.tenants.ensure('acme')
  await store.tenants.ensure('globex')
  const [acme, globex] = [store.tenant('acme'), store.tenant('globex')]

  await acme.events.append('order-1', placed(1))
  await globex.events.append('order-1', placed(2))
  await acme.documents('customers').put('ada', { name: 'Ada' })
  const session = store.session({ tenant: 'globex' })
  session.events.append('order-2', placed(3))
  await session.save()

  expect(await totals(acme)).toEqual([1])
  expect(await totals(globex)).toEqual([2, 3])
  expect(await globex.documents('customers').get('ada')).toBeUndefined()
})

test('a call without a tenant is refused, unless there is a current tenant', async () => {
  const requests = new AsyncLocalStorage<{ tenant: string }>()
  const store = await openTenantStore({ tenant: () => requests.getStore()?.tenant })
  await store.tenants.ensure('acme')
  await store.tenants.ensure('globex')

  await Promise.all(
    ['acme', 'globex'].map(tenant =>
      requests.run({ tenant }, async () => {
        await store.events.append('order-1', placed(tenant.length))
        await store.documents('customers').put('ada', { at: tenant })
      }),
    ),
  )

  expect(await totals(store.tenant('acme'))).toEqual([4])
  expect(await totals(store.tenant('globex'))).toEqual([6])
  expect(() => store.events).toThrow(expect.objectContaining({ code: 'tenant_required' }))
  expect(() => store.session()).toThrow(expect.objectContaining({ code: 'tenant_required' }))
  expect(() => store.workflows).toThrow(expect.objectContaining({ code: 'tenant_required' }))
})

test('RB-70: a missing tenant fails immediately, and is available to every process once one has created it', async () => {
  const store = await openTenantStore()
  await store.tenants.ensure('acme')
  const other = await openTenantStore({ tenantPrefix: prefixOf((await store.tenants.list()).items) })

  await expect(other.tenant('globex').events.append('order-1', placed())).rejects.toMatchObject({
    code: 'tenant_not_found',
    retryable: false,
  })
  await store.tenants.ensure('globex')
  await other.tenant('globex').events.append('order-1', placed(7))

  expect(await totals(store.tenant('globex'))).toEqual([7])
})

test.runIf(onServer)('RB-70: tenants are created, saved to and run on a pool of one connection', async () => {
  const database = await openPostgres({ url: postgresUrl(), maxConnections: 1 })
  onTestFinished(() => database.close(1_000))
  const names = ['acme', 'globex', 'initech']
  const seen: string[] = []
  const register = (own: Store<ShopMap>): void => {
    const handlers = { OrderPlaced: () => void seen.push(own.schema.name) }
    void own.projections.register(defineProjection('orders', { on: handlers }))
  }
  const store = await openTenantStore({ database, register })

  await Promise.all(names.map(name => store.tenants.ensure(name)))
  await using _runner = await store.start({ pollMs: 20 })
  await Promise.all(
    names.map(async (tenant, at) => {
      const session = store.session({ tenant })
      session.events.append('order-1', placed(at))
      session.documents(store.tenant(tenant).documents<object>('customers')).put('ada', { at })
      await session.save()
    }),
  )

  for (const [at, name] of names.entries()) {
    expect(await totals(store.tenant(name))).toEqual([at])
    expect(await store.tenant(name).documents('customers').get('ada')).toMatchObject({ data: { at } })
  }
  await waitUntil(() => new Set(seen).size === names.length)
})

test('projections registered as inline for all tenants are inline in a tenant from its creation', async () => {
  const store = await openTenantStore({
    register: own => own.projections.register({ ...orderTotals, lifecycle: 'inline' }),
  })

  await store.tenants.ensure('acme')
  await store.tenant('acme').events.append('order-1', placed(7))

  expect((await store.tenant('acme').documents(orderTotals).get('order-1'))?.data).toEqual({ total: 7 })
})

test('tenants are listed by name, in pages', async () => {
  const store = await openTenantStore()
  for (const tenant of ['globex', 'acme', 'initech']) await store.tenants.ensure(tenant)

  const first = await store.tenants.list({ limit: 2 })
  const rest = await store.tenants.list({ limit: 2, after: first.next })

  expect([first, rest].map(({ items }) => items.map(({ tenant }) => tenant))).toEqual([['acme', 'globex'], ['initech']])
  expect(rest.next).toBeUndefined()
  expect((await store.tenants.servers()).items).toEqual(['default'])
})

test('a tenant created by many concurrent calls is created once', async () => {
  const store = await openTenantStore()

  await Promise.all(Array.from({ length: 5 }, () => store.tenants.ensure('acme')))

  expect((await store.tenants.list()).items.map(({ tenant }) => tenant)).toEqual(['acme'])
  expect(await store.tenants.status('acme')).toMatchObject({ pending: [], drift: [], head: 0, lag: 0 })
})

test('a dropped tenant is gone for processes that have used it, and dropping needs a confirmation', async () => {
  const store = await openTenantStore()
  await store.tenants.ensure('acme')
  const other = await openTenantStore({ tenantPrefix: prefixOf((await store.tenants.list()).items) })
  await other.tenant('acme').events.append('order-1', placed())

  await expect(store.tenants.drop('acme', {} as never)).rejects.toMatchObject({ code: 'force_required' })
  await store.tenants.drop('acme', { force: true })

  await expect(other.tenant('acme').events.append('order-1', placed())).rejects.toMatchObject({
    code: 'tenant_not_found',
  })
  await expect(
    other.tenant('acme').transaction(tx => other.tenant('acme').events.append('order-1', placed(), { tx })),
  ).rejects.toMatchObject({ code: 'tenant_not_found' })
  expect(await store.tenants.exists('acme')).toBe(false)
})

test('a tenant requested before it existed has everything registered for all tenants, once it is created', async () => {
  const store = await openTenantStore({
    register: own => own.projections.register({ ...orderTotals, lifecycle: 'inline' }),
  })
  await expect(store.tenant('acme').events.append('order-1', placed(7))).rejects.toMatchObject({
    code: 'tenant_not_found',
  })

  await store.tenants.ensure('acme')
  await store.tenant('acme').events.append('order-1', placed(7))

  expect((await store.tenant('acme').documents(orderTotals).get('order-1'))?.data).toEqual({ total: 7 })
})

test('a tenant handle that has not been used yet stays open, however many unknown names are requested meanwhile', async () => {
  const store = await openTenantStore()
  await store.tenants.ensure('acme')
  const acme = store.tenant('acme')
  const stranger = store.tenant('made-up')
  await expect(stranger.events.append('order-1', placed())).rejects.toMatchObject({ code: 'tenant_not_found' })

  for (let n = 0; n < 1_000; n++) store.tenant(`made-up-${n}`)
  await acme.events.append('order-1', placed(7))

  expect(await totals(acme)).toEqual([7])
  expect(store.tenant('made-up')).toBe(stranger)
})

test('a call on one tenant inside the transaction of another is refused, also if it is the first one', async () => {
  const store = await openTenantStore()
  for (const tenant of ['acme', 'globex']) await store.tenants.ensure(tenant)
  const [acme, globex] = [store.tenant('acme'), store.tenant('globex')]

  const inside = acme.transaction(() => globex.events.append('order-1', placed()))

  await expect(inside).rejects.toMatchObject({ code: 'inside_transaction' })
  expect(await totals(globex)).toEqual([])
})

test('the status of a tenant that is behind shows the plan of a sync, and changes nothing', async () => {
  const store = await openTenantStore()
  const { schema } = await store.tenants.ensure('acme')
  const { version } = await store.tenants.status('acme')
  const other = await openTenantStore({ tenantPrefix: prefixOf((await store.tenants.list()).items), migrate: false })
  const text = `delete from ${identifier(schema, 'migrations')} where id = ${version}`
  await (await openDatabase()).run({ label: 'test.behind', text, values: [] })

  const statuses = [await other.tenants.status('acme'), await other.tenants.status('acme')]

  for (const status of statuses)
    expect(status).toMatchObject({ version: version - 1, pending: [expect.stringContaining(`migration ${version} `)] })
})
