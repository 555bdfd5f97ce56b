/**
 * Tenancy: one store object for many tenants. It opens the placements, keeps a store for each tenant that is asked for,
 * and gives a store whose members act on the current tenant.
 *
 *     openTenancy ─► placements (one database, or a directory)
 *                 ─► instanceOf(tenant) ─► the tenant's store, assembled once per process
 *     currentTenantStore ─► store.events ─► the store of the tenant that `tenant: () => …` returns
 *
 * The instance of a tenant that exists stays until the store is closed. From a thousand instances on, those of tenants
 * that turned out not to exist are released, so that names invented by requests do not fill the memory.
 */
import type { OpenAudit } from '../audit/audit.ts'
import type { Consumers } from '../consumers/consumers.ts'
import type { OpenRunners } from '../consumers/runners/runners.ts'
import { InvalidOption } from '../core/errors.ts'
import type { Database } from '../database/database.ts'
import { openPostgres, type PostgresOptions } from '../database/postgres/postgres.ts'
import { openWithLooks } from '../database/postgres/with-looks.ts'
import type { Log } from '../events/log.ts'
import type { Wake } from '../events/order/wake.ts'
import type { Schema } from '../schema/schema.ts'
import type { TableRegistry } from '../schema/table.ts'
import { type Directory, directoryPlacements, openDirectory } from './directory.ts'
import { TenantRequired } from './errors.ts'
import { type Placements, schemaPlacements } from './placement.ts'
import { type Lookup, openTenantDatabase, type TenantDatabase } from './tenant-database.ts'
import { checkTenantName, checkTenantPrefix, schemaOfTenant } from './tenant-name.ts'
import { openTenants, type RunningTenants, type Tenants, type TenantsStartOptions } from './tenants.ts'
import { openTenantsAudit, type TenantsAuditParts } from './tenants-audit.ts'

/**
 * `'schema'`: all tenants in this store's database. A directory: on many servers.
 *
 * @example
 * ```ts
 * const tenancy: Tenancy = 'schema'
 * ```
 */
export type Tenancy = 'schema' | DirectoryTenancy

export interface DirectoryTenancy {
  /** The database with the directory: `postgres://…`. */
  readonly directory: string
  /** The directory's schema there. Default `rillflow_directory`. */
  readonly schema?: string | undefined
  /** Addresses of servers by name, for this process. Others are read from the directory. */
  readonly servers?: Readonly<Record<string, string>> | undefined
}

/** The store of one tenant in this process, with the parts that are needed to run it. */
export interface TenantInstance<S> {
  readonly tenant: string
  readonly store: S
  readonly tenantDatabase: TenantDatabase
  readonly schema: Schema
  readonly tables: TableRegistry
  readonly log: Log
  readonly wake: Wake
  readonly audit: OpenAudit
  readonly consumers: Consumers
  /** Resolves when everything that is registered for the tenant is active: to false if registering has failed. */
  readonly registered: Promise<boolean>
  /** Starts a runner for the tenant. */
  readonly start: OpenRunners['start']
  /** Deletes old rows, a few times a day, until the function returned is called. */
  startUpkeep(): () => void
  close(): Promise<void>
}

export interface TenancyOptions<S> {
  /** Default `tenant_`. */
  readonly prefix: string
  /** Whether the directory is made if it is missing. */
  readonly create: boolean
  readonly pool: PostgresOptions
  /** For the audit of what operators do with tenants. */
  readonly audit: TenantsAuditParts
  /** Opens the database of a store that has all its tenants in one. */
  database(): Promise<Database>
  /** Puts together the store of one tenant. */
  assemble(tenant: string, schema: string, open: OpenTenantDatabase): TenantInstance<S>
}

/** Opens the database of a tenant; `prepare` checks that its store can be used there. */
export type OpenTenantDatabase = (prepare: (database: Database) => Promise<void>) => TenantDatabase

export interface TenantStores<S> {
  readonly engine: Database['engine']
  readonly tenants: Tenants
  /** Runs the tenants that have work. */
  start(options?: TenantsStartOptions): Promise<RunningTenants>
  tenant(name: string): S
  /** The tenants that this process has found so far. */
  instances(): readonly TenantInstance<S>[]
  close(closeMs: number): Promise<void>
}

/** Tenants that could not be looked up are watched too, as far as these: their server may be away. */
const maxUnreachable = 100

