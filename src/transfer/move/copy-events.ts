/**
 * Makes the incoming log what the source's is. Events are never changed, only added at the end and, by retention, deleted;
 * so they are compared in ranges of positions, and what has been compared row by row once is afterwards only counted. That
 * leaves the fenced moment an index to scan and the events since the last pass to copy.
 */

import type { Executor } from '../../database/database.ts'
import { identifier, sql } from '../../database/sql.ts'
import { differing, readSums, rowHash, type Sums } from './buckets.ts'
import { copyLines, type Ends, type Mirrored, type OnRows, textOf } from './copy-table.ts'
import { MoveNotEqual } from './errors.ts'
import type { Table } from './structure.ts'

export interface EventsMirror extends Ends {
  readonly table: Table
  /** Only what is settled, unless nobody writes. */
  readonly upTo: number
  /** Up to here every event was compared by this mover. */
  readonly verifiedTo: number
  readonly onRows: OnRows
}

export async function mirrorEvents(mirror: EventsMirror): Promise<Mirrored> {
  const { upTo, verifiedTo } = mirror
  const shift = await rangeShift(mirror)
  const seen = await mirrorSpan(mirror, { from: 0, to: verifiedTo, shift }, true)
  const unseen = await mirrorSpan(mirror, { from: verifiedTo + 1, to: upTo, shift }, false)
  return { rows: seen.rows + unseen.rows, bytes: seen.bytes + unseen.bytes }
}

/** A range that ends beyond the span is taken as far as the span goes: a few events more do not make a whole range new. */
async function mirrorSpan(mirror: EventsMirror, span: Span, isSeen: boolean): Promise<Mirrored> {
  if (isSeen && (await isAsLong(mirror, span))) return { rows: 0, bytes: 0 }
  const missing = await compare(mirror, span, false)
  const first = await copyRanges(mirror, span, missing)
  // Those copied are new to the eye of this mover, too: they are compared one by one.
  const wrong = isSeen ? await wrongAmong(mirror, span, missing) : await compare(mirror, span, true)
  const second = await copyRanges(mirror, span, wrong)
  if ((await wrongAmong(mirror, span, wrong)).size > 0)
    throw new MoveNotEqual({ schema: mirror.move.source.schema, table: mirror.table.name })
  return { rows: first.rows + second.rows, bytes: first.bytes + second.bytes }
}

/** Of events that were the same some can only have been deleted since. */
async function isAsLong({ source, move, target, table }: EventsMirror, { from, to }: Span): Promise<boolean> {
  const count = async (executor: Executor, schema: string): Promise<number> => {
    const [row] = await executor.run<{ rows: number }>(sql`/* moving.count_events */
      select count(*) as rows
      from ${identifier(schema, table.name)}
      where position between ${from}::bigint and ${to}::bigint`)
    return row!.rows
  }
  const [ours, theirs] = await Promise.all([count(source, move.source.schema), target(tx => count(tx, move.incoming))])
  return ours === theirs
}

async function wrongAmong(mirror: EventsMirror, span: Span, ranges: Ranges): Promise<Ranges> {
  const wrong: Ranges = new Map()
  for (const range of ranges.keys())
    for (const [found, rows] of await compare(mirror, within(span, range), true)) wrong.set(found, rows)
  return wrong
}

/** Ranges by number, with how many events the source has in each. */
type Ranges = Map<number, number>

const rangeBytes = 4 * 1024 * 1024

/** As many positions in a range, as a power of two, as make up a page worth copying. */
async function rangeShift({ source, move, table }: EventsMirror): Promise<number> {
  const events = identifier(move.source.schema, table.name)
  const [row] = await source.run<{ bytes: number; span: number }>(sql`/* moving.events_span */
    select
      pg_table_size(${events.quoted}::text::regclass)::float8 as bytes,
      coalesce(max(position) - min(position) + 1, 1)::float8 as span
    from ${events}`)
  const { bytes, span } = row!
  const perRange = Math.min(16_384, Math.max(16, rangeBytes / Math.max(1, bytes / span)))
  return Number(Math.floor(Math.log2(Math.max(perRange, span / 65_536))))
}

/** Positions, and how many of them, as a power of two, make up a range. */
interface Span {
  readonly from: number
  readonly to: number
  readonly shift: number
}

/** The ranges of a span that differ. If it `isDeep`, their rows are compared, otherwise only which there are. */
async function compare(mirror: EventsMirror, span: Span, isDeep: boolean): Promise<Ranges> {
  const { source, move, target, table } = mirror
  if (span.from > span.to) return new Map()
  const [ours, theirs] = await Promise.all([
    sumRanges(source, move.source.schema, table, span, isDeep),
    target(tx => sumRanges(tx, move.incoming, table, span, isDeep)),
  ])
  return new Map(differing<number>(ours, theirs).map(range => [range, ours.get(range)?.rows ?? 0]))
}

function sumRanges(executor: Executor, schema: string, table: Table, span: Span, isDeep: boolean): Promise<Sums> {
  return readSums(executor, {
    label: 'moving.sum_ranges',
    text: `/* moving.sum_ranges */
      select position >> $3::integer, count(*)::integer, sum(${isDeep ? rowHash(table) : 'position'})::text
      from ${identifier(schema, table.name)}
      where position between $1::bigint and $2::bigint
      group by 1`,
    values: [span.from, span.to, Number(span.shift)],
    unprepared: true,
  })
}

/**
 * All are deleted before the first is copied: a stream that retention took away and that began anew has its versions at
 * other positions now. Then, while writers write, a transaction each, so that a copy that is cut off goes on where it was.
 */
async function copyRanges(mirror: EventsMirror, span: Span, ranges: Ranges): Promise<Mirrored> {
  const { move, target, table, onRows } = mirror
  if (ranges.size === 0) return { rows: 0, bytes: 0 }
  const into = identifier(move.incoming, table.name)
  await target(tx =>
    tx.run(sql`/* moving.delete_ranges */
      delete from ${into}
      where position between ${span.from}::bigint and ${span.to}::bigint
        and (position >> ${Number(span.shift)}::integer) = any(${[...ranges.keys()]}::bigint[])`),
  )
  const totalRows = [...ranges.values()].reduce((total, rows) => total + rows, 0)
  let rows = 0
  let bytes = 0
  for (const range of [...ranges.keys()].sort((a, b) => (a < b ? -1 : 1))) {
    const read = await readRange(mirror, within(span, range))
    if (read.length === 0) continue
    const lines = copyLines(read)
    await target(tx => tx.copyIn(into.quoted, table.columns, lines))
    rows += read.length
    bytes += lines.length
    onRows(rows, totalRows)
  }
  return { rows, bytes }
}

async function readRange({ source, move, table }: EventsMirror, { from, to }: Span): Promise<(string | null)[][]> {
  const rows = await source.runArrays({
    label: 'moving.read_range',
    text: `/* moving.read_range */
      select ${textOf(table)}
      from ${identifier(move.source.schema, table.name)}
      where position between $1::bigint and $2::bigint
      order by position`,
    values: [from, to],
    unprepared: true,
  })
  return rows as (string | null)[][]
}

function within({ from, to, shift }: Span, range: number): Span {
  const [first, last] = [range << shift, ((range + 1) << shift) - 1]
  return { from: first > from ? first : from, to: last < to ? last : to, shift }
}
