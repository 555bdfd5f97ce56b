/**
 * The audit of what operators do with tenants as a whole. It cannot be in the schema of a tenant, which may not exist yet, or
 * no more: it has a schema of its own, next to those of the tenants or in the database of the directory. The first action
 * makes it.
 */
import { type Audit, type AuditParts, type OpenAudit, openAudit } from '../audit/audit.ts'
import { auditPart } from '../audit/schema.ts'
import { pageOfAll } from '../core/page.ts'
import type { Database } from '../database/database.ts'
import { identifier } from '../database/sql.ts'
import { clock } from '../schema/clock.sql.ts'
import { libraryOf } from '../schema/part.ts'
import { openSchema } from '../schema/schema.ts'
import { TableRegistry } from '../schema/table.ts'
import { markPrefix } from './prefix-mark.ts'

export interface TenantsAudit {
  readonly audit: Audit
  /** Makes its schema, if it is not there yet. */
  open(): Promise<OpenAudit>
}

export type TenantsAuditParts = Pick<AuditParts, 'ids' | 'telemetry' | 'actor'>

export function tenantsAuditSchema(prefix: string): string {
  return `audit_of_${prefix}`
}

export function openTenantsAudit(database: Database, prefix: string, parts: TenantsAuditParts): TenantsAudit {
  const schema = tenantsAuditSchema(prefix)
  const own = openSchema(database, { schema, tables: new TableRegistry(), library: libraryOf([auditPart]) })
  const audit = openAudit({ ...parts, database, schema, clock: identifier(schema, clock.name) })
  let made: Promise<unknown> | undefined
  const open = async (): Promise<OpenAudit> => {
    made ??= own.sync().then(() => markPrefix(database, schema, schema))
    await made.catch(error => {
      made = undefined
      throw error
    })
    return audit
  }
  return {
    open,
    audit: {
      ...audit,
      async list(options = {}) {
        const { status } = await own.state()
        return status === 'missing' ? pageOfAll('store.tenants.audit.list', [], {}, () => '') : audit.list(options)
      },
      record: async (action, work) => (await open()).record(action, work),
    },
  }
}
