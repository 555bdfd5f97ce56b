/**
 * Rows as lines of JSON. PostgreSQL writes the lines and reads them back, so a value never becomes one of JavaScript: a
 * number keeps all its digits and a time its microseconds.
 *
 *     readAllRows    a whole table through a cursor, in the order of its key             export
 *                    a second cursor says ahead how large the rows are, so that a page has a limit in bytes
 *     readPage       the rows after a key, each page in a transaction of its own         selection
 *     insertRows     a JSON array of rows, into a table                                  import, selection
 */
import { throwIfAborted } from '../../core/abort.ts'
import { maxPageBytes } from '../../core/page.ts'
import type { Database, Executor } from '../../database/database.ts'
import { Identifier, identifier, numeral, type Statement, sql } from '../../database/sql.ts'
import { textBytes } from '../../documents/size.ts'
import { type ColumnShape, storedColumns, type TableShape } from '../table-shape.ts'
import type { StoreLocation } from '../transfer.ts'

/** Sets, for this transaction, how values are written: exactly, and the same on every server. */
export async function writeExactly(executor: Executor): Promise<void> {
  await executor.run(sql`/* export.settings */
    select
      set_config('timezone', 'UTC', true),
      set_config('extra_float_digits', '1', true),
      set_config('intervalstyle', 'postgres', true),
      set_config('bytea_output', 'hex', true)`)
}

/** All rows of a table in the order of its key. The next page is requested while the caller works on this one. */
export async function* readAllRows(
  tx: Executor,
  { database, schema, signal }: { database: Database; schema: string; signal: AbortSignal | undefined },
  table: TableShape,
): AsyncGenerator<readonly string[], void, undefined> {
  const maxRows = database.batch.readEvents
  const inOrder = `from ${identifier(schema, table.name)}
      order by ${columnList(table.primaryKey.columns)}`
  await openCursor(
    tx,
    'export_rows',
    `select ${lineOf(table, identifier('r'))}
    from (
      select ${writtenColumns(table)}
      ${inOrder}) as r`,
  )
  await openCursor(tx, 'export_sizes', `select ${bytesOf(table)} ${inOrder}`)
  const sizes: number[] = []
  const request = async (): Promise<string[]> => {
    if (sizes.length < maxRows)
      sizes.push(...(await tx.runArrays(fetchFrom('export_sizes', maxRows))).map(([bytes]) => Number(bytes)))
    const count = pageRows(sizes, maxRows)
    sizes.splice(0, count)
    if (count === 0) return []
    return (await tx.runArrays(fetchFrom('export_rows', count))).map(([line]) => line as string)
  }
  let requested = request()
  for (;;) {
    throwIfAborted(signal)
    const page = await requested
    if (page.length === 0) break
    requested = request()
    requested.catch(() => {})
    yield page
  }
  await tx.run(sql`/* export.close */ close all`)
}

function openCursor(tx: Executor, name: string, query: string): Promise<unknown> {
  const text = `/* export.open */ declare ${name} no scroll cursor for
    ${query}`
  return tx.run({ label: 'export.open', text, values: [], unprepared: true })
}

/** As many of the next rows as fit into a page, at least one. A power of two, so that few texts are prepared. */
function pageRows(sizes: readonly number[], maxRows: number): number {
  let [count, bytes] = [0, 0]
  while (count < Math.min(maxRows, sizes.length) && bytes < pageBytes) bytes += sizes[count++]! + rowBytes
  return count === 0 ? 0 : 2 ** Math.floor(Math.log2(count))
}

const pageBytes = 1024 * 1024
/** The names of columns and the other values of a row take about this much. */
const rowBytes = 200

const fetchFrom = (cursor: 'export_rows' | 'export_sizes', rows: number) =>
  sql`/* export.fetch */ fetch forward ${numeral(rows)} from ${identifier(cursor)}`

/** A name, and a version under it. */
export type Key = readonly [name: string, version: string]

export const firstKey: Key = ['', '0']

export interface PageRequest {
  /** The column that holds the name: `stream`, `id`. */
  readonly name: string
  readonly after: Key
  readonly limit: number
  /** The page ends with the row that reaches so many bytes. Default `maxPageBytes`. */
  readonly maxBytes?: number | undefined
  /** The last key to read. Default: to the end. */
  readonly upTo?: Key | undefined
  /** Only rows with one of these names. Default: with any name. */
  readonly among?: readonly string[] | undefined
  /** A condition that rows have to meet. Default: none. */
  readonly where?: Identifier | undefined
}

export interface PageRow {
  readonly key: Key
  readonly line: string
}

export interface RowPage {
  readonly rows: readonly PageRow[]
  /** Whether there may be more: the page was ended by its limit, or by its bytes. */
  readonly isMore: boolean
}

