/**
 * Applies one page of events: their effects and the checkpoint are one transaction.
 *
 *     all of them at once ──► commit                                       the usual case
 *            └─ it fails, at a known event ──► the events before it, and the policy's decision, in a second transaction
 *            └─ it fails, somewhere ─────────► one by one, each in a savepoint, until the one that fails
 *
 * Savepoints are not taken at first: two round trips an event cost more than all the rest. The failing event is known
 * if the handler reports its current event (`ctx.at`). Either way the writes of the failing event are undone, also if
 * it was SQL that failed, and those before it are kept.
 *
 * An error that is not about the event (a lost connection, a lost lease) is thrown to the caller and counts as no
 * attempt.
 *
 * Events of a parked stream are not applied: a page ends before them, and the next one begins with parking them.
 */

import { abortable } from '../../core/abort.ts'
import { ConsumerTimeout, isRillflowError } from '../../core/errors.ts'
import { elapsedMs } from '../../core/host.ts'
import type { Transaction } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import { sqlStateOf } from '../../database/sqlstate.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import type { Log } from '../../events/log.ts'
import type { Page } from '../../events/read/page.ts'
import { channels } from '../../telemetry/telemetry.ts'
import type { Consumer } from '../consumer.ts'
import { lockParked, parkBehind, parkedStreams } from '../dead-letters/parked.ts'
import { type Held, save } from '../row.ts'
import type { Breaker } from './breaker.ts'
import { isInterruption } from './failure.ts'
import { applyPolicy, mayPark, type PolicyOutcome } from './policy.ts'

/** A consumer at work. */
export interface Work {
  readonly log: Log
  readonly consumer: Consumer
  readonly lease: Held
  /** The checkpoint that is stored. */
  readonly from: number
  /** The most events that this batch could have had. */
  readonly batchLimit: number
  /** How often the first event after the checkpoint has failed. */
  readonly attempts: number
  readonly breaker: Breaker | undefined
  /** How often the breaker had opened before this page. */
  readonly openings: number
  /** Aborts when the lease is lost, so that nothing may be written from then on. */
  readonly lost: AbortSignal
  /** By position: why an event could not be given its shape. */
  readonly faults?: ReadonlyMap<number, unknown> | undefined
}

export interface BatchOutcome extends PolicyOutcome {
  /** Events that were passed: applied, skipped or recorded as dead letters. */
  readonly processed: number
}

export function applyPage(given: Omit<Work, 'openings'>, page: Page): Promise<BatchOutcome> {
  const { telemetry, schema } = given.log
  if (!telemetry.isTraced) return applyUntraced(given, page)
  const { name: consumer, kind } = given.consumer
  const start = { name: 'consumers.batch', schema, causes: page.events, fields: { consumer, kind } } as const
  return telemetry.span(start, async span => {
    const outcome = await applyUntraced(given, page)
    if (outcome.error !== undefined) span.fail(outcome.error)
    return outcome
  })
}

async function applyUntraced(given: Omit<Work, 'openings'>, page: Page): Promise<BatchOutcome> {
  const { telemetry, schema } = given.log
  const { name } = given.consumer
  const started = elapsedMs()
  const outcome = await applyEvents(given, page)
  const durationMs = elapsedMs() - started
  const { processed, checkpoint } = outcome
  telemetry.count('consumer_batches_total', 1, name)
  telemetry.count('consumer_events_total', processed, name)
  telemetry.observe('consumer_batch_events', page.events.length, name)
  telemetry.observe('consumer_batch_seconds', durationMs / 1000, name)
  telemetry.publish(channels.batch, () => ({ schema, consumer: name, events: processed, checkpoint, durationMs }))
  return outcome
}

async function applyEvents(given: Omit<Work, 'openings'>, whole: Page): Promise<BatchOutcome> {
  const parked = await parkPage(given, whole)
  if ('processed' in parked) return parked
  const { events, faults, reached, bytes } = parked
  const work: Work = { ...given, openings: given.breaker?.openings() ?? 0, faults }
  const bad =
    faults.size === 0 || given.consumer.takesFaults === true
      ? -1
      : events.findIndex(event => faults.has(event.position))
  if (bad >= 0) return failAt(work, events, bad, faults.get(events[bad]!.position))
  if (work.attempts === 0) {
    const done = await work.consumer.handleAtOnce?.(events, {
      ...{ fence: work.lease.fence, from: work.from, checkpoint: reached, faults, bytes },
      isAbandoned: work.lease.isAbandoned ?? false,
    })
    if (done !== undefined) return allApplied(events, reached, done.isPaused)
  }
  const tried = await tryAll(work, events, reached)
  if ('processed' in tried) return tried
  if (tried.at === undefined) return oneByOne(work, events, reached)
  const outcome = await failAt(work, events, tried.at, tried.error)
  // An event that was retried has waited before; the events after it can wait for the next page.
  const isFirst = tried.at === 0 && outcome.processed === 1 && work.attempts === 0 && outcome.end !== 'park'
  if (!isFirst || outcome.isPaused || events.length === 1) return outcome
  // Bad events seldom come alone: two transactions and a read for each would be slow.
  const rest = await oneByOne({ ...work, from: outcome.checkpoint, attempts: 0 }, events.slice(1), reached, true)
  return { ...rest, processed: rest.processed + 1, error: rest.error ?? outcome.error, end: rest.end ?? outcome.end }
}

