/**
 * How many handlers may run at once, over the workers of many stores, and fairly: while several want more than there is,
 * each has the same share, and one that has less gets the next seat that is free.
 */
export interface Seats {
  /** How many more may sit down now. Who is told that there is none is taken to want one. */
  free(): number
  sit(): void
  rise(): void
  /** Calls back when there may be a free one, until the function returned is called; then it wants none any more. */
  onFree(hear: () => void): () => void
}

/** Each call gives the seats of one more worker. */
export function shareSeats(total: number): () => Seats {
  interface Guest {
    taken: number
    wants: boolean
    hear: (() => void) | undefined
  }
  const guests = new Set<Guest>()
  let taken = 0

  const tell = (): void => {
    for (const guest of [...guests].sort((a, b) => a.taken - b.taken)) if (guest.wants) guest.hear?.()
  }

  return () => {
    const guest: Guest = { taken: 0, wants: false, hear: undefined }
    return {
      free() {
        const hungry = [...guests].filter(each => each === guest || each.taken > 0 || each.wants).length
        const share = Math.max(1, Math.floor(total / Math.max(1, hungry)))
        const free = Math.max(0, Math.min(total - taken, share - guest.taken))
        guest.wants = free === 0
        return free
      },
      sit() {
        guest.taken++
        taken++
      },
      rise() {
        guest.taken--
        taken--
        queueMicrotask(tell)
      },
      onFree(hear) {
        guest.hear = hear
        guests.add(guest)
        return () => guests.delete(guest)
      },
    }
  }
}
