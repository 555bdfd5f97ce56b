/** How late timers fire while other work keeps the thread busy. */
export interface TimerWatch {
  /** The worst so far, in milliseconds. A timer that is overdue at this very moment counts. */
  worst(): number
  stop(): void
}

const everyMs = 5

export function watchTimers(): TimerWatch {
  let worst = 0
  let due = 0
  let timer: NodeJS.Timeout
  const measure = (): void => {
    worst = Math.max(worst, performance.now() - due)
  }
  const next = (): void => {
    due = performance.now() + everyMs
    timer = setTimeout(() => {
      measure()
      next()
    }, everyMs)
  }
  next()
  return {
    worst() {
      measure()
      return worst
    },
    stop: () => clearTimeout(timer),
  }
}
