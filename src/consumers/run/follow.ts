/**
 * Follows the log for one consumer, under a lease: read a page, apply it, again; wait at the end, and after a failure.
 *
 * Invariants:
 * - The stored checkpoint says which events were applied; the cursor in memory is ahead of it only by events that the
 *   filter skips. It is saved soon, so that a restart does not read them again and the lag is right.
 * - After an unexpected error the row is read again: it decides, not the state in memory.
 */

import { abortable, onAbort, sleep } from '../../core/abort.ts'
import { systemClock, type Timer } from '../../core/clock.ts'
import { isRillflowError } from '../../core/errors.ts'
import { elapsedMs } from '../../core/host.ts'
import { delay } from '../../core/retry.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { type Settled, settle } from '../../events/order/order.ts'
import type { LogWatch } from '../../events/order/watch.ts'
import type { Page } from '../../events/read/page.ts'
import type { Consumer } from '../consumer.ts'
import { replayRequested } from '../dead-letters/replay.ts'
import { CheckpointBeyondHead, LeaseLost } from '../errors.ts'
import { reportError, save } from '../row.ts'
import type { HeldLease } from '../runners/runnable.ts'
import { consumerNames } from '../schema.ts'
import { applyPage } from './batch.ts'
import { circuitBreaker } from './breaker.ts'
import { describeError } from './failure.ts'
import type { Feed } from './feed.ts'
import { setPace } from './pace.ts'

export interface FollowParts {
  readonly log: Log
  readonly watch: LogWatch
  readonly feed: Feed
}

/** How far a consumer has come. */
interface Progress {
  cursor: number
  saved: number
  attempts: number
  /** By the clock of this process, which is good enough for a wait. */
  notBefore: number
  seen: Settled | undefined
}

/** The cursor is saved after this long, or this many events that the filter skips. */
const saveEveryMs = 250
const saveEveryEvents = 10_000
/** So many events are passed over at once, where nothing is wanted: embedded about 10 ms of the engine's thread. */
const passed = { postgres: 10_000, pglite: 2_500 } as const
/** Requests that are due one after the other are carried out together, so that the log is followed in between. */
const replayEveryMs = 100
const troubleBackoff = { baseMs: 50, factor: 2, maxMs: 30_000, jitter: 0.3 }

