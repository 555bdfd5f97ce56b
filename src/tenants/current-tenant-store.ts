/**
 * The store without a tenant: each of its parts is that of the tenant whose turn it is, and a call without one is refused.
 * Looked up whenever a part is taken, so `store.events.append(…)` inside of a request goes to that request's tenant.
 */
import { TenantRequired } from './errors.ts'

export type Resolver = () => string | undefined

export function boundStore<S extends object>(
  parts: readonly (keyof S & string)[],
  resolve: Resolver | undefined,
  storeOf: (tenant: string) => S,
): S {
  const current = (part: string): S => {
    const tenant = resolve?.()
    if (tenant === undefined) throw new TenantRequired({ call: part })
    return storeOf(tenant)
  }
  const bound = {} as S
  for (const part of parts) Object.defineProperty(bound, part, { enumerable: true, get: () => current(part)[part] })
  return bound
}
