/**
 * One pass over all tables. Afterwards each table on the target equals the table of the source at the time the pass
 * read it.
 *
 *     livePass    while writers write: small tables share a snapshot, each large table has its own, events are copied in
 *                 ranges that are committed one by one
 *     lastPass    while writers are stopped: everything in one transaction on either side, then the sequences
 *
 * Small tables are compared as a whole (`copy-table.ts`), large ones by their changes since the last pass
 * (`copy-changes.ts`), events by ranges of positions (`copy-events.ts`).
 */
import { consumerNames } from '../../consumers/schema.ts'
import type { Transaction } from '../../database/database.ts'
import { DatabaseFailed } from '../../database/errors.ts'
import { identifier, sql } from '../../database/sql.ts'
import { logNames } from '../../events/log.ts'
import { raiseDrawn, readDrawn, readNumbers } from '../../schema/numbers.ts'
import { maxTransferMs } from '../transfer.ts'
import { copyChanges, readOldestOpen } from './copy-changes.ts'
import { copyEvents } from './copy-events.ts'
import {
  type Copied,
  compareTable,
  copyDifferences,
  type Ends,
  type OnRows,
  printExactly,
  readSizes,
  type Sizes,
  type TableSize,
} from './copy-table.ts'
import { type Claim, shapeIncoming, withClaim } from './incoming.ts'
import type { Move, MoveProgress } from './move.ts'
import type { Structure, Table } from './structure.ts'

/** One process that moves a store, with the results of its earlier passes. */
export interface Mover {
  readonly move: Move
  readonly claim: Claim
  readonly onProgress: ((progress: MoveProgress) => void) | undefined
  /** Every event up to this position was compared. */
  verifiedTo: number
  /** The large tables that were equal on both sides, with the oldest transaction that was open then. */
  readonly equal: Map<string, { readonly signature: string; readonly since: string }>
}

export function newMover(move: Move, claim: Claim, onProgress: Mover['onProgress']): Mover {
  return { move, claim, onProgress, verifiedTo: 0, equal: new Map() }
}

export interface PassResult {
  readonly rows: number
  readonly events: number
  readonly bytes: number
  /** The tables that rows were copied into. */
  readonly changed: readonly string[]
  /** False if a table changed its shape during the pass. */
  readonly isWhole: boolean
}

const smallBytes = 1024 * 1024

export async function livePass(mover: Mover): Promise<PassResult> {
  const { move, claim } = mover
  const { database, schema } = move.source
  const structure = await withClaim(move, claim, tx => shapeIncoming(database, move, tx))
  const upTo = await readSettled(mover)
  const result = openResult()
  for (const tables of groupTables(structure, await readSizes(database, schema, [...structure.tables.keys()]))) {
    try {
      await database.transaction(
        async source => {
          await printExactly(source)
          const since = await readOldestOpen(source)
          await copyLive(mover, source, tables, { upTo, phase: 'copying', result })
          for (const { name, signature } of tables) mover.equal.set(name, { signature, since })
        },
        { timeoutMs: maxTransferMs, signal: claim.signal, isolation: 'repeatable read' },
      )
    } catch (error) {
      // Dropped or altered meanwhile: the next pass sees the table as it is then.
      if (!(error instanceof DatabaseFailed && /^(42P01|42703)$/.test(error.sqlState))) throw error
      result.isWhole = false
    }
  }
  return result
}

/** The tables that share a snapshot: all small ones, then each of the others alone. */
function groupTables({ tables }: Structure, sizes: Sizes): Table[][] {
  const isAlone = ({ name }: Table): boolean => name === 'events' || (sizes.get(name)?.bytes ?? 0) > smallBytes
  const all = [...tables.values()]
  return [all.filter(table => !isAlone(table)), ...all.filter(isAlone).map(table => [table])]
}

/** Events are committed range by range, so that a copy that is interrupted continues where it was. */
function copyLive(mover: Mover, source: Transaction, tables: Table[], pass: Pass): Promise<void> {
  const { move, claim } = mover
  const open: Ends['target'] = work => withClaim(move, claim, tx => printExactly(tx).then(() => work(tx)))
  if (tables[0]?.name === 'events') return copyTables(mover, { move, source, target: open }, tables, pass)
  return open(tx => copyTables(mover, { move, source, target: work => work(tx) }, tables, pass))
}

