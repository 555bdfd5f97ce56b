/** A clock and ids that a test controls, so that every run is the same. */
import type { Clock } from '../core/clock.ts'
import type { Ids } from '../core/id.ts'

/**
 * A clock that stands still until `advance` moves it.
 *
 * @example
 * ```ts
 * const clock: FakeClock = fakeClock('2030-01-01T00:00:00Z')
 * clock.advance(60_000)
 * ```
 */
export interface FakeClock extends Clock {
  /** Moves the time on and runs the timers that are due, in their order. */
  advance(ms: number): void
}

/**
 * A clock for `openStore({ clock })` that stands still until the test moves it.
 *
 * @example
 * ```ts
 * const clock = fakeClock('2030-01-01')
 * clock.advance(60_000)
 * console.log(clock.now().toISOString())
 * ```
 */
export function fakeClock(start: Date | string = '2030-01-01T00:00:00.000Z'): FakeClock {
  let now = new Date(start).getTime()
  const timers = new Set<{ at: number; fn: () => void }>()
  return {
    now: () => new Date(now),
    setTimeout(fn, ms) {
      const timer = { at: now + Math.max(0, ms), fn }
      timers.add(timer)
      return { cancel: () => void timers.delete(timer) }
    },
    advance(ms) {
      const end = now + ms
      for (;;) {
        const due = [...timers].filter(timer => timer.at <= end).sort((a, b) => a.at - b.at)[0]
        if (due === undefined) break
        timers.delete(due)
        now = due.at
        due.fn()
      }
      now = end
    },
  }
}

/**
 * Valid UUIDs that count up from 1.
 *
 * @example
 * ```ts
 * await using shop = await testStore({ events, ids: countingIds() })
 * ```
 */
export function countingIds(): Ids {
  let count = 0
  return {
    next: () => `00000000-0000-7000-8000-${(++count).toString(16).padStart(12, '0')}`,
  }
}
