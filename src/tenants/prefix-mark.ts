/**
 * The prefix of a tenant's schema, written into the schema. Two stores in one database may have prefixes of which one begins
 * with the other, as `tenant_` and `tenant_eu_`: by its name alone the schema `tenant_eu_acme` could be that of a tenant
 * `eu_acme` of the first. The mark is the comment of the table of migrations, so it is dumped, restored and renamed with it.
 * A schema without one, of a tenant that was made by hand, belongs to the store that first makes or syncs it.
 */
import type { Database } from '../database/database.ts'
import { type Fragment, fragment, identifier, literal, sql } from '../database/sql.ts'
import { InvalidTenantName } from './errors.ts'

const marked = 'rillflow tenants with the prefix '

/** A condition on a row `n` of pg_namespace: its schema has no mark of another prefix. */
export function hasNoOtherPrefix(prefix: string): Fragment {
  return fragment`not exists (
          select
          from pg_class as m
          join pg_description as d on d.objoid = m.oid and d.classoid = 'pg_class'::regclass and d.objsubid = 0
          where m.relnamespace = n.oid
            and m.relname = 'migrations'
            and starts_with(d.description, ${marked}::text)
            and d.description <> ${marked + prefix}::text)`
}

/** Refuses a schema that belongs to another prefix. */
export async function refuseOtherPrefix(database: Database, schema: string, prefix: string): Promise<void> {
  const found = await readMark(database, schema)
  if (found === undefined || found === prefix) return
  throw new InvalidTenantName({
    tenant: schema.slice(prefix.length),
    reason: `stands for the schema "${schema}", which belongs to a store whose tenants have the prefix "${found}"`,
  })
}

/** Marks the schema of a tenant that has just been made. */
export async function markPrefix(database: Database, schema: string, prefix: string): Promise<void> {
  if ((await readMark(database, schema)) === prefix) return
  const text = `comment on table ${identifier(schema, 'migrations')} is ${literal(marked + prefix)}`
  await database.run({ label: 'tenants.mark', text, values: [], unprepared: true })
}

/** The prefix that the schema is marked with. */
async function readMark(database: Database, schema: string): Promise<string | undefined> {
  const [row] = await database.run<{ mark: string }>(sql`/* tenants.read_mark */
    select d.description as mark
    from pg_namespace as n
    join pg_class as m on m.relnamespace = n.oid and m.relname = 'migrations'
    join pg_description as d on d.objoid = m.oid and d.classoid = 'pg_class'::regclass and d.objsubid = 0
    where n.nspname = ${schema}::text
      and starts_with(d.description, ${marked}::text)`)
  return row?.mark.slice(marked.length)
}
