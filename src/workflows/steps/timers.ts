/** Sleeping: a moment in memory, longer without a worker. */
import { InvalidOption } from '../../core/errors.ts'
import type { Attempt } from './attempt.ts'

/** A hundred years: what is longer is a mistake. */
const longestMs = 100 * 365 * 24 * 3600 * 1000

export async function sleepFor(attempt: Attempt, name: string, ms: number): Promise<void> {
  checkMs('ms', ms)
  return attempt.call('sleep', name, call => attempt.wait(call, { dueAt: attempt.dueAt(call, ms) }))
}

export function checkMs(option: string, ms: number): void {
  if (typeof ms === 'number' && ms >= 0 && ms <= longestMs) return
  throw new InvalidOption({ option, reason: `must be milliseconds from 0 to a hundred years, not ${String(ms)}` })
}
