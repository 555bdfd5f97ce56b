/**
 * Time, as one thing that can be replaced.
 *
 * Whatever waits takes its timers from a `Clock`, so a test moves time by hand instead of sleeping. The clock of this
 * process never decides who owns a lease or when an event was stored: for that only the database's clock counts.
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
  /** Lets the process end while the timer waits. A clock without real timers need not have it. */
  unref?(): void
}

/** Node fires a longer timer at once, as if it were due; longer waits are made of several. */
const longestMs = 2 ** 31 - 1

function startTimer(fn: () => void, ms: number): Timer {
  let isHeld = true
  let handle: NodeJS.Timeout
  const wait = (left: number): void => {
    handle = left > longestMs ? setTimeout(wait, longestMs, left - longestMs) : setTimeout(fn, left)
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
