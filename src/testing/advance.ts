/**
 * Time in the hands of a test: `await store.advance({ days: 3 })`.
 *
 *     run everything that can run now ─► the next due time ── within the days ──► move both clocks there ──┐
 *         ▲                                    └── beyond them, or none ─► move to the end, run, return    │
 *         └────────────────────────────────────────────────────────────────────────────────────────────────┘
 *
 * Projections, processors, subscriptions, snapshots, handlers, joins, schedules and retention run in this process, one
 * after the other, without a runner. Two clocks move by the same amount: that of the store's schema,
 * which decides about due times, waits, retries, schedules and `createdAt`, and that of this process, which makes ids
 * and `ctx.now()`. A store that was opened `at` a time stands still between two calls; any other goes on. Timers of this process keep their real length, so a `waitFor…` of the test does not time out because
 * of days that took milliseconds.
 *
 * Runners of the store are paused meanwhile: a lease that ends because time was skipped would look like a dead process.
 *
 * What can fail: code that does not return, or work that makes new work for ever (`TimedOut`, which names what runs).
 */
import type { Assembled } from '../assemble.ts'
import { hasConsumerBehind, nextRetryAfter } from '../consumers/pending-work.ts'
import { runUntilIdle } from '../consumers/run/run.ts'
import type { Runner } from '../consumers/runners/runner.ts'
import { deadline } from '../core/abort.ts'
import { type Clock, systemClock } from '../core/clock.ts'
import { InvalidOption } from '../core/errors.ts'
import { describe, refuseUnknownOptions } from '../core/options.ts'
import { fragment, identifier, sql } from '../database/sql.ts'
import type { EventMap } from '../events/definition.ts'
import { settle } from '../events/order/order.ts'
import { moment, moveClock } from '../schema/clock.sql.ts'
import { nextDeliveryAfter } from '../subscriptions/pending-work.ts'
import { everyMs as upkeepEveryMs } from '../upkeep/upkeep.ts'

/**
 * How far to move the time; the parts are added. Nothing: only the work that can be done now.
 *
 * @example
 * ```ts
 * const threeDays: TimeSpan = { days: 3 }
 * ```
 */
export interface TimeSpan {
  days?: number | undefined
  hours?: number | undefined
  minutes?: number | undefined
  seconds?: number | undefined
  ms?: number | undefined
}

export interface AdvanceOptions {
  /** How long the work may take in real time. Default 30 000. */
  timeoutMs?: number | undefined
}

/** Moves the time of a test store, and runs what is due on the way. Returns the time of the store after it. */
export type Advance = (by?: TimeSpan, options?: AdvanceOptions) => Promise<Date>

const unitMs = { days: 86_400_000, hours: 3_600_000, minutes: 60_000, seconds: 1_000, ms: 1 } as const

export function msOf(span: TimeSpan): number {
  refuseUnknownOptions('store.advance', span, Object.keys(unitMs))
  let total = 0
  for (const [unit, each] of Object.entries(unitMs)) {
    const count = span[unit as keyof TimeSpan] ?? 0
    if (!Number.isFinite(count) || count < 0)
      throw new InvalidOption({
        option: unit,
        reason: `The time of a test store cannot be moved by ${describe(count)} ${unit}. It takes numbers from 0: time does not go back.`,
      })
    total += count * each
  }
  return Math.round(total)
}

/** The clock of this process, with the days that a test store has skipped. */
export interface MovableClock extends Clock {
  /** Stops at this time; only `move` changes it from then on. Timers run as before. */
  stand(at: Date): void
  move(ms: number): void
}

/** A clock that has an `advance` of its own, such as `fakeClock`, is moved by that. */
export function movableClock(base: Clock = systemClock): MovableClock {
  let aheadMs = 0
  let standsAt: number | undefined
  const own = base as Clock & { advance?: (ms: number) => void }
  return {
    now: () => new Date((standsAt ?? base.now().getTime()) + aheadMs),
    setTimeout: (fn, ms) => base.setTimeout(fn, ms),
    stand(at) {
      standsAt = at.getTime()
      aheadMs = 0
    },
    move(ms) {
      if (standsAt === undefined && typeof own.advance === 'function') own.advance(ms)
      else aheadMs += ms
    },
  }
}

/** The time of one test store. */
export interface Time {
  readonly advance: Advance
  /** Sets both clocks, which stand still from then on, and runs nothing. */
  moveTo(at: Date | string): Promise<void>
  /** Notes a runner that has started. */
  started(runner: Runner): void
}

