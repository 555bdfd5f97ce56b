/**
 * How many messages a feed gets: bursts pass whole, and a flood is cut. No person reads thousands of events a second, and each
 * of them would be encoded for each page, on the thread of the application.
 *
 *     messages ──► room for some hundred, filled again slowly ──► passed
 *                            └── empty: a flood ──► a gap, and the feed continues now, after a pause
 */
import { elapsedMs } from '../../core/host.ts'

const burst = 400
const perSecond = 100

/** How long a feed rests after a flood. */
export const floodPauseMs = 3_000

export interface Pace {
  /** Whether one more message may pass. */
  take(): boolean
}

export function openPace(clockMs: () => number = elapsedMs): Pace {
  let room = burst
  let at = clockMs()
  return {
    take() {
      const time = clockMs()
      room = Math.min(burst, room + ((time - at) * perSecond) / 1000)
      at = time
      if (room < 1) return false
      room--
      return true
    },
  }
}
