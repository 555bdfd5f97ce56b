/**
 * Moving a tenant to another server of the directory.
 *
 *     hold ─► begin ─► copy, switch over (`moving/`) ─► end ─► what is left on the old server is dropped
 *
 * Interrupted anywhere, it is gone on with by the next call for the same server, and rolled back by one for the server where
 * the tenant is; once the old server has given it up it can only go on. What was done is read from the two servers, never
 * from what a mover remembers.
 */
import { randomUUID } from 'node:crypto'
import { throwIfAborted } from '../core/lifecycle.ts'
import { activate, discard, dropRetired } from '../transfer/move/incoming.ts'
import type { Move, MoveProgress } from '../transfer/move/move.ts'
import { stateOf } from '../transfer/move/state.ts'
import { type Switched, switchOver } from '../transfer/move/switch.ts'
import type { Directory, Journey } from './directory.ts'
import type { Placement, Placements } from './placement.ts'
import { passingNames } from './tenant-name.ts'

export interface MoveTenantOptions {
  onProgress?: ((progress: MoveProgress) => void) | undefined
  signal?: AbortSignal | undefined
  /** The longest that writers may have to wait; a move that would take longer does not happen. Default 10 000. */
  pauseMs?: number | undefined
  /** Keeps what was copied on the old server, under another name, until it moves away from there again. Default false. */
  keepSource?: boolean | undefined
}

export interface MovedTenant extends Placement {
  /** What was copied, and how long nobody could write; undefined if the tenant was there already. */
  readonly moved: Switched | undefined
}

/** A mover that is not heard of for so long has died. */
export const holdMs = 30_000

export async function moveTenant(
  { placements, directory }: { placements: Placements; directory: Directory },
  tenant: string,
  to: string,
  options: MoveTenantOptions = {},
): Promise<MovedTenant> {
  const mover = randomUUID()
  const lost = new AbortController()
  const signal = options.signal === undefined ? lost.signal : AbortSignal.any([lost.signal, options.signal])
  let journey = await directory.hold(tenant, mover, holdMs)
  const prolong = setInterval(() => {
    directory.hold(tenant, mover, holdMs).catch(error => lost.abort(error))
  }, holdMs / 3)
  try {
    if (journey.to !== undefined && journey.to !== to) journey = await clearAway(journey)
    if (journey.to === undefined && journey.server === to) return placedAt(journey, undefined)
    if (journey.to === undefined) journey = await directory.begin(tenant, mover, to)
    throwIfAborted(signal)
    const move = await moveOf(journey)
    const moved = await carryOut(move)
    const ended = await directory.end(tenant, mover, true)
    if (options.keepSource !== true) await dropRetired(move)
    return placedAt(ended, moved)
  } finally {
    clearInterval(prolong)
    await directory.release(tenant, mover).catch(() => {})
  }

  async function carryOut(move: Move): Promise<Switched | undefined> {
    const state = await stateOf(move)
    if (state === 'active') return undefined
    if (state === 'switched') {
      await activate(move)
      return undefined
    }
    const { onProgress, pauseMs = 10_000 } = options
    // Whoever has lost hold of the tenant must not be the one to take it away.
    const beforeRelease = async (): Promise<void> => void (await directory.hold(tenant, mover, holdMs))
    try {
      return await switchOver(move, { onProgress, pauseMs, signal, beforeRelease })
    } catch (error) {
      // An answer that was lost does not tell whether the old server has given it up.
      const reached = await stateOf(move)
      if (reached === 'switched') await activate(move)
      else if (reached !== 'active') throw error
      return undefined
    }
  }

  /** An earlier move to another server ends first, one way or the other. */
  async function clearAway(earlier: Journey): Promise<Journey> {
    const move = await moveOf(earlier)
    const state = await stateOf(move)
    const isGivenUp = state === 'switched' || state === 'active'
    if (state === 'switched') await activate(move)
    else if (!isGivenUp) await discard(move)
    const ended = await directory.end(tenant, mover, isGivenUp)
    if (isGivenUp) await dropRetired(move)
    return ended
  }

  async function moveOf({ server, schema, to: target }: Journey): Promise<Move> {
    const [source, other] = await Promise.all([placements.databaseOf(server), placements.databaseOf(target!)])
    return { source: { database: source, schema }, target: { database: other, schema }, ...passingNames(schema) }
  }
}

function placedAt({ to: _, ...placement }: Journey, moved: Switched | undefined): MovedTenant {
  return { ...placement, moved }
}
