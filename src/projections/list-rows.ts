/** The rows of a projection's table for people to look at, by primary key, whatever its kind: a page is a range of its index. */
import { InvalidOption } from '../core/errors.ts'
import { checkWhole, refuseUnknownOptions } from '../core/options.ts'
import { decodeCursor, encodeCursor, type PageOptions, pageOptionNames } from '../core/page.ts'
import { fragment, identifier, joinFragments, sql } from '../database/sql.ts'
import type { Log } from '../events/log.ts'
import type { Projection } from './projection.ts'

export interface ListRowsOptions extends PageOptions {
  /** A table of the projection, by the name that its code uses. Default: its first. */
  readonly table?: string | undefined
}

export interface RowPage {
  /** The table in the database. */
  readonly table: string
  /** All tables of the projection, by the names that its code uses. */
  readonly tables: readonly string[]
  readonly primaryKey: readonly string[]
  readonly items: readonly Readonly<Record<string, unknown>>[]
  readonly next: string | undefined
}

export async function listRows(log: Log, projection: Projection, options: ListRowsOptions): Promise<RowPage> {
  refuseUnknownOptions('store.projections.rows', options, ['table', ...pageOptionNames])
  const { after, limit = 100, table } = options
  checkWhole('limit', limit, 1, 10_000)
  const tables = projection.tables.map(({ name }) => name)
  const found = table === undefined ? projection.tables[0] : projection.tables.find(({ name }) => name === table)
  if (found === undefined) {
    const reason =
      table === undefined
        ? `Projection "${projection.name}" has no tables of its own.`
        : `Projection "${projection.name}" has no table "${table}". It has ${tables.join(', ')}.`
    throw new InvalidOption({ option: 'table', reason })
  }
  const { name, columns, primaryKey } = found.declared
  const typeOf = (key: string): string => columns.find(column => column.name === key)!.type.replace(' collate "C"', '')
  const keys = primaryKey.map(key => fragment`t.${identifier(key)}`)
  const key = joinFragments(keys, ', ')
  const last = after === undefined ? undefined : (decodeCursor(after, primaryKey.length) as readonly string[])
  const values = (last ?? []).map((value, at) => fragment`${value}::text::${typeNames[typeOf(primaryKey[at]!)]!}`)
  const beyond = last === undefined ? fragment`true` : fragment`(${key}) > (${joinFragments(values, ', ')})`
  const rows = await log.database.run<{ row: Record<string, unknown>; place: string[] }>(sql`/* projections.rows */
    select to_jsonb(t) as row, to_jsonb(array[${joinFragments(
      keys.map(each => fragment`${each}::text`),
      ', ',
    )}]) as place
    from ${identifier(log.schema, name)} as t
    where ${beyond}
    order by ${key}
    limit ${limit + 1}::integer`)
  const items = rows.slice(0, limit)
  return {
    ...{ table: name, tables, primaryKey },
    items: items.map(({ row }) => row),
    next: rows.length > limit ? encodeCursor(items.at(-1)!.place) : undefined,
  }
}

/** The types that a key may have, as they stand in a statement. */
const typeNames = {
  text: fragment`text`,
  bigint: fragment`bigint`,
  integer: fragment`integer`,
  uuid: fragment`uuid`,
  boolean: fragment`boolean`,
  timestamptz: fragment`timestamptz`,
  numeric: fragment`numeric`,
  'double precision': fragment`double precision`,
} as Readonly<Record<string, ReturnType<typeof fragment>>>
