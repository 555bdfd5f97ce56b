/**
 * The stores of a server and how far the log of each has been drawn, in one statement whatever their number. It reads the
 * catalogue and the sequences alone, so that a server with a thousand quiet tenants is asked one question a second.
 */
import type { Database } from '../database/database.ts'
import { sql } from '../database/sql.ts'

/** By schema. */
export async function readHeads(database: Database, prefix: string): Promise<Map<string, number>> {
  const rows = await database.runArrays(sql`/* tenants.heads */
    select n.nspname::text, coalesce(pg_sequence_last_value(c.oid), 0)
    from pg_class as c
    join pg_namespace as n on n.oid = c.relnamespace
    where c.relname = 'events_position'
      and c.relkind = 'S'
      and starts_with(n.nspname, ${prefix}::text)`)
  return new Map(rows.map(([schema, head]) => [schema as string, head as number]))
}