/** The page up to the first event of a parked stream; or, if it begins with such events, the outcome of parking them. */
async function parkPage(work: Omit<Work, 'openings'>, page: Page): Promise<Page | BatchOutcome> {
  const { log, consumer, lease, from, batchLimit, lost } = work
  const { events, reached } = page
  // One that takes whole pages at once tries them again until they are applied: it has no dead letters to park behind.
  const isAtOnce = consumer.handleAtOnce !== undefined
  if (events.length === 0 || isAtOnce || !mayPark(consumer.policy)) return page
  const parked = await parkedStreams(log, lease.consumer, streamsOf(events))
  const first = events.findIndex(event => parked.has(event.stream))
  if (first < 0) return page
  if (first > 0) return { ...page, events: events.slice(0, first), reached: events[first]!.position - 1 }
  const end = events.findIndex(event => !parked.has(event.stream))
  const run = end < 0 ? events : events.slice(0, end)
  const checkpoint = end < 0 ? reached : run.at(-1)!.position
  const done = await log.database.transaction(
    async tx => {
      // An operator may have resolved the failed event since. Now that cannot happen before these are parked.
      const locked = await lockParked(log, lease.consumer, streamsOf(run), tx)
      if (run.some(event => !locked.has(event.stream))) return undefined
      await parkBehind(log, lease, run, tx)
      return save(log, lease, { from, checkpoint, batchLimit }, tx)
    },
    { ...limits(work), signal: lost },
  )
  return done === undefined ? parkPage(work, page) : allApplied(run, checkpoint, done.isPaused)
}

function streamsOf(events: readonly RecordedEvent[]): string[] {
  return [...new Set(events.map(event => event.stream))]
}

/** The error, and the event at which it happened, if that is known. */
interface Trouble {
  readonly error: unknown
  readonly at: number | undefined
}

/** All events, and the checkpoint. [lease-3] */
async function tryAll(
  work: Work,
  events: readonly RecordedEvent[],
  checkpoint: number,
): Promise<BatchOutcome | Trouble> {
  const attempt = new Attempt(work, events)
  try {
    const { isPaused } = await attempt.run(async tx => {
      await attempt.handle(tx, events)
      return save(work.log, work.lease, { from: work.from, checkpoint, batchLimit: work.batchLimit }, tx)
    })
    return allApplied(events, checkpoint, isPaused)
  } catch (error) {
    return attempt.trouble(error)
  }
}

function allApplied(events: readonly RecordedEvent[], checkpoint: number, isPaused: boolean): BatchOutcome {
  const processed = events.length
  return { processed, checkpoint, isPaused, attempts: 0, retryInMs: 0, end: undefined, error: undefined }
}

/** The events before the failing one are applied; the policy decides about that one. */
async function failAt(work: Work, events: readonly RecordedEvent[], at: number, error: unknown): Promise<BatchOutcome> {
  const before = events.slice(0, at)
  const attempt = new Attempt(work, before)
  try {
    const conclusion = await attempt.run(async tx => {
      if (before.length > 0) await attempt.handle(tx, before)
      return applyPolicy(work, tx, events[at]!, error, at === 0 ? work.attempts + 1 : 1)
    })
    return { ...conclusion, processed: at + (conclusion.end === undefined ? 0 : conclusion.end === 'stop' ? 0 : 1) }
  } catch (failed) {
    if (before.length === 0) throw failed
    const trouble = await attempt.trouble(failed)
    return trouble.at === undefined
      ? oneByOne(work, before, before.at(-1)!.position)
      : failAt(work, before, trouble.at, trouble.error)
  }
}

/** Up to the first event that fails; with `continuesAfterFailure` past every event that the policy passes, while there is time.
 */
async function oneByOne(
  work: Work,
  events: readonly RecordedEvent[],
  reached: number,
  continuesAfterFailure = false,
): Promise<BatchOutcome> {
  const attempt = new Attempt(work, events)
  const until = elapsedMs() + limits(work).timeoutMs / 4
  try {
    return await attempt.run(async tx => {
      for (const [at, event] of events.entries()) {
        try {
          await tx.savepoint(() => attempt.handle(tx, [event], true))
        } catch (error) {
          if (!attempt.hasThrown(error)) await refuseInterruption(tx, error)
          const isLast = !continuesAfterFailure || at === events.length - 1 || elapsedMs() > until
          const conclusion = await applyPolicy(work, tx, event, error, at === 0 ? work.attempts + 1 : 1, isLast)
          const isPassed = conclusion.end !== undefined && conclusion.end !== 'stop'
          // Of a parked stream there may be more on this page.
          if (isLast || !isPassed || conclusion.end === 'park')
            return { ...conclusion, processed: at + (isPassed ? 1 : 0) }
        }
      }
      const { isPaused } = await save(work.log, work.lease, { from: work.from, checkpoint: reached }, tx)
      return allApplied(events, reached, isPaused)
    })
  } catch (error) {
    const trouble = await attempt.trouble(error)
    if (trouble.at === undefined) throw error
    return failAt(work, events, trouble.at, trouble.error)
  }
}

