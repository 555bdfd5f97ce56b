/** One pass over all tables: afterwards each is, on the target, what it was on the source when the pass came to it. */

import type { Transaction } from '../../database/database.ts'
import { DatabaseFailed } from '../../database/errors.ts'
import { identifier, sql } from '../../database/sql.ts'
import { logNames } from '../../events/log.ts'
import { plainText } from './buckets.ts'
import { mirrorChanges, oldestOpen } from './changes.ts'
import { type Claim, claimed, dayMs } from './claim.ts'
import { shapeIncoming } from './incoming.ts'
import {
  compareTable,
  type Ends,
  type Mirrored,
  type OnRows,
  readSizes,
  repairTable,
  type Size,
  type Sizes,
} from './mirror.ts'
import { mirrorEvents } from './mirror-events.ts'
import type { Move, MoveProgress } from './move.ts'
import type { Structure, Table } from './structure.ts'

export interface Mover {
  readonly move: Move
  readonly claim: Claim
  readonly onProgress: ((progress: MoveProgress) => void) | undefined
  /** Up to here every event was compared. */
  verifiedTo: number
  /** The large tables that were the same on both sides, with the oldest transaction that was open then. */
  readonly same: Map<string, { readonly signature: string; readonly since: string }>
}

export function newMover(move: Move, claim: Claim, onProgress: Mover['onProgress']): Mover {
  return { move, claim, onProgress, verifiedTo: 0, same: new Map() }
}

export interface Passed {
  readonly rows: number
  readonly events: number
  readonly bytes: number
  /** The tables that rows were copied into. */
  readonly changed: readonly string[]
  /** False if a table changed its shape meanwhile. */
  readonly isWhole: boolean
}

/** While writers write. Small tables share a snapshot, each large one has its own. */
export async function livePass(mover: Mover): Promise<Passed> {
  const { move, claim } = mover
  const { database, schema } = move.source
  const structure = await claimed(move, claim, tx => shapeIncoming(database, move, tx))
  const upTo = await settled(mover)
  const passed = tally()
  for (const tables of groupsOf(structure, await readSizes(database, schema, [...structure.tables.keys()]))) {
    try {
      await database.transaction(
        async source => {
          await plainText(source)
          const since = await oldestOpen(source)
          await mirrorLive(mover, source, tables, { upTo, phase: 'copy', passed })
          for (const { name, signature } of tables) mover.same.set(name, { signature, since })
        },
        { timeoutMs: dayMs, signal: claim.signal, isolation: 'repeatable read' },
      )
    } catch (error) {
      // Dropped or altered since: the next pass sees the table as it is then.
      if (!(error instanceof DatabaseFailed && /^(42P01|42703)$/.test(error.sqlState))) throw error
      passed.isWhole = false
    }
  }
  return passed
}

const smallBytes = 1024 * 1024

function groupsOf({ tables }: Structure, sizes: Sizes): Table[][] {
  const isAlone = ({ name }: Table): boolean => name === 'events' || (sizes.get(name)?.bytes ?? 0) > smallBytes
  const all = [...tables.values()]
  return [all.filter(table => !isAlone(table)), ...all.filter(isAlone).map(table => [table])]
}

/** The log is committed range by range, so that a copy that is cut off goes on where it was. */
function mirrorLive(mover: Mover, source: Transaction, tables: Table[], mirroring: Mirroring): Promise<void> {
  const { move, claim } = mover
  const open: Ends['target'] = work => claimed(move, claim, tx => plainText(tx).then(() => work(tx)))
  if (tables[0]?.name === 'events') return mirror(mover, { move, source, target: open }, tables, mirroring)
  return open(tx => mirror(mover, { move, source, target: work => work(tx) }, tables, mirroring))
}

/** While nobody writes, and all in one transaction on either side. Afterwards both are equal. */
export async function lastPass(mover: Mover, source: Transaction, tx: Transaction): Promise<Passed> {
  const { move } = mover
  const { tables } = await shapeIncoming(source, move, tx)
  await Promise.all([plainText(source), plainText(tx)])
  const [row] = await source.run<{ head: number }>(sql`/* moving.head */
    select coalesce(max(position), 0) as head
    from ${logNames(move.source.schema).events}`)
  const passed = tally()
  const ends: Ends = { move, source, target: work => work(tx) }
  await mirror(mover, ends, [...tables.values()], { upTo: row!.head, phase: 'fence', passed })
  return passed
}

interface Mirroring {
  readonly upTo: number
  readonly phase: MoveProgress['phase']
  readonly passed: Tally
}

/** Small tables are compared at once: what the pause of the writers takes must not grow with their number. */
async function mirror(
  mover: Mover,
  ends: Ends,
  tables: readonly Table[],
  { upTo, phase, passed }: Mirroring,
): Promise<void> {
  const told = (table: Table): OnRows => {
    return (rows, totalRows) => mover.onProgress?.({ phase, table: table.name, rows, totalRows })
  }
  const names = tables.map(table => table.name)
  const sizes = await readSizes(ends.source, ends.move.source.schema, names)
  const sizeOf = ({ name }: Table): Size => sizes.get(name) ?? empty
  const hashed = tables.filter(table => table.name !== 'events')
  const whole: Table[] = []
  for (const table of hashed) {
    const [size, same] = [sizeOf(table), mover.same.get(table.name)]
    const isKnown = size.bytes > smallBytes && same?.signature === table.signature
    const mirrored = isKnown
      ? await mirrorChanges(ends, { table, size, since: same.since, onRows: told(table) })
      : undefined
    if (mirrored === undefined) whole.push(table)
    else passed.add(table, mirrored)
  }
  const compared = await Promise.all(whole.map(table => compareTable(ends, table, sizeOf(table))))
  for (const each of compared) passed.add(each.table, await repairTable(ends, each, told(each.table)))
  for (const table of tables.filter(each => !hashed.includes(each))) {
    const { verifiedTo } = mover
    const mirrored = await mirrorEvents({ ...ends, table, upTo, verifiedTo, onRows: told(table) })
    mover.verifiedTo = upTo
    passed.add(table, mirrored)
  }
}

const empty = { pages: 0, bytes: 0 }

/** Read before any snapshot that events are read in: up to here it has all there will ever be. */
async function settled({ move: { source } }: Mover): Promise<number> {
  const [row] = await source.database.run<{ settled: number }>(sql`/* moving.settle */
    select settled
    from ${identifier(source.schema, 'settle')}()`)
  return row!.settled
}

interface Tally {
  rows: number
  events: number
  bytes: number
  readonly changed: string[]
  isWhole: boolean
  add(table: Table, mirrored: Mirrored): void
}

function tally(): Tally {
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
