/** A store with tenants, on the worker's database, removed when the test is over. */
import { onTestFinished } from 'vitest'
import { identifier } from '../../src/database/sql.ts'
import { openStore, type StoreOptions, type TenantedStore } from '../../src/store.ts'
import { tenantsAuditSchema } from '../../src/tenants/tenants-audit.ts'
import { openDatabase } from './engines.ts'
import { type ShopMap, shopEvents } from './shop.ts'

let stores = 0

export async function openTenantStore(options: Partial<StoreOptions<ShopMap>> = {}): Promise<TenantedStore<ShopMap>> {
  const database = options.database ?? (await openDatabase())
  const tenantPrefix = options.tenantPrefix ?? `mall${process.pid}_${++stores}_`
  const given = { events: shopEvents, tenantPrefix, migrate: true, ...options, database }
  const store = await openStore<ShopMap>({ ...given, tenancy: 'schema' })
  onTestFinished(async () => {
    // A test may have closed it.
    const listing = await openStore<ShopMap>({ ...given, tenancy: 'schema' })
    const names = (await listing.tenants.list()).items.map(({ schema }) => schema)
    await Promise.all([store.close(), listing.close()])
    for (const name of [...names, tenantsAuditSchema(tenantPrefix)])
      await database.run({ label: 'test.drop', text: `drop schema if exists ${identifier(name)} cascade`, values: [] })
  })
  return store
}

/** The prefix of a store's tenants, for a second store on the same tenants, like another process. */
export function prefixOf(placements: readonly { schema: string; tenant: string }[]): string {
  const [{ schema, tenant } = { schema: '', tenant: '' }] = placements
  return schema.slice(0, -tenant.length)
}

/** The totals of the placed orders, in the order of the log. */
export async function totals({ events }: Pick<TenantedStore<ShopMap>, 'events'>): Promise<number[]> {
  const all: number[] = []
  for await (const event of events.readAll()) if (event.type === 'OrderPlaced') all.push(event.data.total)
  return all
}