/** Returns when the lease is to be released or is lost, or the consumer was paused; rejects if its policy stops it. */
export async function follow(parts: FollowParts, consumer: Consumer, hold: HeldLease): Promise<void> {
  const { log } = parts
  const { lease, drain, lost } = hold
  const breaker = consumer.breaker && circuitBreaker(consumer.name, log.clock, consumer.breaker)
  const pace = setPace(log.database, consumer, lease.batchLimit)
  const pages = parts.feed.reader(consumer.filter)
  const interruption = interruptible(hold)
  let progress: Progress | undefined
  let troubles = 0
  let savedAt = 0
  /** Up to here there is something that the consumer wants. */
  let isReadTo = 0

  try {
    while (!drain.aborted && !lost.aborted) {
      try {
        if (progress === undefined) await consumer.prepare?.(drain)
        progress ??= await hold.limited(() => readProgress(log, hold))
        if (progress === undefined) return
        if (interruption.taken()) {
          const { nextInMs } = await replayRequested({ log }, consumer, hold)
          if (nextInMs !== undefined) interruption.askIn(Math.max(nextInMs, replayEveryMs))
        }
        const isDone = await step(progress)
        troubles = 0
        if (isDone) return
      } catch (error) {
        if (lost.aborted || isRillflowError(error, 'lease_lost') || isRillflowError(error, 'store_closed')) return
        if (error instanceof Stopped) throw error.cause
        // A program that waits for the error decides; a runner waits until the table can be written again.
        if (isRillflowError(error, 'dead_letter_unwritable') && !consumer.pausesWhenStopped) throw error
        pages.forget()
        progress = undefined
        parts.feed.forget()
        const waitMs = isRillflowError(error, 'circuit_open')
          ? Math.max(1, (error as unknown as { retryInMs: number }).retryInMs)
          : delay(troubleBackoff, ++troubles)
        log.telemetry.log.warn({ schema: log.schema, consumer: consumer.name, error }, 'A consumer cannot continue.')
        await noteError(log, hold, error, pace.limit())
        await interruption.wait(waitMs)
      }
    }
    if (progress !== undefined) await saveCursor(progress)
  } catch (error) {
    // The next holder begins with the row.
    if (!isRillflowError(error, 'lease_lost') && !isRillflowError(error, 'checkpoint_moved')) throw error
  } finally {
    interruption.dispose()
  }

  /** One page, or one wait. True if the consumer is paused. */
  async function step(at: Progress): Promise<boolean> {
    const waitMs = at.notBefore - elapsedMs()
    if (waitMs > 0) {
      await interruption.wait(waitMs)
      return false
    }
    if (at.seen === undefined || at.seen.settled <= at.cursor) {
      const now = await nextSettled(at)
      if (now === undefined) return false
      at.seen = now
      if (now.settled <= at.cursor) return false
    }
    const { settled } = at.seen
    const over = await passOver(at, settled)
    if (over !== undefined) return over
    const page = await hold.limited(() => pages.next(at.cursor, settled, pace.limit()))
    if (page.events.length === 0) {
      at.cursor = page.reached
      const isFar = at.cursor - at.saved >= saveEveryEvents
      if (isFar || (at.cursor >= at.seen.settled && elapsedMs() - savedAt >= saveEveryMs)) await saveCursor(at)
      return false
    }
    return apply(at, page)
  }

  /** Whether the consumer is paused, if a part of the log was passed over; undefined if it has to be read. */
  async function passOver(at: Progress, settled: number): Promise<boolean | undefined> {
    const to = at.cursor + passed[log.database.engine]
    if (consumer.passOver === undefined || settled < to || at.cursor < isReadTo || at.attempts > 0) return undefined
    const part = { held: lease, from: at.saved, after: at.cursor, to }
    const done = await hold.limited(() => consumer.passOver!(part))
    if (done === undefined) {
      isReadTo = to
      return undefined
    }
    at.cursor = at.saved = to
    savedAt = elapsedMs()
    pages.forget()
    return done.isPaused
  }

  async function apply(at: Progress, page: Page): Promise<boolean> {
    const started = elapsedMs()
    const work = {
      log,
      consumer,
      lease,
      from: at.saved,
      batchLimit: pace.limit(),
      attempts: at.attempts,
      breaker,
      lost,
    }
    const outcome = await applyPage(work, page).catch((error: unknown) => {
      if (isRillflowError(error, 'consumer_timeout')) pace.tooLong(page.events.length)
      throw error
    })
    if (outcome.error === undefined) pace.took(outcome.processed, elapsedMs() - started)
    else if (isRillflowError(outcome.error, 'consumer_timeout')) pace.tooLong(page.events.length)
    at.cursor = at.saved = outcome.checkpoint
    at.attempts = outcome.attempts
    at.notBefore = outcome.retryInMs > 0 ? elapsedMs() + outcome.retryInMs : 0
    savedAt = elapsedMs()
    if (outcome.end === 'stop') throw new Stopped(outcome.error)
    return outcome.isPaused
  }

  /** Waits for more; undefined if something else came first. */
  async function nextSettled(at: Progress): Promise<Settled | undefined> {
    const limitMs = at.cursor > at.saved ? Math.max(0, savedAt + saveEveryMs - elapsedMs()) : undefined
    const isStored = at.cursor === at.saved
    const now = await interruption.during(signal => parts.watch.beyond(at.cursor, at.seen, signal, isStored), limitMs)
    if (now === undefined) {
      if (limitMs !== undefined && !lost.aborted) await saveCursor(at)
      return undefined
    }
    // The server may have restarted, with less in the log than we have seen.
    if (at.seen !== undefined && at.seen.epoch !== now.epoch) {
      parts.feed.forget()
      pages.forget()
      progress = undefined
      return undefined
    }
    return now
  }

  async function saveCursor(at: Progress): Promise<void> {
    if (at.cursor <= at.saved || at.attempts > 0) return
    await save(log, lease, { from: at.saved, checkpoint: at.cursor }, log.database)
    at.saved = at.cursor
    savedAt = elapsedMs()
  }
}

