/** The tenants of a store that has tenants. Everything else of a tenant is under its own path. */
import { systemClock } from '../../../core/clock.ts'
import { TenancyRequired } from '../../../tenants/errors.ts'
import type { TenantHead, Tenants } from '../../../tenants/tenants.ts'
import { cached } from '../../cached.ts'
import { pageFields, type Route, repeatedName, route } from '../route.ts'

export const tenantRoutes: readonly Route[] = [
  route('GET /tenants', {
    role: 'read',
    summary: 'Tenants by name, with their server and state',
    isOfStore: true,
    query: pageFields,
    cli: 'rillflow tenants list',
    call: ({ tenants, query }) => known(tenants).list(query),
  }),
  route('GET /tenants/heads', {
    role: 'read',
    summary: 'The last position of each tenant: one statement a server. Shared for 2 s',
    isOfStore: true,
    cli: 'rillflow tenants list',
    call: async ({ tenants }) => ({ items: await headsOf(known(tenants)) }),
  }),
  route('GET /tenants/servers', {
    role: 'read',
    summary: 'The names of the servers of the directory, or of the nodes of a Citus cluster',
    isOfStore: true,
    query: pageFields,
    call: ({ tenants, query }) => known(tenants).servers(query),
  }),
  route('GET /tenants/:tenant/status', {
    role: 'read',
    summary: 'The version, size, events and lag of one tenant',
    isOfStore: true,
    cli: 'rillflow tenants status {tenant}',
    call: ({ tenants, parameters }) => known(tenants).status(parameters.tenant),
  }),
  route('POST /tenants/:tenant/ensure', {
    role: 'admin',
    summary: 'Makes a tenant, or brings its schema up to date',
    isOfStore: true,
    body: { server: { kind: 'text', summary: 'A server of the directory' } },
    cli: 'rillflow tenants ensure {tenant}',
    call: ({ tenants, parameters, body }) => known(tenants).ensure(parameters.tenant, body),
  }),
  route('POST /tenants/:tenant/move', {
    role: 'admin',
    summary: 'Moves a tenant to another server of the directory while it is in use',
    isOfStore: true,
    status: 202,
    body: { server: { kind: 'text', required: true, summary: 'The server to move it to' } },
    cli: 'rillflow tenants move {tenant} {server}',
    call: async ({ tenants, parameters: { tenant }, body, operations, identity }) =>
      operations.start({ kind: 'move', target: tenant, startedBy: identity.name }, (report, signal) =>
        known(tenants).move(
          tenant,
          { server: body.server },
          {
            signal,
            onProgress: ({ phase, table, rows, totalRows }) =>
              report({ phase: `${phase} ${table}`, done: rows, total: totalRows }),
          },
        ),
      ),
  }),
  route('POST /tenants/sync', {
    role: 'admin',
    summary: 'Brings the schemas of all tenants up to date',
    isOfStore: true,
    status: 202,
    cli: 'rillflow tenants sync',
    call: async ({ tenants, operations, identity }) =>
      operations.start({ kind: 'syncTenants', target: 'all tenants', startedBy: identity.name }, (report, signal) =>
        known(tenants).sync({
          signal,
          onProgress: ({ tenant, done, total }) => report({ phase: tenant, done, total }),
        }),
      ),
  }),
  route('DELETE /tenants/:tenant', {
    role: 'admin',
    summary: 'Deletes a tenant with everything it has',
    isOfStore: true,
    body: { confirm: { kind: 'text', required: true, summary: 'The name of the tenant again' } },
    cli: 'rillflow tenants drop {tenant} --force --yes',
    async call({ tenants, parameters: { tenant }, body }) {
      repeatedName(tenant, body.confirm)
      await known(tenants).drop(tenant, { force: true })
      return { done: true }
    },
  }),
]

/** One reading for all viewers. */
const readings = new WeakMap<Tenants, () => Promise<TenantHead[]>>()

function headsOf(tenants: Tenants): Promise<TenantHead[]> {
  const read = readings.get(tenants) ?? cached(() => tenants.heads(), 2_000, systemClock)
  readings.set(tenants, read)
  return read()
}

function known(tenants: Tenants | undefined): Tenants {
  if (tenants === undefined) throw new TenancyRequired({ call: 'tenants' })
  return tenants
}
