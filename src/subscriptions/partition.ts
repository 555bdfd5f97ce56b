/**
 * One partition that this process holds: its window, and all writes to it under its fence.
 *
 *     ack, nack ──► coalesce ──► one statement at a time, for all outcomes that came meanwhile ──► stored
 *
 * So a burst of acknowledgements costs a few writes. An event counts as acknowledged only when that is stored. If the
 * database is away, the same outcomes are sent again; a lost lease ends the partition here, and the next holder
 * delivers again the events whose outcome was not stored.
 */

import { record } from '../consumers/dead-letters/row.ts'
import { LeaseLost } from '../consumers/errors.ts'
import type { Lease } from '../consumers/row.ts'
import { describeError } from '../consumers/run/failure.ts'
import { decide } from '../consumers/run/policy.ts'
import { sleep } from '../core/abort.ts'
import { systemClock } from '../core/clock.ts'
import { coalesce } from '../core/coalesce.ts'
import { isRillflowError } from '../core/errors.ts'
import { elapsedMs } from '../core/host.ts'
import { openLoop } from '../core/loop.ts'
import { type Backoff, defaultBackoff, delay } from '../core/retry.ts'
import type { Executor } from '../database/database.ts'
import { type AnyTransaction, isOwnTransaction } from '../database/transaction.ts'
import type { Log } from '../events/log.ts'
import { type Settler, settleOnce } from './delivery.ts'
import type { SubscriptionOptions } from './options.ts'
import { openParking } from './parking.ts'
import { endedInside, firstFailures, type RowState, saveChange, saveInside } from './save.ts'
import type { Entry, Window } from './window.ts'

export interface PartitionParts {
  readonly log: Log
  readonly options: SubscriptionOptions
  readonly lease: Lease
  readonly window: Window
  executorOf(tx: AnyTransaction): Executor
  /** An event may be deliverable now, or there is room. */
  onChange(): void
  /** Runs work that must end soon, or the lease is lost. */
  limited<T>(work: () => Promise<T>): Promise<T>
  /** The row as it was when it was written. */
  onState(state: RowState): void
  /** The policy, or a permanent error, ends the subscription. */
  onStop(error: unknown): void
}

export interface Partition {
  readonly lease: Lease
  readonly window: Window
  /** Aborts when the lease is lost or released. */
  readonly ended: AbortSignal
  settler(entry: Entry): Settler
  /** Applies the policy to an event that cannot be delivered. */
  reject(entry: Entry): Promise<void>
  /** Learns which streams are parked. Before the first event is taken. */
  loadParked(): Promise<void>
  /** Whether the event is not to be delivered now, because its stream may be parked: it comes again if it is not. */
  holdsBack(entry: Entry): boolean
  /** The window has moved past events that the filter skips: the new checkpoint is stored soon. */
  moved(): void
  /** The server may have restarted: only stored outcomes, and events that surely exist, count as read. */
  goBack(surely: number): void
  /** Stores the present outcomes, then ends. */
  close(): Promise<void>
  /** Ends at once: the lease is lost. */
  lose(reason?: unknown): void
}

/** The outcome of one delivery, before it is stored. */
interface Outcome {
  readonly entry: Entry
  readonly kind: 'done' | 'skip' | 'deadLetter' | 'park' | 'givenBack' | 'stop'
  readonly delayMs: number
  readonly error: unknown
}

/** A checkpoint that only passes events that the filter skips is stored this often at most. */
const movedEveryMs = 250
/** How soon a transaction that an event was acknowledged in is looked for, and later again. */
const insideBackoff: Backoff = { baseMs: 20, factor: 2, maxMs: 500, jitter: 0 }
/** The window limits how many events are out. */
const unlimited = { count: Number.POSITIVE_INFINITY, bytes: Number.POSITIVE_INFINITY }

