/** Old versions of documents, in the histories of all collections: also of collections this program does not know. */
import type { Database } from '../database/database.ts'
import type { OldRows } from '../database/prune.ts'
import { type Identifier, identifier, sql } from '../database/sql.ts'
import { historyName, historyTable } from './table.ts'

export interface VersionedStore {
  readonly database: Database
  readonly schema: string
  /** The function of the schema that gives the time. */
  readonly clock: Identifier
  readonly later: Identifier
}

/**
 * Versions that were replaced long ago. A version is needed as long as it answers how a document was at some time within
 * the retention. The last version, also the mark of a deletion, stays: it gives the next version its number.
 */
export async function oldVersions({ database, schema, clock, later }: VersionedStore): Promise<OldRows[]> {
  const tables = await readHistoryTables(database, schema)
  return tables.map(name => {
    const table = identifier(schema, name)
    return {
      label: 'documents.prune_history',
      table,
      key: ['id', 'version'],
      clock,
      later,
      where: `exists (
          select
          from ${table} as n
          where n.id = t.id
            and n.version = t.version + 1
            and n.updated_at < $1)`,
    }
  })
}

/** A history is found by its name and columns, and by the table of its collection. */
async function readHistoryTables(database: Database, schema: string): Promise<string[]> {
  const suffix = historyName('')
  const rows = await database.run<{ name: string }>(sql`/* documents.histories */
    select h.relname as name
    from pg_class as h
    join pg_namespace as n on n.oid = h.relnamespace
    where n.nspname = ${schema}::text
      and h.relkind = 'r'
      and right(h.relname, length(${suffix}::text)) = ${suffix}::text
      and exists (
        select
        from pg_class as c
        where c.relnamespace = h.relnamespace
          and c.relkind = 'r'
          and c.relname = left(h.relname, -length(${suffix}::text)))
      and (
        select array_agg(a.attname::text order by a.attname)
        from pg_attribute as a
        where a.attrelid = h.oid
          and a.attnum > 0
          and not a.attisdropped) = ${historyColumns}::text[]
    order by h.relname`)
  return rows.map(row => row.name)
}

const historyColumns = historyTable('')
  .columns.map(column => column.name)
  .sort()
