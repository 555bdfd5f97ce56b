/**
 * What becomes of due times that have passed: nobody ran the schedule, or a run took longer than it is from one due time to
 * the next. The latest one that has come is still on time for a while; all others were missed.
 */
import type { DueTimes } from './times.ts'

/**
 * - `'once'`: one run for all that were missed, at the latest of them.
 * - `'all'`: one run for each, the oldest first; of more than a thousand only the newest thousand.
 * - `'skip'`: none; it goes on with the next one.
 */
export type Missed = 'once' | 'all' | 'skip'

export interface Choice {
  readonly dueAt: Date
  /** Whether it is only to be recorded that it was left out. */
  readonly isSkipped: boolean
}

/** The most due times that are made up for. */
export const mostCaughtUp = 1_000

/** How late the latest one may be and still not count as missed. */
export const toleranceMs = 60_000

const pageSize = 50

/** The due time that is to be run, of those from `dueAt` until now. */
export async function chooseDue(times: DueTimes, missed: Missed, dueAt: Date, now: Date): Promise<Choice> {
  const next = times.next(dueAt)
  const latest = next === undefined || next > now ? dueAt : times.latest(dueAt, now)
  if (missed === 'all') return { dueAt: await oldestKept(times, dueAt, latest), isSkipped: false }
  const isLate = now.getTime() - latest.getTime() > toleranceMs
  return { dueAt: latest, isSkipped: missed === 'skip' && isLate }
}

/** Looked for from the end, and in pages: a due time of a cron expression takes a quarter of a millisecond to find. */
async function oldestKept(times: DueTimes, dueAt: Date, latest: Date): Promise<Date> {
  let oldest = latest
  for (let kept = 1; oldest > dueAt && kept < mostCaughtUp; ) {
    const page = times.before(oldest, Math.min(pageSize, mostCaughtUp - kept))
    for (const at of page) {
      if (at <= dueAt) return dueAt
      oldest = at
    }
    if (page.length === 0) return dueAt
    kept += page.length
    await new Promise(resolve => setImmediate(resolve))
  }
  return oldest
}
