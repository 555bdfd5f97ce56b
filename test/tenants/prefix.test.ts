import { expect, test } from 'vitest'
import { outcome, placed } from '../support/shop.ts'
import { openTenantStore, totals } from '../support/tenant-store.ts'

let stores = 0
const twoPrefixes = (): [string, string] => {
  const prefix = `plaza${process.pid}_${++stores}_`
  return [prefix, `${prefix}eu_`]
}

test('a store does not reach the tenants of another whose prefix begins with its own', async () => {
  const [outer, inner] = twoPrefixes()
  const all = await openTenantStore({ tenantPrefix: outer })
  const european = await openTenantStore({ tenantPrefix: inner })
  await european.tenants.ensure('acme')
  await european.tenant('acme').events.append('order-1', placed(7))
  await all.tenants.ensure('globex')

  const reached = await outcome(all.tenant('eu_acme').events.append('order-1', placed(8)))
  const made = await outcome(all.tenants.ensure('eu_acme'))
  const dropped = await outcome(all.tenants.drop('eu_acme', { force: true }))

  expect(reached.error).toMatchObject({ code: 'tenant_not_found' })
  expect(made.error).toMatchObject({ code: 'invalid_tenant_name', message: expect.stringContaining(inner) })
  expect(dropped.error).toMatchObject({ code: 'tenant_not_found' })
  expect((await all.tenants.list()).items.map(({ tenant }) => tenant)).toEqual(['globex'])
  expect(await totals(european.tenant('acme'))).toEqual([7])
})

test('a tenant without a mark belongs to the store that syncs it', async () => {
  const [outer, inner] = twoPrefixes()
  const all = await openTenantStore({ tenantPrefix: outer })
  const european = await openTenantStore({ tenantPrefix: inner })
  const { schema } = await european.tenants.ensure('acme')
  await european.tenant('acme').transaction(tx => tx.query(`comment on table "${schema}".migrations is null`))

  await european.tenants.sync()

  expect(await all.tenants.exists('eu_acme')).toBe(false)
  expect(await european.tenants.exists('acme')).toBe(true)
})

test('include of a collection of another tenant is refused', async () => {
  const store = await openTenantStore()
  for (const tenant of ['acme', 'globex']) await store.tenants.ensure(tenant)
  const orders = store.tenant('acme').documents<{ customer: string }>('orders')
  const customers = store.tenant('globex').documents<{ name: string }>('customers')

  const including = () => orders.query().include('customer', customers, { from: order => order.customer })

  expect(including).toThrow(
    expect.objectContaining({ code: 'invalid_query', message: expect.stringContaining('same tenant') }),
  )
})
