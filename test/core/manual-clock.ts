/** A clock moved by the test: timers fire, in order, when it is moved past them. */
import type { Clock } from '../../src/core/clock.ts'

export function manualClock(startMs = 0): ManualClock {
  const timers = new Set<{ at: number; fn: () => void }>()
  let nowMs = startMs
  return {
    now: () => new Date(nowMs),
    setTimeout(fn, ms) {
      const timer = { at: nowMs + ms, fn }
      timers.add(timer)
      return { cancel: () => timers.delete(timer) }
    },
    set: ms => {
      nowMs = ms
    },
    async advance(ms) {
      nowMs += ms
      for (const timer of [...timers].filter(each => each.at <= nowMs).sort((a, b) => a.at - b.at)) {
        timers.delete(timer)
        timer.fn()
      }
      await new Promise(setImmediate)
    },
    pending: () => [...timers].map(timer => timer.at - nowMs),
  }
}

export interface ManualClock extends Clock {
  set(ms: number): void
  /** Moves the clock, then waits until everything that this triggered has settled. */
  advance(ms: number): Promise<void>
  /** The remaining time of each waiting timer. */
  pending(): number[]
}
