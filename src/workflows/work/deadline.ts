/** When the time of an execution is over, waits included: `deadlineMs` after its event. */

import type { Handler } from '../handler.ts'
import type { Claimed } from './claim.ts'

/** By `performance.now()`; undefined if it has no deadline. Only the database's clock knows, and has told with the claim. */
export function expiryOf({ claimedAt, leftMs, beyondRankMs }: Claimed, { deadlineMs }: Handler): number | undefined {
  const ms = beyondRankMs === undefined ? deadlineMs : leftMs
  return ms === undefined ? undefined : claimedAt + ms
}

/** What waits for longer is due when its time is over, so that it fails then. */
export function byExpiry(delayMs: number, expiresAt: number | undefined): number {
  return expiresAt === undefined ? delayMs : Math.min(delayMs, Math.max(0, expiresAt - performance.now()))
}
