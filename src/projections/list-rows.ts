/**
 * The rows of a projection's table for people to look at, by primary key, whatever its kind: a page is a range of its index,
 * and ends with the row that reaches `maxPageBytes`.
 */
import { InvalidOption } from '../core/errors.ts'
import { checkWhole, refuseUnknownOptions } from '../core/options.ts'
import { decodeCursor, encodeCursor, maxPageBytes, type PageOptions, pageOptionNames } from '../core/page.ts'
import { Fragment, fragment, identifier, joinFragments, numeral, sql } from '../database/sql.ts'
import { textBytes } from '../documents/size.ts'
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
  const keys = primaryKey.map(each => fragment`t.${identifier(each)}`)
  const key = joinFragments(keys, ', ')
  const keysOf = (page: string): Fragment =>
    joinFragments(
      primaryKey.map(each => fragment`${identifier(page)}.${identifier(each)}`),
      ', ',
    )
  const last = after === undefined ? undefined : (decodeCursor(after, primaryKey.length) as readonly string[])
  const values = (last ?? []).map((value, at) => fragment`${value}::text::${typeNames[typeOf(primaryKey[at]!)]!}`)
  const beyond = last === undefined ? fragment`true` : fragment`(${key}) > (${joinFragments(values, ', ')})`
  const place = joinFragments(
    keys.map(each => fragment`${each}::text`),
    ', ',
  )
  const bytes = joinFragments(columns.map(bytesOf), ' + ')
  const own = identifier(log.schema, name)
  const rows = await log.database.run<ShownRow>(sql`/* projections.rows */
    select to_jsonb(t) as row, to_jsonb(array[${place}]) as place, page."~found" as found
    from (
      select sized.*, count(*) over () as "~found",
        sum(sized."~bytes") over (order by ${keysOf('sized')} rows unbounded preceding) as "~total"
      from (
        select ${key}, ${bytes} as "~bytes"
        from ${own} as t
        where ${beyond}
        order by ${key}
        limit ${limit + 1}::integer) as sized) as page
    join ${own} as t on (${key}) = (${keysOf('page')})
    where page."~total" - page."~bytes" < ${numeral(maxPageBytes)}
    order by ${key}`)
  const items = rows.slice(0, limit)
  const isMore = rows.length > limit || rows.length < (rows[0]?.found ?? 0)
  return {
    ...{ table: name, tables, primaryKey },
    items: items.map(({ row }) => row),
    next: isMore ? encodeCursor(items.at(-1)!.place) : undefined,
  }
}

interface ShownRow {
  readonly row: Record<string, unknown>
  readonly place: string[]
  readonly found: number
}

/** How much a value takes in the answer, about. The length of a text is known without reading it. */
function bytesOf({ name, type }: { readonly name: string; readonly type: string }): Fragment {
  const column = `t.${identifier(name)}`
  const isText = /^text( |$)/.test(type)
  return new Fragment([isText ? `coalesce(octet_length(${column}), 0)` : textBytes(column)], [])
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
