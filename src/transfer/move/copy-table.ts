/**
 * Makes a table of the incoming schema equal to the table of the source, within one snapshot of the source.
 *
 *     sums per bucket, on both sides ─► buckets that differ ─► delete them on the target ─► copy them ─► sums again
 *
 * A bucket holds the rows whose key has the same hash, with a count and a sum of the hashes of whole rows. So two servers
 * compare a table by exchanging a few numbers, and know which rows to exchange where they differ. Both print every value
 * in the same way (`printExactly`), and the hash function is one that PostgreSQL keeps stable, because partitions depend
 * on it.
 *
 * All differing buckets are deleted before the first is copied, so that a value that went from one row to another does
 * not collide in a unique index. Rows are read in windows of the table's pages, each page once, however many buckets
 * differ: memory holds one window.
 */
import { copyField } from '../../database/copy-text.ts'
import type { Executor, Transaction } from '../../database/database.ts'
import { identifier, type Statement, sql } from '../../database/sql.ts'
import { MoveNotEqual } from './errors.ts'
import type { Move } from './move.ts'
import type { Table } from './structure.ts'

/** The two ends of a copy. Both print values in the same way. */
export interface Ends {
  readonly move: Move
  /** One snapshot of the source, or a moment in which nothing is written. */
  readonly source: Transaction
  /** Runs `work` in a transaction of the target that may write into the incoming schema. */
  readonly target: <T>(work: (tx: Transaction) => Promise<T>) => Promise<T>
}

/** Called with the number of rows copied so far, of those that differ. */
export type OnRows = (rows: number, totalRows: number) => void

export interface Copied {
  readonly rows: number
  readonly bytes: number
}

export interface ComparedTable {
  readonly table: Table
  readonly size: TableSize
  readonly buckets: number
  /** The sums of the source. */
  readonly sums: Sums
  /** The buckets that are not the same on both sides. */
  readonly differing: readonly number[]
}

export async function compareTable(
  { move, source, target }: Ends,
  table: Table,
  size: TableSize,
): Promise<ComparedTable> {
  const buckets = bucketCount(size.bytes)
  const [sums, targetSums] = await Promise.all([
    sumBuckets(source, move.source.schema, table, buckets),
    target(tx => sumBuckets(tx, move.incoming, table, buckets)),
  ])
  return { table, size, buckets, sums, differing: differingBuckets(sums, targetSums) }
}

export async function copyDifferences(ends: Ends, compared: ComparedTable, onRows: OnRows): Promise<Copied> {
  const { table, buckets, sums, differing } = compared
  const { move } = ends
  if (differing.length === 0) return { rows: 0, bytes: 0 }
  const totalRows = differing.reduce((total, bucket) => total + (sums.get(bucket)?.rows ?? 0), 0)
  const bytes = await ends.target(async target => {
    await target.run({
      label: 'move.delete_buckets',
      text: `/* move.delete_buckets */
        delete from ${identifier(move.incoming, table.name)}
        where ${bucketOf(table, buckets)} = any($1::integer[])`,
      values: [differing],
      unprepared: true,
    })
    const copied = await copyBuckets(ends.source, target, { ...compared, move, totalRows, onRows })
    const now = await sumBuckets(target, move.incoming, table, buckets)
    if (differingBuckets(sums, now).length > 0)
      throw new MoveNotEqual({ schema: move.source.schema, table: table.name })
    return copied
  })
  return { rows: totalRows, bytes }
}

interface BucketCopy extends ComparedTable {
  readonly move: Move
  readonly totalRows: number
  readonly onRows: OnRows
}

async function copyBuckets(source: Transaction, target: Transaction, copy: BucketCopy): Promise<number> {
  const { move, table, size, totalRows, onRows } = copy
  const into = identifier(move.incoming, table.name).quoted
  const pages = Math.max(1, Math.floor(windowBytes / (size.bytes / Math.max(1, size.pages))))
  let bytes = 0
  let rows = 0
  for (let page = 0; page < size.pages && rows < totalRows; page += pages) {
    const read = (await source.runArrays(readWindow(copy, page, page + pages))) as (string | null)[][]
    if (read.length === 0) continue
    const lines = copyLines(read)
    await target.copyIn(into, table.columns, lines)
    bytes += lines.length
    rows += read.length
    onRows(rows, totalRows)
  }
  return bytes
}