/** The rows after a key, in the order of name and version. */
export async function readPage(location: StoreLocation, table: TableShape, request: PageRequest): Promise<RowPage> {
  const { after, upTo, among, limit, maxBytes = maxPageBytes, where = always } = request
  const name = identifier(request.name)
  const version = table.columns.some(column => column.name === 'version') ? identifier('version') : noVersion
  const rows = await readRaw(
    location,
    sql`/* export.page */
      select p."~name", p."~version", ${new Identifier(lineOf(table, new Identifier('p."~line"')))}, p."~found"
      from (
        select "~name", "~version", "~found", (
          select r
          from (select ${new Identifier(writtenColumns(table))}) as r) as "~line"
        from (
          select sized.*, count(*) over () as "~found",
            sum("~bytes") over (order by "~name", "~version" rows unbounded preceding) as "~total"
          from (
            select t.*, ${name} as "~name", ${version} as "~version", ${new Identifier(bytesOf(table))} as "~bytes"
            from ${identifier(location.schema, table.name)} as t
            where (${name}, ${version}) > (${after[0]}::text, ${after[1]}::bigint)
              and (${upTo?.[0] ?? null}::text is null
                or (${name}, ${version}) <= (${upTo?.[0] ?? null}::text, ${upTo?.[1] ?? null}::bigint))
              and (${among ?? null}::text[] is null or ${name} = any(${among ?? null}::text[]))
              and ${where}
            order by ${name}, ${version}
            limit ${limit}::integer) as sized) as shown
        where "~total" - "~bytes" < ${numeral(maxBytes)}
        order by "~name", "~version") as p`,
  )
  const found = (rows[0]?.[3] as number | undefined) ?? 0
  return { rows: rows.map(pageRowOf), isMore: found === limit || rows.length < found }
}

/** How much of a row is text, about. */
function bytesOf({ columns }: Pick<TableShape, 'columns'>): string {
  const texts = columns.filter(({ type, generated }) => !generated && /^(text|jsonb?|bytea|.*\[\])$/.test(type))
  return ['0', ...texts.map(({ name }) => textBytes(identifier(name).quoted))].join(' + ')
}

/** Runs a statement that returns a name, a version and a line for each row. */
export async function readRows(location: StoreLocation, statement: Statement): Promise<PageRow[]> {
  return (await readRaw(location, statement)).map(pageRowOf)
}

function readRaw({ database }: StoreLocation, statement: Statement): Promise<unknown[][]> {
  return database.transaction(async tx => {
    await writeExactly(tx)
    // Planned for the values given, so that the conditions which do not apply are left out of the plan.
    return tx.runArrays({ ...statement, unprepared: true })
  })
}

function pageRowOf(row: readonly unknown[]): PageRow {
  const [name, version, line] = row as readonly [string, number, string]
  return { key: [name, `${version}`], line }
}

/** Those of the rows that meet a condition on `r`, a row of this table. */
export async function rowsWhere(
  executor: Executor,
  schema: string,
  table: TableShape,
  rows: readonly PageRow[],
  condition: Identifier,
): Promise<PageRow[]> {
  const found = await executor.run<{ place: number }>(sql`/* export.select */
    select item.place
    from json_array_elements(${jsonArray(rows)}::json) with ordinality as item(value, place)
    cross join lateral json_populate_record(null::${identifier(schema, table.name)}, item.value) as r
    where ${condition}
    order by item.place`)
  return found.map(({ place }) => rows[place - 1]!)
}

/** Inserts rows given as a JSON array. */
export function insertRows(schema: string, table: TableShape, rows: string): Statement {
  const name = identifier(schema, table.name)
  const columns = new Identifier(columnList(storedColumns(table)))
  return sql`/* export.insert */
    insert into ${name} (${columns})
    select ${new Identifier(readColumns(table))}
    from json_populate_recordset(null::${name}, ${rows}::json) as r`
}

export function jsonArray(rows: readonly PageRow[]): string {
  return `[${rows.map(({ line }) => line).join(',')}]`
}

/** A row as one line. Only a `json` value, which PostgreSQL keeps as it was written, can contain line breaks. */
function lineOf(table: Pick<TableShape, 'columns'>, row: Identifier): string {
  const text = `row_to_json(${row})::text`
  const isVerbatim = table.columns.some(column => column.type === 'json' || column.type === 'json[]')
  return isVerbatim ? `translate(${text}, E'\\n\\r', '  ')` : text
}

/**
 * The columns as they are written. JSON has a null of its own, so a nullable JSON column is written as an array of one
 * value: that keeps a stored `null` apart from no value.
 */
function writtenColumns(table: Pick<TableShape, 'columns'>): string {
  const written = table.columns.flatMap(column => {
    const name = identifier(column.name).quoted
    if (column.generated) return []
    return isWrapped(column) ? `case when ${name} is not null then json_build_array(${name}) end as ${name}` : name
  })
  return written.join(', ')
}

/** The same columns, as they are read back from a row `r`. */
function readColumns(table: Pick<TableShape, 'columns'>): string {
  const read = table.columns.flatMap(column => {
    const name = `r.${identifier(column.name).quoted}`
    if (column.generated) return []
    if (isWrapped(column)) return `${name} -> 0`
    return isJson(column) ? `coalesce(${name}, 'null')` : name
  })
  return read.join(', ')
}

function isWrapped(column: ColumnShape): boolean {
  return isJson(column) && column.nullable
}

function isJson({ type }: ColumnShape): boolean {
  return type === 'json' || type === 'jsonb'
}

function columnList(columns: readonly string[]): string {
  return columns.map(name => identifier(name).quoted).join(', ')
}

const always = new Identifier('true')
const noVersion = new Identifier('0::bigint')
