/**
 * Building a read model in the foreground: the log applied from a checkpoint to its end, under a lease, with the same
 * batches, the same failure policy and the same dead letters as a consumer that follows it.
 */

import type { Consumer } from '../../consumers/consumer.ts'
import type { Consumers } from '../../consumers/consumers.ts'
import { type Held, type Lease, renew, save } from '../../consumers/row.ts'
import { applyPage } from '../../consumers/run/batch.ts'
import { setPace } from '../../consumers/run/pace.ts'
import { consumerNames } from '../../consumers/schema.ts'
import { isRillflowError } from '../../core/errors.ts'
import { sleep, throwIfAborted } from '../../core/lifecycle.ts'
import { sql } from '../../database/sql.ts'
import { lockNotAvailable } from '../../database/sqlstate.ts'
import type { Log } from '../../events/log.ts'
import { settle } from '../../events/order/order.ts'
import type { Prepare } from './prepare.ts'

export interface RebuildProgress {
  readonly phase: 'building' | 'switching'
  /** How far the new read model has come. */
  readonly position: number
  /** The end of the log, as of now. */
  readonly head: number
  /** Events applied by this call. */
  readonly events: number
  readonly eventsPerSecond: number
  /** Undefined as long as there is nothing to go by. */
  readonly etaMs: number | undefined
}

export type OnProgress = (progress: RebuildProgress) => void

export interface RebuildOptions {
  /** Told after each batch. */
  onProgress?: OnProgress | undefined
  /** Stops it; called again, it goes on where it was. */
  signal?: AbortSignal | undefined
  /** Throw away what a rebuild that was cut off has done. Default false. */
  restart?: boolean | undefined
  /** How long to try to switch while others keep the tables locked. Default 600 000. */
  switchMs?: number | undefined
}

export interface RebuildParts {
  readonly consumers: Consumers
  readonly prepare: Prepare
}

/** A build under way. */
export interface Build {
  readonly consumers: Consumers
  readonly consumer: Consumer
  readonly lease: Held
  checkpoint: number
  attempts: number
  events: number
  readonly signal: AbortSignal | undefined
  readonly onProgress: OnProgress | undefined
  /** Since when, and from where, the rate is taken. */
  readonly started: { readonly at: number; readonly checkpoint: number }
}

/** A page of a rebuild is larger than one of a projection that keeps up: what it writes set-based is written once. */
const buildBatch = 3_000

export function beginBuild(
  given: Pick<Build, 'consumers' | 'lease' | 'signal' | 'onProgress'> & { consumer: Consumer; from: Lease },
): Build {
  const { from, consumer, ...rest } = given
  const started = { at: performance.now(), checkpoint: from.checkpoint }
  const larger = { ...consumer, batchSize: Math.max(consumer.batchSize, buildBatch) }
  return { ...rest, consumer: larger, checkpoint: from.checkpoint, attempts: from.attempts, events: 0, started }
}

/** What came in meanwhile and is no more than this is left to whoever goes on: writers that never pause are never caught. */
const near = 200

/** Applies what is settled, until hardly anything has settled meanwhile. */
export async function catchUp(build: Build): Promise<void> {
  const { consumers, consumer, lease, signal } = build
  const { log, feed } = consumers
  const pace = setPace(log.database, consumer)
  const lost = signal ?? new AbortController().signal
  const pages = feed.reader(consumer.filter)
  await renew(log, lease, consumer.leaseMs)
  let renewedAt = performance.now()
  for (;;) {
    const { settled } = await settle(log)
    const isLast = settled - build.checkpoint <= near
    while (build.checkpoint < settled) {
      throwIfAborted(signal)
      if (performance.now() - renewedAt > consumer.leaseMs / 3) {
        await renew(log, lease, consumer.leaseMs)
        renewedAt = performance.now()
      }
      const page = await pages.next(build.checkpoint, settled, pace.limit())
      if (page.events.length === 0) {
        await save(log, lease, { checkpoint: page.reached }, log.database)
        build.checkpoint = page.reached
      } else {
        const startedAt = performance.now()
        const outcome = await applyPage(
          { log, consumer, lease, attempts: build.attempts, breaker: undefined, lost },
          page,
        )
        if (outcome.error === undefined) pace.took(outcome.processed, performance.now() - startedAt)
        if (outcome.end === 'stop') throw outcome.error
        build.checkpoint = outcome.checkpoint
        build.attempts = outcome.attempts
        build.events += outcome.processed
        if (outcome.retryInMs > 0) await sleep(outcome.retryInMs, { signal })
      }
      report(build, 'building', settled)
      // Embedded every answer is there at once: timers and sockets need a turn of their own.
      await new Promise(setImmediate)
    }
    throwIfAborted(signal)
    if (isLast) return
  }
}

export function report(build: Build, phase: RebuildProgress['phase'], head: number): void {
  const { started, checkpoint, events, onProgress } = build
  if (onProgress === undefined) return
  const seconds = Math.max(0.001, (performance.now() - started.at) / 1000)
  const passed = Number(checkpoint - started.checkpoint)
  const left = Number(head > checkpoint ? head - checkpoint : 0)
  const etaMs = passed > 0 ? (left / passed) * seconds * 1000 : undefined
  onProgress({ phase, position: checkpoint, head, events, eventsPerSecond: events / seconds, etaMs })
}

/** True for what goes away by itself: others hold a lock that is needed. */
export function isLocked(error: unknown): boolean {
  const passing = ['serialization_failed', 'timed_out', 'transaction_timeout']
  if (isRillflowError(error) && passing.includes(error.code)) return true
  const { sqlState } = error as { sqlState?: string }
  return isRillflowError(error, 'database_failed') && sqlState === lockNotAvailable
}

export async function stateOf(log: Log, name: string): Promise<string | undefined> {
  const [row] = await log.database.run<{ state: string }>(sql`/* projections.state */
    select state
    from ${consumerNames(log).consumers}
    where name = ${name}::text`)
  return row?.state
}