function readWindow({ move, table, buckets, differing }: BucketCopy, from: number, to: number): Statement {
  return {
    label: 'move.read_window',
    text: `/* move.read_window */
      select ${printedColumns(table)}
      from ${identifier(move.source.schema, table.name)}
      where ctid >= $1::text::tid
        and ctid < $2::text::tid
        and ${bucketOf(table, buckets)} = any($3::integer[])`,
    values: [`(${from},0)`, `(${to},0)`, differing],
    unprepared: true,
  }
}

/** About how much is in memory at once. A page or a row that is larger is read alone. */
const windowBytes = 4 * 1024 * 1024

export function rowsPerWindow({ bytes }: TableSize, rows: number): number {
  return Math.max(1, Math.floor(windowBytes / (bytes / Math.max(1, rows))))
}

export interface TableSize {
  readonly pages: number
  /** With values that are stored outside of the rows, because they are read with them. */
  readonly bytes: number
}

/** Sizes by the name of the table. */
export type Sizes = ReadonlyMap<string, TableSize>

export async function readSizes(source: Executor, schema: string, names: readonly string[]): Promise<Sizes> {
  const rows = await source.run<{ name: string } & TableSize>(sql`/* move.sizes */
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

/** Count and sum of each bucket that is not empty. */
export type Sums = ReadonlyMap<number, { readonly rows: number; readonly sum: string }>

/** A power of two, so that a bucket is about two pages of the table. */
export function bucketCount(tableBytes: number): number {
  const wanted = Math.min(65_536, Math.max(16, tableBytes / 16_384))
  return 2 ** Math.ceil(Math.log2(wanted))
}

/** The number of a row's bucket, as SQL. */
export function bucketOf(table: Table, buckets: number): string {
  return `(${hashOf(table.key)} & ${buckets - 1})::integer`
}

/** The hash of a row, as SQL. */
export function rowHash({ columns }: Pick<Table, 'columns'>, alias?: string): string {
  return hashOf(columns, alias)
}

/** Column by column, each hash the seed of the next: a third less time than printing the whole row. A null differs from an empty text. */
function hashOf(columns: readonly string[], alias?: string): string {
  const of = alias === undefined ? '' : `${alias}.`
  return columns.reduce((seed, name) => {
    const column = `${of}${identifier(name)}`
    return `hashtextextended(coalesce(${column}::text, '') collate "C", ${seed} # (${column} is null)::integer)`
  }, '0::bigint')
}

function sumBuckets(executor: Executor, schema: string, table: Table, buckets: number): Promise<Sums> {
  return readSums(executor, {
    label: 'move.sum_buckets',
    text: `/* move.sum_buckets */
      select ${bucketOf(table, buckets)}, count(*)::integer, sum(${rowHash(table)})::text
      from ${identifier(schema, table.name)}
      group by 1`,
    values: [],
    unprepared: true,
  })
}

/** Runs a statement that returns a bucket, its count and its sum. */
export async function readSums(executor: Executor, statement: Statement): Promise<Sums> {
  const rows = (await executor.runArrays(statement)) as [number, number, string][]
  return new Map(rows.map(([bucket, count, sum]) => [bucket, { rows: count, sum }]))
}

/** The buckets whose rows are not the same. */
export function differingBuckets(one: Sums, other: Sums): number[] {
  const all = new Set([...one.keys(), ...other.keys()])
  return [...all].filter(bucket => {
    const [left, right] = [one.get(bucket), other.get(bucket)]
    return left?.rows !== right?.rows || left?.sum !== right?.sum
  })
}

/** Sets, for this transaction, how values are printed: independently of the settings of the server and of its user. */
export async function printExactly(tx: Transaction): Promise<void> {
  await tx.run(sql`/* move.settings */
    select
      set_config('timezone', 'UTC', true),
      set_config('datestyle', 'ISO', true),
      set_config('intervalstyle', 'postgres', true),
      set_config('bytea_output', 'hex', true),
      set_config('extra_float_digits', '1', true)`)
}

/** The columns of a table as printed text. */
export function printedColumns(table: Table): string {
  return table.columns.map(column => `${identifier(column)}::text`).join(', ')
}

/** Rows of printed values in the text form of COPY. */
export function copyLines(rows: readonly (readonly (string | null)[])[]): string {
  return rows.map(row => `${row.map(value => copyField(value ?? undefined)).join('\t')}\n`).join('')
}
