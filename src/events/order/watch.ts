/**
 * Waits for the log to grow, on behalf of every consumer, tail and `waitFor` of one store.
 *
 *     beyond(position) ──► waiters ──► loop: settle() ──► answers each waiter whose position is passed
 *                           ▲           ▲ hint · poll · again after 2…250 ms while an append is open
 *                           └── an append of this process, at the next position: settled by arithmetic
 *
 * Guarantees:
 * - One query answers all waiters; without waiters there are no queries. While only this
 *   process appends, a waiter that comes when no hint has come since the last query needs none of its own.
 * - A position is reported only when it is settled: every event up to it is visible or will never exist.
 * - Everything up to a position is settled, and an append of this process was answered with the next one: then that one is
 *   settled, too, because nothing lies between. Only followers that compare their place with their stored checkpoint take
 *   that for an answer: a crash of the server, which only a look finds, would have undone their checkpoint, too.
 * - An append that is rolled back sends no hint. While one is open the loop therefore looks again, after 2 ms, then 4, up to
 *   250.
 *
 * What can fail: the database is away: waiters keep waiting. The server restarted, which its sessions show, or another one
 * took over, which the timeline shows: events that were read may be undone. A waiter whose log was replaced is rejected with
 * `LogRewound`; after a restart it is answered at once, and looks itself. Any other error rejects all waiters.
 */

import { abortError, onAbort } from '../../core/abort.ts'
import { isRillflowError } from '../../core/errors.ts'
import { elapsedMs } from '../../core/host.ts'
import { openLoop } from '../../core/loop.ts'
import { sql } from '../../database/sql.ts'
import { channels } from '../../telemetry/telemetry.ts'
import type { RecordedEvent } from '../definition.ts'
import { LogRewound } from '../errors.ts'
import type { Log } from '../log.ts'
import { openSharedReads, type SharedReads } from '../read/shared.ts'
import { type Settled, settle } from './order.ts'
import { type CommittedEvent, type RecentEvents, recentEvents } from './recent.ts'
import type { Committed, Wake } from './wake.ts'

export interface LogWatch extends HeadWatch {
  /** Reads near the end of the log, for all followers together. */
  readonly reads: SharedReads
}

export interface HeadWatch {
  /**
   * Resolves once the log is settled beyond `after`, or at once if the server may have restarted since `seen`. `isStored`:
   * `after` is the stored checkpoint of the caller, which every write of the caller compares.
   */
  beyond(after: number, seen: Settled | undefined, signal?: AbortSignal, isStored?: boolean): Promise<Settled>
  /** Rejects all waiters. */
  close(reason: Error): void
}

interface Waiter {
  readonly after: number
  readonly seen: Settled | undefined
  readonly isStored: boolean
  readonly resolve: (settled: Settled) => void
  readonly reject: (error: unknown) => void
}

/** A log that is watched: how far it is settled, and hints that it has grown. */
export interface Watched {
  settle(): Promise<Settled>
  /** Calls back on every hint until the function returned is called. */
  listen(listener: (committed?: Committed) => void): () => void
  /** Whether the hints of this process alone tell of everything. Default: they do not. */
  isAlone?(): boolean
  /** Where the events that this process has appended are kept for readers; without it all of them are read. */
  readonly recent?: RecentEvents | undefined
}

export function watchLog(log: Log, wake: Wake, pollMs: number): LogWatch {
  const recent = recentEvents()
  const { onHint: listen, isAlone } = wake
  const watch = watchHead(log, { settle: () => settle(log), listen, isAlone, recent }, pollMs)
  return { ...watch, reads: openSharedReads(log, recent) }
}

