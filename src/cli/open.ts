/** Opens the store of a line, with everything that its configuration registers; that of one tenant, if the line names one. */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { Config } from '../config.ts'
import { openStore, type Store, type StoreOptions, type TenantedStore } from '../store.ts'
import type { Tenancy } from '../tenants/tenancy.ts'
import type { LoadedConfig, Opened, OpenedTenancy, OpenOptions, Place } from './command.ts'
import { mergePlace } from './configuration.ts'
import { NothingFound, WrongUsage } from './usage.ts'

export interface Opening {
  readonly opened: Opened
  close(): Promise<void>
}

type Where = ReturnType<typeof mergePlace>
type Register = (store: Store) => Promise<void>

export async function openConfigured(
  loaded: LoadedConfig | undefined,
  place: Place,
  { creates = false, tenants = false, fallback = {}, register: registerMore, ...options }: OpenOptions,
): Promise<Opening> {
  const config: Config = loaded?.config ?? fallback
  const tenancy = (place.tenancy as Tenancy | undefined) ?? config.tenancy
  refuseMismatch(tenancy, place, tenants)
  const tenant = place.tenant ?? (tenancy === undefined || tenants ? undefined : place.usualTenant)
  const where = mergePlace(config, place)
  if (!creates) refuseMissing(where, tenancy)
  const register: Register = async store => {
    registerMore?.(store, config)
    await registerAll(store, config)
  }
  const given = { ...withoutCode(config), ...options, ...where }
  const shown = { config, where: describePlace(where, tenancy), isInMemory: where.memory === true }
  if (tenancy === undefined) {
    const store = await openOne(given, register)
    return { opened: { store, tenancy: undefined, ...shown }, close: () => store.close() }
  }
  const { tenanted, storeOf } = await openMany({ ...given, tenancy }, register)
  try {
    const store = tenant === undefined ? tenanted : await storeOf(tenant)
    const opened = { store, tenancy: { tenants: tenanted.tenants, storeOf, isOne: tenant !== undefined }, ...shown }
    return { opened, close: () => tenanted.close() }
  } catch (error) {
    await tenanted.close()
    throw error
  }
}

async function openOne(options: StoreOptions, register: Register): Promise<Store> {
  const registering: Promise<void>[] = []
  const store = await openStore({ ...options, register: each => void registering.push(register(each)) })
  try {
    await Promise.all(registering)
    return store
  } catch (error) {
    await store.close()
    throw error
  }
}

/** A tenant is registered in whenever it is first used; what fails then is told to who asks for its store. */
async function openMany(
  options: StoreOptions & { tenancy: Tenancy },
  register: Register,
): Promise<{ tenanted: TenantedStore } & Pick<OpenedTenancy, 'storeOf'>> {
  const registering = new WeakMap<Store, Promise<void>>()
  const tenanted = await openStore({
    ...options,
    register(store: Store) {
      const done = register(store)
      registering.set(store, done)
      return done
    },
  })
  return {
    tenanted,
    async storeOf(tenant) {
      const store = tenanted.tenant(tenant)
      await registering.get(store)
      return store
    },
  }
}

function refuseMismatch(
  tenancy: Tenancy | undefined,
  { tenant, memory }: Pick<Place, 'tenant' | 'memory'>,
  isAboutTenants: boolean,
): void {
  if (memory && typeof tenancy === 'object')
    throw new WrongUsage({ reason: 'The tenants of the configuration are on servers: --memory has no place there' })
  if (tenancy === undefined && (tenant !== undefined || isAboutTenants))
    throw new WrongUsage({
      reason: 'This is for stores with tenants, and this one is not said to have any',
      hint: `tenancy: 'schema' in the configuration, or --tenancy schema`,
    })
  if (tenant !== undefined && isAboutTenants)
    throw new WrongUsage({ reason: 'This command is about all tenants: --tenant has no place in it' })
}

/** All but what has to wait is registered when the call returns. */
async function registerAll(store: Store, config: Config): Promise<void> {
  const { collections = [], aggregates = [], projections = [] } = config
  const registered = store.register(...collections, ...aggregates, ...projections)
  await Promise.all([registered, config.register?.(store)])
}

/** Somebody who only looks, perhaps in the wrong folder, must not leave a new store behind. */
function refuseMissing({ url, pool, memory, folder = './.rillflow' }: Where, tenancy: Tenancy | undefined): void {
  if (typeof tenancy === 'object') return
  if (url !== undefined || pool !== undefined || memory === true) return
  // A folder alone is no store: it may be anybody's.
  if (existsSync(join(folder, 'data', 'PG_VERSION'))) return
  const made = tenancy === undefined ? 'rillflow schema sync' : 'rillflow tenants ensure NAME'
  const hint = `${made} to make one, or --url postgres://… for one on a server`
  throw new NothingFound({ what: 'embedded store in', given: folder, hint })
}

/** The options that are the store's own, but for where it is. */
function withoutCode(config: Config): object {
  const { projections, collections, aggregates, subscriptions, register, tenancy, ...own } = config
  const { url, pool, folder, memory, ...rest } = own
  return rest
}

function describePlace({ url, pool, folder, memory }: Where, tenancy: Tenancy | undefined): string {
  if (typeof tenancy === 'object') return `the servers of ${withoutPassword(tenancy.directory)}`
  if (pool !== undefined) return 'a pool of the configuration'
  if (memory === true) return 'memory'
  return url === undefined ? (folder ?? './.rillflow') : withoutPassword(url)
}

function withoutPassword(url: string): string {
  try {
    const parsed = new URL(url)
    if (parsed.password !== '') parsed.password = '***'
    return parsed.href
  } catch {
    return 'a server'
  }
}