/** The policy has stopped the consumer; the cause is the error of the handler. */
class Stopped extends Error {
  constructor(cause: unknown) {
    super('stopped', { cause })
  }
}

/** Where the row says that the consumer is; undefined if it is paused. [lease-4] */
async function readProgress(log: Log, { lease }: HeldLease): Promise<Progress | undefined> {
  const [row] = await log.database.run<{
    checkpoint: number
    attempts: number
    retry_in: number | null
    paused: boolean
  }>(sql`/* consumers.place */
    select
      checkpoint,
      attempts,
      (extract(epoch from retry_at - ${log.names.clock}(retry_at)) * 1000)::float8 as retry_in,
      paused_at is not null as paused
    from ${consumerNames(log).consumers}
    where name = ${lease.consumer}::text
      and fence = ${lease.fence}::bigint`)
  if (row === undefined) throw new LeaseLost({ consumer: lease.consumer, fence: lease.fence })
  if (row.paused) return undefined
  const { checkpoint, attempts } = row
  const seen = await settle(log)
  if (seen.head < checkpoint) throw new CheckpointBeyondHead({ consumer: lease.consumer, checkpoint, head: seen.head })
  const notBefore = elapsedMs() + Math.max(0, row.retry_in ?? 0)
  return { cursor: checkpoint, saved: checkpoint, attempts, notBefore, seen }
}

/** For `status`. A failure to write it is ignored: the database itself may be away. */
async function noteError(log: Log, { lease }: HeldLease, error: unknown, batchLimit: number): Promise<void> {
  await reportError(log, lease, describeError(error), batchLimit).catch(() => {})
}

/** A request that is due later than this is found by the next look of the runner. */
const maxAskMs = 600_000

interface Interruption {
  /** Whether a look at the dead letters was requested since the last one; true at first. */
  taken(): boolean
  /** Requests one itself. */
  askIn(ms: number): void
  /** Waits, unless a request or the end of the lease comes first. */
  wait(ms: number): Promise<void>
  /** Undefined if a request or the end of the lease comes first, or after `limitMs`. */
  during<T>(work: (signal: AbortSignal) => Promise<T>, limitMs?: number): Promise<T | undefined>
  dispose(): void
}

/** The ends of a wait: the lease is to be released or is lost, or a look was requested. */
function interruptible({ drain, lost, onRequest }: HeldLease): Interruption {
  let isAsked = true
  let current: AbortController | undefined
  let asking: Timer | undefined
  const interrupt = (): void => current?.abort()
  const ask = (): void => {
    isAsked = true
    interrupt()
  }
  const releases = [onAbort(drain, interrupt), onAbort(lost, interrupt), onRequest(ask)]
  const during: Interruption['during'] = async (work, limitMs) => {
    if (isAsked || drain.aborted || lost.aborted) return undefined
    const controller = new AbortController()
    current = controller
    const timer = limitMs === undefined ? undefined : systemClock.setTimeout(() => controller.abort(), limitMs)
    try {
      return await abortable(work(controller.signal), controller.signal)
    } catch (error) {
      if (controller.signal.aborted && isRillflowError(error, 'aborted')) return undefined
      throw error
    } finally {
      timer?.cancel()
      current = undefined
    }
  }
  return {
    taken() {
      const asked = isAsked
      isAsked = false
      return asked
    },
    askIn(ms) {
      asking?.cancel()
      asking = systemClock.setTimeout(ask, Math.min(ms, maxAskMs))
    },
    wait: async ms => void (await during(signal => sleep(ms, { signal }))),
    during,
    dispose: () => {
      asking?.cancel()
      for (const release of releases) release()
    },
  }
}
