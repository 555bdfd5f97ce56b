/**
 * Moves a store from one PostgreSQL server to another while it is written to. Writers are stopped for a moment, and
 * afterwards they can write only on the other server. It uses neither logical replication nor triggers, so it works
 * between any two servers.
 *
 *     copyInto ─► live passes ─┐                                       on the source          on the target
 *     switchOver ─► live passes ─► writers stopped                     S                      S.in, not in use
 *                                  last pass, both sides equal
 *                                  sequences at or above               S ► S.out, S is a moved marker
 *                                  beforeRelease()
 *                                  commit ───────────────────────────  ■ has given it up
 *                   ─► activate ─────────────────────────────────────────────────────────────  S.in ► S
 *
 *     not begun ──► copying ──► switched ──► active           readState(): from the two catalogues, nothing else
 *         ▲            │        (no owner)
 *         └──discard───┘
 *
 * One mechanism copies, catches up and verifies. Each side computes sums of the hashes of its rows, in buckets by a hash
 * of their key (`events`: in ranges of positions), and buckets that differ are deleted and copied again. Rows that were
 * equal once are not compared again: of a large table only rows written since then are (`copy-changes.ts`), of `events`
 * only those at its end; for the rest both sides must have the same number. After a pass the target equals a snapshot of
 * the source. Passes are repeated until little changes between two of them; the last one runs while writers are stopped.
 *
 * Guarantees:
 * - A store never has two owners. The schema on the target gets its name only after the rename on the source has
 *   committed. In between it has no owner: calls fail, and nothing is lost.
 * - Everything that was acknowledged on the source is on the target, row by row, or the switch does not happen.
 * - No write reaches the source after its commit. Writers wait for the locks of the switch. When they get them, their
 *   sessions know of the rename: PostgreSQL discards every plan when a schema is renamed and looks the names up again. Our functions move with the schema, but their bodies still use its old name. So prepared statements, cached
 *   plans, functions and transactions that began before all fail with an error that `isStoreMissing` recognises.
 * - No process makes the tables anew where the store was: the moved marker keeps the name (`SchemaNewer`).
 * - Positions and fences continue above those of the source.
 * - A move costs other stores nothing, and the store itself only the reading.
 *
 * The pause costs a few dozen round trips and a comparison of the small tables, whatever their number; for each large
 * table a scan that does not read the contents of rows, twice if rows were deleted since the last pass; for `events` a
 * count by the primary key; and the copy of the rows that were written since the last pass. If it gets longer than
 * `maxPauseMs`, it ends without a switch.
 *
 * What can fail: every step, at any time, and the process with it. Up to the commit the source has the store as before;
 * another `switchOver` continues from the present state, and `discard` removes the copy. After the commit only
 * `activate` is left to do. `OutcomeUnknown` and a lost connection do not say which of both it is: `readState` does.
 * Leases move with their rows, so runners on the target wait until the leases of runners on the source have expired.
 *
 * Deliberately not here: which server has a tenant (the directory); objects that cannot be made from the migrations and
 * the catalogue (views, functions of users, triggers), which are refused; and roles and grants, which belong to a
 * server and have to be set up on the target. A table other than `events` is copied in one transaction, so its copy
 * begins anew after an interruption.
 */

import { throwIfAborted } from '../../core/abort.ts'
import { elapsedMs } from '../../core/host.ts'
import type { Transaction } from '../../database/database.ts'
import { identifier } from '../../database/sql.ts'
import { maxTransferMs, type StoreLocation } from '../transfer.ts'
import { MoveRefused } from './errors.ts'
import { claimIncoming, dropIncoming, isIncoming, readMark, useIncoming, withClaim } from './incoming.ts'
import { lockSchema, readOccupant, writeMovedMarker } from './moved-marker.ts'
import { lastPass, livePass, type Mover, newMover } from './pass.ts'
import { type StopWritersOptions, withWritersStopped } from './stop-writers.ts'

/** One move of one store. The same four values name the same move in every process, before and after a crash. */
export interface Move {
  readonly source: StoreLocation
  readonly target: StoreLocation
  /** The name of the schema on the target until it is in use. */
  readonly incoming: string
  /** The name of the schema on the source after the move. */
  readonly retired: string
}

/**
 * `not begun` and `copying`: the source has the store. `switched`: neither server has it, until it is activated.
 * `active`: the target has it.
 */
export type MoveState = 'not begun' | 'copying' | 'switched' | 'active'

export interface MoveProgress {
  readonly phase: 'copying' | 'switching'
  readonly table: string
  /** Rows of this table that were copied in this pass, of `totalRows` that differ. */
  readonly rows: number
  readonly totalRows: number
  /** Of a move between nodes of a Citus cluster, which counts no rows. */
  readonly copiedBytes?: number | undefined
  readonly totalBytes?: number | undefined
}

/** The rows that all passes have copied together. Rows that changed between two passes are counted in both. */
export interface CopiedRows {
  /** Rows of all tables other than `events`. */
  readonly rows: number
  readonly events: number
  readonly bytes: number
  readonly passes: number
}

export interface MoveResult extends CopiedRows {
  /** How long writers were stopped. */
  readonly pausedMs: number
}

export interface CopyOptions {
  onProgress?: ((progress: MoveProgress) => void) | undefined
  signal?: AbortSignal | undefined
}

export interface SwitchOptions extends StopWritersOptions {
  onProgress?: ((progress: MoveProgress) => void) | undefined
  /**
   * Called when both sides are equal, before the source gives the store up. If it fails, the source keeps the store. It
   * runs inside a transaction of the source, so it must not use that database.
   */
  beforeRelease?: (() => Promise<void>) | undefined
}

