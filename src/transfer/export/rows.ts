/**
 * Rows as lines of JSON. PostgreSQL writes the lines and reads them back, so a value never becomes one of JavaScript: a
 * number keeps all its digits and a time its microseconds.
 *
 *     readAllRows    a whole table through a cursor, in the order of its key             export
 *     readPage       the rows after a key, each page in a transaction of its own         selection
 *     insertRows     a JSON array of rows, into a table                                  import, selection
 */
import { throwIfAborted } from '../../core/abort.ts'
import type { Database, Executor } from '../../database/database.ts'
import { Identifier, identifier, numeral, type Statement, sql } from '../../database/sql.ts'
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
  await tx.run({
    label: 'export.open',
    text: `/* export.open */ declare export_rows no scroll cursor for
    select ${lineOf(table, identifier('r'))}
    from (
      select ${writtenColumns(table)}
      from ${identifier(schema, table.name)}
      order by ${columnList(table.primaryKey.columns)}) as r`,
    values: [],
    unprepared: true,
  })
  let requested = tx.runArrays(fetchRows(Math.min(64, maxRows)))
  for (;;) {
    throwIfAborted(signal)
    const page = (await requested).map(([line]) => line as string)
    if (page.length === 0) break
    const length = page.reduce((sum, line) => sum + line.length, 0)
    requested = tx.runArrays(fetchRows(pageRows(length / page.length, maxRows)))
    requested.catch(() => {})
    yield page
  }
  await tx.run(sql`/* export.close */ close export_rows`)
}

/** As many rows as fit into a page. A power of two, so that few texts are prepared. */
function pageRows(lineLength: number, maxRows: number): number {
  const fitting = Math.min(maxRows, Math.max(1, pageLength / lineLength))
  return 2 ** Math.floor(Math.log2(fitting))
}

const pageLength = 1024 * 1024

const fetchRows = (rows: number) => sql`/* export.fetch */ fetch forward ${numeral(rows)} from export_rows`

/** A name, and a version under it. */
export type Key = readonly [name: string, version: string]

export const firstKey: Key = ['', '0']

export interface PageRequest {
  /** The column that holds the name: `stream`, `id`. */
  readonly name: string
  readonly after: Key
  readonly limit: number
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

/** The rows after a key, in the order of name and version. */
export async function readPage(location: StoreLocation, table: TableShape, request: PageRequest): Promise<PageRow[]> {
  const { after, upTo, among, limit, where = always } = request
  const name = identifier(request.name)
  const version = table.columns.some(column => column.name === 'version') ? identifier('version') : noVersion
  return readRows(
    location,
    sql`/* export.page */
      select p.name, p.version, ${new Identifier(lineOf(table, new Identifier('p.line')))}
      from (
        select ${name} as name, ${version} as version, (
          select r
          from (select ${new Identifier(writtenColumns(table))}) as r) as line
        from ${identifier(location.schema, table.name)}
        where (${name}, ${version}) > (${after[0]}::text, ${after[1]}::bigint)
          and (${upTo?.[0] ?? null}::text is null
            or (${name}, ${version}) <= (${upTo?.[0] ?? null}::text, ${upTo?.[1] ?? null}::bigint))
          and (${among ?? null}::text[] is null or ${name} = any(${among ?? null}::text[]))
          and ${where}
        order by ${name}, ${version}
        limit ${limit}::integer) as p`,
  )
}

/** Runs a statement that returns a name, a version and a line for each row. */
export async function readRows({ database }: StoreLocation, statement: Statement): Promise<PageRow[]> {
  const rows = await database.transaction(async tx => {
    await writeExactly(tx)
    // Planned for the values given, so that the conditions which do not apply are left out of the plan.
    return tx.runArrays({ ...statement, unprepared: true })
  })
  return (rows as [string, number, string][]).map(([name, version, line]) => ({ key: [name, `${version}`], line }))
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
