/**
 * Reads the log once for all partitions of a group that this process holds. They need not be at one position: each page is
 * read for the partition that has waited longest, and serves every other one whose position lies in it.
 *
 * Invariant: a partition's `readTo` never passes the settled position, nor its group's barrier. After a possible
 * restart of the server the last event that was read must still exist; if it does not, the log is another one, and all
 * partitions go back to their stored checkpoints.
 */

import { abortable, onAbort, sleep } from '../core/abort.ts'
import { isRillflowError } from '../core/errors.ts'
import { defaultBackoff, delay } from '../core/retry.ts'
import type { RecordedEvent } from '../events/definition.ts'
import type { Log } from '../events/log.ts'
import type { Settled } from '../events/order/order.ts'
import { isStillKnown, type LogWatch, rewound } from '../events/order/watch.ts'
import { type Page, readPage } from '../events/read/page.ts'
import type { RetriedDeadLetters } from './dead-letters.ts'
import type { SubscriptionOptions } from './options.ts'
import type { Partition } from './partition.ts'

/** A partition held by this process. */
export interface HeldPartition {
  readonly partition: Partition
  /** Of its lease: work that must end soon, or the lease is lost. */
  limited<T>(work: () => Promise<T>): Promise<T>
  readonly deadLetters: RetriedDeadLetters
  readonly index: number
  /** How many partitions there are. */
  readonly of: number
  readonly barrier: number | undefined
  /** No event is delivered from now on: its lease is to be released, or it was paused. */
  isClosing: boolean
  /** Larger: read for later. */
  turn: number
}

export interface ReaderParts {
  readonly log: Log
  readonly watch: LogWatch
  readonly options: SubscriptionOptions
  /** Those held now. */
  held(): readonly HeldPartition[]
  /** Called before a page that was waited for is read: the rows may have been changed meanwhile. */
  beforePage(): Promise<void>
  onRead(): void
  /** A permanent error. */
  onFailure(error: unknown): void
}

export interface Reader {
  /** There may be room now, or another partition. */
  nudge(): void
  /** Resolves when it has stopped. */
  readonly ended: Promise<void>
}

export const maxBuffered = 500

/** All partitions together. One that has nothing to deliver reads all the same, a page: its key may be waited for. */
const maxBufferedBytes = 16 * 1024 * 1024