export function openPartition(parts: PartitionParts): Partition {
  const { log, options, lease, window } = parts
  const { consumer, fence } = lease
  const ended = new AbortController()
  const inside = new Set<Entry>()
  const queue = coalesce<Outcome | 'checkpoint', undefined>({
    name: `acknowledgement of ${consumer}`,
    send: saveOutcomes,
    afterFailure: () => 'fail',
    maxBatch: unlimited,
    maxQueued: unlimited,
  })
  const insideLoop = openLoop({
    look: lookInside,
    pollMs: Number.POSITIVE_INFINITY,
    backoff: insideBackoff,
    unref: true,
  })
  let insideLooks = 0
  let saved = lease.checkpoint
  let savedAt = 0
  let movedTimer: { cancel(): void } | undefined

  const isOpen = (): boolean => !ended.signal.aborted
  const parking = openParking({
    ...{ log, lease, ended: ended.signal },
    onParked: entry => void store(entry, 'done').catch(() => {}),
    onFree(entry, delayMs) {
      // It was not delivered.
      entry.deliveries--
      window.giveBack(entry, log.clock.now().getTime() + delayMs)
      parts.onChange()
    },
  })

  return {
    lease,
    window,
    ended: ended.signal,
    settler,
    reject: entry => settle(entry, entry.fault, { isFault: true }),
    loadParked: parking.load,
    holdsBack(entry) {
      const isHeld = parking.mayHold(entry.event.stream)
      if (isHeld) parking.park(entry)
      return isHeld
    },
    moved,
    goBack: surely => window.goBack(surely > saved ? surely : saved),
    async close() {
      movedTimer?.cancel()
      if (isOpen() && window.checkpoint > saved) saveCheckpoint()
      await queue.drain()
      lose()
    },
    lose,
  }

  function lose(reason: unknown = new LeaseLost({ consumer, fence })): void {
    if (!isOpen()) return
    // Queued outcomes are rejected with the reason, one turn later.
    ended.abort(reason)
    movedTimer?.cancel()
    void insideLoop.stop()
    parts.onChange()
  }

  function settler(entry: Entry): Settler {
    return settleOnce({
      ...{ log, lease, position: entry.event.position, ended: ended.signal },
      ack: tx => (tx === undefined ? store(entry, 'done') : ackInside(entry, tx)),
      nack: ({ delayMs, reason = 'it was given back' }) => settle(entry, reason, { delayMs }),
    })
  }

  async function settle(
    entry: Entry,
    error: unknown,
    { delayMs, isFault = false }: { delayMs?: number | undefined; isFault?: boolean } = {},
  ): Promise<void> {
    const { event, deliveries } = entry
    // Reading it again would not make it readable.
    const attempt = isFault ? Number.MAX_SAFE_INTEGER : deliveries
    const decided = await decide(options.policy, { consumer, event, error, attempt }).catch(failure => {
      log.telemetry.log.error({ consumer, error: failure }, 'The failure policy itself failed.')
      return { decision: 'deadLetter' as const }
    })
    if (decided.decision === 'retry' && !isFault) return store(entry, 'givenBack', error, delayMs ?? decided.delayMs)
    if (decided.decision === 'skip') return store(entry, 'skip', error)
    if (decided.decision === 'stop') return store(entry, 'stop', error)
    if (decided.decision === 'park') {
      const stored = store(entry, 'park', error)
      parking.hold(event.stream, stored)
      return stored
    }
    return store(entry, 'deadLetter', error)
  }

  function store(entry: Entry, kind: Outcome['kind'], error?: unknown, delayMs = 0): Promise<void> {
    if (!isOpen()) return Promise.reject(new LeaseLost({ consumer, fence }))
    return submit({ entry, kind, error, delayMs })
  }

  function saveCheckpoint(): void {
    void submit('checkpoint')
  }

  /** Outcomes, and the checkpoint, that come together are stored together. The promise need not be waited for. */
  function submit(item: Outcome | 'checkpoint'): Promise<undefined> {
    const stored = queue.submit(item)
    stored.then(moved, () => {})
    return stored
  }

  function moved(): void {
    if (!isOpen() || window.checkpoint <= saved || queue.size > 0 || movedTimer !== undefined) return
    const wait = savedAt + movedEveryMs - elapsedMs()
    if (wait <= 0) {
      saveCheckpoint()
      return
    }
    const timer = systemClock.setTimeout(() => {
      movedTimer = undefined
      if (isOpen() && window.checkpoint > saved) saveCheckpoint()
    }, wait)
    timer.unref?.()
    movedTimer = timer
  }

  async function saveOutcomes(items: readonly (Outcome | 'checkpoint')[]): Promise<undefined[]> {
    if (!isOpen()) throw ended.signal.reason
    const taken = items.filter(item => item !== 'checkpoint')
    for (const { entry, kind } of taken) if (kind !== 'givenBack' && kind !== 'stop') window.complete(entry)
    try {
      const { checkpoint, state } = await saveUntilStored(taken)
      if (checkpoint > saved) saved = checkpoint
      savedAt = elapsedMs()
      window.forget(checkpoint)
      const now = log.clock.now().getTime()
      for (const { entry, kind, delayMs, error } of taken) {
        if (kind === 'givenBack' || kind === 'stop') window.giveBack(entry, now + delayMs)
        if (kind === 'skip')
          log.telemetry.log.warn({ consumer, position: entry.event.position, error }, 'an event was skipped')
        if (kind === 'stop') parts.onStop(error)
      }
      parts.onState(state)
      parts.onChange()
      return items.map(() => undefined)
    } catch (error) {
      const reason = isOpen() ? error : new LeaseLost({ consumer, fence })
      // The runner takes it anew, and begins with the row.
      if (!isRillflowError(reason, 'lease_lost') && !isRillflowError(reason, 'checkpoint_moved')) parts.onStop(reason)
      lose(reason)
      throw reason
    }
  }

  async function saveUntilStored(taken: readonly Outcome[]): Promise<{ checkpoint: number; state: RowState }> {
    const failed = taken.filter(({ kind }) => kind === 'deadLetter' || kind === 'park')
    const { checkpoint } = window
    const change = {
      from: saved,
      checkpoint,
      done: taken
        .filter(({ entry }) => entry.state === 'done' && entry.event.position > checkpoint)
        .map(({ entry }) => rowOf(entry)),
      givenBack: taken
        .filter(({ kind }) => kind === 'givenBack' || kind === 'stop')
        .map(({ entry, delayMs, error }) => ({ ...rowOf(entry), delayMs, error: describeError(error) })),
    }
    for (let attempt = 1; isOpen(); attempt++) {
      try {
        const state = await parts.limited(() =>
          failed.length === 0
            ? saveChange(log, log.database, lease, change)
            : log.database.transaction(async tx => {
                const positions = failed.map(({ entry }) => entry.event.position)
                const firsts = await firstFailures(log, tx, lease, positions)
                const state = await saveChange(log, tx, lease, change)
                if (state === undefined) return undefined
                for (const { entry, error, kind } of failed) {
                  const firstFailedAt = firsts.get(entry.event.position)
                  const tries = { attempts: entry.deliveries, firstFailedAt, parks: kind === 'park' }
                  const failure = { event: entry.event, error, ...tries }
                  await record(log, lease, failure, tx)
                }
                return state
              }),
        )
        if (state !== undefined) return { checkpoint, state }
        await sleep(Math.min(2 * attempt, 50), { signal: ended.signal })
      } catch (error) {
        // Storing the same again is harmless, so outcomes that got no answer are sent again.
        const isWorthIt = isRillflowError(error) && (error.retryable || error.code === 'outcome_unknown')
        if (!isOpen() || !isWorthIt) throw error
        log.telemetry.log.warn({ consumer, error }, 'Acknowledgements could not be stored yet.')
        await sleep(delay(defaultBackoff, attempt), { signal: ended.signal })
      }
    }
    throw new LeaseLost({ consumer, fence })
  }

  async function ackInside(entry: Entry, tx: AnyTransaction): Promise<void> {
    await saveInside(log, parts.executorOf(tx), lease, rowOf(entry))
    inside.add(entry)
    if (isOwnTransaction(tx)) tx.afterCommit(() => committed(entry))
    insideLoop.lookIn(delay(insideBackoff, insideLooks + 1))
  }

  function committed(entry: Entry): void {
    if (!inside.delete(entry) || !isOpen()) return
    window.complete(entry)
    saveCheckpoint()
  }

  /**
   * A transaction of another library does not say how it ended, and one of ours does not say when it is rolled back.
   * Returns when to look again.
   */
  async function lookInside(): Promise<number | undefined> {
    const entries = [...inside]
    if (entries.length > 0) await settleInside(entries)
    insideLooks = inside.size > 0 ? insideLooks + 1 : 0
    return inside.size > 0 ? delay(insideBackoff, insideLooks + 1) : undefined
  }

  async function settleInside(entries: readonly Entry[]): Promise<void> {
    try {
      const acked = await endedInside(
        log,
        lease,
        entries.map(entry => entry.event.position),
      )
      if (acked === undefined) return
      for (const entry of entries) {
        if (acked.has(entry.event.position)) committed(entry)
        else if (inside.delete(entry)) void settle(entry, rolledBack).catch(() => {})
      }
    } catch (error) {
      if (!isRillflowError(error, 'lease_lost')) throw error
      lose(error)
    }
  }
}

const rolledBack = 'the transaction it was acknowledged in was rolled back'

function rowOf({ event, deliveries }: Entry): { position: number; deliveries: number } {
  return { position: event.position, deliveries }
}
