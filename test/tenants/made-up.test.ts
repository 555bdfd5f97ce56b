import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, test } from 'vitest'
import { placed } from '../support/shop.ts'
import { openTenantStore, prefixOf } from '../support/tenant-store.ts'
import { waitUntil } from '../support/wait.ts'

setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc') as () => void

async function request(store: Awaited<ReturnType<typeof openTenantStore>>, tenant: string): Promise<unknown> {
  return store
    .tenant(tenant)
    .events.append('order-1', placed())
    .then(
      () => 'appended',
      (error: { code: string }) => error.code,
    )
}

test('requests for made-up tenants leave the store ready, and the metrics to the real tenants', async () => {
  const store = await openTenantStore()
  await store.tenants.ensure('acme')
  await using server = await store.server({ port: 0, cacheMs: 0 })
  for (let n = 0; n < 150; n++) expect(await request(store, `made_up_${n}`)).toBe('tenant_not_found')
  // Named and never used.
  for (let n = 0; n < 150; n++) store.tenant(`named_${n}`)
  await request(store, 'acme')

  const ready = await fetch(`${server.url}/health/ready`)
  const metrics = await (await fetch(`${server.url}/metrics`)).text()

  expect([ready.status, await ready.json()]).toEqual([200, { status: 'ready' }])
  expect(metrics).toContain('rillflow_events_appended_total{tenant="acme"} 1')
  expect(metrics).not.toContain('made_up')
  expect(metrics).not.toContain('named_')
})

test('a tenant that was dropped counts for nothing', async () => {
  const store = await openTenantStore()
  await store.tenants.ensure('acme')
  await request(store, 'acme')
  const { items } = await store.tenants.list()
  const other = await openTenantStore({ tenantPrefix: prefixOf(items) })
  await request(other, 'acme')
  await using server = await other.server({ port: 0, cacheMs: 0 })

  await store.tenants.drop('acme', { force: true })

  expect(await request(other, 'acme')).toBe('tenant_not_found')
  expect((await fetch(`${server.url}/health/ready`)).status).toBe(200)
  expect(await (await fetch(`${server.url}/metrics`)).text()).not.toContain('acme')
})

test('a handle from before its tenant was made works as soon as the tenant exists', async () => {
  const store = await openTenantStore()
  const acme = store.tenant('acme')
  await expect(acme.events.append('order-1', placed())).rejects.toMatchObject({ code: 'tenant_not_found' })
  collectGarbage()

  await store.tenants.ensure('acme')

  expect(await acme.events.append('order-1', placed())).toMatchObject({ version: 1 })
  expect(store.tenant('acme')).toBe(acme)
})

test('made-up tenants do not stay in memory', async () => {
  const collected = new Set<string>()
  const registry = new FinalizationRegistry<string>(name => collected.add(name))
  const store = await openTenantStore()
  await store.tenants.ensure('acme')
  const use = async (tenant: string): Promise<void> => {
    registry.register(store.tenant(tenant), tenant)
    await request(store, tenant)
  }
  for (let n = 0; n < 20; n++) await use(`made_up_${n}`)
  await use('acme')

  await waitUntil(() => {
    collectGarbage()
    return collected.size >= 18
  })

  expect([...collected]).not.toContain('acme')
})
