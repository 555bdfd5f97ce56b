/**
 * Copies the rows of a large table that changed since both sides were last equal, without comparing the others again:
 * the pause of the writers must not grow with the size of the table.
 *
 *     rows written since ─► delete their keys on the target ─► rows left over there? delete those too ─► copy the rows
 *
 * A row that was written since then has an `xmin` at or above the oldest transaction that was open in the snapshot of that
 * time, and looking for such rows reads no contents. They replace the rows of the same key on the target. All other rows
 * were on both sides before, and can only have been deleted from the source: if both sides have as many of them, none
 * was; if not, their keys are compared.
 */
import type { Executor, Transaction } from '../../database/database.ts'
import { identifier, sql } from '../../database/sql.ts'
import {
  bucketCount,
  bucketOf,
  type Copied,
  copyLines,
  differingBuckets,
  type Ends,
  type OnRows,
  printedColumns,
  readSums,
  rowHash,
  rowsPerWindow,
  type Sums,
  type TableSize,
} from './copy-table.ts'
import type { Table } from './structure.ts'

export interface ChangedTable {
  readonly table: Table
  readonly size: TableSize
  /** The result of `readOldestOpen` in the snapshot in which both sides were equal. */
  readonly since: string
  readonly onRows: OnRows
}

/** More changes than this are not held in memory: the table is compared as a whole then. */
const maxChanges = 20_000
const maxBuckets = 1_000

export async function readOldestOpen(source: Executor): Promise<string> {
  const [row] = await source.run<{ xid: string }>(sql`/* move.oldest_open */
    select pg_snapshot_xmin(pg_current_snapshot())::text as xid`)
  return row!.xid
}

/** Returns undefined if so much changed that the table has to be compared as a whole. */
export async function copyChanges(ends: Ends, changed: ChangedTable): Promise<Copied | undefined> {
  const { source, move } = ends
  const { table } = changed
  const [rows, changes] = await Promise.all([
    countRows(source, move.source.schema, table),
    readChanges(source, move.source.schema, changed),
  ])
  if (changes.length > maxChanges) return undefined
  return ends.target(async target => {
    await deleteKeys(target, move.incoming, table, changes.map(keyOf))
    const surplus = (await countRows(target, move.incoming, table)) - (rows - changes.length)
    const deleted = surplus === 0 ? [] : await readDeleted(ends, target, changed)
    if (deleted?.length !== surplus) return undefined
    await deleteKeys(target, move.incoming, table, deleted)
    return copyRows(ends, target, changed, { rows, changes })
  })
}

async function countRows(executor: Executor, schema: string, table: Table): Promise<number> {
  const [row] = await executor.run<{ rows: number }>(sql`/* move.count */
    select count(*)::float8 as rows
    from ${identifier(schema, table.name)}`)
  return row!.rows
}

/** Where a row is on the source, then the columns of its key. */
type Change = readonly [ctid: string, ...key: string[]]

function keyOf([, ...key]: Change): string[] {
  return key
}

async function readChanges(source: Executor, schema: string, { table, since }: ChangedTable): Promise<Change[]> {
  const rows = await source.runArrays({
    label: 'move.changes',
    text: `/* move.changes */
      select ctid::text, ${printedKey(table)}
      from ${identifier(schema, table.name)}
      where ${changedSince}
      limit ${maxChanges + 1}`,
    values: [since],
    unprepared: true,
  })
  return rows as unknown as Change[]
}

/** By age, because the numbers of transactions wrap around. */
const changedSince = 'age(xmin) <= age($1::text::xid8::xid)'

function printedKey({ key }: Table): string {
  return key.map(column => `${identifier(column)}::text`).join(', ')
}

async function deleteKeys(target: Transaction, schema: string, table: Table, keys: readonly string[][]): Promise<void> {
  if (keys.length === 0) return
  await target.run({
    label: 'move.delete_keys',
    text: `/* move.delete_keys */
      delete from ${identifier(schema, table.name)} as t
      using ${givenKeys(table)}`,
    values: keyColumns(table, keys),
    unprepared: true,
  })
}

