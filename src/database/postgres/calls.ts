/**
 * Calls under way. Closing waits for them; those that take too long are answered then, because the pool itself forgets
 * who still waits for a connection once it is told to end.
 */
import { deferred } from '../../core/lifecycle.ts'

export interface Calls {
  track<T>(call: () => Promise<T>): Promise<T>
  /** Resolves when no call is under way, or after `limitMs`. */
  quiet(limitMs: number): Promise<void>
  /** Rejects all that are still under way. */
  end(error: Error): void
}

export function trackCalls(): Calls {
  const waiting = new Set<(error: Error) => void>()
  let quiet: ReturnType<typeof deferred<void>> | undefined
  const leave = (reject: (error: Error) => void): void => {
    waiting.delete(reject)
    if (waiting.size === 0) quiet?.resolve()
  }
  return {
    track: call =>
      new Promise((resolve, reject) => {
        waiting.add(reject)
        call().then(
          value => {
            leave(reject)
            resolve(value)
          },
          error => {
            leave(reject)
            reject(error)
          },
        )
      }),
    async quiet(limitMs) {
      if (waiting.size === 0) return
      quiet = deferred<void>()
      const timer = setTimeout(quiet.resolve, limitMs)
      await quiet.promise
      clearTimeout(timer)
    },
    end(error) {
      for (const reject of waiting) reject(error)
    },
  }
}
