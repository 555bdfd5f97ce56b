/**
 * A fair line of bounded length in front of something only one may use at a time.
 *
 *     const leave = await line.enter()
 *     try { … } finally { leave() }
 *
 * It hands out turns instead of running functions, so that what a caller does in its turn stays in the caller's own
 * asynchronous context.
 */
import { Overloaded } from '../../core/errors.ts'
import { abortError, deferred, onAbort, throwIfAborted } from '../../core/lifecycle.ts'

export interface Line {
  /** Resolves when it is the caller's turn, with the function that ends the turn. */
  enter(signal?: AbortSignal): Promise<() => void>
  /** How many wait, not counting the one whose turn it is. */
  readonly waiting: number
  readonly isFree: boolean
  /** Lets nobody else in; those who wait keep their place. */
  shut(refuse: () => Error): void
  /** Sends away all who wait. */
  dismiss(refuse: () => Error): void
  /** Resolves when nobody waits and nobody is inside. */
  empty(): Promise<void>
}

export function formLine(name: string, limit: number, onFree: () => void = () => {}): Line {
  // Insertion order is the order of turns, and who gives up is taken out wherever he stands.
  const waiters = new Set<{ start(): void; refuse(error: Error): void }>()
  const watchers: (() => void)[] = []
  let isTaken = false
  let refusal: (() => Error) | undefined

  const takeTurn = (): (() => void) => {
    isTaken = true
    let hasLeft = false
    return () => {
      if (hasLeft) return
      hasLeft = true
      isTaken = false
      const [next] = waiters
      if (next !== undefined) return next.start()
      for (const tell of watchers.splice(0)) tell()
      onFree()
    }
  }

  const wait = (signal?: AbortSignal): Promise<() => void> => {
    const turn = deferred<() => void>()
    const stepOut = (): void => {
      waiters.delete(waiter)
      release?.()
    }
    const waiter = {
      start() {
        stepOut()
        turn.resolve(takeTurn())
      },
      refuse(error: Error) {
        stepOut()
        turn.reject(error)
      },
    }
    waiters.add(waiter)
    const release = signal && onAbort(signal, () => waiter.refuse(abortError(signal)))
    return turn.promise
  }

  return {
    async enter(signal) {
      throwIfAborted(signal)
      if (refusal !== undefined) throw refusal()
      if (!isTaken) return takeTurn()
      if (waiters.size >= limit) throw new Overloaded({ queue: name, limit })
      return wait(signal)
    },
    get waiting() {
      return waiters.size
    },
    get isFree() {
      return !isTaken
    },
    shut(refuse) {
      refusal ??= refuse
    },
    dismiss(refuse) {
      for (const waiter of waiters) waiter.refuse(refuse())
    },
    empty: () => (isTaken ? new Promise<void>(tell => void watchers.push(tell)) : Promise.resolve()),
  }
}
