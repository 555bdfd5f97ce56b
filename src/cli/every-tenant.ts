/** Opens stores with tenants: for commands about tenants, and for checks that visit every tenant (`--all-tenants`). */

import { throwIfAborted } from '../core/abort.ts'
import { everyItem } from '../core/page.ts'
import type { Store } from '../store.ts'
import type { Tenants } from '../tenants/tenants.ts'
import type { Invocation, Opened, OpenedTenancy, OpenOptions } from './command.ts'

export const allTenantsOption = { kind: 'flag', summary: 'Visit every tenant, one after the other' } as const

/** Opens the store for a command about tenants, and refuses a store that has none. */
export async function openTenants(
  { open }: Pick<Invocation, 'open'>,
  options: Omit<OpenOptions, 'isAboutTenants'> = {},
): Promise<Omit<Opened, 'store' | 'tenancy'> & OpenedTenancy> {
  const { store: _, tenancy, ...opened } = await open({ ...options, isAboutTenants: true })
  return { ...opened, ...tenancy! }
}

export async function tenantNames(tenants: Pick<Tenants, 'list'>): Promise<string[]> {
  return (await everyItem(tenants.list)).map(({ tenant }) => tenant)
}

export interface TenantResult<T> {
  /** Undefined if the store has no tenants, or if the line names one. */
  readonly tenant: string | undefined
  readonly value: T
}

/**
 * Calls `visit` for the store of the line, or with `--all-tenants` for the store of each tenant. The store is opened by
 * `visit`, which decides what it means if that fails.
 */
export async function forEachStore<T>(
  { open, out, signal }: Pick<Invocation, 'open' | 'out' | 'signal'>,
  { allTenants, title, ...options }: OpenOptions & { readonly allTenants: boolean; readonly title: string },
  visit: (open: () => Promise<Store>, tenant: string | undefined) => Promise<T>,
): Promise<TenantResult<T>[]> {
  if (!allTenants) {
    const { store } = await open(options)
    return [{ tenant: undefined, value: await visit(async () => store, undefined) }]
  }
  const { tenants, storeOf } = await openTenants({ open }, options)
  const names = await tenantNames(tenants)
  const results: TenantResult<T>[] = []
  const bar = out.progress(title)
  try {
    for (const tenant of names) {
      throwIfAborted(signal)
      results.push({ tenant, value: await visit(() => storeOf(tenant), tenant) })
      bar.update(results.length, names.length, 'tenant')
    }
  } finally {
    bar.end()
  }
  return results
}

/** One document for one store; for all tenants a list in which each has its name. */
export function resultsAsJson<T extends object>(results: readonly TenantResult<T>[], allTenants: boolean): object {
  if (!allTenants) return results[0]!.value
  return results.map(({ tenant, value }) => ({ tenant, ...value }))
}
