/**
 * Waits for the log to grow, on behalf of every consumer, tail and `waitFor` of one store.
 *
 *     beyond(position) ──► waiters ──► loop: settle() ──► answers each waiter whose position is passed
 *                                       ▲ hint · poll · again after 2…250 ms while an append is open
 *
 * Guarantees:
 * - One query answers all waiters; without waiters there are no queries. While only this
 *   process appends, a waiter that comes when no hint has come since the last query needs none of its own.
 * - A position is reported only when it is settled: every event up to it is visible or will never exist.
 * - An append that is rolled back sends no hint. While one is open the loop therefore looks again, after 2 ms, then 4, up to
 *   250.
 *
 * What can fail: the database is away: waiters keep waiting. The server restarted, which its sessions show, or another one
 * took over, which the timeline shows: events that were read may be undone. A waiter whose log was replaced is rejected with
 * `LogRewound`; after a restart it is answered at once, and looks itself. Any other error rejects all waiters.
 */

import { abortError, onAbort } from '../../core/abort.ts'
import { isRillflowError } from '../../core/errors.ts'
import { openLoop } from '../../core/loop.ts'
import { sql } from '../../database/sql.ts'
import { channels } from '../../telemetry/telemetry.ts'
import type { RecordedEvent } from '../definition.ts'
import { LogRewound } from '../errors.ts'
import type { Log } from '../log.ts'
import { openSharedReads, type SharedReads } from '../read/shared.ts'
import { type Settled, settle } from './order.ts'
import type { Wake } from './wake.ts'

export interface LogWatch extends HeadWatch {
  /** Reads near the end of the log, for all followers together. */
  readonly reads: SharedReads
}

export interface HeadWatch {
  /** Resolves once the log is settled beyond `after`, or at once if the server may have restarted since `seen`. */
  beyond(after: number, seen: Settled | undefined, signal?: AbortSignal): Promise<Settled>
  /** Rejects all waiters. */
  close(reason: Error): void
}

interface Waiter {
  readonly after: number
  readonly seen: Settled | undefined
  readonly resolve: (settled: Settled) => void
  readonly reject: (error: unknown) => void
}

/** A log that is watched: how far it is settled, and hints that it has grown. */
export interface Watched {
  settle(): Promise<Settled>
  /** Calls back on every hint until the function returned is called. */
  listen(listener: () => void): () => void
  /** Whether the hints of this process alone tell of everything. Default: they do not. */
  isAlone?(): boolean
}

export function watchLog(log: Log, wake: Wake, pollMs: number): LogWatch {
  const watch = watchHead(log, { settle: () => settle(log), listen: wake.onHint, isAlone: wake.isAlone }, pollMs)
  return { ...watch, reads: openSharedReads(log) }
}

/** The same for any table whose positions are announced and settled like those of the log. */
export function watchHead(log: Log, watched: Watched, pollMs: number): HeadWatch {
  const waiters = new Set<Waiter>()
  const loop = openLoop({ look, pollMs, clock: log.clock, onFailure })
  let unsettledLooks = 0
  let stopListening: (() => void) | undefined
  let closed: Error | undefined
  /** The last answer, if nothing was open then and no hint has come since that look began. */
  let lastKnown: Settled | undefined
  let hints = 0

  return {
    beyond(after, seen, signal) {
      if (closed !== undefined) return Promise.reject(closed)
      if (signal?.aborted) return Promise.reject(abortError(signal))
      return new Promise<Settled>((resolve, reject) => {
        const waiter: Waiter = {
          after,
          seen,
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
        const isKnown = lastKnown !== undefined && lastKnown === seen && lastKnown.settled <= after
        if (isKnown && watched.isAlone?.() === true) loop.lookIn(pollMs)
        else loop.lookNow().catch(() => {})
      })
    },
    close(reason) {
      closed = reason
      stopListening?.()
      for (const waiter of waiters) waiter.reject(reason)
    },
  }

  /** It goes on listening: a hint that comes between two waits says that the second one needs a look. */
  function onHint(): void {
    hints++
    lastKnown = undefined
    if (waiters.size > 0) loop.lookSoon()
  }

  // [order-5]
  async function look(): Promise<number | undefined> {
    if (waiters.size === 0) return undefined
    const present = [...waiters]
    const hintsBefore = hints
    const settled = await watched.settle()
    lastKnown = hints === hintsBefore && settled.settled === settled.head ? settled : undefined
    unsettledLooks = settled.settled < settled.head ? unsettledLooks + 1 : 0
    for (const waiter of present) if (waiters.has(waiter)) answer(waiter, settled)
    return unsettledLooks > 0 ? Math.min(2 * 2 ** Math.min(unsettledLooks - 1, 10), 250) : undefined
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
