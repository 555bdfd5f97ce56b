/**
 * Time, as something that can be replaced.
 *
 * Code that waits takes its timers from a `Clock`, so that a test can move the time instead of sleeping. The clock of this
 * process never decides which process owns a lease or when an event was stored: for that only the database's clock counts.
 *
 * Limits of time, and times that users give, are those of the store's clock. A pause between two tries or two looks is not:
 * with a clock that stands still it would never end, so it is taken from `systemClock`.
 */
import { hostNow, startHostTimer } from './host.ts'

export const systemClock: Clock = {
  now: () => new Date(hostNow()),
  setTimeout: startHostTimer,
}

/**
 * The time and the timers of a store in this process.
 *
 * @example
 * ```ts
 * const fixed: Clock = {
 *   now: () => new Date('2030-01-01'),
 *   setTimeout: (fn, ms) => {
 *     const timer = setTimeout(fn, ms)
 *     return { cancel: () => clearTimeout(timer) }
 *   },
 * }
 * ```
 */
export interface Clock {
  now(): Date
  /** Calls `fn` once, `ms` milliseconds from now, unless it is cancelled before. */
  setTimeout(fn: () => void, ms: number): Timer
}

export interface Timer {
  /** May be called at any time and more than once. */
  cancel(): void
  /** Lets the process end while the timer waits. A clock without real timers does not need it. */
  unref?(): void
}
