/** What hangs on a table and must not get lost when another takes its place. */

import type { Executor, Transaction } from '../../database/database.ts'
import { type Identifier, identifier, sql } from '../../database/sql.ts'
import { ViewsDepend } from '../errors.ts'
import { ddl } from './shadow.ts'

/**
 * Refuses a table that something of the user's hangs on which cannot be put onto another: views and functions keep to the
 * table they were made for, whatever its name; triggers and policies would go with it.
 */
export async function refuseDependents(executor: Executor, projection: string, table: Identifier): Promise<void> {
  const rows = await executor.run<{ what: string }>(sql`/* projections.dependents */
    select distinct
      case
        when d.classid = 'pg_rewrite'::regclass
          then (select 'view ' || r.ev_class::regclass::text from pg_rewrite as r where r.oid = d.objid)
        else pg_describe_object(d.classid, d.objid, 0)
      end as what
    from pg_depend as d
    where d.refclassid = 'pg_class'::regclass
      and d.refobjid = ${table.quoted}::text::regclass
      and (d.classid in ('pg_rewrite'::regclass, 'pg_proc'::regclass, 'pg_policy'::regclass,
          'pg_publication_rel'::regclass)
        or (d.classid = 'pg_trigger'::regclass
          and exists (select from pg_trigger as t where t.oid = d.objid and not t.tgisinternal))
        or (d.classid = 'pg_constraint'::regclass
          and exists (select from pg_constraint as c where c.oid = d.objid and c.conrelid <> d.refobjid)))
    order by what`)
  if (rows.length > 0) throw new ViewsDepend({ projection, table: table.quoted, views: rows.map(row => row.what) })
}

/** Gives the new table the old one's owner, and everybody what they were granted on it. */
export async function copyGrants(tx: Transaction, from: Identifier, to: Identifier): Promise<void> {
  const [owner] = await tx.run<{ name: string; differs: boolean }>(sql`/* projections.owner */
    select pg_get_userbyid(old.relowner) as name, old.relowner <> new.relowner as differs
    from pg_class as old, pg_class as new
    where old.oid = ${from.quoted}::text::regclass
      and new.oid = ${to.quoted}::text::regclass`)
  if (owner?.differs === true) await ddl(tx, `alter table ${to} owner to ${identifier(owner.name)}`, 'owner')
  const grants = await tx.run<{ grantee: string | null; privilege: string; column: string | null; option: boolean }>(
    sql`/* projections.grants */
      select
        case when acl.grantee = 0 then null else pg_get_userbyid(acl.grantee) end as grantee,
        acl.privilege_type as privilege,
        null::text as column,
        acl.is_grantable as option
      from pg_class as c, aclexplode(c.relacl) as acl
      where c.oid = ${from.quoted}::text::regclass
        and acl.grantee <> c.relowner
      union all
      select
        case when acl.grantee = 0 then null else pg_get_userbyid(acl.grantee) end,
        acl.privilege_type,
        a.attname::text,
        acl.is_grantable
      from pg_attribute as a, aclexplode(a.attacl) as acl
      where a.attrelid = ${from.quoted}::text::regclass
        and not a.attisdropped
        and exists (
          select
          from pg_attribute as same
          where same.attrelid = ${to.quoted}::text::regclass
            and same.attname = a.attname)`,
  )
  for (const { grantee, privilege, column, option } of grants) {
    const what = `${privilege}${column === null ? '' : ` (${identifier(column)})`}`
    const who = `${grantee === null ? 'public' : identifier(grantee)}${option ? ' with grant option' : ''}`
    await ddl(tx, `grant ${what} on ${to} to ${who}`, 'grant')
  }
}