/** Afterwards both sides are equal, and the sequences of the target continue above those of the source. */
export async function lastPass(mover: Mover, source: Transaction, target: Transaction): Promise<PassResult> {
  const { move } = mover
  const { tables } = await shapeIncoming(source, move, target)
  await Promise.all([printExactly(source), printExactly(target)])
  const [row] = await source.run<{ head: number }>(sql`/* move.head */
    select coalesce(max(position), 0) as head
    from ${logNames(move.source.schema).events}`)
  const result = openResult()
  const ends: Ends = { move, source, target: work => work(target) }
  await copyTables(mover, ends, [...tables.values()], { upTo: row!.head, phase: 'switching', result })
  await copySequences(source, move, target)
  return result
}

interface Pass {
  readonly upTo: number
  readonly phase: MoveProgress['phase']
  readonly result: OpenResult
}

/** Small tables are compared at the same time: the pause of the writers must not grow with their number. */
async function copyTables(mover: Mover, ends: Ends, tables: readonly Table[], pass: Pass): Promise<void> {
  const { upTo, phase, result } = pass
  const onRowsOf = (table: Table): OnRows => {
    return (rows, totalRows) => mover.onProgress?.({ phase, table: table.name, rows, totalRows })
  }
  const names = tables.map(table => table.name)
  const sizes = await readSizes(ends.source, ends.move.source.schema, names)
  const sizeOf = ({ name }: Table): TableSize => sizes.get(name) ?? { pages: 0, bytes: 0 }
  const toCompare: Table[] = []
  for (const table of tables.filter(({ name }) => name !== 'events')) {
    const [size, equal] = [sizeOf(table), mover.equal.get(table.name)]
    const isKnown = size.bytes > smallBytes && equal?.signature === table.signature
    const copied = isKnown
      ? await copyChanges(ends, { table, size, since: equal.since, onRows: onRowsOf(table) })
      : undefined
    if (copied === undefined) toCompare.push(table)
    else result.add(table, copied)
  }
  const compared = await Promise.all(toCompare.map(table => compareTable(ends, table, sizeOf(table))))
  for (const each of compared) result.add(each.table, await copyDifferences(ends, each, onRowsOf(each.table)))
  for (const table of tables.filter(({ name }) => name === 'events')) {
    const { verifiedTo } = mover
    const copied = await copyEvents({ ...ends, table, upTo, verifiedTo, onRows: onRowsOf(table) })
    mover.verifiedTo = upTo
    result.add(table, copied)
  }
}

/** Read before any snapshot that events are read in: such a snapshot has every event that will ever be up to here. */
async function readSettled({ move: { source } }: Mover): Promise<number> {
  const [row] = await source.database.run<{ settled: number }>(sql`/* move.settle */
    select settled
    from ${identifier(source.schema, 'settle')}()`)
  return row!.settled
}

/**
 * Sets the sequences of the target above everything that was ever drawn from those of the source: a position or a fence
 * that came twice would be skipped by one reader and obeyed by another.
 */
async function copySequences(source: Transaction, move: Move, target: Transaction): Promise<void> {
  const { schema } = move.source
  const drawn = await readDrawn(source, schema, await readNumbers(source, schema))
  const used = await readUsed(source, schema)
  const numbers = await readNumbers(target, move.incoming)
  for (const [name, last] of Object.entries(drawn))
    await raiseDrawn(target, move.incoming, numbers, name, Math.max(last, used[name] ?? 0))
}

/** The highest numbers that rows have, in case a sequence is behind them. */
async function readUsed(source: Transaction, schema: string): Promise<Record<string, number>> {
  const { consumers } = consumerNames({ schema })
  const [row] = await source.run<Record<string, number>>(sql`/* move.used */
    select
      greatest(
        (select coalesce(max(position), 0) from ${logNames(schema).events}),
        (select coalesce(max(checkpoint), 0) from ${consumers})) as events_position,
      (select coalesce(max(fence), 0) from ${consumers}) as consumers_fence`)
  return row!
}

interface OpenResult {
  rows: number
  events: number
  bytes: number
  readonly changed: string[]
  isWhole: boolean
  add(table: Table, copied: Copied): void
}

function openResult(): OpenResult {
  const changed: string[] = []
  return {
    rows: 0,
    events: 0,
    bytes: 0,
    changed,
    isWhole: true,
    add({ name }, { rows, bytes }) {
      if (rows > 0) changed.push(name)
      this[name === 'events' ? 'events' : 'rows'] += rows
      this.bytes += bytes
    },
  }
}