export function openTime<M extends EventMap>(parts: Assembled<M>, clock: MovableClock): Time {
  const { log } = parts
  const runners = new Set<Runner>()
  /** Where each subscription was run to. */
  const delivered = new Map<string, number>()
  /** How far the time was moved, and since when it stands still. */
  let aheadMs = 0
  let beganAt: Date | undefined
  let lastUpkeepMs = 0
  let turn: Promise<unknown> = Promise.resolve()

  const move = async (ms: number): Promise<void> => {
    aheadMs += ms
    const to = beganAt === undefined ? aheadMs : new Date(beganAt.getTime() + aheadMs)
    await moveClock(log.database, log.schema, to)
    clock.move(ms)
  }

  return {
    async moveTo(at) {
      const to = new Date(at)
      if (Number.isNaN(to.getTime()))
        throw new InvalidOption({
          option: 'at',
          reason: `${describe(at)} is not a time. Give a Date, or a text such as '2030-01-01T00:00:00Z'.`,
        })
      beganAt = to
      aheadMs = lastUpkeepMs = 0
      clock.stand(to)
      await move(0)
    },
    started: runner => void runners.add(runner),
    advance(by = {}, options = {}) {
      refuseUnknownOptions('store.advance', options, ['timeoutMs'])
      const ms = msOf(by)
      log.database.refuseInsideTransaction('advance')
      const next = turn.catch(() => {}).then(() => advance(ms, options.timeoutMs ?? 30_000))
      turn = next
      return next
    },
  }

  async function advance(ms: number, timeoutMs: number): Promise<Date> {
    const what = `The work of store.advance`
    const limit = deadline(undefined, timeoutMs, { what, clock: systemClock })
    const paused = [...runners].filter(({ isRunning, role }) => isRunning && role === 'active')
    const endReports = log.telemetry.reportFailures()
    try {
      for (const runner of paused) await runner.pause()
      await goOn(ms, limit.signal)
      return new Date((await look()).nowMs)
    } finally {
      limit.dispose()
      endReports()
      for (const runner of paused) if (runner.isRunning) await runner.resume()
    }
  }

  async function goOn(ms: number, signal: AbortSignal): Promise<void> {
    for (let leftMs = ms; ; ) {
      const dueInMs = await runAll(signal)
      if (leftMs <= 0) return
      // A little beyond the due time, which is more exact than the milliseconds of a clock.
      const stepMs = dueInMs === undefined ? leftMs : Math.min(leftMs, Math.ceil(dueInMs) + 1)
      await move(stepMs)
      leftMs -= stepMs
    }
  }

  /** Runs what can run now, until nothing is left; returns when something is due again. */
  async function runAll(signal: AbortSignal): Promise<number | undefined> {
    let isFirst = true
    for (;;) {
      const { hasWorked, nextInMs } = await parts.runHandlers(signal)
      const hasConsumed = await runConsumers(isFirst, signal)
      isFirst = false
      if (hasWorked || hasConsumed) continue
      if (aheadMs - lastUpkeepMs >= upkeepEveryMs) {
        lastUpkeepMs = aheadMs
        await parts.store.upkeep({ signal })
      }
      const { retryInMs } = await look()
      const due = [nextInMs, retryInMs].filter(each => each !== undefined)
      return due.length === 0 ? undefined : Math.max(0, Math.min(...due))
    }
  }

  /** Whether any event was passed. All are tried first, because one that never ran has no row that shows it behind. */
  async function runConsumers(isFirst: boolean, signal: AbortSignal): Promise<boolean> {
    const { head, isBehind } = await look()
    // As a runner does: a consumer that its policy stops is paused, and not started again.
    const all = byHand().map(each => ({ ...each, pausesWhenStopped: true }))
    let count = isFirst || isBehind ? await runUntilIdle(parts.consumers, all, { signal }) : 0
    for (const name of parts.consumers.divided?.names() ?? []) {
      if (!isFirst && delivered.get(name) === head) continue
      delivered.set(name, head)
      count += (await parts.consumers.divided!.runUntilIdle(name, { signal })).count
    }
    return count > 0
  }

  /** The dispatcher is run with the handlers. */
  function byHand(): ReturnType<typeof parts.consumers.list> {
    return parts.consumers.list().filter(each => each.kind !== 'dispatcher')
  }

  interface Look {
    readonly nowMs: number
    readonly head: number
    readonly isBehind: boolean
    /** When a consumer, a delivery or a dead letter is tried again. */
    readonly retryInMs: number | undefined
  }

  async function look(): Promise<Look> {
    const now = fragment`(select moment.at from moment)`
    const head = identifier('head', 'position')
    const consumers = byHand().map(each => each.name)
    const [row] = await log.database.run<{ now_ms: number; head: number; behind: boolean; retry_in: number | null }>(
      sql`/* testing.look */
        with moment as materialized (select at from ${moment(log.names.clock)}),
        head as materialized (select ${(await settle(log)).head}::bigint as position)
        select
          (extract(epoch from ${now}) * 1000)::float8 as now_ms,
          ${head} as head,
          ${hasConsumerBehind(log, consumers, head)} as behind,
          (extract(epoch from least(${nextRetryAfter(log, now)}, ${nextDeliveryAfter(log, now)}) - ${now}) * 1000)::float8
            as retry_in
        from head`,
    )
    return { nowMs: row!.now_ms, head: row!.head, isBehind: row!.behind, retryInMs: row!.retry_in ?? undefined }
  }
}
