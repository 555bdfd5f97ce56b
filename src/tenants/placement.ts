/**
 * Placement: which server and schema a tenant has. There are two ways to know it.
 *
 *     tenancy: 'schema'         the catalogue of one database: every schema with the prefix that has a store is a tenant
 *                               where it belongs to a Citus cluster, its servers are the nodes (`cluster.ts`)
 *     tenancy: { directory }    the directory, for many servers (`directory.ts`)
 *
 * With one database there is no list that could disagree with the schemas. A schema that is marked with another prefix is not
 * a tenant (`prefix-mark.ts`). A tenant that is still being imported is
 * listed, so that it can be looked at and dropped, but nothing opens it.
 */
import { InvalidOption } from '../core/errors.ts'
import type { Database } from '../database/database.ts'
import { shareListeners } from '../database/handle.ts'
import { sql } from '../database/sql.ts'
import { unfinishedMigrations } from '../transfer/export/selection.ts'
import { type Cluster, findCluster } from './cluster.ts'
import { type Nodes, openNodes } from './nodes.ts'
import { hasNoOtherPrefix } from './prefix-mark.ts'
import { schemaOfTenant, tenantOfSchema } from './tenant-name.ts'

/** Which server has a tenant. */
export interface Placement {
  readonly tenant: string
  readonly server: string
  readonly schema: string
  readonly state: 'active' | 'moving'
  /** Grows with each step of a move. */
  readonly epoch: number
}

export interface Placements {
  /** The properties that the databases of all servers share. */
  readonly traits: Pick<
    Database,
    'engine' | 'hasNodes' | 'soleUser' | 'neighbours' | 'maxConnections' | 'batch' | 'files' | 'refuseInsideTransaction'
  >
  readonly prefix: string
  /** The cluster that places the tenants; undefined if there is none. */
  readonly cluster?: Cluster | undefined
  /** The nodes of the cluster, for calls that concern one tenant; undefined where only the address given is used. */
  readonly nodes?: Nodes | undefined
  /** Looks the tenant up, every time. */
  find(tenant: string): Promise<Placement | undefined>
  list(): Promise<Placement[]>
  /** Decides where a new tenant goes, before its schema is made. Returns the placement of a tenant that has one. */
  place(tenant: string, server: string | undefined): Promise<Placement>
  /** Forgets a tenant whose schema was dropped. */
  forget(tenant: string): Promise<void>
  /** The names of all servers. */
  servers(): Promise<string[]>
  /** The database that knows of all tenants. */
  readonly home: Database
  /** The database of a server, opened on first use and shared by all tenants on it. */
  databaseOf(server: string): Promise<Database>
  close(closeMs: number): Promise<void>
}

/** The name of the only server. */
const onlyServer = 'default'

/** All tenants in one database. `openNode` connects to a node of the cluster that the database belongs to, if it does. */
export async function schemaPlacements(
  given: Database,
  prefix: string,
  openNode?: (node: string) => Promise<Database>,
): Promise<Placements> {
  const cluster = await findCluster(given)
  const database = shareListeners(given)
  const nodes = cluster === undefined || openNode === undefined ? undefined : openNodes(database, openNode)
  const placementOf = (tenant: string, nodes?: ReadonlyMap<string, string>): Placement => ({
    tenant,
    server: nodes?.get(schemaOfTenant(tenant, prefix)) ?? onlyServer,
    schema: schemaOfTenant(tenant, prefix),
    state: 'active',
    epoch: 0,
  })
  const readSchemas = async (schema: string | undefined): Promise<string[]> => {
    const rows = await database.runArrays(sql`/* tenants.schemas */
      select n.nspname::text
      from pg_namespace as n
      where starts_with(n.nspname, ${schema ?? prefix}::text)
        and (${schema ?? null}::text is null or n.nspname = ${schema ?? null}::text)
        and exists (
          select
          from pg_class as c
          where c.relnamespace = n.oid
            and c.relname in ('migrations', ${unfinishedMigrations}::text))
        and ${hasNoOtherPrefix(prefix)}
      order by n.nspname`)
    return rows.map(([name]) => name as string)
  }
  return {
    traits: database,
    prefix,
    cluster,
    nodes,
    async find(tenant) {
      const found = await readSchemas(schemaOfTenant(tenant, prefix))
      if (found.length === 0) return undefined
      return placementOf(tenant, await cluster?.nodesOf(schemaOfTenant(tenant, prefix)))
    },
    async list() {
      const tenants = (await readSchemas(undefined)).map(schema => tenantOfSchema(schema, prefix))
      const nodes = await cluster?.nodesOf()
      return tenants.filter(tenant => tenant !== undefined).map(tenant => placementOf(tenant, nodes))
    },
    async place(tenant, server) {
      if (server !== undefined && cluster !== undefined)
        throw new InvalidOption({
          option: 'server',
          reason:
            'The option "server" is for a store with a directory: here Citus decides which node gets a new tenant. Leave it out, and move the tenant afterwards.',
        })
      if (server !== undefined && server !== onlyServer)
        throw new InvalidOption({
          option: 'server',
          reason:
            'The option "server" needs a directory: all tenants of this store are in one database. Leave it out, or open the store with { tenancy: { directory } }.',
        })
      return placementOf(tenant)
    },
    forget: async () => {},
    servers: async () => (cluster === undefined ? [onlyServer] : cluster.nodes()),
    home: database,
    databaseOf: async () => database,
    async close(closeMs) {
      await Promise.all([nodes?.close(closeMs), database.close(closeMs)])
    },
  }
}
