/** The errors of tenants: a missing tenant, a tenant on the move, a server that is not known. */
import { defineError, type ErrorKind } from '../core/errors.ts'

export const TenantRequired: ErrorKind<'tenant_required', { call: string }> = defineError(
  'tenant_required',
  d =>
    `store.${d.call} needs a tenant, and this call has none. Call it on store.tenant(name), or give openStore a \`tenant\` function that returns the tenant of the current request.`,
)
/** Names no other tenant: the caller may not know that there are others. */
export const TenantNotFound: ErrorKind<'tenant_not_found', { tenant: string }> = defineError(
  'tenant_not_found',
  d => `There is no tenant "${d.tenant}". Check the name, or make the tenant with store.tenants.ensure('${d.tenant}').`,
)
export const TenantMoving: ErrorKind<'tenant_moving', { tenant: string; reason: string }> = defineError(
  'tenant_moving',
  d => `Tenant "${d.tenant}" is being moved: ${d.reason}. This call has taken no effect. Try it again.`,
  { retryable: true },
)
export const InvalidTenantName: ErrorKind<'invalid_tenant_name', { tenant: string; reason: string }> = defineError(
  'invalid_tenant_name',
  d =>
    `The tenant name ${JSON.stringify(d.tenant)} ${d.reason}. Use lower-case letters, digits, "_" and "-", beginning with a letter or a digit.`,
)
export const TenancyRequired: ErrorKind<'tenancy_required', { call: string }> = defineError(
  'tenancy_required',
  d =>
    `store.${d.call} needs a store with tenants on several servers. Open the store with { tenancy: { directory: 'postgres://…' } }.`,
)
export const ForceRequired: ErrorKind<'force_required', { what: string }> = defineError(
  'force_required',
  d => `${d.what} cannot be undone. Pass { force: true } if you are sure.`,
)
export const DirectoryUnreachable: ErrorKind<'directory_unreachable', { reason: string }> = defineError(
  'directory_unreachable',
  d =>
    `The directory of tenants cannot be reached: ${d.reason} Tenants whose server is known already are not affected. Try again later.`,
  { retryable: true },
)
export const DirectoryMissing: ErrorKind<'directory_missing', { schema: string }> = defineError(
  'directory_missing',
  d =>
    `Schema "${d.schema}" has no directory of tenants. Open the store once with { migrate: true }, which makes the directory.`,
)
export const ServerNotFound: ErrorKind<'server_not_found', { server: string; known: readonly string[] }> = defineError(
  'server_not_found',
  d =>
    `The directory has no server "${d.server}". It has ${d.known.length === 0 ? 'none' : d.known.join(', ')}. Add the server with store.tenants.addServer(name, { url }).`,
)
export const TenantElsewhere: ErrorKind<'tenant_elsewhere', { tenant: string; server: string; asked: string }> =
  defineError(
    'tenant_elsewhere',
    d =>
      `Tenant "${d.tenant}" is on server "${d.server}", not on "${d.asked}". Move it with store.tenants.move('${d.tenant}', { server: '${d.asked}' }).`,
  )
export const RebalanceFailed: ErrorKind<'rebalance_failed', { state: string; details: string }> = defineError(
  'rebalance_failed',
  d =>
    `The rebalance of the cluster has ended as "${d.state}". Tenants that were moved stay where they are, all others where they were. Citus says: ${d.details}`,
)
export const ClusterRequired: ErrorKind<'cluster_required', { call: string }> = defineError(
  'cluster_required',
  d =>
    `store.${d.call} needs tenants that a Citus cluster places. Open the store with { tenancy: 'schema' } and the address of the cluster's coordinator.`,
)
