/**
 * The newest events that this process has appended, by position: followers near the end of the log take them from here
 * instead of reading them back. A part of the log that is not whole here is read.
 */

/** One event that is in the log. */
export interface CommittedEvent {
  readonly position: number
  /** The columns of `eventColumns`, in their order. */
  readonly row: unknown[]
  readonly bytes: number
}

export interface RecentEvents {
  add(events: readonly CommittedEvent[]): void
  has(position: number): boolean
  /** The events after `after` up to `to`; undefined if one of these positions is not here. */
  between(after: number, to: number): readonly CommittedEvent[] | undefined
  /** They may no longer be in the log. */
  forget(): void
}

const maxEvents = 2_000
const maxBytes = 4 * 1024 * 1024

export function recentEvents(): RecentEvents {
  const kept = new Map<number, CommittedEvent>()
  let keptBytes = 0
  const drop = (position: number): void => {
    keptBytes -= kept.get(position)?.bytes ?? 0
    kept.delete(position)
  }
  return {
    add(events) {
      for (const event of events) {
        drop(event.position)
        kept.set(event.position, event)
        keptBytes += event.bytes
      }
      for (const [position] of kept) {
        if (kept.size <= maxEvents && keptBytes <= maxBytes) break
        drop(position)
      }
    },
    has: position => kept.has(position),
    between(after, to) {
      if (to - after > kept.size) return undefined
      const events: CommittedEvent[] = []
      for (let position = after + 1; position <= to; position++) {
        const event = kept.get(position)
        if (event === undefined) return undefined
        events.push(event)
      }
      return events
    },
    forget() {
      kept.clear()
      keptBytes = 0
    },
  }
}
