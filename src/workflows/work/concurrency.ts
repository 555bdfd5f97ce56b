/**
 * Sharing concurrency: a limit on how many handlers run at once, over the workers of many stores, divided fairly. While
 * several workers want more than there is, each has the same share, and the one that has least gets the next free place.
 *
 *     share = shareConcurrency(16)
 *     worker 1: share() ─► free() ─► acquire ─► … ─► release ─► onFree of the workers that wait
 */
export interface ConcurrencyShare {
  /** How many more handlers this worker may run now. A worker that is given 0 counts as waiting. */
  free(): number
  acquire(): void
  release(): void
  /** Calls `listener` when a place may be free, until the function returned is called; then the worker no longer waits. */
  onFree(listener: () => void): () => void
}

/** Each call of the function returned makes the share of one more worker. */
export function shareConcurrency(total: number): () => ConcurrencyShare {
  interface Sharer {
    taken: number
    isWaiting: boolean
    listener: (() => void) | undefined
  }
  const sharers = new Set<Sharer>()
  let taken = 0

  const callWaiting = (): void => {
    for (const sharer of [...sharers].sort((a, b) => a.taken - b.taken)) if (sharer.isWaiting) sharer.listener?.()
  }

  return () => {
    const sharer: Sharer = { taken: 0, isWaiting: false, listener: undefined }
    return {
      free() {
        const active = [...sharers].filter(each => each === sharer || each.taken > 0 || each.isWaiting).length
        const share = Math.max(1, Math.floor(total / Math.max(1, active)))
        const free = Math.max(0, Math.min(total - taken, share - sharer.taken))
        sharer.isWaiting = free === 0
        return free
      },
      acquire() {
        sharer.taken++
        taken++
      },
      release() {
        sharer.taken--
        taken--
        queueMicrotask(callWaiting)
      },
      onFree(listener) {
        sharer.listener = listener
        sharers.add(sharer)
        return () => sharers.delete(sharer)
      },
    }
  }
}
