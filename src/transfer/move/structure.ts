/**
 * The structure of a schema, read from the catalogue: its tables as they can be made again, and the names of all its other
 * objects.
 *
 * The library's own tables and functions are made by its migrations; of declared tables (documents, read models) only the
 * catalogue of the source knows all. An object that neither can make refuses the move, because a view that is not copied
 * would be missed only after the switch.
 */
import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import { type FoundTable, readTables } from '../../schema/catalogue.ts'
import { indexTexts, shapeOf, storedColumns, tableText } from '../table-shape.ts'
import { MoveRefused } from './errors.ts'

export interface Structure {
  readonly schema: string
  readonly tables: ReadonlyMap<string, Table>
  /** Everything that is not a table: `view sales`. */
  readonly others: readonly string[]
}

export interface Table {
  readonly name: string
  /** The columns that are copied: all that are not generated. */
  readonly columns: readonly string[]
  readonly key: readonly string[]
  readonly keyTypes: readonly string[]
  /** The same for two tables if one can hold the other's rows. */
  readonly signature: string
  /** The statements that make it in another schema. */
  create(schema: string): string[]
}

export async function readStructure(executor: Executor, schema: string): Promise<Structure> {
  const relations = await executor.run<{ name: string; options: string[] | null; constraints: string[] | null }>(
    sql`/* move.tables */
      select
        c.relname::text as name,
        to_jsonb(c.reloptions) as options,
        (select jsonb_agg(k.conname order by k.conname)
          from pg_constraint as k
          where k.conrelid = c.oid
            and k.contype not in ('p', 'u', 'n')) as constraints
      from pg_class as c
      join pg_namespace as n on n.oid = c.relnamespace
      where n.nspname = ${schema}::text
        and c.relkind = 'r'
      order by 1`,
  )
  const names = relations.map(relation => relation.name)
  const found = await readTables(executor, schema, names)
  const tables = relations.flatMap(({ name, options, constraints }) => {
    const table = found.get(name)
    return table === undefined ? [] : [toTable(schema, table, options ?? [], constraints ?? [])]
  })
  return {
    schema,
    tables: new Map(tables.map(table => [table.name, table])),
    others: await readOthers(executor, schema),
  }
}

async function readOthers(executor: Executor, schema: string): Promise<string[]> {
  const rows = await executor.run<{ what: string }>(sql`/* move.others */
    with here as (
      select oid
      from pg_namespace
      where nspname = ${schema}::text)
    select
      case c.relkind
        when 'S' then 'sequence '
        when 'v' then 'view '
        when 'm' then 'materialized view '
        when 'p' then 'partitioned table '
        when 'f' then 'foreign table '
        else 'type '
      end || c.relname as what
    from pg_class as c
    where c.relnamespace = (select oid from here)
      and c.relkind in ('S', 'v', 'm', 'p', 'f', 'c')
    union all
    select 'function ' || p.proname
    from pg_proc as p
    where p.pronamespace = (select oid from here)
    union all
    select 'type ' || t.typname
    from pg_type as t
    where t.typnamespace = (select oid from here)
      and t.typtype in ('d', 'e', 'r')
    order by 1`)
  return rows.map(row => row.what)
}

function toTable(schema: string, found: FoundTable, options: readonly string[], constraints: readonly string[]): Table {
  const { name, columns, triggers, rules } = found
  const refuse = (reason: string): never => {
    throw new MoveRefused({ schema, reason: `table ${name} ${reason}` })
  }
  const shape = shapeOf(found, options) ?? refuse('has no primary key')
  const notCopied = [...triggers, ...rules, ...constraints]
  if (notCopied.length > 0) refuse(`has ${notCopied.join(', ')}, which a move does not copy, so drop it first`)
  const { primaryKey, indexes } = shape
  return {
    name,
    columns: storedColumns(shape),
    key: primaryKey.columns,
    keyTypes: primaryKey.columns.map(key => columns.find(column => column.name === key)!.type),
    signature: JSON.stringify([
      columns.map(column => [column.name, column.type, column.nullable, column.generated]),
      primaryKey,
      indexes.map(index => [index.name, index.unique, index.comment]),
    ]),
    create: into => [tableText(into, shape), ...indexTexts(into, shape)],
  }
}
