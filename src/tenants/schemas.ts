/**
 * Tenants of one database: each schema with the prefix and a store in it is one. There is no list that could disagree. One that
 * is still being imported is listed, so that it can be looked at and dropped, and nothing opens it.
 */
import { InvalidOption } from '../core/errors.ts'
import type { Database } from '../database/database.ts'
import { shareListeners } from '../database/share-listeners.ts'
import { sql } from '../database/sql.ts'
import { hiddenName } from '../transfer/export/copy.ts'
import type { Placement, Placements } from './placement.ts'
import { schemaOfTenant, tenantOfSchema } from './tenant-name.ts'

const server = 'default'

export function schemaPlacements(given: Database, prefix: string): Placements {
  const database = shareListeners(given)
  const placed = (tenant: string): Placement => ({
    ...{ tenant, server, state: 'active', epoch: 0 },
    schema: schemaOfTenant(tenant, prefix),
  })
  const stores = async (schema: string | undefined): Promise<string[]> => {
    const rows = await database.runArrays(sql`/* tenants.schemas */
      select n.nspname::text
      from pg_namespace as n
      where starts_with(n.nspname, ${schema ?? prefix}::text)
        and (${schema ?? null}::text is null or n.nspname = ${schema ?? null}::text)
        and exists (
          select
          from pg_class as c
          where c.relnamespace = n.oid
            and c.relname in ('migrations', ${hiddenName}::text))
      order by n.nspname`)
    return rows.map(([name]) => name as string)
  }
  return {
    traits: database,
    prefix,
    find: async tenant => ((await stores(schemaOfTenant(tenant, prefix))).length > 0 ? placed(tenant) : undefined),
    async list() {
      const tenants = (await stores(undefined)).map(schema => tenantOfSchema(schema, prefix))
      return tenants.filter(tenant => tenant !== undefined).map(placed)
    },
    async place(tenant, asked) {
      if (asked !== undefined && asked !== server)
        throw new InvalidOption({ option: 'server', reason: 'needs a directory: here all tenants are in one database' })
      return placed(tenant)
    },
    forget: async () => {},
    servers: async () => [server],
    databaseOf: async () => database,
    close: closeMs => database.close(closeMs),
  }
}
