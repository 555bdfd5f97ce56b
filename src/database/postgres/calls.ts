/**
 * The calls that are running, and one watchdog for the time limits of all of them: a timer for each statement would cost
 * more than the rest of its bookkeeping.
 *
 * Closing the database waits for them; those that take too long are rejected then, because a pool that ends forgets the
 * callers that wait for a connection.
 */
import { type Deferred, deferred } from '../../core/abort.ts'

export interface RunningCalls {
  /** A call begins. `reject` answers its caller if the database is closed before it has ended. */
  begin(reject: (error: Error) => void): RunningCall
  /** The call is over, however it ended: its limit no longer counts. */
  end(call: RunningCall): void
  /** `giveUp` is called once after `limitMs`, unless the call has ended. */
  limit(call: RunningCall, limitMs: number, giveUp: () => void): void
  /** The same for work that has limits of its own. */
  track<T>(call: () => Promise<T>): Promise<T>
  /** Resolves when no call is running, or after `limitMs`. */
  whenIdle(limitMs: number): Promise<void>
  /** Rejects all calls that are still running. */
  rejectAll(error: Error): void
}

export interface RunningCall {
  readonly reject: (error: Error) => void
  /** On the clock of `performance.now`. */
  limitAt: number
  giveUp: (() => void) | undefined
}

export function openRunningCalls(): RunningCalls {
  const running = new Set<RunningCall>()
  let idle: Deferred<void> | undefined
  let timer: NodeJS.Timeout | undefined
  /** When the watchdog looks next. A call that ends leaves the timer as it is, so nearly all calls do. */
  let looksAt = Number.POSITIVE_INFINITY

  const lookAt = (at: number): void => {
    clearTimeout(timer)
    looksAt = at
    timer = setTimeout(look, Math.max(0, at - performance.now()))
    timer.unref()
  }

  const look = (): void => {
    looksAt = Number.POSITIVE_INFINITY
    const now = performance.now()
    let next = Number.POSITIVE_INFINITY
    for (const call of running) {
      if (call.limitAt > now) {
        next = Math.min(next, call.limitAt)
        continue
      }
      call.limitAt = Number.POSITIVE_INFINITY
      call.giveUp?.()
    }
    if (next < looksAt) lookAt(next)
  }

  const begin = (reject: (error: Error) => void): RunningCall => {
    const call: RunningCall = { reject, limitAt: Number.POSITIVE_INFINITY, giveUp: undefined }
    running.add(call)
    return call
  }

  const end = (call: RunningCall): void => {
    call.limitAt = Number.POSITIVE_INFINITY
    if (running.delete(call) && running.size === 0) idle?.resolve()
  }

  return {
    begin,
    end,
    limit(call, limitMs, giveUp) {
      call.limitAt = performance.now() + limitMs
      call.giveUp = giveUp
      if (call.limitAt < looksAt) lookAt(call.limitAt)
    },
    track: work =>
      new Promise((resolve, reject) => {
        const call = begin(reject)
        work().then(
          value => {
            end(call)
            resolve(value)
          },
          error => {
            end(call)
            reject(error)
          },
        )
      }),
    async whenIdle(limitMs) {
      if (running.size === 0) return
      idle = deferred<void>()
      const timer = setTimeout(idle.resolve, limitMs)
      await idle.promise
      clearTimeout(timer)
    },
    rejectAll(error) {
      for (const call of running) call.reject(error)
    },
  }
}
