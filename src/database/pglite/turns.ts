/**
 * Turns: a fair queue of bounded length in front of something that only one caller may use at a time.
 *
 *     const end = await turns.take()
 *     try { … } finally { end() }
 *
 * It hands out turns instead of running functions, so that the work of a caller in its turn stays in the caller's own
 * asynchronous context.
 */

import { abortError, deferred, onAbort, throwIfAborted } from '../../core/abort.ts'
import { Overloaded } from '../../core/errors.ts'

export interface Turns {
  /** Resolves when it is the caller's turn, with the function that ends the turn. */
  take(signal?: AbortSignal): Promise<() => void>
  /** How many callers wait, without the one that has the turn. */
  readonly waiting: number
  readonly isFree: boolean
  /** Refuses new callers from now on. Callers that wait keep their place. */
  refuseNew(refuse: () => Error): void
  /** Rejects all callers that wait. */
  rejectWaiting(refuse: () => Error): void
  /** Resolves when no caller waits and none has the turn. */
  whenFree(): Promise<void>
}

export function openTurns(name: string, limit: number, onFree: () => void = () => {}): Turns {
  // Insertion order is the order of turns, and a caller that gives up is removed wherever it stands.
  const waiters = new Set<{ start(): void; refuse(error: Error): void }>()
  const freeListeners: (() => void)[] = []
  let isTaken = false
  let refusal: (() => Error) | undefined

  const takeNow = (): (() => void) => {
    isTaken = true
    let hasEnded = false
    return () => {
      if (hasEnded) return
      hasEnded = true
      isTaken = false
      const [next] = waiters
      if (next !== undefined) return next.start()
      for (const listener of freeListeners.splice(0)) listener()
      onFree()
    }
  }

  const wait = (signal?: AbortSignal): Promise<() => void> => {
    const turn = deferred<() => void>()
    const remove = (): void => {
      waiters.delete(waiter)
      release?.()
    }
    const waiter = {
      start() {
        remove()
        turn.resolve(takeNow())
      },
      refuse(error: Error) {
        remove()
        turn.reject(error)
      },
    }
    waiters.add(waiter)
    const release = signal && onAbort(signal, () => waiter.refuse(abortError(signal)))
    return turn.promise
  }

  return {
    async take(signal) {
      throwIfAborted(signal)
      if (refusal !== undefined) throw refusal()
      if (!isTaken) return takeNow()
      if (waiters.size >= limit) throw new Overloaded({ queue: name, limit })
      return wait(signal)
    },
    get waiting() {
      return waiters.size
    },
    get isFree() {
      return !isTaken
    },
    refuseNew(refuse) {
      refusal ??= refuse
    },
    rejectWaiting(refuse) {
      for (const waiter of waiters) waiter.refuse(refuse())
    },
    whenFree: () => (isTaken ? new Promise<void>(resolve => void freeListeners.push(resolve)) : Promise.resolve()),
  }
}
