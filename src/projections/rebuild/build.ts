/**
 * Building a read model in the foreground: the log is applied from a checkpoint to its end, under a lease, with the same
 * batches, the same failure policy and the same dead letters as by a consumer that follows it.
 *
 *     beginBuild ──► catchUp: settle ──► page ──► apply, checkpoint ──► … until the rest is small enough for a switch
 *
 * Guarantees:
 * - The checkpoint is stored with every batch: a build that was interrupted continues from it.
 * - The lease is renewed while it runs. If it is lost, the next batch is refused by its fence.
 *
 * What can fail: an event at which the failure policy stops (its error is thrown); `Aborted`; `LeaseLost`.
 */

import { type Consumer, startOf } from '../../consumers/consumer.ts'
import type { Consumers } from '../../consumers/consumers.ts'
import { type Held, type Lease, renew, save } from '../../consumers/row.ts'
import { applyPage } from '../../consumers/run/batch.ts'
import { setPace } from '../../consumers/run/pace.ts'
import { consumerNames } from '../../consumers/schema.ts'
import { sleep, throwIfAborted } from '../../core/abort.ts'
import { isRillflowError } from '../../core/errors.ts'
import { elapsedMs, nextTurn } from '../../core/host.ts'
import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import { lockNotAvailable } from '../../database/sqlstate.ts'
import type { Log } from '../../events/log.ts'
import { settle } from '../../events/order/order.ts'
import type { Prepare } from '../consumer.ts'
import type { Projection } from '../projection.ts'

export interface RebuildProgress {
  readonly phase: 'building' | 'switching'
  /** The position that the new read model has reached. */
  readonly position: number
  /** The current end of the log. */
  readonly head: number
  /** Events applied by this call. */
  readonly events: number
  readonly eventsPerSecond: number
  /** Undefined until the speed is known. */
  readonly etaMs: number | undefined
}

export type OnProgress = (progress: RebuildProgress) => void

export interface RebuildOptions {
  /** Called after each batch. */
  onProgress?: OnProgress | undefined
  /** Stops the rebuild; the next call resumes it. */
  signal?: AbortSignal | undefined
  /** Discard the work of an interrupted rebuild, and start from the beginning. Default false. */
  restart?: boolean | undefined
  /** How long to try to switch while the tables are locked by other transactions. Default 600 000. */
  switchMs?: number | undefined
}

export interface RebuildParts {
  readonly consumers: Consumers
  readonly prepare: Prepare
}

/** A build that is running. */
export interface Build {
  readonly consumers: Consumers
  readonly consumer: Consumer
  readonly lease: Held
  checkpoint: number
  attempts: number
  /** The most events that a batch of this projection was applied with in time, if that is known. */
  readonly batchLimit: number | undefined
  events: number
  readonly signal: AbortSignal | undefined
  readonly onProgress: OnProgress | undefined
  /** The time and the position at its start, for the speed. */
  readonly started: { readonly at: number; readonly checkpoint: number }
}

/** Pages of a rebuild are larger than those of a projection that follows the log: rows are written once per page. */
const minBatchSize = 3_000

export function beginBuild(
  given: Pick<Build, 'consumers' | 'lease' | 'signal' | 'onProgress'> & { consumer: Consumer; from: Lease },
): Build {
  const { from, consumer, ...rest } = given
  const started = { at: elapsedMs(), checkpoint: from.checkpoint }
  const larger = { ...consumer, batchSize: Math.max(consumer.batchSize, minBatchSize) }
  return {
    ...rest,
    consumer: larger,
    ...{ checkpoint: from.checkpoint, attempts: from.attempts, batchLimit: from.batchLimit, events: 0, started },
  }
}

/** A rest of at most this many positions is left to the switch: writers that never pause are never caught up with. */
const maxRest = 200

/**
 * Applies settled events until the rest is small, or does not become smaller: then events are appended as fast as they are
 * applied here, and the switch has to make their writers wait.
 */
export async function catchUp(build: Build): Promise<void> {
  const { consumers, consumer, lease, signal } = build
  const { log, feed } = consumers
  const pace = setPace(log.database, consumer, build.batchLimit)
  const lost = signal ?? new AbortController().signal
  const pages = feed.reader(consumer.filter)
  await renew(log, lease, consumer.leaseMs)
  let renewedAt = elapsedMs()
  let restBefore = Number.POSITIVE_INFINITY
  for (;;) {
    const { settled } = await settle(log)
    const rest = settled - build.checkpoint
    const isLast = rest <= maxRest || rest >= restBefore
    restBefore = rest
    while (build.checkpoint < settled) {
      throwIfAborted(signal)
      if (elapsedMs() - renewedAt > consumer.leaseMs / 3) {
        await renew(log, lease, consumer.leaseMs)
        renewedAt = elapsedMs()
      }
      const page = await pages.next(build.checkpoint, settled, pace.limit())
      if (page.events.length === 0) {
        await save(log, lease, { from: build.checkpoint, checkpoint: page.reached }, log.database)
        build.checkpoint = page.reached
      } else {
        const startedAt = elapsedMs()
        const known = { from: build.checkpoint, batchLimit: pace.limit(), attempts: build.attempts }
        const work = { log, consumer, lease, ...known, breaker: undefined, lost }
        const outcome = await applyPage(work, page).catch((error: unknown) => {
          if (!isRillflowError(error, 'consumer_timeout')) throw error
          pace.tooLong(page.events.length)
          pages.forget()
        })
        if (outcome === undefined) continue
        if (outcome.error === undefined) pace.took(outcome.processed, elapsedMs() - startedAt)
        if (outcome.end === 'stop') throw outcome.error
        build.checkpoint = outcome.checkpoint
        build.attempts = outcome.attempts
        build.events += outcome.processed
        if (outcome.retryInMs > 0) await sleep(outcome.retryInMs, { signal })
      }
      report(build, 'building', settled)
      // The embedded engine answers within the same turn: timers and sockets need one of their own.
      await nextTurn()
    }
    throwIfAborted(signal)
    if (isLast) return
  }
}

export function report(build: Build, phase: RebuildProgress['phase'], head: number): void {
  const { started, checkpoint, events, onProgress } = build
  if (onProgress === undefined) return
  const seconds = Math.max(0.001, (elapsedMs() - started.at) / 1000)
  const passed = Number(checkpoint - started.checkpoint)
  const left = Number(head > checkpoint ? head - checkpoint : 0)
  const etaMs = passed > 0 ? (left / passed) * seconds * 1000 : undefined
  onProgress({ phase, position: checkpoint, head, events, eventsPerSecond: events / seconds, etaMs })
}

/** Whether an error is due to a lock of another transaction, so that trying again can help. */
export function isLocked(error: unknown): boolean {
  const transient = ['serialization_failed', 'timed_out', 'transaction_timeout']
  if (isRillflowError(error) && transient.includes(error.code)) return true
  const { sqlState } = error as { sqlState?: string }
  return isRillflowError(error, 'database_failed') && sqlState === lockNotAvailable
}

/** The checkpoint with which the new read model begins: the events after it are all there, or still to come. */
export async function startOfBuild(
  log: Log,
  { name, options: { from } }: Pick<Projection, 'name' | 'options'>,
  executor: Executor = log.database,
): Promise<number> {
  return typeof from === 'number' ? startOf(log, name, from, executor) : 0
}

/** The state of a projection's row; undefined if it has none. */
export async function stateOf(log: Log, name: string): Promise<string | undefined> {
  const [row] = await log.database.run<{ state: string }>(sql`/* projections.state */
    select state
    from ${consumerNames(log).consumers}
    where name = ${name}::text`)
  return row?.state
}
