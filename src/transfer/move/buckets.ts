/**
 * The rows of a table in buckets, by a hash of their key, with a sum over each bucket's rows: two servers compare a table
 * by exchanging a few numbers, and know which rows to exchange where they differ.
 *
 * Both print every value the same way (`plainText`), and the hash is one that PostgreSQL keeps stable, since partitions
 * depend on it.
 */
import type { Executor, Transaction } from '../../database/database.ts'
import { identifier, type Statement, sql } from '../../database/sql.ts'
import type { Table } from './structure.ts'

/** Count and sum of each bucket that is not empty. */
export type Sums = ReadonlyMap<number | number, { readonly rows: number; readonly sum: string }>

/** How values are printed must depend neither on the server's settings nor on its user's. */
export async function plainText(tx: Transaction): Promise<void> {
  await tx.run(sql`/* moving.plain_text */
    select
      set_config('timezone', 'UTC', true),
      set_config('datestyle', 'ISO', true),
      set_config('intervalstyle', 'postgres', true),
      set_config('bytea_output', 'hex', true),
      set_config('extra_float_digits', '1', true)`)
}

/** A power of two, so that a bucket is two pages of the table or so. */
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

export async function sumBuckets(executor: Executor, schema: string, table: Table, buckets: number): Promise<Sums> {
  return readSums(executor, {
    label: 'moving.sum_buckets',
    text: `/* moving.sum_buckets */
      select ${bucketOf(table, buckets)}, count(*)::integer, sum(${rowHash(table)})::text
      from ${identifier(schema, table.name)}
      group by 1`,
    values: [],
    unprepared: true,
  })
}

/** Of a statement that gives a bucket, its count and its sum. */
export async function readSums(executor: Executor, statement: Statement): Promise<Sums> {
  const rows = (await executor.runArrays(statement)) as [number | number, number, string][]
  return new Map(rows.map(([bucket, count, sum]) => [bucket, { rows: count, sum }]))
}

/** The buckets whose rows are not the same. */
export function differing<B extends number | number>(ours: Sums, theirs: Sums): B[] {
  const all = new Set([...ours.keys(), ...theirs.keys()]) as Set<B>
  return [...all].filter(bucket => {
    const [one, other] = [ours.get(bucket), theirs.get(bucket)]
    return one?.rows !== other?.rows || one?.sum !== other?.sum
  })
}

/** Column by column, each hash the seed of the next: a third less time than printing the row as one. A null is no empty text. */
function hashOf(columns: readonly string[], alias?: string): string {
  const of = alias === undefined ? '' : `${alias}.`
  return columns.reduce((seed, name) => {
    const column = `${of}${identifier(name)}`
    return `hashtextextended(coalesce(${column}::text, '') collate "C", ${seed} # (${column} is null)::integer)`
  }, '0::bigint')
}
