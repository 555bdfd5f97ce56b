/**
 * The numbers of a schema: positions of the log and of the activity, fences, ids of routes and undos. They come from one
 * of two kinds of source, chosen when the schema is made and recorded by its objects:
 *
 *     announced   a sequence each: drawn side by side, and a bound announced first keeps readers from skipping any
 *     counter     a row of `counters` each: locked from the draw to the commit, so positions become visible in order
 *
 * Announcing is a lock of one server. Where the rows of the schema are on another one (Citus), a broken connection
 * between the two lets the lock go before the rows are visible, and readers would skip them. A counter is a row on
 * the same server, so it is right on every server; on one server it is slower for many processes that append to one store.
 *
 * A new schema gets counters on Citus, and where the setting `rillflow.numbers` of the database is `counter`.
 */
import type { Executor } from '../database/database.ts'
import { type Fragment, fragment, identifier, sql } from '../database/sql.ts'
import type { Numbers } from './plpgsql.ts'

/** The kind of a schema, in a statement: of one that has no store yet, the kind that it will have. */
export function numbersOf(schema: string): Fragment {
  return fragment`
    case
      when exists (
        select
        from pg_class as c
        join pg_namespace as n on n.oid = c.relnamespace
        where n.nspname = ${schema}::text
          and c.relname = 'counters') then 'counter'
      when exists (
        select
        from pg_class as c
        join pg_namespace as n on n.oid = c.relnamespace
        where n.nspname = ${schema}::text
          and c.relname = 'migrations') then 'announced'
      when current_setting('rillflow.numbers', true) = 'counter' or ${hasCitus} then 'counter'
      else 'announced'
    end`
}

export const hasCitus: Fragment = fragment`exists (select from pg_extension where extname = 'citus')`

/**
 * Whether the database belongs to a cluster that places schemas, so that a store alone would be one schema on one of its
 * nodes. A setting of the database by name says that this is wanted.
 */
export const needsTenants: Fragment = fragment`(${hasCitus}
  and coalesce(current_setting('rillflow.numbers', true), '') <> 'counter')`

export async function readNumbers(executor: Executor, schema: string): Promise<Numbers> {
  const [row] = await executor.run<{ numbers: Numbers }>(sql`/* schema.numbers */
    select ${numbersOf(schema)} as numbers`)
  return row!.numbers
}

/** The last number drawn from each source of a schema. */
export async function readDrawn(
  executor: Executor,
  schema: string,
  numbers: Numbers,
): Promise<Readonly<Record<string, number>>> {
  const rows =
    numbers === 'counter'
      ? await executor.runArrays(sql`/* schema.drawn_counters */
          select name, value
          from ${identifier(schema, 'counters')}
          order by name`)
      : await executor.runArrays(sql`/* schema.drawn_sequences */
          select sequencename::text, coalesce(last_value, 0)
          from pg_sequences
          where schemaname = ${schema}::text
          order by sequencename collate "C"`)
  return Object.fromEntries(rows.map(([name, drawn]) => [name as string, drawn as number]))
}

/** Numbers that were drawn elsewhere, or are in use, are not drawn again. Never lowers a source. */
export async function raiseDrawn(
  executor: Executor,
  schema: string,
  numbers: Numbers,
  name: string,
  least: number,
): Promise<void> {
  if (least <= 0) return
  if (numbers === 'counter') {
    await executor.run(sql`/* schema.raise_counter */
      update ${identifier(schema, 'counters')}
      set value = greatest(value, ${least}::bigint)
      where name = ${name}::text`)
    return
  }
  await executor.run(sql`/* schema.raise_sequence */
    select setval(${identifier(schema, name).quoted}::text::regclass, ${least}::bigint)
    where coalesce(pg_sequence_last_value(${identifier(schema, name).quoted}::text::regclass), 0) < ${least}::bigint`)
}

/** The statement by which a person raises a source. */
export function raiseStatement(schema: string, numbers: Numbers, name: string, least: number): string {
  if (numbers === 'counter')
    return `update ${identifier(schema, 'counters').quoted} set value = ${least} where name = '${name}'`
  return `select setval('${identifier(schema, name).quoted.replaceAll("'", "''")}', ${least})`
}
