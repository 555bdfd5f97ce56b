import { expect, test } from 'vitest'
import { openTenantStore } from '../support/tenant-store.ts'
import { serve } from './api.ts'

test('each tenant has the whole API below its name, and without a name it is refused', async () => {
  const store = await openTenantStore()
  await store.tenants.ensure('acme')
  await store.tenant('acme').events.append('order-1', { type: 'OrderPlaced', data: { total: 5 } })
  const { get, send } = await serve(store)

  const whole = await get('/')
  const without = await get('/events')
  const events = await get('/tenants/acme/events')
  const described = await get('/tenants/acme/')
  const missing = await get('/tenants/nobody/events')
  const { status, body } = await send('POST', '/tenants/beta/ensure')
  const tenants = await get('/tenants')
  const ofOne = await get('/tenants/acme/status')

  expect(whole.body).toMatchObject({ hasTenants: true, role: 'admin' })
  expect([without.status, without.body.error.code]).toEqual([400, 'tenant_required'])
  expect(events.body.items).toMatchObject([{ stream: 'order-1', data: { total: 5 } }])
  expect(described.body).toMatchObject({ tenant: 'acme', hasTenants: true })
  expect([missing.status, missing.body.error.code]).toEqual([404, 'tenant_not_found'])
  expect([status, body.tenant]).toEqual([200, 'beta'])
  expect(tenants.body.items.map((each: { tenant: string }) => each.tenant)).toEqual(['acme', 'beta'])
  expect(ofOne.body).toMatchObject({ tenant: 'acme', head: 1 })
})

test('a person who may see one tenant sees no other, and no list of them', async () => {
  const store = await openTenantStore()
  await store.tenants.ensure('acme')
  await store.tenants.ensure('beta')
  const authorize = () => ({ name: 'Ada', role: 'admin' as const, tenants: ['acme'] })
  const { get, send } = await serve(store, { authorize, console: true })

  const statuses = [
    (await get('/tenants/acme/events')).status,
    (await get('/tenants/beta/events')).status,
    (await get('/tenants')).status,
    (await get('/tenants/beta/status')).status,
    (await send('DELETE', '/tenants/beta', { confirm: 'beta' })).status,
  ]

  expect(statuses).toEqual([200, 403, 403, 403, 403])
  expect(await store.tenants.exists('beta')).toBe(true)
})
