/**
 * Makes a table of the incoming schema what the source's is, within one snapshot of the source: buckets that differ are
 * deleted and copied again. All of them are deleted first, so a value that went from one row to another does not collide
 * in a unique index.
 *
 * Rows are read in windows of the table's pages, each page once, whatever differs: memory is one window.
 */

import { copyField } from '../../database/copy-text.ts'
import type { Executor, Transaction } from '../../database/database.ts'
import { identifier, type Statement, sql } from '../../database/sql.ts'
import { bucketCount, bucketOf, differing, type Sums, sumBuckets } from './buckets.ts'
import { MoveNotEqual } from './errors.ts'
import type { Move } from './move.ts'
import type { Table } from './structure.ts'

/** The two ends of a copy. Both print values the same way. */
export interface Ends {
  readonly move: Move
  /** One snapshot of the source, or a moment in which nobody writes. */
  readonly source: Transaction
  /** Runs `work` in a transaction of the target that may write into the incoming schema. */
  readonly target: <T>(work: (tx: Transaction) => Promise<T>) => Promise<T>
}

/** Told of rows that were copied, of those that differ. */
export type OnRows = (rows: number, totalRows: number) => void

export interface Mirrored {
  readonly rows: number
  readonly bytes: number
}

export interface Compared {
  readonly table: Table
  readonly size: Size
  readonly buckets: number
  readonly sums: Sums
  /** The buckets that are not the same on both sides. */
  readonly changed: readonly number[]
}

export async function compareTable({ move, source, target }: Ends, table: Table, size: Size): Promise<Compared> {
  const buckets = bucketCount(size.bytes)
  const [sums, theirs] = await Promise.all([
    sumBuckets(source, move.source.schema, table, buckets),
    target(tx => sumBuckets(tx, move.incoming, table, buckets)),
  ])
  return { table, size, buckets, sums, changed: differing<number>(sums, theirs) }
}

export async function repairTable(ends: Ends, compared: Compared, onRows: OnRows): Promise<Mirrored> {
  const { table, buckets, sums, changed } = compared
  const { move } = ends
  if (changed.length === 0) return { rows: 0, bytes: 0 }
  const totalRows = changed.reduce((total, bucket) => total + (sums.get(bucket)?.rows ?? 0), 0)
  const bytes = await ends.target(async target => {
    await target.run({
      label: 'moving.delete_buckets',
      text: `/* moving.delete_buckets */
        delete from ${identifier(move.incoming, table.name)}
        where ${bucketOf(table, buckets)} = any($1::integer[])`,
      values: [changed],
      unprepared: true,
    })
    const copied = await copyBuckets(ends.source, target, { ...compared, move, totalRows, onRows })
    const now = await sumBuckets(target, move.incoming, table, buckets)
    if (differing(sums, now).length > 0) throw new MoveNotEqual({ schema: move.source.schema, table: table.name })
    return copied
  })
  return { rows: totalRows, bytes }
}

export interface Size {
  readonly pages: number
  /** With what was moved out of the rows for its size, which is read with them. */
  readonly bytes: number
}

/** By the name of the table. */
export type Sizes = ReadonlyMap<string, Size>

export async function readSizes(source: Executor, schema: string, names: readonly string[]): Promise<Sizes> {
  const rows = await source.run<{ name: string } & Size>(sql`/* moving.sizes */
    select
      c.relname::text as name,
      (pg_relation_size(c.oid) / current_setting('block_size')::integer)::integer as pages,
      pg_table_size(c.oid)::float8 as bytes
    from pg_class as c
    join pg_namespace as n on n.oid = c.relnamespace
    where n.nspname = ${schema}::text
      and c.relname = any(${names}::text[]::name[])`)
  return new Map(rows.map(row => [row.name, row]))
}

/** About what is in memory at once; a page, or a row, that is larger than that is taken alone. */
const windowBytes = 4 * 1024 * 1024

export function rowsAtOnce({ bytes }: Size, rows: number): number {
  return Math.max(1, Math.floor(windowBytes / (bytes / Math.max(1, rows))))
}

interface Copying extends Compared {
  readonly move: Move
  readonly totalRows: number
  readonly onRows: OnRows
}

async function copyBuckets(source: Transaction, target: Transaction, copying: Copying): Promise<number> {
  const { move, table, size, totalRows, onRows } = copying
  const into = identifier(move.incoming, table.name).quoted
  const pages = Math.max(1, Math.floor(windowBytes / (size.bytes / Math.max(1, size.pages))))
  let bytes = 0
  let rows = 0
  for (let page = 0; page < size.pages && rows < totalRows; page += pages) {
    const read = (await source.runArrays(windowOf(copying, page, page + pages))) as (string | null)[][]
    if (read.length === 0) continue
    const lines = copyLines(read)
    await target.copyIn(into, table.columns, lines)
    bytes += lines.length
    rows += read.length
    onRows(rows, totalRows)
  }
  return bytes
}

function windowOf({ move, table, buckets, changed }: Copying, from: number, to: number): Statement {
  return {
    label: 'moving.read_window',
    text: `/* moving.read_window */
      select ${textOf(table)}
      from ${identifier(move.source.schema, table.name)}
      where ctid >= $1::text::tid
        and ctid < $2::text::tid
        and ${bucketOf(table, buckets)} = any($3::integer[])`,
    values: [`(${from},0)`, `(${to},0)`, changed],
    unprepared: true,
  }
}

/** The columns as they are printed. */
export function textOf(table: Table): string {
  return table.columns.map(column => `${identifier(column)}::text`).join(', ')
}

/** Rows of printed values in COPY's text form. */
export function copyLines(rows: readonly (readonly (string | null)[])[]): string {
  return rows.map(row => `${row.map(value => copyField(value ?? undefined)).join('\t')}\n`).join('')
}
