/**
 * Reads PostgreSQL's catalogue about one schema: one query for tables and one for the rest.
 *
 * Everything is looked up by name, because the catalogue's indexes begin with the name: asking for all tables of a
 * schema reads the tables of every tenant. Definitions come as PostgreSQL words them, without the schema's name.
 */
import type { Executor } from '../database/database.ts'
import { identifier, sql } from '../database/sql.ts'

/** A relation of the schema: a table, or another object of the name. */
export interface FoundTable {
  readonly name: string
  /** `table`, or the kind that it has instead. */
  readonly kind: string
  readonly columns: readonly FoundColumn[]
  readonly indexes: readonly FoundIndex[]
  /** Triggers and rules that users made; not those of foreign keys. */
  readonly triggers: readonly string[]
  readonly rules: readonly string[]
}

export interface FoundColumn {
  readonly name: string
  /** With its collation, where that is not the type's own. */
  readonly type: string
  readonly nullable: boolean
  readonly default: string | null
  readonly generated: boolean
}

export interface FoundIndex {
  readonly name: string
  /** `btree (stream, version)`. */
  readonly definition: string
  readonly unique: boolean
  /** The columns of the primary key, in its order; null for other indexes. */
  readonly primaryKey: readonly string[] | null
  /** False if building it concurrently was interrupted: writes still maintain it, and no query uses it. */
  readonly valid: boolean
  readonly comment: string | null
}

/** The relations of these names, by name. */
export async function readTables(
  executor: Executor,
  schema: string,
  names: readonly string[],
): Promise<Map<string, FoundTable>> {
  const rows = await executor.run<FoundTable>(sql`/* schema.tables */
    select
      c.relname::text as name,
      case
        when c.relkind = 'r' and c.relpersistence = 'u' then 'unlogged table'
        when c.relkind = 'r' then 'table'
        when c.relkind = 'p' then 'partitioned table'
        when c.relkind = 'v' then 'view'
        when c.relkind = 'm' then 'materialized view'
        when c.relkind in ('i', 'I') then 'index'
        when c.relkind = 'S' then 'sequence'
        else 'relation'
      end as kind,
      (select coalesce(json_agg(json_build_object(
          'name', a.attname,
          'type', format_type(a.atttypid, a.atttypmod) || coalesce(' collate ' || quote_ident(l.collname), ''),
          'nullable', not a.attnotnull,
          'generated', a.attgenerated <> '',
          'default', pg_get_expr(d.adbin, d.adrelid)) order by a.attnum), '[]')
        from pg_attribute as a
        join pg_type as t on t.oid = a.atttypid
        left join pg_collation as l on l.oid = a.attcollation and a.attcollation <> t.typcollation
        left join pg_attrdef as d on d.adrelid = a.attrelid and d.adnum = a.attnum
        where a.attrelid = c.oid
          and a.attnum > 0
          and not a.attisdropped) as columns,
      (select coalesce(json_agg(json_build_object(
          'name', x.relname,
          'definition', substr(pg_get_indexdef(i.indexrelid), 1 + length(format(
            'CREATE %sINDEX %I ON %I.%I USING ',
            case when i.indisunique then 'UNIQUE ' else '' end, x.relname, n.nspname, c.relname))),
          'unique', i.indisunique,
          'primaryKey', case when i.indisprimary then array(
            select a.attname
            from unnest(i.indkey::smallint[]) with ordinality as k(attnum, place)
            join pg_attribute as a on a.attrelid = c.oid and a.attnum = k.attnum
            where k.place <= i.indnkeyatts
            order by k.place) end,
          'valid', i.indisvalid,
          'comment', obj_description(i.indexrelid, 'pg_class')) order by x.relname), '[]')
        from pg_index as i
        join pg_class as x on x.oid = i.indexrelid
        where i.indrelid = c.oid) as indexes,
      (select coalesce(json_agg(t.tgname order by t.tgname), '[]')
        from pg_trigger as t
        where t.tgrelid = c.oid
          and not t.tgisinternal) as triggers,
      (select coalesce(json_agg(r.rulename order by r.rulename), '[]')
        from pg_rewrite as r
        where r.ev_class = c.oid
          and r.rulename <> '_RETURN') as rules
    from pg_class as c
    join pg_namespace as n on n.oid = c.relnamespace
    where n.nspname = ${schema}::text
      and c.relname = any(${names}::text[]::name[])
    order by 1`)
  return new Map(rows.map(row => [row.name, row]))
}

/** A sequence, or all functions of one name: a second one would make calls of the first ambiguous. */
export interface FoundObject {
  readonly kind: 'sequence' | 'function'
  readonly name: string
  readonly definition: string
  /** SHA-256 of the body, if it is one function. */
  readonly bodyHash: string | null
}

export async function readObjects(
  executor: Executor,
  schema: string,
  names: { readonly sequences: readonly string[]; readonly functions: readonly string[] },
): Promise<FoundObject[]> {
  return executor.run<FoundObject>(sql`/* schema.objects */
    select
      'sequence' as kind,
      c.relname::text as name,
      concat_ws(' ',
        case when c.relpersistence = 'u' then 'unlogged' end,
        format_type(s.seqtypid, null),
        'increment ' || s.seqincrement,
        'minvalue ' || s.seqmin,
        'maxvalue ' || s.seqmax,
        'cache ' || s.seqcache,
        case when s.seqcycle then 'cycle' else 'no cycle' end,
        (select 'owned by ' || min(d.refobjid::regclass::text)
          from pg_depend as d
          where d.classid = 'pg_class'::regclass
            and d.objid = c.oid
            and d.refobjsubid > 0)) as definition,
      null as "bodyHash"
    from pg_class as c
    join pg_namespace as n on n.oid = c.relnamespace
    join pg_sequence as s on s.seqrelid = c.oid
    where n.nspname = ${schema}::text
      and c.relname = any(${names.sequences}::text[]::name[])
    union all
    select
      'function',
      p.proname::text,
      string_agg(concat_ws(' ',
        replace(
          format('(%s) returns %s', pg_get_function_arguments(p.oid), pg_get_function_result(p.oid)),
          quote_ident(n.nspname) || '.', ''),
        'language ' || l.lanname,
        case p.provolatile when 'v' then 'volatile' when 's' then 'stable' else 'immutable' end,
        case when p.proisstrict then 'strict' end,
        case when p.prosecdef then 'security definer' end,
        -- A test store has moved its clock.
        'set ' || nullif(array_to_string(array(
          select setting
          from unnest(p.proconfig) as setting
          where not starts_with(setting, 'rillflow.clock=')), ' set '), ''),
        pg_get_function_sqlbody(p.oid)), ' and ' order by p.oid),
      case when count(*) = 1 then min(encode(sha256(convert_to(p.prosrc, 'UTF8')), 'hex')) end
    from pg_proc as p
    join pg_namespace as n on n.oid = p.pronamespace
    join pg_language as l on l.oid = p.prolang
    where n.nspname = ${schema}::text
      and p.proname = any(${names.functions}::text[]::name[])
    group by p.proname
    order by 1, 2`)
}

/** Whether a table holds any row. */
export async function hasRows(executor: Executor, schema: string, table: string): Promise<boolean> {
  const [row] = await executor.run<{ filled: boolean }>(sql`/* schema.rows */
    select exists (select from ${identifier(schema, table)}) as filled`)
  return row?.filled === true
}
