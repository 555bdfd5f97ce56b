/**
 * A running group in this process. The runner shares the partitions of the group with other processes; this reads the
 * log for those it holds, and hands events to the code that asks for them.
 *
 *     runner: leases ──► partitions held ──► reader fills their windows ──► pull ──► code
 *                             ▲                                                        │ ack, nack
 *                             └────────────────────────────────────────────────────────┘
 *
 * What can fail: a database that is away is waited for. The group ends with an error if its policy stops it, the log is
 * another one, its filter was replaced, or it was removed.
 */

import { CheckpointBeyondHead, ConsumerNotFound } from '../consumers/errors.ts'
import { rowNames } from '../consumers/row-names.ts'
import { isInterruption } from '../consumers/run/failure.ts'
import { mayPark } from '../consumers/run/policy.ts'
import type { HeldLease, Leased } from '../consumers/runners/runnable.ts'
import { type Deferred, deferred, onAbort, once } from '../core/abort.ts'
import { isRillflowError } from '../core/errors.ts'
import { elapsedMs } from '../core/host.ts'
import { openLoop } from '../core/loop.ts'
import { retry } from '../core/retry.ts'
import { runDetached, type Services } from '../core/service.ts'
import type { Executor } from '../database/database.ts'
import type { AnyTransaction } from '../database/transaction.ts'
import type { Log } from '../events/log.ts'
import { settle } from '../events/order/order.ts'
import type { Wake } from '../events/order/wake.ts'
import type { LogWatch } from '../events/order/watch.ts'
import { openDeadLetters } from './dead-letters.ts'
import { type Delivery, deliveryOf } from './delivery.ts'
import { checkFilter, storedRows, storeGroup } from './groups.ts'
import type { StoredOptions, SubscriptionOptions } from './options.ts'
import { openPartition, type Partition } from './partition.ts'
import { type HeldPartition, maxBuffered, type Reader, startReader } from './reader.ts'
import { loadRow, type RowState } from './save.ts'
import { openWindow } from './window.ts'

export interface SubscriptionParts {
  readonly log: Log
  readonly wake: Wake
  readonly watch: LogWatch
  readonly services: Services
  executorOf(tx: AnyTransaction): Executor
}

export interface Group {
  /** Stores the group if it is new, and begins to read. */
  start(): Promise<void>
  /** Its partitions, for the runner; none once it has ended. */
  leased(): readonly Leased[]
  /** The next event, once there is one; undefined when the group was stopped. Rejects when it has failed. */
  pull(options: { alone: boolean }): Promise<Delivery | undefined>
  /** Ends all waits; deliveries that are out can still be settled. */
  quiet(): void
  /** Ends all waits, and closes partitions as soon as the runner releases their leases. */
  stop(): Promise<void>
}

export interface GroupHooks {
  /** `leased` has changed. */
  refresh(): void
  /** It has ended with this error. */
  onFailure(error: unknown): void
}

interface Pull {
  readonly alone: boolean
  readonly answer: Deferred<Delivery | undefined>
}

