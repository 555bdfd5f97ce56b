/**
 * Opens the store of a line and makes everything known to it that the configuration has. If the line names a tenant, the
 * store is that of the tenant.
 *
 *     purpose   definitions                    schema                              commands
 *     read      known, nothing is stored       must be up to date                  all others
 *     write     known, nothing is stored       embedded: brought up to date        events append, documents put, …
 *     run       stored, as an application's    embedded: brought up to date        run, dev
 *
 * Guarantees:
 * - Only `run` and `dev` change routes, and the version or lifecycle of inline projections: the configuration of an operator
 *   may be older or newer than that of the programs that run.
 * - A command that only reads changes nothing and needs only the rights of a reader. It never creates a store, even if it is
 *   called in the wrong folder.
 * - What is printed about the location has no password in it.
 *
 * What can fail: there is no embedded store (`NothingFound`); the line and the configuration disagree about tenants
 * (`WrongUsage`). If registering fails, the store is closed again.
 */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { Config } from '../config.ts'
import { openStore, openUnregistered, type Store, type StoreOptions, type TenantedStore } from '../store.ts'
import type { Tenancy } from '../tenants/tenancy.ts'
import type { LoadedConfig, Location, Opened, OpenedTenancy, OpenOptions } from './command.ts'
import { withLocation } from './config.ts'
import { NothingFound, WrongUsage } from './report-error.ts'

type StoreLocation = ReturnType<typeof withLocation>
type Register = (store: Store) => Promise<void>
type Open = typeof openUnregistered

export async function openConfigured(
  loaded: LoadedConfig | undefined,
  given: Location,
  { purpose = 'read', create = false, isAboutTenants = false, defaultConfig = {}, url, ...options }: OpenOptions,
): Promise<{ readonly opened: Opened; close(): Promise<void> }> {
  const location = url === undefined ? given : { ...given, url, folder: undefined, memory: false }
  const config: Config = loaded?.config ?? defaultConfig
  // A line about tenants, or one that names a tenant, says by that that the store has tenants.
  const isOfTenants = isAboutTenants || location.tenant !== undefined
  const tenancy = (location.tenancy as Tenancy | undefined) ?? config.tenancy ?? (isOfTenants ? 'schema' : undefined)
  refuseMismatch(tenancy, location, isAboutTenants)
  const tenant = location.tenant ?? (tenancy === undefined || isAboutTenants ? undefined : location.defaultTenant)
  const storeLocation = withLocation(config, location)
  if (!create) refuseMissingStore(storeLocation, tenancy)
  const register: Register = store => registerAll(store, config)
  const isEmbedded = !storeLocation.url && storeLocation.pool === undefined && typeof tenancy !== 'object'
  const migrate = options.migrate ?? (purpose !== 'read' && isEmbedded)
  const actor = location.actor ?? config.actor
  const storeOptions = { ...withoutDefinitions(config), ...options, ...storeLocation, migrate, actor }
  const open: Open = purpose === 'run' ? openStore : openUnregistered
  const description = {
    config,
    where: describeLocation(storeLocation, tenancy),
    isInMemory: storeLocation.memory === true,
  }
  if (tenancy === undefined) {
    const store = await openOne(open, storeOptions, register)
    return { opened: { store, tenancy: undefined, ...description }, close: () => store.close() }
  }
  const { tenanted, storeOf } = await openTenanted(open, { ...storeOptions, tenancy }, register)
  try {
    const store = tenant === undefined ? tenanted : await storeOf(tenant)
    const openedTenancy = { tenants: tenanted.tenants, storeOf, isOneTenant: tenant !== undefined }
    return { opened: { store, tenancy: openedTenancy, ...description }, close: () => tenanted.close() }
  } catch (error) {
    await tenanted.close()
    throw error
  }
}

async function openOne(open: Open, options: StoreOptions, register: Register): Promise<Store> {
  const registrations: Promise<void>[] = []
  const store = await open({ ...options, register: each => void registrations.push(register(each)) })
  try {
    await Promise.all(registrations)
    return store
  } catch (error) {
    await store.close()
    throw error
  }
}

/** Definitions are registered for a tenant when it is first used. If that fails, `storeOf` rejects for this tenant. */
async function openTenanted(
  open: Open,
  options: StoreOptions & { tenancy: Tenancy },
  register: Register,
): Promise<{ tenanted: TenantedStore } & Pick<OpenedTenancy, 'storeOf'>> {
  const registrations = new WeakMap<Store, Promise<void>>()
  const tenanted = await open({
    ...options,
    register(store: Store) {
      const registration = register(store)
      registrations.set(store, registration)
      return registration
    },
  })
  return {
    tenanted,
    async storeOf(tenant) {
      const store = tenanted.tenant(tenant)
      await registrations.get(store)
      return store
    },
  }
}

/** Everything that is synchronous in `register` of the configuration is registered when this returns its promise. */
async function registerAll(store: Store, config: Config): Promise<void> {
  const { collections = [], aggregates = [], projections = [], processors = [], subscriptions = [] } = config
  const { handlers = [], joins = [], undos = [], schedules = [] } = config
  const followers = [...collections, ...aggregates, ...projections, ...processors, ...subscriptions]
  const registered = store.register(...followers, ...handlers, ...joins, ...undos, ...schedules)
  await Promise.all([registered, config.register?.(store)])
}

function refuseMismatch(
  tenancy: Tenancy | undefined,
  { tenant, memory }: Pick<Location, 'tenant' | 'memory'>,
  isAboutTenants: boolean,
): void {
  if (memory && typeof tenancy === 'object')
    throw new WrongUsage({ reason: '--memory cannot be used: the configuration places the tenants on servers' })
  if (tenant !== undefined && isAboutTenants)
    throw new WrongUsage({ reason: '--tenant cannot be used: this command is about all tenants' })
}

function refuseMissingStore(location: StoreLocation, tenancy: Tenancy | undefined): void {
  const { url, pool, memory, folder = './.rillflow' } = location
  if (typeof tenancy === 'object') return
  if (url || pool !== undefined || memory === true) return
  // The store itself refuses an empty url without a folder, and says why.
  if ('url' in location && location.folder === undefined) return
  // The folder alone proves nothing: it may belong to another program.
  if (existsSync(join(folder, 'data', 'PG_VERSION'))) return
  const create = tenancy === undefined ? 'rillflow schema sync' : 'rillflow tenants ensure NAME'
  const hint = `${create} to create it, or --url postgres://… to use a server`
  throw new NothingFound({ what: 'embedded store in', given: folder, hint })
}

/** The options of the store itself, without its location. */
function withoutDefinitions(config: Config): object {
  const { projections, collections, aggregates, processors, subscriptions, register, tenancy, ...rest } = config
  const { handlers, joins, undos, schedules, url, pool, folder, memory, ...options } = rest
  return options
}

export function describeLocation({ url, pool, folder, memory }: StoreLocation, tenancy: Tenancy | undefined): string {
  if (typeof tenancy === 'object') return `the servers of ${withoutPassword(tenancy.directory)}`
  if (pool !== undefined) return 'the pool of the configuration'
  if (url) return withoutPassword(url)
  return memory === true ? 'memory' : (folder ?? './.rillflow')
}

function withoutPassword(url: string): string {
  try {
    const { protocol, username, password, host, pathname } = new URL(url)
    const user = `${username}${password === '' ? '' : ':***'}${username + password === '' ? '' : '@'}`
    // Without the options after the question mark: a password can be among them.
    return `${protocol}//${user}${host}${pathname}`
  } catch {
    return 'a server'
  }
}