export function startReader(parts: ReaderParts, signal: AbortSignal): Reader {
  const { log, options } = parts
  let seen: Settled | undefined
  let last: RecordedEvent | undefined
  let turn = 0
  let failures = 0
  let wait: { readonly for: readonly HeldPartition[]; readonly controller: AbortController } | undefined

  const release = onAbort(signal, () => wait?.controller.abort())
  const ended = readOn().finally(release)
  return {
    nudge() {
      // Every new wait costs a look at the log.
      if (wait !== undefined && waitingForMore().some(each => !wait!.for.includes(each))) wait.controller.abort()
    },
    ended,
  }

  async function readOn(): Promise<void> {
    while (!signal.aborted) {
      try {
        await step()
        failures = 0
      } catch (error) {
        if (signal.aborted || isRillflowError(error, 'store_closed')) return
        if (isRillflowError(error, 'lease_lost')) continue
        if (isRillflowError(error, 'log_rewound')) loseAll(error)
        else if (!isRillflowError(error) || !error.retryable) return parts.onFailure(error)
        failures++
        log.telemetry.log.warn(
          { subscription: options.name, group: options.group, error },
          'A subscription could not read the log.',
        )
        await sleep(delay(defaultBackoff, failures), { signal }).catch(() => {})
      }
    }
  }

  async function step(): Promise<void> {
    const known = seen?.settled ?? -1
    const waiting = waitingForMore()
    const behind = waiting.filter(each => each.partition.window.readTo < endOf(each, known))
    if (behind.length > 0) return readFor(behind.sort((a, b) => a.turn - b.turn)[0]!, known)
    const now = await waitBeyond(waiting)
    if (now === undefined) return
    const isOther = seen !== undefined && seen.epoch !== now.epoch
    seen = now
    if (isOther) {
      if (last !== undefined) await verify(log, last, now)
      for (const { partition } of parts.held()) partition.goBack(last?.position ?? 0)
    }
    await parts.beforePage()
  }

  function waitingForMore(): HeldPartition[] {
    const held = parts.held()
    const bytes = held.reduce((sum, { partition }) => sum + partition.window.bytes, 0)
    return held.filter(each => wantsMore(each) && (bytes < maxBufferedBytes || each.partition.window.bytes === 0))
  }

  function endOf({ barrier }: HeldPartition, settled: number): number {
    return barrier !== undefined && barrier < settled ? barrier : settled
  }

  /** Undefined if other work comes first. */
  async function waitBeyond(waiting: readonly HeldPartition[]): Promise<Settled | undefined> {
    const controller = new AbortController()
    wait = { for: waiting, controller }
    try {
      if (signal.aborted) return undefined
      if (waiting.length > 0) {
        const least = waiting.map(each => each.partition.window.readTo).reduce((a, b) => (a < b ? a : b))
        return await parts.watch.beyond(least, seen, controller.signal)
      }
      await new Promise<void>(resolve => onAbort(controller.signal, resolve))
      return undefined
    } catch (error) {
      if (controller.signal.aborted) return undefined
      throw error
    } finally {
      wait = undefined
    }
  }

  async function readFor(held: HeldPartition, settled: number): Promise<void> {
    held.turn = ++turn
    const after = held.partition.window.readTo
    const room = held.partition.window.room
    const limit = options.stored.partitions === 1 ? Math.min(room, maxBuffered) : maxBuffered
    // The page is for this partition. If it never comes, its lease is lost, and the next page is read for another one.
    const request = { filter: options.filter, after, to: endOf(held, settled), limit }
    const page = await abortable(
      held.limited(() => readPage(log, request)),
      signal,
    )
    for (const each of parts.held()) {
      const { readTo } = each.partition.window
      if (readTo >= after && readTo < page.reached) hand(each, page)
    }
    const highest = page.events.at(-1)
    if (highest !== undefined && (last === undefined || highest.position > last.position)) last = highest
    parts.onRead()
  }

  function hand({ partition, index, of, barrier }: HeldPartition, page: Page): void {
    const { window } = partition
    const bytes = page.bytes / Math.max(1, page.events.length)
    for (const event of page.events) {
      if (event.position <= window.readTo) continue
      if (barrier !== undefined && event.position > barrier) break
      const { key, fault, isWanted } = look(event, page.faults)
      if (!isWanted || partitionOf(key, of) !== index) continue
      // The rest is read again when there is room.
      if (window.room === 0) return
      window.add(event, key, fault, bytes)
    }
    window.reach(barrier !== undefined && barrier < page.reached ? barrier : page.reached)
    partition.moved()
  }

  function look(event: RecordedEvent, faults: Page['faults']): { key: string; fault: unknown; isWanted: boolean } {
    if (faults.has(event.position)) return { key: event.stream, fault: faults.get(event.position), isWanted: true }
    try {
      const isWanted = options.where === undefined || options.where(event)
      return { key: isWanted ? String(options.keyOf(event)) : '', fault: undefined, isWanted }
    } catch (error) {
      return { key: event.stream, fault: error ?? new Error('the filter of the subscription failed'), isWanted: true }
    }
  }

  function loseAll(error: unknown): void {
    seen = undefined
    last = undefined
    for (const { partition } of parts.held()) partition.lose(error)
  }
}

/** Not for every event that is taken: half a buffer is worth a query. */
function wantsMore({ partition: { window, ended }, barrier }: HeldPartition): boolean {
  return !ended.aborted && window.room >= maxBuffered / 2 && (barrier === undefined || window.readTo < barrier)
}

/** The server may have restarted: checks that the log is still the one that was read. */
async function verify(log: Log, last: RecordedEvent, now: Settled): Promise<void> {
  if (!(await isStillKnown(log, last)))
    throw rewound(log, last.position, now, `event ${last.id} at ${last.position} is no longer there`)
}

/**
 * Which partition a key belongs to. A stored fact depends on it, so it is our own function and never changes: FNV-1a over
 * the key's UTF-8 bytes, then mixed, because the low bits of FNV alone are uneven for short keys.
 */
export function partitionOf(key: string, partitions: number): number {
  return partitions === 1 ? 0 : hash(key) % partitions
}

export function hash(text: string): number {
  let h = 0x811c9dc5
  for (const byte of Buffer.from(text)) h = Math.imul(h ^ byte, 0x01000193)
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b)
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35)
  return (h ^ (h >>> 16)) >>> 0
}
