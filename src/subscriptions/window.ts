/**
 * The events that one partition has read and not completed, in memory: which may be delivered next, and up to which
 * position all are completed. It uses no database, and no clock of its own.
 *
 *     add ─► ready ─take─► out ─complete─► done ─(all below are done)─► forgotten
 *                           │ ▲
 *                    giveBack │ take, when it is due
 *                           ▼ │
 *                         waiting        its key is held: later events of it stay ready
 *
 * Invariant: the events that were delivered and not forgotten (out, waiting, done above one that is not) are never more
 * than the limit. So there are never more unacknowledged events, nor rows beyond the checkpoint, than that.
 */
import type { RecordedEvent } from '../events/definition.ts'

export interface Entry {
  readonly event: RecordedEvent
  /** Events of one key are delivered in their order. */
  readonly key: string
  /** Why it cannot be delivered. */
  readonly fault: unknown
  /** How much of the memory it takes, about. */
  readonly bytes: number
  state: 'ready' | 'out' | 'waiting' | 'done'
  /** How often it has been delivered. */
  deliveries: number
  dueAt: number
}

/** The record of an event by an earlier holder. */
export interface Remnant {
  readonly isDone: boolean
  readonly deliveries: number
  readonly dueAt: number
}

export interface Window {
  /** Everything up to here has been read. */
  readonly readTo: number
  /** Everything up to here is done. */
  readonly checkpoint: number
  /** Events that are out. */
  readonly out: number
  /** How many more events may be added. */
  readonly room: number
  /** How much its events take, about, until they are forgotten. */
  readonly bytes: number
  /** Never more delivered than this; may change at any time. */
  limit: number
  /** Deliveries that are not in the window, of dead letters; they count, too. */
  extra: number
  add(event: RecordedEvent, key: string, fault?: unknown, bytes?: number): void
  /** Every wanted event up to here was added. */
  reach(position: number): void
  /** Only up to here has been read after all; events that were added stay. */
  goBack(position: number): void
  /** The event to deliver next, if there is one that may be. With `alone`, none of a key that is out. */
  take(now: number, alone: boolean): Entry | undefined
  /** When the next one that waits is due. */
  nextDue(): number | undefined
  complete(entry: Entry): void
  giveBack(entry: Entry, dueAt: number): void
  /** Drops the completed events up to the stored checkpoint. */
  forget(checkpoint: number): void
}

export interface WindowOptions {
  readonly checkpoint: number
  readonly limit: number
  /** The most events that are read ahead. */
  readonly maxBuffered: number
  readonly remnants: ReadonlyMap<number, Remnant>
}

export function openWindow({ checkpoint, limit, maxBuffered, remnants }: WindowOptions): Window {
  /** In the order of positions. */
  const entries = new Map<number, Entry>()
  const ready: Entry[] = []
  /** By key, in the order of positions: those that were given back and are not done. */
  const held = new Map<string, Entry[]>()
  const outKeys = new Map<string, number>()
  let readTo = checkpoint
  let out = 0
  let bytes = 0

  const settle = (entry: Entry): void => {
    if (entry.state !== 'out') return
    out--
    const left = outKeys.get(entry.key)! - 1
    if (left === 0) outKeys.delete(entry.key)
    else outKeys.set(entry.key, left)
  }
  const hold = (entry: Entry): void => {
    const others = held.get(entry.key) ?? []
    if (others.includes(entry)) return
    others.push(entry)
    held.set(
      entry.key,
      others.sort((a, b) => (a.event.position < b.event.position ? -1 : 1)),
    )
  }
  const deliver = (entry: Entry): Entry => {
    entry.state = 'out'
    entry.deliveries++
    out++
    outKeys.set(entry.key, (outKeys.get(entry.key) ?? 0) + 1)
    return entry
  }

  return {
    limit,
    extra: 0,
    get readTo() {
      return readTo
    },
    get checkpoint() {
      for (const [position, entry] of entries) if (entry.state !== 'done') return position - 1
      return readTo
    },
    get out() {
      return out
    },
    get room() {
      return Math.max(0, maxBuffered - ready.length)
    },
    get bytes() {
      return bytes
    },
    add(event, key, fault, size = 0) {
      const { position } = event
      if (position <= readTo) return
      readTo = position
      if (entries.has(position)) return
      const known = remnants.get(position)
      const state = known === undefined ? 'ready' : known.isDone ? 'done' : 'waiting'
      const { deliveries = 0, dueAt = 0 } = known ?? {}
      const entry: Entry = { event, key, fault, state, deliveries, dueAt, bytes: size }
      bytes += size
      entries.set(position, entry)
      if (state === 'ready') ready.push(entry)
      else if (state === 'waiting') hold(entry)
    },
    reach(position) {
      if (position > readTo) readTo = position
    },
    goBack(position) {
      if (position < readTo) readTo = position
    },
    take(now, alone) {
      if (out + this.extra >= this.limit) return undefined
      for (const [first] of held.values()) if (first!.state === 'waiting' && first!.dueAt <= now) return deliver(first!)
      if (entries.size - ready.length + this.extra >= this.limit) return undefined
      const index = ready.findIndex(entry => !held.has(entry.key) && !(alone && outKeys.has(entry.key)))
      if (index < 0) return undefined
      return deliver(index === 0 ? ready.shift()! : ready.splice(index, 1)[0]!)
    },
    nextDue() {
      let least: number | undefined
      for (const [first] of held.values())
        if (first!.state === 'waiting' && (least === undefined || first!.dueAt < least)) least = first!.dueAt
      return least
    },
    complete(entry) {
      settle(entry)
      entry.state = 'done'
      const others = held.get(entry.key)?.filter(other => other !== entry)
      if (others === undefined) return
      if (others.length === 0) held.delete(entry.key)
      else held.set(entry.key, others)
    },
    giveBack(entry, dueAt) {
      settle(entry)
      entry.state = 'waiting'
      entry.dueAt = dueAt
      hold(entry)
    },
    forget(stored) {
      for (const [position, entry] of entries) {
        if (position > stored || entry.state !== 'done') return
        entries.delete(position)
        bytes -= entry.bytes
      }
    },
  }
}