/** One transaction with the handler in it. */
class Attempt {
  readonly #work: Work
  readonly #events: readonly RecordedEvent[]
  readonly #aborting = new AbortController()
  #current: RecordedEvent | undefined
  /** The error of the handler, if its transaction was still intact then. */
  #thrown: { error: unknown } | undefined

  constructor(work: Work, events: readonly RecordedEvent[]) {
    this.#work = work
    this.#events = events
  }

  async run<T>(inside: (tx: Transaction) => Promise<T>): Promise<T> {
    const { log, lost } = this.#work
    try {
      return await log.database.transaction(inside, { ...limits(this.#work), signal: lost })
    } catch (error) {
      // Code that still runs must notice that its transaction has ended.
      this.#aborting.abort(error)
      throw error
    }
  }

  /** The end of a savepoint shows whether the connection still works. */
  async handle(tx: Transaction, events: readonly RecordedEvent[], inSavepoint = false): Promise<void> {
    const { consumer, attempts, breaker, faults } = this.#work
    this.#current = events.length === 1 ? events[0] : undefined
    const ctx = {
      consumer: consumer.name,
      tx,
      signal: this.#aborting.signal,
      attempt: events[0] === this.#events[0] ? attempts + 1 : 1,
      isReplay: false,
      faults,
      at: (event: RecordedEvent | undefined) => {
        this.#current = event
      },
    }
    try {
      // A handler that never returns is a failure of its target, too.
      const within = (): Promise<void> => abortable(consumer.handle(events, ctx), ctx.signal)
      await (breaker === undefined ? consumer.handle(events, ctx) : breaker.run(within))
    } catch (error) {
      if (isInterruption(error)) throw error
      if (!inSavepoint) await refuseInterruption(tx, error)
      this.#thrown = { error }
      throw error
    }
    if (events.length > 1) this.#current = undefined
  }

  /** Whether this came from the handler, and not from the savepoint around it. */
  hasThrown(error: unknown): boolean {
    return this.#thrown !== undefined && this.#thrown.error === error
  }

  /** Rethrows errors that are not about an event. */
  async trouble(error: unknown): Promise<Trouble> {
    const { consumer, lost } = this.#work
    const isOver = isRillflowError(error, 'transaction_timeout') || sqlStateOf(causeOf(error)) === idledTooLong
    if (lost.aborted || (!isOver && isInterruption(error)) || isRillflowError(error, 'circuit_open')) throw error
    const at = this.#current === undefined ? -1 : this.#events.indexOf(this.#current)
    const { timeoutMs } = limits(this.#work)
    const reported = isOver ? new ConsumerTimeout({ consumer: consumer.name, timeoutMs }, error) : error
    // If a handler caught the failure of its own statement, our next statement fails and shows it.
    const isKnown = at >= 0 && (isOver || this.#thrown !== undefined)
    if (isOver && !isKnown && this.#events.length > 1) throw reported
    return { error: reported, at: isKnown ? at : undefined }
  }
}

/** An error of a handler whose connection is lost does not count as a failure of the handler. */
export async function refuseInterruption(tx: Transaction, error: unknown): Promise<void> {
  if (isInterruption(error)) throw error
  await tx.run(sql`/* consumers.alive */ select 1`).catch((dead: unknown) => {
    // A transaction that has failed answers that it has, so it is alive.
    const isFailed = isRillflowError(dead, 'database_failed')
    if (!isFailed) throw dead
  })
}

/** A holder that is stopped in the middle must not block its successor for longer than a lease. [lease-8] */
function limits({ log, consumer }: Pick<Work, 'log' | 'consumer'>): { timeoutMs: number; idleMs: number } {
  const { leaseMs, timeoutMs } = consumer
  const { engine, maxConnections } = log.database
  // With one connection nothing can be renewed meanwhile.
  const alone = engine === 'postgres' && maxConnections === 1 ? leaseMs / 2 : undefined
  const given = timeoutMs ?? (engine === 'pglite' ? 5_000 : 30_000)
  return { timeoutMs: Math.min(given, alone ?? given), idleMs: leaseMs }
}

/** The server cut off a transaction in which nothing had happened for a whole lease. */
const idledTooLong = '25P03'

function causeOf(error: unknown): unknown {
  return error instanceof Error ? error.cause : undefined
}