/** How far a move is, from the two catalogues alone, so that no process has to remember anything. */
export async function readState(move: Move): Promise<MoveState> {
  const { source, target, incoming } = move
  // In this order: a source that has given the store up never takes it back, so the answer is never ahead of the truth.
  const atSource = await readOccupant(source.database, source.schema)
  const hasIncoming = isIncoming(await readMark(target.database, incoming))
  if (atSource === 'store') return hasIncoming ? 'copying' : 'not begun'
  if (hasIncoming) return 'switched'
  if ((await readOccupant(target.database, target.schema)) === 'store') return 'active'
  throw new MoveRefused({
    schema: source.schema,
    reason: `neither server has a store of that name (look for schema "${move.retired}" on the source)`,
  })
}

/** Copies a store while it is written to, until little is left to copy. May be called again at any time. */
export async function copyInto(move: Move, { onProgress, signal }: CopyOptions = {}): Promise<CopiedRows> {
  const claim = await claimIncoming(move, signal)
  return catchUp(newMover(move, claim, onProgress))
}

/** Catches up, stops the writers, copies the rest, and puts the target into use. */
export async function switchOver(move: Move, options: SwitchOptions = {}): Promise<MoveResult> {
  const { signal, onProgress, beforeRelease } = options
  const claim = await claimIncoming(move, signal)
  await dropEarlierCopy(move, signal)
  const mover = newMover(move, claim, onProgress)
  const copied = await catchUp(mover)
  let pausedAt = 0
  const last = await withWritersStopped(move.source, options, async ({ tx, signal, since }) => {
    pausedAt = since
    // Committed on the target before the source gives the store up.
    const passed = await withClaim(move, { ...claim, signal }, target => lastPass(mover, tx, target))
    await release(tx, move)
    await beforeRelease?.()
    return passed
  })
  await useIncoming(move, claim.mark)
  return {
    rows: copied.rows + last.rows,
    events: copied.events + last.events,
    bytes: copied.bytes + last.bytes,
    passes: copied.passes + 1,
    pausedMs: elapsedMs() - pausedAt,
  }
}

/** From the commit of this on, nothing can be written under the old name. */
async function release(tx: Transaction, { source, retired }: Move): Promise<void> {
  await tx.query(`alter schema ${identifier(source.schema)} rename to ${identifier(retired)}`)
  await writeMovedMarker(tx, source.schema)
}

/** So few rows that copying them while writers are stopped takes no noticeable time. */
const fewRows = 500
const maxPasses = 10

/** Live passes, until the next one would not be much shorter. */
async function catchUp(mover: Mover): Promise<CopiedRows> {
  const total = { rows: 0, events: 0, bytes: 0, passes: 0 }
  for (let before = Infinity; total.passes < maxPasses; ) {
    const { rows, events, bytes, isWhole, changed } = await livePass(mover)
    total.rows += rows
    total.events += events
    total.bytes += bytes
    total.passes++
    const copied = rows + events
    if (isWhole && (copied <= fewRows || copied > before / 2)) break
    // Not after the last pass, because rows that are written meanwhile have to be copied while writers are stopped.
    await vacuumAndAnalyze(mover, changed)
    before = copied
  }
  return total
}

/** Without statistics the target plans badly, and cannot count events by their index alone. */
async function vacuumAndAnalyze({ move, claim }: Mover, tables: readonly string[]): Promise<void> {
  const { database } = move.target
  for (const table of tables) {
    throwIfAborted(claim.signal)
    const text = `vacuum (analyze) ${identifier(move.incoming, table)}`
    const alone = { timeoutMs: maxTransferMs }
    await database.run({ label: 'move.vacuum', text, values: [], unprepared: true, alone })
  }
}

/** Completes a move that was interrupted after the source had given the store up. */
export async function activate(move: Move): Promise<void> {
  // Read before the state of the source: a mark that exists by now was made while the source had the store.
  const mark = await readMark(move.target.database, move.incoming)
  const state = await readState(move)
  if (state === 'active') return
  if (state !== 'switched')
    throw new MoveRefused({ schema: move.source.schema, reason: 'the source has not given it up' })
  await useIncoming(move, mark)
}

/** Undoes a move that has not switched. The source continues as if there had been none. */
export async function discard(move: Move): Promise<void> {
  const { source } = move
  const work = async (tx: Transaction): Promise<void> => {
    await lockSchema(tx, source.schema)
    if ((await readOccupant(tx, source.schema)) !== 'store')
      throw new MoveRefused({
        schema: source.schema,
        reason: 'it has switched already; activate it, then move it back',
      })
    await dropIncoming(move)
  }
  await source.database.transaction(work, { timeoutMs: maxTransferMs, isolation: 'read committed' })
}

/**
 * Frees the space that the store took on the source. The moved marker stays: a process that looked the store up before the
 * move, and was suspended since, must not make the store anew there.
 */
export async function dropRetired(move: Move): Promise<void> {
  const { source, retired } = move
  if ((await readState(move)) !== 'active')
    throw new MoveRefused({ schema: source.schema, reason: 'the target is not in use yet' })
  await source.database.transaction(tx => tx.query(`drop schema if exists ${identifier(retired)} cascade`))
}

/** Drops the schema that an earlier move away from the source has left there, because its name is needed again. */
async function dropEarlierCopy({ source, retired }: Move, signal: AbortSignal | undefined): Promise<void> {
  const work = async (tx: Transaction): Promise<void> => {
    await lockSchema(tx, source.schema)
    // While the store itself is here, the retired schema is only an old copy of it.
    if ((await readOccupant(tx, source.schema)) === 'store')
      await tx.query(`drop schema if exists ${identifier(retired)} cascade`)
  }
  await source.database.transaction(work, { timeoutMs: maxTransferMs, signal, isolation: 'read committed' })
}
