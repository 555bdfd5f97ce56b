/** Actions of one tenant, under any name or path, are never seen or changed by another. */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { checkTenantName, checkTenantPrefix, schemaOfTenant, tenantOfSchema } from '../../src/tenants/tenant-name.ts'
import { openDatabase } from '../support/engines.ts'
import { placed } from '../support/shop.ts'
import { openTenantStore, totals } from '../support/tenant-store.ts'

test('RB-68: names that could be confused, or would be cut off, are refused', () => {
  const refused = [
    'Acme',
    'acme ',
    'acme.eu',
    'ac me',
    'äcme',
    '',
    '_acme',
    '-acme',
    'acme"; drop schema public',
    'x'.repeat(60),
  ]

  for (const name of refused)
    expect(() => checkTenantName(name, 'tenant_')).toThrow(expect.objectContaining({ code: 'invalid_tenant_name' }))
  expect(() => checkTenantName(42, 'tenant_')).toThrow(expect.objectContaining({ code: 'invalid_tenant_name' }))
})

test('RB-68: a store with a prefix that any schema could have is not opened', async () => {
  for (const prefix of ['', 'Tenant_', 'tenant', '_', '1_', 'pg_tenant_', 'a"_', `${'x'.repeat(40)}_`])
    expect(() => checkTenantPrefix(prefix)).toThrow(expect.objectContaining({ code: 'invalid_option' }))

  await expect(openTenantStore({ tenantPrefix: '' })).rejects.toMatchObject({ option: 'tenantPrefix' })
})

test('RB-68: two names never share a schema, and each schema names its tenant', () => {
  const name = fc.string({ unit: fc.constantFrom(...'aB1-_."\0é'), maxLength: 70 })
  const schemaOf = (tenant: string): string | undefined => {
    try {
      return schemaOfTenant(tenant, 'tenant_')
    } catch {
      return undefined
    }
  }

  fc.assert(
    fc.property(name, name, (a, b) => {
      const [one, other] = [schemaOf(a), schemaOf(b)]
      if (one !== undefined) expect(tenantOfSchema(one, 'tenant_')).toBe(a)
      if (a !== b && one !== undefined) expect(other).not.toBe(one)
      if (one !== undefined) expect(Buffer.byteLength(one)).toBeLessThanOrEqual(63)
    }),
    { numRuns: 500 },
  )
})

test('RB-67, RB-69: concurrent tenants on one pool with equal names are isolated', async () => {
  const tenants = ['acme', 'acme-eu', 'acme_eu']
  const before = await searchPath()
  const store = await openTenantStore()
  for (const tenant of tenants) await store.tenants.ensure(tenant)
  const hostile = fc.constantFrom(
    'order-1',
    '"; drop schema public cascade; --',
    '../../tenant',
    "o'clock",
    'tenant_acme.events',
    '$1',
  )
  const call = fc.record({ tenant: fc.constantFrom(...tenants), name: hostile, total: fc.nat(1000), way: fc.nat(3) })
  const expected = new Map(tenants.map(tenant => [tenant, [] as number[]]))
  const documents = new Map<string, Map<string, number>>(tenants.map(tenant => [tenant, new Map()]))

  for (const calls of fc.sample(fc.array(call, { minLength: 10, maxLength: 10 }), 8)) {
    await Promise.all(
      calls.map(async ({ tenant, name, total, way }) => {
        const own = store.tenant(tenant)
        if (way === 0) await own.events.append(name, placed(total))
        else if (way === 1) await own.transaction(tx => own.events.append(name, placed(total), { tx }))
        else if (way === 2) {
          const session = own.session()
          session.events.append(name, placed(total))
          await session.save()
        } else {
          await own.documents('customers').put(name, { total })
          documents.get(tenant)!.set(name, total)
          return
        }
        expected.get(tenant)!.push(total)
      }),
    )
  }

  const sorted = (list: readonly number[]): number[] => [...list].sort((a, b) => a - b)
  for (const tenant of tenants) {
    expect(sorted(await totals(store.tenant(tenant)))).toEqual(sorted(expected.get(tenant)!))
    const stored = await store
      .tenant(tenant)
      .documents('customers')
      .getMany([...documents.get(tenant)!.keys()])
    expect([...stored.keys()].sort()).toEqual([...documents.get(tenant)!.keys()].sort())
  }
  expect(await searchPath()).toBe(before)
})

test('a collection, a cursor or a position of one tenant has no effect in another', async () => {
  const store = await openTenantStore()
  await store.tenants.ensure('acme')
  await store.tenants.ensure('globex')
  const [acme, globex] = [store.tenant('acme'), store.tenant('globex')]
  const customers = acme.documents<{ name: string }>('customers')
  await customers.put('ada', { name: 'Ada' })
  await acme.events.append('order-1', [placed(1), placed(2)])
  const session = globex.session()

  expect(() => void session.documents(customers)).toThrow(expect.objectContaining({ code: 'invalid_option' }))
  await globex.events.append('order-1', placed(3), { idempotencyKey: 'same' })
  await acme.events.append('order-1', placed(4), { idempotencyKey: 'same' })

  expect(await totals(globex)).toEqual([3])
  expect(await totals(acme)).toEqual([1, 2, 4])
})

async function searchPath(): Promise<unknown> {
  const [row] = await (await openDatabase()).transaction(tx => tx.query('show search_path'))
  return Object.values(row!)[0]
}
