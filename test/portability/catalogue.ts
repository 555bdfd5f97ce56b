/** Objects that a schema must not contain if it is to be moved to Citus: `test/portability/citus.md`, the rules about the schema. */
import type { Database } from '../../src/database/database.ts'
import { sql } from '../../src/database/sql.ts'

/** Sentences, sorted: `trigger: orders.audit`. */
export async function offencesIn(database: Database, schema: string): Promise<string[]> {
  const rows = await database.run<{ offence: string }>(sql`/* test.offences */
    with own as (
      select c.oid, c.relname, c.relkind, c.relispartition
      from pg_class as c
      where c.relnamespace = ${schema}::text::regnamespace)
    select 'trigger: ' || own.relname || '.' || t.tgname as offence
    from own
    join pg_trigger as t on t.tgrelid = own.oid and not t.tgisinternal
    union all
    select 'rule: ' || own.relname || '.' || r.rulename
    from own
    join pg_rewrite as r on r.ev_class = own.oid and r.rulename <> '_RETURN'
    union all
    select 'inheritance: ' || own.relname
    from own
    join pg_inherits as i on i.inhrelid = own.oid
    where own.relkind in ('r', 'p')
      and not own.relispartition
    union all
    select 'partitions of a partition: ' || own.relname
    from own
    where own.relkind = 'p'
      and own.relispartition
    union all
    select 'identity: ' || own.relname || '.' || a.attname
    from own
    join pg_attribute as a on a.attrelid = own.oid and a.attidentity <> ''
    union all
    select 'default from a sequence: ' || own.relname || '.' || a.attname
    from own
    join pg_attribute as a on a.attrelid = own.oid
    join pg_attrdef as d on d.adrelid = own.oid and d.adnum = a.attnum
    where pg_get_expr(d.adbin, d.adrelid) like '%nextval(%'
    union all
    select 'xid: ' || own.relname || '.' || a.attname
    from own
    join pg_attribute as a on a.attrelid = own.oid and a.attnum > 0
    where a.atttypid = any('{xid,xid8,cid,pg_snapshot,txid_snapshot}'::regtype[])
      and own.relkind in ('r', 'p')
    union all
    select 'no primary key: ' || own.relname
    from own
    where own.relkind in ('r', 'p')
      and not exists (select from pg_index as i where i.indrelid = own.oid and i.indisprimary)
    union all
    select 'foreign key that leaves the schema: ' || own.relname || '.' || f.conname
    from own
    join pg_constraint as f on f.conrelid = own.oid and f.contype = 'f'
    where f.confrelid not in (select oid from own)
    order by 1`)
  return rows.map(({ offence }) => offence)
}
