/**
 * The collections of a store: those that this process has opened, and all tables that have the columns of one. The
 * number of documents is the server's estimate, because an exact one would read every row.
 */
import { type Page, type PageOptions, pageOfAll } from '../core/page.ts'
import type { Database } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import { readTableFacts } from '../schema/table-facts.ts'
import type { IndexAdvice } from './advisor.ts'
import type { DocumentParts } from './collection.ts'
import type { Documents } from './documents.ts'

export interface CollectionDescription {
  readonly name: string
  /** Whether this process has opened it with its definition, or by its name; otherwise it can only be read here. */
  readonly isOpen: boolean
  /** Whether it is the read model of a projection that is registered here. */
  readonly isProjection: boolean
  /** The number of documents, as the server estimates it; undefined if it was never analyzed. */
  readonly estimate: number | undefined
  /** The size of its table with its indexes. */
  readonly bytes: number
  readonly indexes: readonly string[]
  /** Whether every version is stored. */
  readonly hasHistory: boolean
  /** Indexes that the queries of this process would have used. */
  readonly advice: readonly IndexAdvice[]
}

/** The tables of a schema that have the columns of a collection, and values that are not stored in their rows. */
export async function listLargeTables(database: Database, schema: string): Promise<string[]> {
  const rows = await database.run<{ name: string }>(sql`/* documents.tables */
    select c.relname::text as name
    from pg_class as c
    join pg_namespace as n on n.oid = c.relnamespace
    where n.nspname = ${schema}::text
      and c.relkind = 'r'
      and c.relname not like '%\\_\\_%'
      and (select count(*)
        from pg_attribute as a
        where a.attrelid = c.oid
          and a.attname in ('id', 'body', 'version', 'created_at', 'updated_at', 'deleted_at')) = 6
    order by c.relname`)
  const facts = await readTableFacts(database, schema)
  return rows.map(({ name }) => name).filter(name => (facts.get(name)?.toastBytes ?? 0) > 0)
}

export async function listCollections(
  { database, schema, isProjection }: DocumentParts,
  opened: ReadonlyMap<string, Documents>,
  options: PageOptions,
): Promise<Page<CollectionDescription>> {
  const rows = await database.run<{
    name: string
    indexes: string[] | null
    history: boolean
  }>(sql`/* documents.collections */
    select c.relname::text as name,
      (select jsonb_agg(i.relname::text order by i.relname)
        from pg_index as x
        join pg_class as i on i.oid = x.indexrelid
        where x.indrelid = c.oid) as indexes,
      exists (
        select
        from pg_class as h
        where h.relnamespace = c.relnamespace
          and h.relname = c.relname || '__history') as history
    from pg_class as c
    join pg_namespace as n on n.oid = c.relnamespace
    where n.nspname = ${schema.name}::text
      and c.relkind = 'r'
      and c.relname not like '%\\_\\_%'
      and (select count(*)
        from pg_attribute as a
        where a.attrelid = c.oid
          and a.attname in ('id', 'body', 'version', 'created_at', 'updated_at', 'deleted_at')) = 6
    order by c.relname`)
  const facts = await readTableFacts(database, schema.name)
  const found = rows.map(row => ({
    name: row.name,
    isOpen: opened.has(row.name),
    isProjection: isProjection(row.name),
    estimate: estimated(facts.get(row.name)?.estimate),
    bytes: facts.get(row.name)?.bytes ?? 0,
    indexes: row.indexes ?? [],
    hasHistory: row.history,
    advice: opened.get(row.name)?.adviseIndexes() ?? [],
  }))
  return pageOfAll('store.documents.list', found, options, each => each.name)
}

/** Below zero: the server has never looked. */
function estimated(rows = -1): number | undefined {
  return rows < 0 ? undefined : rows
}
