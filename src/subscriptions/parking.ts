/**
 * Streams of a partition that are parked: their events are not delivered, but become dead letters behind the failed one.
 *
 * The streams in memory are those that may be parked; the rows of the dead letters decide. An event of such a stream is
 * taken from the window, and its row is written in a transaction that has locked the failed one. If that was closed
 * meanwhile, the event goes back into the window, and is delivered before all later ones of its stream.
 *
 * What can fail: the database is away. Then the events go back, and are parked again after a while.
 */
import { lockParked, parkBehind, streamsParked } from '../consumers/dead-letters/parked.ts'
import { checkFence, type Held } from '../consumers/row.ts'
import { isRillflowError } from '../core/errors.ts'
import { nextTurn } from '../core/host.ts'
import { runDetached } from '../core/service.ts'
import type { Log } from '../events/log.ts'
import type { Entry } from './window.ts'

export interface ParkingParts {
  readonly log: Log
  readonly lease: Held
  /** Aborts when the lease is lost or released. */
  readonly ended: AbortSignal
  /** It is parked, and need not be delivered. */
  onParked(entry: Entry): void
  /** It can be delivered after `delayMs`. */
  onFree(entry: Entry, delayMs: number): void
}

export interface Parking {
  /** The events that earlier holders have parked. */
  load(): Promise<void>
  /** An event of the stream has failed, and holds it back as soon as that is `stored`. */
  hold(stream: string, stored: Promise<void>): void
  mayHold(stream: string): boolean
  /** Parks the event behind the failed one, or gives it back. */
  park(entry: Entry): void
}

/** After an error. */
const againMs = 500

export function openParking({ log, lease, ended, onParked, onFree }: ParkingParts): Parking {
  const streams = new Set<string>()
  /** Failed events whose rows are not written yet. */
  const heads = new Set<Promise<void>>()
  let waiting: Entry[] = []
  let isRunning = false

  return {
    async load() {
      for (const stream of await streamsParked(log, lease.consumer)) streams.add(stream)
    },
    hold(stream, stored) {
      streams.add(stream)
      heads.add(stored)
      const isStored = (): boolean => heads.delete(stored)
      stored.then(isStored, isStored)
    },
    mayHold: stream => streams.has(stream),
    park(entry) {
      waiting.push(entry)
      if (isRunning) return
      isRunning = true
      void runDetached(async () => {
        await nextTurn()
        while (waiting.length > 0 && !ended.aborted) await parkWaiting()
        isRunning = false
      })
    },
  }

  async function parkWaiting(): Promise<void> {
    await Promise.allSettled(heads)
    const entries = waiting
    waiting = []
    try {
      const held = await log.database.transaction(async tx => {
        const wanted = [...new Set(entries.map(({ event }) => event.stream))]
        const locked = await lockParked(log, lease.consumer, wanted, tx)
        const behind = entries.filter(({ event }) => locked.has(event.stream)).map(({ event }) => event)
        if (behind.length > 0) await parkBehind(log, lease, behind, tx)
        await checkFence(log, lease, tx)
        return locked
      })
      for (const entry of entries) {
        if (held.has(entry.event.stream)) onParked(entry)
        else {
          streams.delete(entry.event.stream)
          onFree(entry, 0)
        }
      }
    } catch (error) {
      if (ended.aborted || isRillflowError(error, 'lease_lost')) return
      log.telemetry.log.warn({ consumer: lease.consumer, error }, 'Events of a parked stream could not be parked yet.')
      for (const entry of entries) onFree(entry, againMs)
    }
  }
}
