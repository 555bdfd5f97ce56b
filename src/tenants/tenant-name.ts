/**
 * Names of tenants, and the schema of each. A name is put into the schema's name as it is: nothing is folded or replaced, so
 * two names are never one schema, and what cannot be told apart everywhere is rejected.
 */
import { InvalidOption } from '../core/errors.ts'
import { InvalidTenantName } from './errors.ts'

/** PostgreSQL cuts longer names off, and then two could be one. What comes and goes with a move has four more characters. */
const maxSchemaBytes = 63 - 4
const maxPrefixBytes = 40

export function checkTenantName(tenant: unknown, prefix: string): string {
  const told = typeof tenant === 'string' ? tenant : String(tenant)
  const refuse = (reason: string): never => {
    throw new InvalidTenantName({ tenant: told, reason })
  }
  if (typeof tenant !== 'string') return refuse('is not a string')
  if (tenant === '') return refuse('is empty')
  if (/[A-Z]/.test(tenant)) refuse('has upper-case letters, which would make two names out of one')
  if (!/^[a-z0-9][a-z0-9_-]*$/.test(tenant)) refuse('has other characters than a name may have')
  const bytes = Buffer.byteLength(prefix) + tenant.length
  if (bytes > maxSchemaBytes)
    refuse(
      `is too long: with "${prefix}" before it there are ${bytes} bytes, and a schema has at most ${maxSchemaBytes}`,
    )
  return tenant
}

/** With none, or one of PostgreSQL's own, any schema could pass for a tenant's. */
export function checkTenantPrefix(prefix: string): string {
  const isUsable = /^[a-z][a-z0-9_]*_$/.test(prefix) && !prefix.startsWith('pg_') && prefix.length <= maxPrefixBytes
  if (isUsable) return prefix
  const reason = `"${prefix}" must be lower-case letters, digits and _, begin with a letter and end with _`
  throw new InvalidOption({
    option: 'tenantPrefix',
    reason: `${reason}, have at most ${maxPrefixBytes}, and not be pg_…`,
  })
}

export function schemaOfTenant(tenant: string, prefix: string): string {
  return prefix + checkTenantName(tenant, prefix)
}

/** The tenant whose schema this is; undefined if it is nobody's. */
export function tenantOfSchema(schema: string, prefix: string): string | undefined {
  if (!schema.startsWith(prefix)) return undefined
  const tenant = schema.slice(prefix.length)
  try {
    return checkTenantName(tenant, prefix)
  } catch {
    return undefined
  }
}

/** What the schema is called where a move has not ended yet, and where it was: never the name of another tenant's. */
export function passingNames(schema: string): { incoming: string; retired: string } {
  return { incoming: `${schema}.in`, retired: `${schema}.out` }
}
