/**
 * Names of tenants, and the schema of each. A name becomes a part of the schema's name as it is: nothing is folded or
 * replaced, so two names never share a schema. A name that could be confused with another one somewhere is refused.
 */
import { InvalidOption } from '../core/errors.ts'
import { InvalidTenantName } from './errors.ts'

/** PostgreSQL cuts longer names, and then two could become one. The names that a move uses have four more characters. */
const maxSchemaBytes = 63 - 4
const maxPrefixBytes = 40

export function checkTenantName(tenant: unknown, prefix: string): string {
  const refuse = (reason: string): never => {
    throw new InvalidTenantName({ tenant: String(tenant), reason })
  }
  if (typeof tenant !== 'string') return refuse('is not a string')
  if (tenant === '') return refuse('is empty')
  if (/[A-Z]/.test(tenant)) refuse('has upper-case letters, so it could be confused with its lower-case form')
  if (!/^[a-z0-9][a-z0-9_-]*$/.test(tenant)) refuse('has characters that a name may not have')
  const bytes = Buffer.byteLength(prefix) + tenant.length
  if (bytes > maxSchemaBytes)
    refuse(`is too long: with the prefix "${prefix}" it has ${bytes} bytes, and a schema has at most ${maxSchemaBytes}`)
  return tenant
}

/** Without a prefix, or with one of PostgreSQL's own, any schema could be taken for that of a tenant. */
export function checkTenantPrefix(prefix: string): string {
  const isUsable = /^[a-z][a-z0-9_]*_$/.test(prefix) && !prefix.startsWith('pg_') && prefix.length <= maxPrefixBytes
  if (isUsable) return prefix
  const rule = `It may have lower-case letters, digits and _, must begin with a letter (but not with pg_) and end with _`
  throw new InvalidOption({
    option: 'tenantPrefix',
    reason: `The option "tenantPrefix" is ${JSON.stringify(prefix)}. ${rule}, and has at most ${maxPrefixBytes} characters.`,
  })
}

export function schemaOfTenant(tenant: string, prefix: string): string {
  return prefix + checkTenantName(tenant, prefix)
}

/** The tenant whose schema this is; undefined if it belongs to none. */
export function tenantOfSchema(schema: string, prefix: string): string | undefined {
  if (!schema.startsWith(prefix)) return undefined
  const tenant = schema.slice(prefix.length)
  try {
    return checkTenantName(tenant, prefix)
  } catch {
    return undefined
  }
}

/** The names of the schema during and after a move, on the new and on the old server. No tenant's schema can have them. */
export function moveNames(schema: string): { incoming: string; retired: string } {
  return { incoming: `${schema}.in`, retired: `${schema}.out` }
}
