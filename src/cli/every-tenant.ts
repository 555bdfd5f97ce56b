/** The store of the line, or with `--all-tenants` that of each tenant, one after the other. */
import { throwIfAborted } from '../core/lifecycle.ts'
import type { Store } from '../store.ts'
import type { Invocation, Opened, OpenedTenancy, OpenOptions } from './command.ts'

export const allTenantsOption = { kind: 'flag', summary: 'For every tenant, one after the other' } as const

export interface OfTenant<T> {
  /** Undefined of a store without tenants, or where the line names one. */
  readonly tenant: string | undefined
  readonly value: T
}

/** Calls `look` with each. `open` fails where the tenant cannot be used: it is for `look` to say what that means. */
export async function forEachStore<T>(
  { open, out, signal }: Pick<Invocation, 'open' | 'out' | 'signal'>,
  { allTenants, what, ...options }: OpenOptions & { readonly allTenants: boolean; readonly what: string },
  look: (open: () => Promise<Store>, tenant: string | undefined) => Promise<T>,
): Promise<OfTenant<T>[]> {
  if (!allTenants) {
    const { store } = await open(options)
    return [{ tenant: undefined, value: await look(async () => store, undefined) }]
  }
  const { tenants, storeOf } = await openTenants({ open }, options)
  const names = (await tenants.list()).map(each => each.tenant)
  const found: OfTenant<T>[] = []
  const bar = out.progress(what)
  try {
    for (const tenant of names) {
      throwIfAborted(signal)
      found.push({ tenant, value: await look(() => storeOf(tenant), tenant) })
      bar.update(found.length, names.length, 'tenant')
    }
  } finally {
    bar.end()
  }
  return found
}

/** One document for one store, a list with names for all tenants. */
export function asJson<T extends object>(found: readonly OfTenant<T>[], allTenants: boolean): object {
  if (!allTenants) return found[0]!.value
  return found.map(({ tenant, value }) => ({ tenant, ...value }))
}

// A store with tenants, for a command that is about them.

export const serverOption = {
  kind: 'text',
  value: 'SERVER',
  summary: 'The server of the directory. Default: the one with the fewest tenants',
} as const

export async function openTenants(
  { open }: Pick<Invocation, 'open'>,
  options: Omit<OpenOptions, 'tenants'> = {},
): Promise<Omit<Opened, 'store' | 'tenancy'> & OpenedTenancy> {
  const { store: _, tenancy, ...opened } = await open({ ...options, tenants: true })
  return { ...opened, ...tenancy! }
}
