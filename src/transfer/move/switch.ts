/** The moment in which a store changes its owner. */
import type { Transaction } from '../../database/database.ts'
import { identifier } from '../../database/sql.ts'
import { catchUp } from './catch-up.ts'
import { claimed } from './claim.ts'
import { claimIncoming, dropEarlier, useIncoming } from './incoming.ts'
import type { Copied, Move, MoveProgress } from './move.ts'
import { closeDoor } from './moved-marker.ts'
import { lastPass, newMover } from './pass.ts'
import { carrySequences } from './sequences.ts'
import { type FenceOptions, fenced } from './stop-writers.ts'

export interface SwitchOptions extends FenceOptions {
  onProgress?: ((progress: MoveProgress) => void) | undefined
  /**
   * Called when both sides are equal and the source is about to give the store up. If it fails, the source keeps it. It
   * runs inside a transaction of the source, so it must not use that database.
   */
  beforeRelease?: (() => Promise<void>) | undefined
}

export interface Switched extends Copied {
  /** How long nobody could write. */
  readonly pausedMs: number
}

/** Copies what is left, stops the writers, copies the rest, and puts the target into use in the source's place. */
export async function switchOver(move: Move, options: SwitchOptions = {}): Promise<Switched> {
  const { signal, onProgress, beforeRelease } = options
  const claim = await claimIncoming(move, signal)
  await dropEarlier(move, signal)
  const mover = newMover(move, claim, onProgress)
  const copied = await catchUp(mover)
  let pausedAt = 0
  const last = await fenced(move.source, options, async ({ tx, signal, since }) => {
    pausedAt = since
    const passed = await claimed(move, { ...claim, signal }, async target => {
      const last = await lastPass(mover, tx, target)
      await carrySequences(tx, move, target)
      return last
    })
    // What the target has is committed before the source gives it up.
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
    pausedMs: performance.now() - pausedAt,
  }
}

/** From the commit of this on nothing can be written under the old name. */
async function release(tx: Transaction, { source, retired }: Move): Promise<void> {
  await tx.query(`alter schema ${identifier(source.schema)} rename to ${identifier(retired)}`)
  await closeDoor(tx, source.schema)
}
