/**
 * What changed of a large table since it was last the same on both sides, without comparing the rest of it again: the pause
 * of the writers must not grow with what was verified before.
 *
 * Whatever was written since has an `xmin` at or above the oldest transaction that was open in the snapshot of that time, and
 * looking for it reads no row's contents. Such rows take the place of those of the same key on the target. All others were
 * there before, on both sides, and may have been deleted from the source: if as many are left on either side none was, and
 * if not, keys are compared.
 */
import type { Executor, Transaction } from '../../database/database.ts'
import { identifier, sql } from '../../database/sql.ts'
import { bucketCount, bucketOf, differing, readSums, rowHash, type Sums } from './buckets.ts'
import { copyLines, type Ends, type Mirrored, type OnRows, rowsAtOnce, type Size, textOf } from './copy-table.ts'
import type { Table } from './structure.ts'

export interface Changing {
  readonly table: Table
  readonly size: Size
  /** What `oldestOpen` told in the snapshot in which the table was the same on both sides. */
  readonly since: string
  readonly onRows: OnRows
}

export async function oldestOpen(source: Executor): Promise<string> {
  const [row] = await source.run<{ xid: string }>(sql`/* moving.oldest_open */
    select pg_snapshot_xmin(pg_current_snapshot())::text as xid`)
  return row!.xid
}

/** Undefined if so much changed that the table has to be compared as a whole. */
export async function mirrorChanges(ends: Ends, changing: Changing): Promise<Mirrored | undefined> {
  const { source, move } = ends
  const { table } = changing
  const [rows, changed] = await Promise.all([
    countRows(source, move.source.schema, table),
    readChanged(source, move.source.schema, changing),
  ])
  if (changed.length > mostChanged) return undefined
  return ends.target(async target => {
    await deleteKeys(target, move.incoming, table, changed.map(keyOf))
    const surplus = (await countRows(target, move.incoming, table)) - (rows - changed.length)
    const gone = surplus === 0 ? [] : await readGone(ends, target, changing)
    if (gone?.length !== surplus) return undefined
    await deleteKeys(target, move.incoming, table, gone)
    return copyChanged(source, target, { ...ends, ...changing, rows, changed })
  })
}

/** What is kept in memory of them is where they are and their keys. */
const mostChanged = 20_000
const mostBuckets = 1_000

async function countRows(executor: Executor, schema: string, table: Table): Promise<number> {
  const [row] = await executor.run<{ rows: number }>(sql`/* moving.count */
    select count(*)::float8 as rows
    from ${identifier(schema, table.name)}`)
  return row!.rows
}

/** Where a row is on the source, then the columns of its key. */
type Changed = readonly [place: string, ...key: string[]]

function keyOf([, ...key]: Changed): string[] {
  return key
}

async function readChanged(source: Executor, schema: string, { table, since }: Changing): Promise<Changed[]> {
  const rows = await source.runArrays({
    label: 'moving.changed',
    text: `/* moving.changed */
      select ctid::text, ${keyText(table)}
      from ${identifier(schema, table.name)}
      where ${changedSince}
      limit ${mostChanged + 1}`,
    values: [since],
    unprepared: true,
  })
  return rows as unknown as Changed[]
}

/** By age, since the numbers of transactions go round. */
const changedSince = 'age(xmin) <= age($1::text::xid8::xid)'

function keyText({ key }: Table): string {
  return key.map(column => `${identifier(column)}::text`).join(', ')
}

async function deleteKeys(target: Transaction, schema: string, table: Table, keys: readonly string[][]): Promise<void> {
  if (keys.length === 0) return
  await target.run({
    label: 'moving.delete_keys',
    text: `/* moving.delete_keys */
      delete from ${identifier(schema, table.name)} as t
      using ${keysGiven(table)}`,
    values: columnsOf(table, keys),
    unprepared: true,
  })
}

/** The rows of the given keys, as a join with `t`. */
function keysGiven({ key, keyTypes }: Table): string {
  const arrays = key.map((_, at) => `$${at + 1}::text[]`)
  const names = key.map((_, at) => `k${at}`)
  const matches = key.map((column, at) => `t.${identifier(column)} = given.k${at}::${keyTypes[at]}`)
  return `unnest(${arrays.join(', ')}) as given(${names.join(', ')}) where ${matches.join(' and ')}`
}

