/**
 * A subscription at work in this process: it shares the partitions of its group with other processes through a host, reads
 * for those it holds, and hands events to whoever asks.
 */

import { CheckpointBeyondHead } from '../consumers/errors.ts'
import { isInterruption } from '../consumers/run/failure.ts'
import { type Hold, type Host, type Hosted, openHost } from '../consumers/runners/host.ts'
import { isRillflowError } from '../core/errors.ts'
import { type Deferred, deferred, onAbort, once, settledWithin } from '../core/lifecycle.ts'
import { openLoop } from '../core/loop.ts'
import { retry } from '../core/retry.ts'
import type { Executor } from '../database/database.ts'
import { type AnyTransaction, runOutside } from '../database/transaction.ts'
import type { Log } from '../events/log.ts'
import { settle } from '../events/order/order.ts'
import type { Wake } from '../events/order/wake.ts'
import type { LogWatch } from '../events/order/watch.ts'
import { type Delivery, deliveryOf } from './delivery.ts'
import { SubscriptionNotFound } from './errors.ts'
import { openLetters } from './letters.ts'
import { openPartition, type Partition } from './partition.ts'
import { type Plan, rowNames, type StoredPlan } from './plan.ts'
import { bufferedEvents, type Held, type Reader, startReader } from './reader.ts'
import { checkFilter, registerGroup, storedRows } from './register.ts'
import { loadRow, type RowState } from './save.ts'
import { openWindow } from './window.ts'

export interface SubscriptionParts {
  readonly log: Log
  readonly wake: Wake
  readonly watch: LogWatch
  executorOf(tx: AnyTransaction): Executor
}

export interface Runner {
  /** The next event, once there is one; undefined when it was stopped. Rejects when it has failed. */
  pull(options: { alone: boolean }): Promise<Delivery | undefined>
  /** Ends all waits; what is out can still be settled. */
  quiet(): void
  /** Ends all waits, stores what was said, gives the leases back. */
  stop(): Promise<void>
}

interface Pull {
  readonly alone: boolean
  readonly answer: Deferred<Delivery | undefined>
}

/** How long a stop waits for a start that is under way; the server may be away. */
const startMs = 5_000

