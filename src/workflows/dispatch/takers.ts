/**
 * Workers that take what is dispatched in their own process as it is dispatched, without a claim. One that has room offers
 * it, under a fence; what the dispatcher has begun for it in the database is handed over when that is committed.
 */
import type { Claimed } from '../work/claim.ts'

export interface Taker {
  /** Undefined if it has no room. Each offer is ended once. */
  offer(): Promise<Offer | undefined>
}

export interface Offer {
  readonly owner: string
  /** One that nobody had before: see `fences.ts`. */
  readonly fence: number
  readonly routes: readonly number[]
  readonly limit: number
  /** How much longer than its timeout an attempt may last before others take it for lost. */
  readonly graceMs: number
  /** With what has begun; whatever else has, unknown to us, is found by the worker's next look and given back. */
  end(begun: readonly Claimed[]): void
}

/** Of the workers that have room, the one whose last offer is longest ago. */
export async function nextOffer(takers: Set<Taker>): Promise<Offer | undefined> {
  for (const taker of [...takers]) {
    const offer = await taker.offer()
    if (offer === undefined) continue
    takers.delete(taker)
    takers.add(taker)
    return offer
  }
  return undefined
}