/** The same for any table whose positions are announced and settled like those of the log. */
export function watchHead(log: Log, watched: Watched, pollMs: number): HeadWatch {
  const waiters = new Set<Waiter>()
  const loop = openLoop({ look, pollMs, onFailure })
  let unsettledLooks = 0
  let stopListening: (() => void) | undefined
  let closed: Error | undefined
  /** As far as the log is known to be settled: by a look, and by arithmetic from there. */
  let known: Settled | undefined
  /** Hints of changes that only a look finds, and how many there had been when the last look began. */
  let hints = 0
  let hintsSeen = -1
  let arrived: CommittedEvent[] = []
  let followedAt = Number.NEGATIVE_INFINITY

  return {
    beyond(after, seen, signal, isStored = false) {
      if (closed !== undefined) return Promise.reject(closed)
      if (signal?.aborted) return Promise.reject(abortError(signal))
      if (isStored) followedAt = elapsedMs()
      if (isStored && isPassed(after, seen)) return Promise.resolve(known!)
      return new Promise<Settled>((resolve, reject) => {
        const waiter: Waiter = {
          after,
          seen,
          isStored,
          resolve: value => leave(() => resolve(value)),
          reject: error => leave(() => reject(error)),
        }
        const release = signal === undefined ? () => {} : onAbort(signal, () => waiter.reject(abortError(signal)))
        const leave = (settleWaiter: () => void): void => {
          waiters.delete(waiter)
          release()
          settleWaiter()
          if (waiters.size === 0) loop.rest()
        }
        waiters.add(waiter)
        stopListening ??= watched.listen(onHint)
        // One that has looked by itself may have seen more.
        const isCurrent = isQuiet() && known === seen && known!.settled <= after
        if (isCurrent && watched.isAlone?.() === true) loop.lookIn(pollMs)
        else loop.lookNow().catch(() => {})
      })
    },
    close(reason) {
      closed = reason
      stopListening?.()
      for (const waiter of waiters) waiter.reject(reason)
    },
  }

  /** Whether nothing was open at the last look, and nothing has changed since but by appends that are settled. */
  function isQuiet(): boolean {
    return known !== undefined && hints === hintsSeen && known.settled === known.head
  }

  /** Whether it is from the same time without a restart or another server. */
  function isOf(seen: Settled | undefined): boolean {
    return known !== undefined && known.epoch === seen?.epoch && known.timeline === seen.timeline
  }

  function isPassed(after: number, seen: Settled | undefined): boolean {
    return isOf(seen) && known!.settled > after
  }

  /** It goes on listening: a hint that comes between two waits says that the second one needs a look. */
  function onHint(committed?: Committed): void {
    if (committed === undefined || watched.recent === undefined || !isFollowed()) {
      mustLook()
      return
    }
    if (arrived.length === 0) queueMicrotask(takeArrived)
    arrived.push(...committed())
  }

  function mustLook(): void {
    hints++
    if (waiters.size > 0) loop.lookSoon()
  }

  /** Whether a follower takes an answer by arithmetic: one that waits, or that works on the last one. */
  function isFollowed(): boolean {
    return elapsedMs() - followedAt < pollMs || [...waiters].some(({ isStored }) => isStored)
  }

  /** The answers of one group come in any order, within a turn. [order-6] */
  function takeArrived(): void {
    const events = arrived
    arrived = []
    watched.recent!.add(events)
    addUp()
    for (const waiter of [...waiters])
      if (waiter.isStored && isPassed(waiter.after, waiter.seen)) waiter.resolve(known!)
    const settled = known?.settled ?? 0
    if (events.some(({ position }) => position > settled)) mustLook()
    else if ([...waiters].some(({ after }) => after < settled)) loop.lookSoon()
  }

  function addUp(): void {
    if (known === undefined || watched.recent === undefined) return
    let { settled } = known
    while (watched.recent.has(settled + 1)) settled++
    if (settled > known.settled) known = { ...known, settled, head: Math.max(known.head, settled) }
  }

  // [order-5]
  async function look(): Promise<number | undefined> {
    if (waiters.size === 0) return undefined
    const present = [...waiters]
    const hintsBefore = hints
    const settled = await watched.settle()
    know(settled, hintsBefore)
    unsettledLooks = settled.settled < settled.head ? unsettledLooks + 1 : 0
    for (const waiter of present) if (waiters.has(waiter)) answer(waiter, settled)
    return unsettledLooks > 0 ? Math.min(2 * 2 ** Math.min(unsettledLooks - 1, 10), 250) : undefined
  }

  function know(settled: Settled, hintsBefore: number): void {
    const isSame = known?.epoch === settled.epoch && known.timeline === settled.timeline
    if (!isSame) watched.recent?.forget()
    // Appends that were answered during the look may be beyond it.
    if (!isSame || known!.settled <= settled.settled) known = settled
    else if (known!.head < settled.head) known = { ...known!, head: settled.head }
    addUp()
    hintsSeen = hintsBefore
  }

  function onFailure(error: unknown): void {
    if (!isRillflowError(error) || !error.retryable) for (const waiter of waiters) waiter.reject(error)
  }

  function answer(waiter: Waiter, now: Settled): void {
    const { after, seen } = waiter
    if (seen !== undefined && seen.timeline !== now.timeline) {
      waiter.reject(rewound(log, after, now, `the server's timeline changed from ${seen.timeline} to ${now.timeline}`))
    } else if (seen !== undefined && seen.epoch !== now.epoch) {
      waiter.resolve(now)
    } else if (seen !== undefined && now.head < seen.head) {
      waiter.reject(rewound(log, after, now, 'its head is below the last position that was read'))
    } else if (now.settled > after) {
      waiter.resolve(now)
    }
  }
}

/**
 * Whether an event that was read is still in the log, or was deleted with its stream, as retention does. Another event
 * in its place, or none in a stream that is in use, means that it is another log.
 */
export async function isStillKnown(log: Log, event: RecordedEvent): Promise<boolean> {
  const rows = await log.database.run<{ event_id: string | null }>(sql`/* events.verify */
    select event_id
    from ${log.names.events}
    where position = ${event.position}::bigint
    union all
    select null
    from ${log.names.streams}
    where stream = ${event.stream}::text
      and tombstoned_at is not null`)
  const found = rows.find(row => row.event_id !== null)
  return found === undefined ? rows.length > 0 : found.event_id === event.id
}

export function rewound(log: Log, cursor: number, now: Settled, reason: string): InstanceType<typeof LogRewound> {
  const error = new LogRewound({ cursor, head: now.head, reason })
  log.telemetry.log.error({ schema: log.schema, error }, 'The log is not the one that was read before.')
  log.telemetry.publish(channels.rewound, () => ({ schema: log.schema, error }))
  return error
}
