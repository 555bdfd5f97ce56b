/** Rows as lines of JSON, made by PostgreSQL: a cursor gives them page by page. */
import { throwIfAborted } from '../../core/lifecycle.ts'
import type { Database, Executor } from '../../database/database.ts'
import { type Identifier, identifier, numeral, sql } from '../../database/sql.ts'
import type { ColumnShape, TableShape } from '../table-shape.ts'

/** What decides how a value is written, for this transaction: the same everywhere, and exact. */
export async function writeExactly(executor: Executor): Promise<void> {
  await executor.run(sql`/* archive.settings */
    select
      set_config('timezone', 'UTC', true),
      set_config('extra_float_digits', '1', true),
      set_config('intervalstyle', 'postgres', true),
      set_config('bytea_output', 'hex', true)`)
}

/** A row as a line. Only a `json`, which is kept as it was written, could hold a line break: between two tokens. */
export function lineOf(table: Pick<TableShape, 'columns'>, row: Identifier): string {
  const text = `row_to_json(${row})::text`
  const isVerbatim = table.columns.some(column => column.type === 'json' || column.type === 'json[]')
  return isVerbatim ? `translate(${text}, E'\\n\\r', '  ')` : text
}

/**
 * The columns as they are written. JSON has a null of its own: where there may be none at all, a value stands in an array,
 * so that the two stay apart.
 */
export function writtenColumns(table: Pick<TableShape, 'columns'>): string {
  const written = table.columns.flatMap(column => {
    const name = identifier(column.name).quoted
    if (column.generated) return []
    return isWrapped(column) ? `case when ${name} is not null then json_build_array(${name}) end as ${name}` : name
  })
  return written.join(', ')
}

/** The same columns, as they are read back from a row `r`. */
export function readColumns(table: Pick<TableShape, 'columns'>): string {
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

export function columnList(columns: readonly string[]): string {
  return columns.map(name => identifier(name).quoted).join(', ')
}

/** All rows of a table in the order of its key. The next page is asked for while its reader is busy with this one. */
export async function* linesOf(
  tx: Executor,
  { database, schema, signal }: { database: Database; schema: string; signal: AbortSignal | undefined },
  table: TableShape,
): AsyncGenerator<readonly string[], void, undefined> {
  const mostRows = database.batch.readEvents
  await tx.run({
    label: 'archive.open',
    text: `/* archive.open */ declare archive_lines no scroll cursor for
    select ${lineOf(table, identifier('r'))}
    from (
      select ${writtenColumns(table)}
      from ${identifier(schema, table.name)}
      order by ${columnList(table.primaryKey.columns)}) as r`,
    values: [],
    unprepared: true,
  })
  let asked = tx.runArrays(fetching(Math.min(64, mostRows)))
  for (;;) {
    throwIfAborted(signal)
    const page = (await asked).map(([line]) => line as string)
    if (page.length === 0) break
    const length = page.reduce((sum, line) => sum + line.length, 0)
    asked = tx.runArrays(fetching(rowsFor(length / page.length, mostRows)))
    asked.catch(() => {})
    yield page
  }
  await tx.run(sql`/* archive.close */ close archive_lines`)
}

/** Two to the power of something, so that few texts are prepared. */
function rowsFor(lineLength: number, mostRows: number): number {
  const fitting = Math.min(mostRows, Math.max(1, pageLength / lineLength))
  return 2 ** Math.floor(Math.log2(fitting))
}

const pageLength = 1024 * 1024

const fetching = (rows: number) => sql`/* archive.fetch */ fetch forward ${numeral(rows)} from archive_lines`
