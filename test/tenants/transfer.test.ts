import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import type { Store } from '../../src/store.ts'
import { openShop, placed, type ShopMap } from '../support/shop.ts'
import { openTenantStore, totals } from '../support/tenant-store.ts'

async function folder(): Promise<string> {
  const made = await mkdtemp(join(tmpdir(), 'rf-tenants-'))
  onTestFinished(() => rm(made, { recursive: true, force: true }))
  return made
}

test('an exported tenant is imported elsewhere, under its name or another, and continues', async () => {
  const [store, other] = [await openTenantStore(), await openTenantStore()]
  await store.tenants.ensure('acme')
  await store.tenant('acme').events.append('order-1', [placed(1), placed(2)])
  await store.tenant('acme').documents('customers').put('ada', { name: 'Ada' })
  const output = join(await folder(), 'acme')

  await store.tenants.export('acme', { output })
  await store.tenants.import({ input: output, tenant: 'acme-copy' })
  await other.tenants.import({ input: output, tenant: 'acme' })
  await other.tenant('acme').events.append('order-1', placed(3), { expected: 2 })

  expect(await totals(store.tenant('acme-copy'))).toEqual([1, 2])
  expect(await totals(other.tenant('acme'))).toEqual([1, 2, 3])
  expect((await other.tenant('acme').documents('customers').get('ada'))?.data).toEqual({ name: 'Ada' })
})

test('an imported tenant has everything registered for all tenants, also if it was requested before', async () => {
  const orderTotals = defineDocumentProjection('orders', {
    initial: () => ({ total: 0 }),
    evolve: { OrderPlaced: (order, event) => ({ total: order.total + (event.data as { total: number }).total }) },
  })
  const register = (own: Store<ShopMap>) => own.projections.register({ ...orderTotals, lifecycle: 'inline' })
  const [store, other] = [await openTenantStore(), await openTenantStore({ register })]
  await store.tenants.ensure('acme')
  const output = join(await folder(), 'acme')
  await store.tenants.export('acme', { output })
  const early = other.tenant('acme').events.append('order-1', placed(7))
  await expect(early).rejects.toMatchObject({ code: 'tenant_not_found' })

  await other.tenants.import({ input: output, tenant: 'acme' })
  await other.tenant('acme').events.append('order-1', placed(7))

  expect((await other.tenant('acme').documents(orderTotals).get('order-1'))?.data).toEqual({ total: 7 })
})

test('a damaged archive, or a tenant with existing data, is refused and nothing is written', async () => {
  const store = await openTenantStore()
  await store.tenants.ensure('acme')
  await store.tenant('acme').events.append('order-1', placed(1))
  const output = join(await folder(), 'acme')
  await store.tenants.export('acme', { output })

  await expect(store.tenants.import({ input: output, tenant: 'acme' })).rejects.toMatchObject({
    code: 'schema_not_empty',
  })
  await writeFile(join(output, 'manifest.json'), '{}')
  await expect(store.tenants.import({ input: output, tenant: 'globex' })).rejects.toMatchObject({
    code: expect.stringMatching(/^export_/),
  })

  expect((await store.tenants.list()).items.map(({ tenant }) => tenant)).toEqual(['acme'])
  expect(await totals(store.tenant('acme'))).toEqual([1])
})

test('a tenant whose import was interrupted is neither listed nor opened, and can be dropped to begin anew', async () => {
  const shop = await openShop()
  await shop.store.events.append('acme-1', [placed(1), placed(2)])
  const store = await openTenantStore()
  const cut = new AbortController()
  const from = { schema: shop.schema, select: { stream: () => true } }
  const cutOff = store.tenants.importFrom('acme', { ...from, signal: cut.signal, onProgress: () => cut.abort() })
  await expect(cutOff).rejects.toMatchObject({ code: 'aborted' })

  const listed = (await store.tenants.list()).items.map(({ tenant }) => tenant)
  const status = await store.tenants.status('acme')
  const append = store.tenant('acme').events.append('acme-1', placed(3))
  await expect(append).rejects.toMatchObject({ code: 'tenant_not_found' })
  await store.tenants.drop('acme', { force: true })

  expect([listed, status.version]).toEqual([['acme'], 0])
  expect(await store.tenants.exists('acme')).toBe(false)
  expect((await store.tenants.importFrom('acme', from)).copied).toMatchObject({ streams: 1, events: 2 })
  expect(await totals(store.tenant('acme'))).toEqual([1, 2])
})

test('one schema is split into tenants: each gets its own streams and documents, with their versions', async () => {
  const shop = await openShop()
  await shop.store.events.append('acme-1', [placed(1), placed(2)])
  await shop.store.events.append('globex-1', placed(3))
  await shop.store.documents('customers').put('ada', { of: 'acme' })
  await shop.store.documents('customers').put('bob', { of: 'globex' })
  const store = await openTenantStore()

  for (const tenant of ['acme', 'globex'])
    await store.tenants.importFrom(tenant, {
      schema: shop.schema,
      select: {
        stream: ({ id }) => id.startsWith(tenant),
        collections: ['customers'],
        document: (_, { data }) => (data as { of: string }).of === tenant,
      },
    })
  await store.tenant('acme').events.append('acme-1', placed(4), { expected: 2 })

  expect(await totals(store.tenant('acme'))).toEqual([1, 2, 4])
  expect(await totals(store.tenant('globex'))).toEqual([3])
  expect(await store.tenant('acme').documents('customers').get('bob')).toBeUndefined()
  expect((await store.tenant('globex').documents('customers').get('bob'))?.data).toEqual({ of: 'globex' })
})