function columnsOf({ key }: Table, keys: readonly string[][]): string[][] {
  return key.map((_, at) => keys.map(each => each[at]!))
}

/** The keys of rows that only the target has, of those that did not change; undefined if they are too many. */
async function readGone(ends: Ends, target: Transaction, changing: Changing): Promise<string[][] | undefined> {
  const { source, move } = ends
  const { table, size, since } = changing
  const buckets = bucketCount(size.bytes)
  const [ours, theirs] = [
    { executor: source, schema: move.source.schema, where: `not ${changedSince}`, values: [since] },
    { executor: target, schema: move.incoming, where: '$1::text is null', values: [null] },
  ]
  const [sums, others] = await Promise.all([ours, theirs].map(side => sumKeys(side, table, buckets)))
  const suspect = differing<number>(sums!, others!)
  if (suspect.length > mostBuckets) return undefined
  const [kept, found] = await Promise.all([ours, theirs].map(side => keysIn(side, table, buckets, suspect)))
  const stays = new Set(kept!.map(key => JSON.stringify(key)))
  return found!.filter(key => !stays.has(JSON.stringify(key)))
}

interface Side {
  readonly executor: Executor
  readonly schema: string
  readonly where: string
  readonly values: readonly unknown[]
}

function sumKeys({ executor, schema, where, values }: Side, table: Table, buckets: number): Promise<Sums> {
  return readSums(executor, {
    label: 'moving.sum_keys',
    text: `/* moving.sum_keys */
      select ${bucketOf(table, buckets)}, count(*)::integer, sum(${rowHash({ columns: table.key })})::text
      from ${identifier(schema, table.name)}
      where ${where}
      group by 1`,
    values,
    unprepared: true,
  })
}

async function keysIn(
  { executor, schema, where, values }: Side,
  table: Table,
  buckets: number,
  among: readonly number[],
): Promise<string[][]> {
  const rows = await executor.runArrays({
    label: 'moving.keys_in',
    text: `/* moving.keys_in */
      select ${keyText(table)}
      from ${identifier(schema, table.name)}
      where ${where}
        and ${bucketOf(table, buckets)} = any($2::integer[])`,
    values: [...values, among],
    unprepared: true,
  })
  return rows as string[][]
}

interface Copying extends Ends, Changing {
  readonly rows: number
  readonly changed: readonly Changed[]
}

/** They are compared, too, when they are there. Undefined if they are not the same. */
async function copyChanged(source: Transaction, target: Transaction, copying: Copying): Promise<Mirrored | undefined> {
  const { move, table, size, rows, changed, onRows } = copying
  const into = identifier(move.incoming, table.name)
  const atOnce = rowsAtOnce(size, rows)
  let bytes = 0
  for (let at = 0; at < changed.length; at += atOnce) {
    const some = changed.slice(at, at + atOnce)
    const read = await source.runArrays({
      label: 'moving.read_changed',
      text: `/* moving.read_changed */
        select ${rowHash(table)}::text, ${textOf(table)}
        from ${identifier(move.source.schema, table.name)}
        where ctid = any($1::text[]::tid[])`,
      values: [some.map(([place]) => place)],
      unprepared: true,
    })
    const lines = copyLines(read.map(([, ...row]) => row as (string | null)[]))
    await target.copyIn(into.quoted, table.columns, lines)
    const copied = await target.runArrays({
      label: 'moving.read_copied',
      text: `/* moving.read_copied */
        select ${rowHash(table, 't')}::text
        from ${into} as t, ${keysGiven(table)}`,
      values: columnsOf(table, some.map(keyOf)),
      unprepared: true,
    })
    if (String(copied.flat().sort()) !== String(read.map(([hash]) => hash).sort())) return undefined
    bytes += lines.length
    onRows(Math.min(at + atOnce, changed.length), changed.length)
  }
  return { rows: changed.length, bytes }
}
