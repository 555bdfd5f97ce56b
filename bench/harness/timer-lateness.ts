/** How late timers fire while something else keeps the thread busy. */
export interface LatenessWatch {
  /** The worst so far, in milliseconds. A timer that is overdue at this very moment counts. */
  worst(): number
  stop(): void
}

const everyMs = 5

export function watchLateness(): LatenessWatch {
  let worst = 0
  let due = 0
  let timer: NodeJS.Timeout
  const look = (): void => {
    worst = Math.max(worst, performance.now() - due)
  }
  const next = (): void => {
    due = performance.now() + everyMs
    timer = setTimeout(() => {
      look()
      next()
    }, everyMs)
  }
  next()
  return {
    worst() {
      look()
      return worst
    },
    stop: () => clearTimeout(timer),
  }
}