export function startRunner(parts: SubscriptionParts, plan: Plan): Runner {
  const { log, wake } = parts
  const held = new Map<string, Held>()
  const pulls: Pull[] = []
  const stopping = new AbortController()
  let failure: { error: unknown } | undefined
  let stored: StoredPlan | undefined
  let hosted: Hosted[] = []
  let host: Host | undefined
  let reader: Reader | undefined
  let dueTimer: { cancel(): void } | undefined
  let stopListening: (() => void) | undefined
  const rows = openLoop({
    look: readRows,
    pollMs: Number.POSITIVE_INFINITY,
    clock: log.clock,
    onFailure: failUnlessPassing,
  })
  let lookedAt = 0
  let first = 0
  let isQuiet = false
  let toldInFlight = 0

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
    await settledWithin(started, startMs)
    await rows.stop()
    await host?.stop(plan.drainMs)
    await reader?.ended
  })
  const started = runOutside(start)
  started.catch(fail)

  return {
    pull({ alone }) {
      if (failure !== undefined) return Promise.reject(failure.error)
      if (isQuiet) return Promise.resolve(undefined)
      const answer = deferred<Delivery | undefined>()
      pulls.push({ alone, answer })
      serve()
      return answer.promise
    },
    quiet,
    stop: () => runOutside(stop),
  }

  async function start(): Promise<void> {
    const again = { retries: 6, when: isPassing, clock: log.clock, signal: stopping.signal }
    adopt(await retry(() => registerGroup(log, plan), again))
    if (stopping.signal.aborted) return
    const { leaseMs } = plan
    host = openHost(parts, { hosted: () => hosted, leaseMs, onFailure: (_, error) => failUnlessPassing(error) })
    reader = startReader(
      { ...parts, plan, held: () => [...held.values()], beforePage: lookIfOld, onRead: serve, onFailure: fail },
      stopping.signal,
    )
    stopListening = wake.onChange(rows.lookSoon)
    await retry(() => host!.start(), again)
  }

  function fail(error: unknown): void {
    if (failure !== undefined || stopping.signal.aborted) return
    failure = { error }
    void runOutside(stop).catch(() => {})
  }

  /** What is only the weather is waited out: the host takes the partition anew, the next look comes. */
  function failUnlessPassing(error: unknown): void {
    if (!isPassing(error)) fail(error)
  }

  /** The partitions are those that are stored. */
  function adopt(now: StoredPlan): void {
    if (stored?.partitions !== now.partitions) {
      const { leaseMs, startFrom } = plan
      hosted = rowNames(now).map((name, index) => ({
        ...{ name, kind: 'subscription' as const, startFrom, leaseMs, isMade: true },
        run: (hold: Hold) => runPartition(hold, index),
      }))
      host?.refresh()
    }
    stored = now
  }

  async function runPartition(hold: Hold, index: number): Promise<void> {
    const { lease, drain, lost } = hold
    const { remnants, stored: row, isPaused } = await loadRow(log, lease)
    if (isPaused) return
    checkFilter(plan, row)
    const { checkpoint } = lease
    const { head } = await settle(log)
    if (head < checkpoint) throw new CheckpointBeyondHead({ consumer: lease.consumer, checkpoint, head })
    const window = openWindow({ checkpoint, limit: shareOf(row), buffer: bufferedEvents, remnants })
    const { executorOf } = parts
    const partition: Partition = openPartition({
      ...{ log, plan, lease, window, executorOf, onStop: fail },
      onState: state => heed(entry, state),
      onChange: serve,
    })
    const letters = openLetters({ log, hold, executorOf, ended: partition.ended, onChange: () => settledLetter(entry) })
    const barrier = row.barrier === undefined ? undefined : Number(row.barrier)
    // The row's own number of partitions: another one may have been set since they were listed.
    const entry: Held = { partition, letters, index, of: row.partitions, barrier, isClosing: false, turn: 0 }
    held.set(lease.consumer, entry)
    const releases = [
      onAbort(lost, () => partition.lose()),
      onAbort(drain, () => close(entry)),
      hold.onRequest(letters.look),
    ]
    letters.look()
    reader?.nudge()
    await new Promise<void>(resolve => onAbort(partition.ended, resolve))
    held.delete(lease.consumer)
    for (const release of releases) release()
    serve()
  }

  /** Lets what is out be settled, for a while, and ends it. After a stop nobody is going to. */
  function close(entry: Held): void {
    if (entry.isClosing) return
    entry.isClosing = true
    const { partition } = entry
    if (isIdle(entry) || stopping.signal.aborted) return void partition.close()
    const timer = log.clock.setTimeout(() => void partition.close(), plan.drainMs)
    onAbort(partition.ended, () => timer.cancel())
  }

  function heed(entry: Held, { isPaused, stored: row }: RowState): void {
    const limit = shareOf(row)
    const hasMore = limit > entry.partition.window.limit
    entry.partition.window.limit = limit
    if (isPaused) close(entry)
    else if (hasMore) serve()
  }

  function settledLetter({ partition, letters }: Held): void {
    partition.window.extra = letters.isOut ? 1 : 0
    serve()
  }

  /** Hands out what may be handed out. Partitions take turns. */
  function serve(): void {
    for (const each of held.values()) if (each.isClosing && isIdle(each)) void each.partition.close()
    const now = log.clock.now().getTime()
    while (pulls.length > 0) {
      const delivery = next(now, pulls[0]!.alone)
      if (delivery === undefined) break
      pulls.shift()!.answer.resolve(delivery)
      log.telemetry.count('deliveries_total', 1, plan.name)
    }
    tellInFlight()
    reader?.nudge()
    dueTimer?.cancel()
    dueTimer = undefined
    if (pulls.length === 0) return
    const due = [...held.values()].flatMap(each => (each.isClosing ? [] : (each.partition.window.nextDue() ?? [])))
    if (due.length === 0) return
    const waitMs = Math.max(1, Math.min(...due) - now)
    dueTimer = runOutside(() => log.clock.setTimeout(serve, waitMs))
  }

  function tellInFlight(): void {
    let inFlight = 0
    for (const { partition } of held.values()) inFlight += partition.window.out + partition.window.extra
    if (inFlight !== toldInFlight) log.telemetry.shift('deliveries_in_flight', inFlight - toldInFlight, plan.name)
    toldInFlight = inFlight
  }

  function next(now: number, alone: boolean): Delivery | undefined {
    const all = [...held.values()]
    for (let tried = 0; tried < all.length; tried++) {
      const { partition, letters, isClosing } = all[(first + tried) % all.length]!
      if (isClosing || partition.ended.aborted) continue
      const letter = partition.window.out < partition.window.limit ? letters.take() : undefined
      if (letter !== undefined) {
        partition.window.extra = 1
        return letter
      }
      for (let entry = partition.window.take(now, alone); entry; entry = partition.window.take(now, alone)) {
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
    if (performance.now() - lookedAt > 1000) await rows.lookNow().catch(() => {})
  }

  /** What others have changed: paused, the limit, the number of partitions, or all of it is gone. */
  async function readRows(): Promise<undefined> {
    lookedAt = performance.now()
    const found = await storedRows(log, plan)
    const [row] = found
    if (row === undefined)
      return void fail(new SubscriptionNotFound({ subscription: plan.name, group: plan.group })) as undefined
    adopt(row.stored)
    for (const [name, entry] of held) {
      const own = found.find(each => each.name === name)
      if (own === undefined || own.fence !== entry.partition.lease.fence) entry.partition.lose()
      else heed(entry, own)
    }
    return undefined
  }
}

function isPassing(error: unknown): boolean {
  return isInterruption(error) || (isRillflowError(error) && error.retryable)
}

function isIdle({ partition, letters }: Held): boolean {
  return partition.window.out === 0 && !letters.isOut
}

/** The group's limit is shared out, so that all partitions together keep to it. */
function shareOf({ maxInFlight, partitions }: StoredPlan): number {
  return Math.max(1, Math.floor(maxInFlight / partitions))
}
