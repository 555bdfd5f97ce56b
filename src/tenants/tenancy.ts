/** A store with tenants: which placements it has, an instance for each tenant that is asked for, and one door to all. */
import { InvalidOption } from '../core/errors.ts'
import type { Database } from '../database/database.ts'
import { openPostgres, type PostgresOptions } from '../database/postgres/postgres.ts'
import { type Directory, openDirectory } from './directory.ts'
import type { TenantInstance } from './instance.ts'
import type { Placements } from './placement.ts'
import { schemaPlacements } from './schemas.ts'
import { serverPlacements } from './servers.ts'
import { openGate } from './tenant-database.ts'
import { checkTenantName, checkTenantPrefix, schemaOfTenant } from './tenant-name.ts'
import { openTenants, type Tenants } from './tenants.ts'

/** `'schema'`: all tenants in this store's database. A directory: on many servers. */
export type Tenancy = 'schema' | DirectoryTenancy

export interface DirectoryTenancy {
  /** The database with the directory: `postgres://…`. */
  readonly directory: string
  /** The directory's schema there. Default `rillflow_directory`. */
  readonly schema?: string | undefined
  /** Addresses of servers by name, for this process; others are taken from the directory. */
  readonly servers?: Readonly<Record<string, string>> | undefined
}

export interface TenancyOptions<S> {
  /** Default `tenant_`. */
  readonly prefix: string
  /** Whether the directory may be made. */
  readonly makes: boolean
  readonly pool: PostgresOptions
  /** Opens the database of a store that has all its tenants in one. */
  database(): Promise<Database>
  /** Puts together the store of one tenant; `gate` is the way to its database. */
  assemble(tenant: string, schema: string, gate: GateOf): TenantInstance<S>
}

/** Given what makes a place ready for use. */
export type GateOf = (prepare: (database: Database) => Promise<void>) => ReturnType<typeof openGate>

export interface TenantStores<S> {
  readonly engine: Database['engine']
  readonly tenants: Tenants
  tenant(name: string): S
  /** Those that this process has used so far. */
  instances(): readonly TenantInstance<S>[]
  close(closeMs: number): Promise<void>
}

/** Of tenants that were asked for; those that are there, or were never called, are never forgotten. */
const mostInstances = 1_000

export async function openTenancy<S>(tenancy: Tenancy, options: TenancyOptions<S>): Promise<TenantStores<S>> {
  const { assemble } = options
  const prefix = checkTenantPrefix(options.prefix)
  const { placements, directory } = await openPlacements(tenancy, options)
  const instances = new Map<string, TenantInstance<S>>()

  const instanceOf = (tenant: string): TenantInstance<S> => {
    const known = instances.get(checkTenantName(tenant, prefix))
    if (known !== undefined) return known
    if (instances.size >= mostInstances) forgetStrangers()
    const gateOf: GateOf = prepare => openGate(placements, tenant, prepare)
    const instance = assemble(tenant, schemaOfTenant(tenant, prefix), gateOf)
    instances.set(tenant, instance)
    return instance
  }
  /** Names that requests have made up must not pile up. */
  const forgetStrangers = (): void => {
    for (const [tenant, { gate }] of instances) if (gate.isNowhere) release(tenant).catch(() => {})
  }
  const release = async (tenant: string): Promise<void> => {
    const instance = instances.get(tenant)
    instances.delete(tenant)
    await instance?.close()
  }

  const { tenants, stopAll } = openTenants({ placements, directory, instanceOf, release })
  return {
    engine: placements.traits.engine,
    tenants,
    tenant: name => instanceOf(name).store,
    instances: () => [...instances.values()],
    async close(closeMs) {
      await stopAll()
      await Promise.all([...instances.keys()].map(release))
      await placements.close(closeMs)
    },
  }
}

async function openPlacements<S>(
  tenancy: Tenancy,
  { prefix, makes, pool, database }: TenancyOptions<S>,
): Promise<{ placements: Placements; directory: Directory | undefined }> {
  if (tenancy === 'schema') return { placements: schemaPlacements(await database(), prefix), directory: undefined }
  if (typeof tenancy !== 'object' || typeof tenancy.directory !== 'string')
    throw new InvalidOption({ option: 'tenancy', reason: `must be 'schema' or { directory: 'postgres://…' }` })
  const own = await openPostgres({ ...pool, url: tenancy.directory, maxConnections: 2 })
  try {
    const directory = await openDirectory(own, { schema: tenancy.schema ?? 'rillflow_directory', prefix, makes })
    const urls = tenancy.servers ?? {}
    if (makes) for (const [name, url] of Object.entries(urls)) await directory.addServer(name, url)
    return { placements: serverPlacements(directory, own, { prefix, urls, pool }), directory }
  } catch (error) {
    await own.close(0)
    throw error
  }
}
