/**
 * Moves a tenant to another server of the directory.
 *
 *     hold ─► beginMove ─► copy, switch over (`transfer/move/`) ─► endMove ─► drop the copy on the old server
 *
 * After an interruption anywhere, the next call for the same server continues it, and a call for the server where the
 * tenant is undoes it; once the old server has given the tenant up, the move can only continue. The state of a move is
 * read from the two servers, never from the memory of a mover.
 */

import { throwIfAborted } from '../core/abort.ts'
import { randomId } from '../core/host.ts'
import { openLoop } from '../core/loop.ts'
import {
  activate,
  discard,
  dropRetired,
  type Move,
  type MoveProgress,
  type MoveResult,
  readState,
  switchOver,
} from '../transfer/move/move.ts'
import type { Directory, MovablePlacement } from './directory.ts'
import type { Placement, Placements } from './placement.ts'
import { moveNames } from './tenant-name.ts'

export interface MoveTenantOptions {
  onProgress?: ((progress: MoveProgress) => void) | undefined
  signal?: AbortSignal | undefined
  /** How long writers may be stopped. A move that would take longer does not happen. Default 10 000. */
  maxPauseMs?: number | undefined
  /** Keeps the tenant's data on the old server, under another name, until it moves away from there again. Default false. */
  keepSource?: boolean | undefined
}

export interface MovedTenant extends Placement {
  /**
   * The number of copied rows, and how long writers were stopped; undefined if the tenant was there already, and on a
   * Citus cluster, which tells neither.
   */
  readonly moved: MoveResult | undefined
}

/** A mover that has not prolonged its hold for so long is taken for dead. */
export const holdMs = 30_000

export async function moveTenant(
  { placements, directory }: { placements: Placements; directory: Directory },
  tenant: string,
  to: string,
  options: MoveTenantOptions = {},
): Promise<MovedTenant> {
  const mover = randomId()
  const lost = new AbortController()
  const signal = options.signal === undefined ? lost.signal : AbortSignal.any([lost.signal, options.signal])
  let placement = await directory.hold(tenant, mover, holdMs)
  const prolonging = openLoop({
    look: async () => void (await directory.hold(tenant, mover, holdMs)),
    pollMs: holdMs / 3,
    onFailure: error => lost.abort(error),
  })
  prolonging.lookIn(holdMs / 3)
  try {
    if (placement.to !== undefined && placement.to !== to) placement = await endEarlierMove(placement)
    if (placement.to === undefined && placement.server === to) return movedTenant(placement, undefined)
    if (placement.to === undefined) placement = await directory.beginMove(tenant, mover, to)
    throwIfAborted(signal)
    const move = await moveOf(placement)
    const moved = await carryOut(move)
    const ended = await directory.endMove(tenant, mover, true)
    if (options.keepSource !== true) await dropRetired(move)
    return movedTenant(ended, moved)
  } finally {
    await prolonging.stop()
    await directory.release(tenant, mover).catch(() => {})
  }

  async function carryOut(move: Move): Promise<MoveResult | undefined> {
    const state = await readState(move)
    if (state === 'active') return undefined
    if (state === 'switched') {
      await activate(move)
      return undefined
    }
    const { onProgress, maxPauseMs = 10_000 } = options
    // A mover that has lost its hold must not be the one that takes the tenant away.
    const beforeRelease = async (): Promise<void> => void (await directory.hold(tenant, mover, holdMs))
    try {
      return await switchOver(move, { onProgress, maxPauseMs, signal, beforeRelease })
    } catch (error) {
      // If an answer was lost, the error does not say whether the old server has given the tenant up.
      const reached = await readState(move)
      if (reached === 'switched') await activate(move)
      else if (reached !== 'active') throw error
      return undefined
    }
  }

  /** An earlier move to another server is completed or discarded first. */
  async function endEarlierMove(earlier: MovablePlacement): Promise<MovablePlacement> {
    const move = await moveOf(earlier)
    const state = await readState(move)
    const hasSwitched = state === 'switched' || state === 'active'
    if (state === 'switched') await activate(move)
    else if (!hasSwitched) await discard(move)
    const ended = await directory.endMove(tenant, mover, hasSwitched)
    if (hasSwitched) await dropRetired(move)
    return ended
  }

  async function moveOf({ server, schema, to: target }: MovablePlacement): Promise<Move> {
    const [source, other] = await Promise.all([placements.databaseOf(server), placements.databaseOf(target!)])
    return { source: { database: source, schema }, target: { database: other, schema }, ...moveNames(schema) }
  }
}

function movedTenant({ to: _, ...placement }: MovablePlacement, moved: MoveResult | undefined): MovedTenant {
  return { ...placement, moved }
}