/** The given keys, joined with the rows `t` that have them. */
function givenKeys({ key, keyTypes }: Table): string {
  const arrays = key.map((_, at) => `$${at + 1}::text[]`)
  const names = key.map((_, at) => `k${at}`)
  const matches = key.map((column, at) => `t.${identifier(column)} = given.k${at}::${keyTypes[at]}`)
  return `unnest(${arrays.join(', ')}) as given(${names.join(', ')}) where ${matches.join(' and ')}`
}

function keyColumns({ key }: Table, keys: readonly string[][]): string[][] {
  return key.map((_, at) => keys.map(each => each[at]!))
}

/** The keys of unchanged rows that only the target has; undefined if too many buckets differ. */
async function readDeleted(ends: Ends, target: Transaction, changed: ChangedTable): Promise<string[][] | undefined> {
  const { source, move } = ends
  const { table, size, since } = changed
  const buckets = bucketCount(size.bytes)
  const sides: readonly Side[] = [
    { executor: source, schema: move.source.schema, where: `not ${changedSince}`, values: [since] },
    { executor: target, schema: move.incoming, where: '$1::text is null', values: [null] },
  ]
  const [sums, targetSums] = await Promise.all(sides.map(side => sumKeys(side, table, buckets)))
  const differing = differingBuckets(sums!, targetSums!)
  if (differing.length > maxBuckets) return undefined
  const [keys, targetKeys] = await Promise.all(sides.map(side => readKeys(side, table, buckets, differing)))
  const existing = new Set(keys!.map(key => JSON.stringify(key)))
  return targetKeys!.filter(key => !existing.has(JSON.stringify(key)))
}

interface Side {
  readonly executor: Executor
  readonly schema: string
  readonly where: string
  readonly values: readonly unknown[]
}

function sumKeys({ executor, schema, where, values }: Side, table: Table, buckets: number): Promise<Sums> {
  return readSums(executor, {
    label: 'move.sum_keys',
    text: `/* move.sum_keys */
      select ${bucketOf(table, buckets)}, count(*)::integer, sum(${rowHash({ columns: table.key })})::text
      from ${identifier(schema, table.name)}
      where ${where}
      group by 1`,
    values,
    unprepared: true,
  })
}

async function readKeys(
  { executor, schema, where, values }: Side,
  table: Table,
  buckets: number,
  among: readonly number[],
): Promise<string[][]> {
  const rows = await executor.runArrays({
    label: 'move.read_keys',
    text: `/* move.read_keys */
      select ${printedKey(table)}
      from ${identifier(schema, table.name)}
      where ${where}
        and ${bucketOf(table, buckets)} = any($2::integer[])`,
    values: [...values, among],
    unprepared: true,
  })
  return rows as string[][]
}

/** Copies the changed rows and compares them with the source. Returns undefined if they are not equal. */
async function copyRows(
  { source, move }: Ends,
  target: Transaction,
  { table, size, onRows }: ChangedTable,
  { rows, changes }: { rows: number; changes: readonly Change[] },
): Promise<Copied | undefined> {
  const into = identifier(move.incoming, table.name)
  const perWindow = rowsPerWindow(size, rows)
  let bytes = 0
  for (let at = 0; at < changes.length; at += perWindow) {
    const window = changes.slice(at, at + perWindow)
    const read = await source.runArrays({
      label: 'move.read_changed',
      text: `/* move.read_changed */
        select ${rowHash(table)}::text, ${printedColumns(table)}
        from ${identifier(move.source.schema, table.name)}
        where ctid = any($1::text[]::tid[])`,
      values: [window.map(([ctid]) => ctid)],
      unprepared: true,
    })
    const lines = copyLines(read.map(([, ...row]) => row as (string | null)[]))
    await target.copyIn(into.quoted, table.columns, lines)
    const copied = await target.runArrays({
      label: 'move.read_copied',
      text: `/* move.read_copied */
        select ${rowHash(table, 't')}::text
        from ${into} as t, ${givenKeys(table)}`,
      values: keyColumns(table, window.map(keyOf)),
      unprepared: true,
    })
    if (String(copied.flat().sort()) !== String(read.map(([hash]) => hash).sort())) return undefined
    bytes += lines.length
    onRows(Math.min(at + perWindow, changes.length), changes.length)
  }
  return { rows: changes.length, bytes }
}