export async function openTenancy<S>(tenancy: Tenancy, options: TenancyOptions<S>): Promise<TenantStores<S>> {
  const { assemble } = options
  const prefix = checkTenantPrefix(options.prefix)
  const { placements, directory } = await openPlacements(tenancy, options)
  // A name in a request may be made up. Only a tenant that was found is kept; any other instance lives as long as a caller
  // has it, and is not watched.
  const instances = new Map<string, TenantInstance<S>>()
  const unreachable = new Set<string>()
  const known = new Map<string, WeakRef<TenantInstance<S>>>()
  const collected = new FinalizationRegistry<string>(tenant => {
    if (known.get(tenant)?.deref() === undefined) known.delete(tenant)
  })

  const keep = (instance: TenantInstance<S>, lookup: Lookup): void => {
    const { tenant } = instance
    // Released meanwhile, and perhaps replaced by another.
    if (!isCurrent(instance)) return
    if (lookup === 'failed' && !instances.has(tenant) && unreachable.size >= maxUnreachable) return
    if (lookup === 'missing') instances.delete(tenant)
    else instances.set(tenant, instance)
    if (lookup === 'failed') unreachable.add(tenant)
    else unreachable.delete(tenant)
  }
  const isCurrent = (instance: TenantInstance<S>): boolean => known.get(instance.tenant)?.deref() === instance

  const instanceOf = (tenant: string): TenantInstance<S> => {
    const living = known.get(checkTenantName(tenant, prefix))?.deref()
    if (living !== undefined) return living
    // Its database holds the instance, so the instance lives as long as a call or a handle uses the database.
    let made: TenantInstance<S> | undefined
    const onLookup = (lookup: Lookup): void => {
      if (made !== undefined) keep(made, lookup)
    }
    const instance = assemble(tenant, schemaOfTenant(tenant, prefix), prepare =>
      openTenantDatabase(placements, tenant, prepare, onLookup),
    )
    made = instance
    known.set(tenant, new WeakRef(instance))
    collected.register(instance, tenant)
    return instance
  }
  const release = async (tenant: string): Promise<void> => {
    const instance = known.get(tenant)?.deref()
    known.delete(tenant)
    instances.delete(tenant)
    unreachable.delete(tenant)
    await instance?.close()
  }

  const operators = openTenantsAudit(placements.home, prefix, options.audit)
  const { tenants, start, stopAll } = openTenants({ placements, directory, operators, instanceOf, release })
  return {
    engine: placements.traits.engine,
    tenants,
    start,
    tenant: name => instanceOf(name).store,
    instances: () => [...instances.values()],
    async close(closeMs) {
      await stopAll()
      await Promise.all([...known.keys()].map(release))
      await placements.close(closeMs)
    },
  }
}

async function openPlacements<S>(
  tenancy: Tenancy,
  { prefix, create, pool, database }: TenancyOptions<S>,
): Promise<{ placements: Placements; directory: Directory | undefined }> {
  if (tenancy === 'schema') {
    const { url } = pool
    const openNode = (node: string): Promise<Database> => openWithLooks({ ...pool, url: urlOfNode(url!, node) })
    const opened = await database()
    const placements = await schemaPlacements(opened, prefix, url ? openNode : undefined)
    return { placements, directory: undefined }
  }
  if (typeof tenancy !== 'object' || typeof tenancy.directory !== 'string')
    throw new InvalidOption({
      option: 'tenancy',
      reason: `The option "tenancy" must be 'schema' or { directory: 'postgres://…' }.`,
    })
  const own = await openPostgres({ ...pool, url: tenancy.directory, maxConnections: 2 })
  try {
    const directory = await openDirectory(own, { schema: tenancy.schema ?? 'rillflow_directory', prefix, create })
    const urls = tenancy.servers ?? {}
    if (create) for (const [name, url] of Object.entries(urls)) await directory.addServer(name, url)
    return { placements: directoryPlacements(directory, own, { prefix, urls, pool }), directory }
  } catch (error) {
    await own.close(0)
    throw error
  }
}

/** The same user, database and settings on a node of the cluster. */
function urlOfNode(url: string, node: string): string {
  const at = new URL(url)
  at.searchParams.delete('host')
  at.searchParams.delete('port')
  at.host = node
  return at.href
}

/** Returns the tenant of the current call; undefined if it has none. */
export type CurrentTenant = () => string | undefined

/**
 * A store whose members are those of the current tenant. The tenant is looked up whenever a member is read, so
 * `store.events.append(…)` inside a request goes to the tenant of that request. Without a tenant it throws
 * `TenantRequired`.
 */
export function currentTenantStore<S extends object>(
  members: readonly (keyof S & string)[],
  currentTenant: CurrentTenant | undefined,
  storeOf: (tenant: string) => S,
): S {
  const current = (member: string): S => {
    const tenant = currentTenant?.()
    if (tenant === undefined) throw new TenantRequired({ call: member })
    return storeOf(tenant)
  }
  const store = {} as S
  for (const member of members)
    Object.defineProperty(store, member, { enumerable: true, get: () => current(member)[member] })
  return store
}
