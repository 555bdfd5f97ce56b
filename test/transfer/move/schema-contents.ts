/** Compares two schemas row by row, without any code under test. */
import type { Side } from './two-servers.ts'

export type Contents = Record<string, string[]>

/** Every row of every table as text, sorted. */
export async function contentsOf(side: Side, schema: string): Promise<Contents> {
  const tables = await side.query<{ name: string }>(
    schema,
    `select relname::text as name from pg_class where relkind = 'r' and relnamespace = '"${schema}"'::regnamespace order by 1`,
  )
  const contents: Contents = {}
  for (const { name } of tables) {
    const rows = await side.query<{ row: string | null }>(
      schema,
      `select to_jsonb(t)::text as row from ~${name} as t, set_config('timezone', 'UTC', true)`,
    )
    contents[name] = rows.map(({ row }) => row ?? '').sort()
  }
  return contents
}

/** The shape of a schema, as text. */
export async function shapeOf(side: Side, schema: string): Promise<string[]> {
  const rows = await side.query<{ what: string }>(
    schema,
    `select format('column %s.%s %s %s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attgenerated) as what
    from pg_class as c join pg_attribute as a on a.attrelid = c.oid
    where c.relnamespace = '"${schema}"'::regnamespace and c.relkind in ('r', 'i') and a.attnum > 0 and not a.attisdropped
    union all
    select format('%s %s %s %s', c.relkind, c.relname, c.reloptions, obj_description(c.oid, 'pg_class'))
    from pg_class as c
    where c.relnamespace = '"${schema}"'::regnamespace
    union all
    select format('function %s(%s)', p.proname, replace(pg_get_function_identity_arguments(p.oid), '"${schema}"', ''))
    from pg_proc as p
    where p.pronamespace = '"${schema}"'::regnamespace
    order by 1`,
  )
  return rows.map(row => row.what.replaceAll(`${schema}.`, '')).sort()
}

/** The last value of each sequence of the schema. */
export async function sequencesOf(side: Side, schema: string): Promise<Record<string, number>> {
  const rows = await side.query<{ name: string; last: number | null }>(
    schema,
    `select sequencename::text as name, last_value as last from pg_sequences where schemaname = '${schema}' order by 1`,
  )
  return Object.fromEntries(rows.map(({ name, last }) => [name, last ?? 0]))
}
