/**
 * Time, as something that can be replaced.
 *
 * Code that waits takes its timers from a `Clock`, so that a test can move the time instead of sleeping. The clock of this
 * process never decides which process owns a lease or when an event was stored: for that only the database's clock counts.
 */
export const systemClock: Clock = {
  now: () => new Date(),
  setTimeout: startTimer,
}

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

/** Node fires a longer timer at once, so a longer wait is made of several timers. */
const maxTimerMs = 2 ** 31 - 1

function startTimer(fn: () => void, ms: number): Timer {
  let isHeld = true
  let handle: NodeJS.Timeout
  const wait = (left: number): void => {
    handle = left > maxTimerMs ? setTimeout(wait, maxTimerMs, left - maxTimerMs) : setTimeout(fn, left)
    if (!isHeld) handle.unref()
  }
  wait(ms)
  return {
    cancel: () => clearTimeout(handle),
    unref: () => {
      isHeld = false
      handle.unref()
    },
  }
}
