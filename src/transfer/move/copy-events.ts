/**
 * Makes the incoming log equal to the log of the source. Events are never changed: they are added at the end and deleted
 * by retention. So they are compared in ranges of positions, and events that were compared row by row once are afterwards
 * only counted. While the writers are stopped that leaves an index to scan and the events since the last pass to copy.
 *
 *     0 ───────────── verifiedTo ─────────────── upTo
 *     │ as many on both sides?  │ which positions differ? copy them; then: which rows differ? copy them
 */
import type { Executor } from '../../database/database.ts'
import { identifier, sql } from '../../database/sql.ts'
import {
  type Copied,
  copyLines,
  differingBuckets,
  type Ends,
  type OnRows,
  printedColumns,
  readSums,
  rowHash,
  type Sums,
} from './copy-table.ts'
import { MoveNotEqual } from './errors.ts'
import type { Table } from './structure.ts'

export interface EventsCopy extends Ends {
  readonly table: Table
  /** The last position to copy: the settled one, unless the writers are stopped. */
  readonly upTo: number
  /** Every event up to this position was compared by this mover. */
  readonly verifiedTo: number
  readonly onRows: OnRows
}

/** Positions in ranges: a range holds 2^shift of them. */
interface Span {
  readonly from: number
  readonly to: number
  readonly shift: number
}

/** Ranges by number, with the number of events that the source has in each. */
type Ranges = Map<number, number>

export async function copyEvents(copy: EventsCopy): Promise<Copied> {
  const { upTo, verifiedTo } = copy
  const shift = await rangeShift(copy)
  const verified = await copySpan(copy, { from: 0, to: verifiedTo, shift }, true)
  const unverified = await copySpan(copy, { from: verifiedTo + 1, to: upTo, shift }, false)
  return { rows: verified.rows + unverified.rows, bytes: verified.bytes + unverified.bytes }
}

/** A range that ends beyond the span is copied as far as the span goes, so that a few more events do not repeat it whole. */
async function copySpan(copy: EventsCopy, span: Span, isVerified: boolean): Promise<Copied> {
  if (isVerified && (await hasEqualCounts(copy, span))) return { rows: 0, bytes: 0 }
  const missing = await compareSpan(copy, span, 'positions')
  const first = await copyRanges(copy, span, missing)
  // Events that were copied now are not verified yet: they are compared row by row.
  const wrong = isVerified ? await compareRanges(copy, span, missing) : await compareSpan(copy, span, 'rows')
  const second = await copyRanges(copy, span, wrong)
  if ((await compareRanges(copy, span, wrong)).size > 0)
    throw new MoveNotEqual({ schema: copy.move.source.schema, table: copy.table.name })
  return { rows: first.rows + second.rows, bytes: first.bytes + second.bytes }
}

/** Verified events can only have been deleted since, so equal counts mean equal events. */
async function hasEqualCounts({ source, move, target, table }: EventsCopy, { from, to }: Span): Promise<boolean> {
  const count = async (executor: Executor, schema: string): Promise<number> => {
    const [row] = await executor.run<{ rows: number }>(sql`/* move.count_events */
      select count(*) as rows
      from ${identifier(schema, table.name)}
      where position between ${from}::bigint and ${to}::bigint`)
    return row!.rows
  }
  const [one, other] = await Promise.all([count(source, move.source.schema), target(tx => count(tx, move.incoming))])
  return one === other
}

async function compareRanges(copy: EventsCopy, span: Span, ranges: Ranges): Promise<Ranges> {
  const wrong: Ranges = new Map()
  for (const range of ranges.keys())
    for (const [found, rows] of await compareSpan(copy, rangeWithin(span, range), 'rows')) wrong.set(found, rows)
  return wrong
}

/** The ranges of a span that differ, by which positions there are or by whole rows. */
async function compareSpan(copy: EventsCopy, span: Span, by: 'positions' | 'rows'): Promise<Ranges> {
  const { source, move, target, table } = copy
  if (span.from > span.to) return new Map()
  const [sums, targetSums] = await Promise.all([
    sumRanges(source, move.source.schema, table, span, by),
    target(tx => sumRanges(tx, move.incoming, table, span, by)),
  ])
  return new Map(differingBuckets(sums, targetSums).map(range => [range, sums.get(range)?.rows ?? 0]))
}

function sumRanges(
  executor: Executor,
  schema: string,
  table: Table,
  span: Span,
  by: 'positions' | 'rows',
): Promise<Sums> {
  return readSums(executor, {
    label: 'move.sum_ranges',
    text: `/* move.sum_ranges */
      select position >> $3::integer, count(*)::integer, sum(${by === 'rows' ? rowHash(table) : 'position'})::text
      from ${identifier(schema, table.name)}
      where position between $1::bigint and $2::bigint
      group by 1`,
    values: [span.from, span.to, span.shift],
    unprepared: true,
  })
}

const rangeBytes = 4 * 1024 * 1024

/** The number of positions in a range, as a power of two: about as many as are worth one copy. */
async function rangeShift({ source, move, table }: EventsCopy): Promise<number> {
  const events = identifier(move.source.schema, table.name)
  const [row] = await source.run<{ bytes: number; span: number }>(sql`/* move.events_span */
    select
      pg_table_size(${events.quoted}::text::regclass)::float8 as bytes,
      coalesce(max(position) - min(position) + 1, 1)::float8 as span
    from ${events}`)
  const { bytes, span } = row!
  const perRange = Math.min(16_384, Math.max(16, rangeBytes / Math.max(1, bytes / span)))
  return Math.floor(Math.log2(Math.max(perRange, span / 65_536)))
}

/** Not with `<<`, which has 32 bits: positions have 53. */
function rangeWithin({ from, to, shift }: Span, range: number): Span {
  const size = 2 ** shift
  const first = range * size
  return { from: Math.max(first, from), to: Math.min(first + size - 1, to), shift }
}

/**
 * All ranges are deleted before the first is copied: a stream that retention has deleted and that began anew has its
 * versions at other positions now. While writers write, each range is a transaction of its own, so that a copy that is
 * interrupted continues where it was.
 */
async function copyRanges(copy: EventsCopy, span: Span, ranges: Ranges): Promise<Copied> {
  const { move, target, table, onRows } = copy
  if (ranges.size === 0) return { rows: 0, bytes: 0 }
  const into = identifier(move.incoming, table.name)
  await target(tx =>
    tx.run(sql`/* move.delete_ranges */
      delete from ${into}
      where position between ${span.from}::bigint and ${span.to}::bigint
        and (position >> ${span.shift}::integer) = any(${[...ranges.keys()]}::bigint[])`),
  )
  const totalRows = [...ranges.values()].reduce((total, rows) => total + rows, 0)
  let rows = 0
  let bytes = 0
  for (const range of [...ranges.keys()].sort((a, b) => a - b)) {
    const read = await readRange(copy, rangeWithin(span, range))
    if (read.length === 0) continue
    const lines = copyLines(read)
    await target(tx => tx.copyIn(into.quoted, table.columns, lines))
    rows += read.length
    bytes += lines.length
    onRows(rows, totalRows)
  }
  return { rows, bytes }
}

async function readRange({ source, move, table }: EventsCopy, { from, to }: Span): Promise<(string | null)[][]> {
  const rows = await source.runArrays({
    label: 'move.read_range',
    text: `/* move.read_range */
      select ${printedColumns(table)}
      from ${identifier(move.source.schema, table.name)}
      where position between $1::bigint and $2::bigint
      order by position`,
    values: [from, to],
    unprepared: true,
  })
  return rows as (string | null)[][]
}
