/**
 * Running a consumer: reading the log, applying pages, and what happens when an event fails.
 *
 *     follow ──► feed: the next page after the checkpoint ──► batch: apply it, save the checkpoint, one transaction
 *                                                               │ failed: event by event, as the failure policy says
 *                                                               └─► retry with backoff · dead letter · skip · stop
 *
 * Guarantees:
 * - The writes of a batch and its checkpoint are one transaction, under the fence of the lease; the checkpoint is written last.
 * - An event that fails undoes its own writes only: the events before it are kept, and the checkpoint waits before it.
 * - A lost lease rolls the batch back (`LeaseLost`); the new holder continues from the last checkpoint.
 *
 * Here: a consumer run by hand, one batch at a time or until nothing is left. The lease is taken and released each time, so
 * calls of several processes do not get in each other's way.
 */

import { isRillflowError } from '../../core/errors.ts'
import { throwIfAborted } from '../../core/lifecycle.ts'
import { settle } from '../../events/order/order.ts'
import type { Consumer } from '../consumer.ts'
import { ensureConsumer } from '../consumer.ts'
import type { Consumers } from '../consumers.ts'
import { replayRequested } from '../dead-letters/replay.ts'
import { CheckpointBeyondHead } from '../errors.ts'
import { type Lease, newOwner, release, save, take } from '../row.ts'
import type { Hold } from '../runners/host.ts'
import { applyPage, type BatchOutcome } from './batch.ts'

export interface Tick {
  readonly result: 'idle' | 'paused' | 'backoff' | 'leasedByOther' | 'inline' | 'rebuilding' | 'processed' | 'stopped'
  /** Events that are done with: applied, skipped or set aside. */
  readonly count: number
  /** What failed in it. */
  readonly error?: unknown
}

export interface TickOptions {
  signal?: AbortSignal | undefined
}

/** One batch. */
export function tickOnce(consumers: Consumers, consumer: Consumer, options: TickOptions = {}): Promise<Tick> {
  return tickLeased(consumers, consumer, options, () => false)
}

/** Batches under one lease, as long as there are events and `goesOn` says so; the last of them, with the count of all. */
async function tickLeased(
  consumers: Consumers,
  consumer: Consumer,
  { signal }: TickOptions,
  goesOn: () => boolean,
): Promise<Tick> {
  const { log, wake } = consumers
  throwIfAborted(signal)
  await consumer.prepare?.(signal)
  await ensureConsumer(log, consumer)
  const lease = await take(log, consumer.name, newOwner(log), consumer.leaseMs)
  if (typeof lease === 'string') return { result: lease === 'missing' ? 'idle' : lease, count: 0 }
  try {
    if (lease.retryInMs > 0) return { result: 'backoff', count: 0 }
    const lost = signal ?? new AbortController().signal
    const { replayed } = await replayRequested({ log }, consumer, holdOf(lease, lost))
    const place: Place = { checkpoint: lease.checkpoint, attempts: lease.attempts, isPaused: false }
    let tick = await tickHeld(consumers, consumer, lease, place, lost)
    let count = tick.count
    while (tick.result === 'processed' && tick.error === undefined && !place.isPaused && !lost.aborted && goesOn()) {
      tick = await tickHeld(consumers, consumer, lease, place, lost)
      count += tick.count
    }
    return replayed > 0 && count === 0 && tick.result === 'idle'
      ? { result: 'processed', count: replayed }
      : { ...tick, count }
  } finally {
    await release(log, [lease]).catch(() => {})
    wake.changed()
  }
}

/** How far a consumer has come under its lease. */
interface Place {
  checkpoint: number
  attempts: number
  isPaused: boolean
}

/** Pages until one has events in it, which is then applied; what the filter leaves out is passed over. */
async function tickHeld(
  consumers: Consumers,
  consumer: Consumer,
  lease: Lease,
  place: Place,
  lost: AbortSignal,
): Promise<Tick> {
  const { log, feed } = consumers
  const { settled, head } = await settle(log)
  const { checkpoint } = place
  if (head < checkpoint) throw new CheckpointBeyondHead({ consumer: consumer.name, checkpoint, head })
  while (place.checkpoint < settled) {
    const page = await feed.page(consumer.filter, place.checkpoint, settled, consumer.batchSize)
    if (page.events.length > 0) {
      const work = { log, consumer, lease, attempts: place.attempts, breaker: undefined, lost }
      const outcome = await applyPage(work, page)
      place.checkpoint = outcome.checkpoint
      place.attempts = outcome.attempts
      place.isPaused = outcome.isPaused
      return tickOf(outcome)
    }
    place.checkpoint = page.reached
    await save(log, lease, { checkpoint: place.checkpoint }, log.database)
  }
  return { result: 'idle', count: 0 }
}

function tickOf({ processed, end, error, retryInMs }: BatchOutcome): Tick {
  const told = error === undefined ? {} : { error }
  if (end === 'stop') return { result: 'stopped', count: processed, ...told }
  return { result: processed === 0 && retryInMs > 0 ? 'backoff' : 'processed', count: processed, ...told }
}

/** Ticks until a consumer has nothing to do that could be done now; returns how many events were done with. */
export async function runUntilIdle(
  consumers: Consumers,
  which: readonly Consumer[],
  { signal }: TickOptions = {},
): Promise<number> {
  let total = 0
  for (const consumer of which) {
    for (;;) {
      throwIfAborted(signal)
      const until = performance.now() + consumer.leaseMs / 3
      const isTime = (): boolean => performance.now() < until
      const { result, count } = await tickLeased(consumers, consumer, { signal }, isTime).catch((error: unknown) => {
        // Somebody else went on with it, or the operator did.
        if (isRillflowError(error, 'lease_lost')) return { result: 'processed' as const, count: 0 }
        throw error
      })
      total += count
      if (result !== 'processed') break
    }
  }
  return total
}

function holdOf(lease: Lease, lost: AbortSignal): Hold {
  return { lease, drain: lost, lost, onRequest: () => () => {} }
}