export function openGroup(parts: SubscriptionParts, options: SubscriptionOptions, hooks: GroupHooks): Group {
  const { log, wake } = parts
  const held = new Map<string, HeldPartition>()
  const pulls: Pull[] = []
  const stopping = new AbortController()
  let failure: { error: unknown } | undefined
  let stored: StoredOptions | undefined
  let leased: Leased[] = []
  let reader: Reader | undefined
  let dueTimer: { cancel(): void } | undefined
  let stopListening: (() => void) | undefined
  const rows = openLoop({
    look: readRows,
    pollMs: Number.POSITIVE_INFINITY,
    onFailure: failUnlessTemporary,
  })
  let lookedAt = 0
  /** The partition that is asked first, so that they take turns. */
  let first = 0
  let isQuiet = false
  let reportedInFlight = 0

  const quiet = (): void => {
    isQuiet = true
    dueTimer?.cancel()
    for (const { answer } of pulls.splice(0)) {
      if (failure === undefined) answer.resolve(undefined)
      else answer.reject(failure.error)
    }
  }
  const stop = once(async () => {
    quiet()
    stopping.abort()
    stopListening?.()
    for (const each of held.values()) if (each.isClosing) void each.partition.close()
    await rows.stop()
    await reader?.ended
  })

  return {
    async start() {
      const again = { retries: 6, when: isTemporary, signal: stopping.signal }
      adopt(await retry(() => storeGroup(log, options), again))
      if (stopping.signal.aborted) return
      const all = (): HeldPartition[] => [...held.values()]
      reader = startReader(
        { ...parts, options, held: all, beforePage: lookIfOld, onRead: serve, onFailure: fail },
        stopping.signal,
      )
      stopListening = wake.onChange(rows.lookSoon)
    },
    leased: () => (failure === undefined && !stopping.signal.aborted ? leased : []),
    pull({ alone }) {
      if (failure !== undefined) return Promise.reject(failure.error)
      if (isQuiet) return Promise.resolve(undefined)
      const answer = deferred<Delivery | undefined>()
      pulls.push({ alone, answer })
      serve()
      return answer.promise
    },
    quiet,
    stop: () => runDetached(stop),
  }

  function fail(error: unknown): void {
    if (failure !== undefined || stopping.signal.aborted) return
    failure = { error }
    void runDetached(stop).catch(() => {})
    hooks.onFailure(error)
    hooks.refresh()
  }

  /** After a temporary error the group continues: the runner takes the partition again with its next look. */
  function failUnlessTemporary(error: unknown): void {
    if (!isTemporary(error)) fail(error)
  }

  /** The partitions are those that are stored. */
  function adopt(now: StoredOptions): void {
    if (stored?.partitions !== now.partitions) {
      const { name, group, leaseMs, from } = options
      leased = rowNames({ name, group }, now.partitions).map((row, index) => ({
        ...{ name: row, kind: 'subscription' as const, from, leaseMs, isMade: true },
        run: (lease: HeldLease) =>
          runPartition(lease, index).catch((error: unknown) => {
            // A runner that stops in the middle of a statement cuts that off: that is not a failure of the subscription.
            if (!lease.lost.aborted) failUnlessTemporary(error)
            // The runner takes it anew after its next look.
          }),
      }))
      hooks.refresh()
    }
    stored = now
  }

  async function runPartition(hold: HeldLease, index: number): Promise<void> {
    const { lease, drain, lost } = hold
    const { remnants, stored: row, isPaused } = await hold.limited(() => loadRow(log, lease))
    if (isPaused) return
    checkFilter(options, row)
    const { checkpoint } = lease
    const { head } = await hold.limited(() => settle(log))
    if (head < checkpoint) throw new CheckpointBeyondHead({ consumer: lease.consumer, checkpoint, head })
    const window = openWindow({ checkpoint, limit: shareOf(row), maxBuffered, remnants })
    const { executorOf } = parts
    const partition: Partition = openPartition({
      ...{ log, options, lease, window, executorOf, onStop: fail, limited: hold.limited },
      onState: state => onState(entry, state),
      onChange: serve,
    })
    if (mayPark(options.policy)) await hold.limited(partition.loadParked)
    const ended = { ended: partition.ended, onChange: () => onDeadLetter(entry) }
    const deadLetters = openDeadLetters({ log, lease, executorOf, ...ended })
    const barrier = row.barrier === undefined ? undefined : Number(row.barrier)
    // The row's own number of partitions: another one may have been stored since they were listed.
    const entry: HeldPartition = {
      partition,
      limited: hold.limited,
      deadLetters,
      index,
      of: row.partitions,
      barrier,
      isClosing: false,
      turn: 0,
    }
    held.set(lease.consumer, entry)
    const releases = [
      onAbort(lost, () => partition.lose()),
      onAbort(drain, () => close(entry)),
      hold.onRequest(deadLetters.look),
    ]
    deadLetters.look()
    reader?.nudge()
    await new Promise<void>(resolve => onAbort(partition.ended, resolve))
    held.delete(lease.consumer)
    for (const release of releases) release()
    serve()
  }

  /** Waits a limited time for open deliveries, then ends it. Once the group stops, no code settles them. */
  function close(entry: HeldPartition): void {
    if (entry.isClosing) return
    entry.isClosing = true
    const { partition } = entry
    if (isIdle(entry) || stopping.signal.aborted) return void partition.close()
    const timer = log.clock.setTimeout(() => void partition.close(), options.drainMs)
    onAbort(partition.ended, () => timer.cancel())
  }

  function onState(entry: HeldPartition, { isPaused, stored: row }: RowState): void {
    const limit = shareOf(row)
    const hasMore = limit > entry.partition.window.limit
    entry.partition.window.limit = limit
    if (isPaused) close(entry)
    else if (hasMore) serve()
  }

  function onDeadLetter({ partition, deadLetters }: HeldPartition): void {
    partition.window.extra = deadLetters.isOut ? 1 : 0
    serve()
  }

  /** Delivers the events that may be delivered. */
  function serve(): void {
    for (const each of held.values()) if (each.isClosing && isIdle(each)) void each.partition.close()
    const now = log.clock.now().getTime()
    while (pulls.length > 0) {
      const delivery = next(now, pulls[0]!.alone)
      if (delivery === undefined) break
      pulls.shift()!.answer.resolve(delivery)
      log.telemetry.count('deliveries_total', 1, options.name)
    }
    reportInFlight()
    reader?.nudge()
    dueTimer?.cancel()
    dueTimer = undefined
    if (pulls.length === 0) return
    const due = [...held.values()].flatMap(each => (each.isClosing ? [] : (each.partition.window.nextDue() ?? [])))
    if (due.length === 0) return
    const waitMs = Math.max(1, Math.min(...due) - now)
    dueTimer = runDetached(() => log.clock.setTimeout(serve, waitMs))
  }

  function reportInFlight(): void {
    let inFlight = 0
    for (const { partition } of held.values()) inFlight += partition.window.out + partition.window.extra
    if (inFlight !== reportedInFlight)
      log.telemetry.shift('deliveries_in_flight', inFlight - reportedInFlight, options.name)
    reportedInFlight = inFlight
  }

  function next(now: number, alone: boolean): Delivery | undefined {
    const all = [...held.values()]
    for (let tried = 0; tried < all.length; tried++) {
      const { partition, deadLetters, isClosing } = all[(first + tried) % all.length]!
      if (isClosing || partition.ended.aborted) continue
      const retried = partition.window.out < partition.window.limit ? deadLetters.take() : undefined
      if (retried !== undefined) {
        partition.window.extra = 1
        return retried
      }
      for (let entry = partition.window.take(now, alone); entry; entry = partition.window.take(now, alone)) {
        if (partition.holdsBack(entry)) continue
        if (entry.fault === undefined) {
          first = (first + tried + 1) % all.length
          return deliveryOf(entry.event, entry.deliveries, partition.settler(entry))
        }
        void partition.reject(entry).catch(() => {})
      }
    }
    return undefined
  }

  async function lookIfOld(): Promise<void> {
    if (elapsedMs() - lookedAt > 1000) await rows.lookNow().catch(() => {})
  }

  /** Changes by operators: it was paused, its limit or its number of partitions changed, or it was removed. */
  async function readRows(): Promise<undefined> {
    lookedAt = elapsedMs()
    const found = await storedRows(log, options)
    const [row] = found
    if (row === undefined) {
      const { name: consumer, group } = options
      fail(new ConsumerNotFound({ consumer, group }))
      return undefined
    }
    adopt(row.stored)
    for (const [name, entry] of held) {
      const own = found.find(each => each.name === name)
      if (own === undefined || own.fence !== entry.partition.lease.fence) entry.partition.lose()
      else onState(entry, own)
    }
    return undefined
  }
}

function isTemporary(error: unknown): boolean {
  return isInterruption(error) || (isRillflowError(error) && error.retryable)
}

function isIdle({ partition, deadLetters }: HeldPartition): boolean {
  return partition.window.out === 0 && !deadLetters.isOut
}

/** The group's limit is divided among its partitions, so that together they keep to it. */
function shareOf({ maxInFlight, partitions }: StoredOptions): number {
  return Math.max(1, Math.floor(maxInFlight / partitions))
}
