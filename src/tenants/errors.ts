/** The errors of tenants: which one, where it is, and what may be done to it. */
import { defineError, type ErrorKind } from '../core/errors.ts'

export const TenantRequired: ErrorKind<'tenant_required', { call: string }> = defineError(
  'tenant_required',
  d =>
    `store.${d.call} needs a tenant, and there is none. Call it on store.tenant(name), or give openStore a \`tenant\` function that knows whose request this is.`,
)
/** Names no other tenant: whoever asks may not know that there are others. */
export const TenantNotFound: ErrorKind<'tenant_not_found', { tenant: string }> = defineError(
  'tenant_not_found',
  d => `There is no tenant "${d.tenant}". Check the name, or make it with store.tenants.ensure('${d.tenant}').`,
)
export const TenantMoving: ErrorKind<'tenant_moving', { tenant: string; reason: string }> = defineError(
  'tenant_moving',
  d => `Tenant "${d.tenant}" is being moved (${d.reason}). Nothing of this call has taken effect: try it again.`,
  { retryable: true },
)
export const InvalidTenantName: ErrorKind<'invalid_tenant_name', { tenant: string; reason: string }> = defineError(
  'invalid_tenant_name',
  d =>
    `Tenant name ${JSON.stringify(d.tenant)} ${d.reason}. Take lower-case letters, digits, "_" and "-", beginning with a letter or digit.`,
)
export const TenancyRequired: ErrorKind<'tenancy_required', { call: string }> = defineError(
  'tenancy_required',
  d => `store.${d.call} is for stores with tenants. Open the store with { tenancy: 'schema' }, or with a directory.`,
)
export const ForceRequired: ErrorKind<'force_required', { what: string }> = defineError(
  'force_required',
  d => `${d.what} cannot be undone. Pass { force: true } if you mean it.`,
)
export const DirectoryUnreachable: ErrorKind<'directory_unreachable', { reason: string }> = defineError(
  'directory_unreachable',
  d => `The directory of tenants does not answer (${d.reason}). Tenants whose place is known go on; try again.`,
  { retryable: true },
)
export const DirectoryMissing: ErrorKind<'directory_missing', { schema: string }> = defineError(
  'directory_missing',
  d =>
    `There is no directory of tenants in schema "${d.schema}". Open the store once with { migrate: true } to make it.`,
)
export const ServerNotFound: ErrorKind<'server_not_found', { server: string; known: readonly string[] }> = defineError(
  'server_not_found',
  d =>
    `There is no server "${d.server}" in the directory; it has ${d.known.length === 0 ? 'none' : d.known.join(', ')}. Add it with store.tenants.addServer(name, { url }).`,
)
export const TenantElsewhere: ErrorKind<'tenant_elsewhere', { tenant: string; server: string; asked: string }> =
  defineError(
    'tenant_elsewhere',
    d =>
      `Tenant "${d.tenant}" is on server "${d.server}", not on "${d.asked}". Move it with store.tenants.move('${d.tenant}', { server: '${d.asked}' }).`,
  )
