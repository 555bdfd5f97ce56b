/**
 * Running a consumer under its lease.
 *
 *     follow    by a runner: for as long as it holds the lease                                          (follow.ts)
 *     runOnce   by hand: one batch; runUntilIdle: until nothing is left                                 (here)
 *       │
 *       ▼
 *     feed ──► a page of events ──► batch: handler + checkpoint, one transaction ──► the next page
 *                                     └── an event fails ──► policy: retry · dead letter · skip · stop
 *                                                    breaker: the target is down, wait instead of using up retries
 *
 * Guarantees:
 * - The effects of a batch and its checkpoint commit together or not at all, under the fence of the lease.
 * - Only the failing event of a batch is undone; the events before it are kept.
 * - An error that is not about the event (the database is away, the lease is lost) counts as no attempt.
 *
 * By hand the lease is taken and released each time, so that calls in several processes, and runners, do not interfere.
 * What can fail: the handler, as the policy says; `runOnce` reports it, and `run` rejects with it.
 */

import { throwIfAborted } from '../../core/abort.ts'
import { isRillflowError } from '../../core/errors.ts'
import { elapsedMs } from '../../core/host.ts'
import { settle } from '../../events/order/order.ts'
import { type Consumer, ensureConsumer } from '../consumer.ts'
import type { Consumers } from '../consumers.ts'
import { replayRequested } from '../dead-letters/replay.ts'
import { CheckpointBeyondHead } from '../errors.ts'
import { type Lease, newOwner, release, reportError, save, take } from '../row.ts'
import type { HeldLease } from '../runners/runnable.ts'
import { applyPage, type BatchOutcome } from './batch.ts'
import { describeError } from './failure.ts'
import { type Pace, setPace } from './pace.ts'

export interface RunResult {
  readonly result: 'idle' | 'paused' | 'backoff' | 'leasedByOther' | 'inline' | 'rebuilding' | 'processed' | 'stopped'
  /** Events that were passed: applied, skipped or recorded as dead letters. */
  readonly count: number
  /** The error of the event that failed. */
  readonly error?: unknown
}

export interface RunOptions {
  signal?: AbortSignal | undefined
}

/** One batch. */
export function runOnce(consumers: Consumers, consumer: Consumer, options: RunOptions = {}): Promise<RunResult> {
  return runLeased(consumers, consumer, options, () => false)
}

/**
 * Batches until no consumer can apply an event now; returns how many events were passed. A consumer that cannot run does
 * not delay the others: its error is thrown after they have run.
 */
export async function runUntilIdle(
  consumers: Consumers,
  all: readonly Consumer[],
  { signal }: RunOptions = {},
): Promise<number> {
  let total = 0
  let failure: { readonly error: unknown } | undefined
  for (const consumer of all) {
    for (;;) {
      throwIfAborted(signal)
      const until = elapsedMs() + consumer.leaseMs / 3
      const isTime = (): boolean => elapsedMs() < until
      const { result, count } = await runLeased(consumers, consumer, { signal }, isTime).catch((error: unknown) => {
        // Another runner continued with it, an operator changed it, or the server has lost its last writes.
        if (isRillflowError(error, 'lease_lost') || isRillflowError(error, 'checkpoint_moved'))
          return { result: 'processed' as const, count: 0 }
        if (signal?.aborted || !isRillflowError(error, 'checkpoint_beyond_head')) throw error
        failure ??= { error }
        return { result: 'idle' as const, count: 0 }
      })
      total += count
      if (result !== 'processed') break
    }
  }
  if (failure !== undefined) throw failure.error
  return total
}

/** Batches under one lease, as long as there are events and `continues` says so; the last one, with the count of all. */
async function runLeased(
  consumers: Consumers,
  consumer: Consumer,
  { signal }: RunOptions,
  continues: () => boolean,
): Promise<RunResult> {
  const { log, wake } = consumers
  throwIfAborted(signal)
  await consumer.prepare?.(signal)
  await ensureConsumer(log, consumer)
  const lease = await take(log, consumer.name, newOwner(log), consumer.leaseMs)
  if (typeof lease === 'string') return { result: lease === 'missing' ? 'idle' : lease, count: 0 }
  try {
    if (lease.retryInMs > 0) return { result: 'backoff', count: 0 }
    const lost = signal ?? new AbortController().signal
    const held: HeldLease = { lease, drain: lost, lost, onRequest: () => () => {}, limited: work => work() }
    const { replayed } = await replayRequested({ log }, consumer, held)
    const pace = setPace(log.database, consumer, lease.batchLimit)
    const at: Progress = { checkpoint: lease.checkpoint, attempts: lease.attempts, isPaused: false, pace }
    let last = await runHeld(consumers, consumer, lease, at, lost)
    let count = last.count
    while (last.result === 'processed' && last.error === undefined && !at.isPaused && !lost.aborted && continues()) {
      last = await runHeld(consumers, consumer, lease, at, lost)
      count += last.count
    }
    const isOnlyReplayed = replayed > 0 && count === 0 && last.result === 'idle'
    return isOnlyReplayed ? { result: 'processed', count: replayed } : { ...last, count }
  } finally {
    await release(log, [lease]).catch(() => {})
    wake.changed()
  }
}

/** How far a consumer has come under its lease. */
interface Progress {
  checkpoint: number
  attempts: number
  isPaused: boolean
  readonly pace: Pace
}

/** Reads pages until one has events, and applies that one; pages without any only move the checkpoint. */
async function runHeld(
  { log, feed }: Consumers,
  consumer: Consumer,
  lease: Lease,
  at: Progress,
  lost: AbortSignal,
): Promise<RunResult> {
  const { settled, head } = await settle(log)
  const { checkpoint } = at
  if (head < checkpoint) throw new CheckpointBeyondHead({ consumer: consumer.name, checkpoint, head })
  while (at.checkpoint < settled) {
    const page = await feed.page(consumer.filter, at.checkpoint, settled, at.pace.limit())
    if (page.events.length > 0) {
      const started = elapsedMs()
      const known = { from: at.checkpoint, attempts: at.attempts, batchLimit: at.pace.limit() }
      const work = { log, consumer, lease, ...known, breaker: undefined, lost }
      const outcome = await applyPage(work, page).catch((error: unknown) => {
        if (!isRillflowError(error, 'consumer_timeout')) throw error
        return error
      })
      if (outcome instanceof Error) {
        // The batch was too large, not the event at fault: fewer the next time.
        at.pace.tooLong(page.events.length)
        await reportError(log, lease, describeError(outcome), at.pace.limit())
        return { result: 'processed', count: 0, error: outcome }
      }
      if (outcome.error === undefined) at.pace.took(outcome.processed, elapsedMs() - started)
      at.checkpoint = outcome.checkpoint
      at.attempts = outcome.attempts
      at.isPaused = outcome.isPaused
      return resultOf(outcome)
    }
    await save(log, lease, { from: at.checkpoint, checkpoint: page.reached }, log.database)
    at.checkpoint = page.reached
  }
  return { result: 'idle', count: 0 }
}

function resultOf({ processed: count, end, error, retryInMs }: BatchOutcome): RunResult {
  const failed = error === undefined ? {} : { error }
  if (end === 'stop') return { result: 'stopped', count, ...failed }
  return { result: count === 0 && retryInMs > 0 ? 'backoff' : 'processed', count, ...failed }
}
