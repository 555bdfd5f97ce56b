import type { Clock } from '../core/clock.ts'

/** A clock that stands still until it is told to go on. */
export interface FakeClock extends Clock {
  /** Moves time on and runs the timers that fall due, in their order. */
  advance(ms: number): void
}

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
