/**
 * When a schedule is due: from one due time to the next, and back from a moment to the last one. Pure: the present time
 * is always given, and no result depends on the time zone or the clock of the process.
 *
 * Cron expressions have five fields (minute hour day month weekday) or six (second first), and are read in their time
 * zone by croner. Where the clocks change:
 * - A fixed time of day (one value each for second, minute and hour) comes once a day, always: one that the clocks leap over
 *   comes when they have leapt (02:30 at 03:00), one that they show twice comes the first time.
 * - Everything else (`*`, lists, ranges, steps) goes by the minutes that pass: those left out do not come, those repeated come
 *   both times. So `0 * * * *` comes every 60 minutes on every day, and `30 2,5 * * *` only at 05:30 on the day without 02:30.
 * A day of the month and a weekday together mean either of the two, as in cron.
 */

import { Cron } from 'croner'
import { nextTurn } from '../../core/host.ts'
import { checkCount, refusal } from '../handler.ts'

/** When it is due. As it is stored: `at` is an ISO text. */
export type ScheduleTimes =
  | { readonly cron: string; readonly timeZone: string }
  | { readonly everyMs: number }
  | { readonly at: string }

export interface DueTimes {
  /** The first one, for a schedule that begins now. */
  first(now: Date): Date | undefined
  /** The one after a due time; undefined if that was the last. */
  next(dueAt: Date): Date | undefined
  /** The last one until now, for a schedule that was due at `dueAt`. */
  latest(dueAt: Date, now: Date): Date
  /** Up to `count` due times before this one, the nearest first. */
  before(dueAt: Date, count: number): Date[]
}

/** The bounds of an interval: at most ten years. */
const minEveryMs = 10
const maxEveryMs = 10 * 366 * 86_400_000

export function dueTimes(times: ScheduleTimes): DueTimes {
  if ('cron' in times) return cronTimes(readCron(times.cron, times.timeZone))
  return 'everyMs' in times ? intervalTimes(times.everyMs) : oneTime(new Date(times.at))
}

/** Refuses times that will never be due, or cannot be read. `what` is the subject of the message. */
export function checkTimes(
  what: string,
  given: {
    readonly cron?: string | undefined
    readonly timeZone?: string | undefined
    readonly everyMs?: number | undefined
    readonly at?: Date | undefined
  },
): ScheduleTimes {
  const { cron, timeZone = 'UTC', everyMs, at } = given
  const kinds = Object.entries({ cron, everyMs, at }).filter(([, value]) => value !== undefined)
  if (kinds.length !== 1)
    throw refusal(what, 'cron, everyMs, at', `needs exactly one of "cron", "everyMs" and "at", not ${kinds.length}.`)
  if (cron !== undefined) {
    checkCron(what, cron, timeZone)
    return { cron, timeZone }
  }
  if (given.timeZone !== undefined)
    throw refusal(what, 'timeZone', 'has a time zone, which only a cron expression has. Leave out "timeZone".')
  if (everyMs !== undefined) {
    checkCount(what, 'everyMs', everyMs, minEveryMs, maxEveryMs)
    return { everyMs }
  }
  if (!(at instanceof Date) || Number.isNaN(at.getTime()))
    throw refusal(what, 'at', `needs a valid Date as "at", not ${String(at)}.`)
  return { at: at.toISOString() }
}

function checkCron(what: string, cron: string, timeZone: string): void {
  const text = JSON.stringify(cron)
  const fields = typeof cron === 'string' ? cron.trim().split(/\s+/) : []
  // croner takes dates, too, and `?` for the moment at which it reads it, which every process would read differently.
  if ((fields.length !== 5 && fields.length !== 6) || cron.includes('?'))
    throw refusal(what, 'cron', `needs a cron expression of 5 or 6 fields of *, numbers and names, not ${text}.`)
  try {
    new Intl.DateTimeFormat('en', { timeZone })
  } catch {
    const problem = `has the time zone ${JSON.stringify(timeZone)}, which is not known here. Give one like 'Europe/Berlin'.`
    throw refusal(what, 'timeZone', problem)
  }
  let next: Date | null
  try {
    next = readCron(cron, timeZone).nextRun(new Date(0))
  } catch (error) {
    throw refusal(what, 'cron', `has the cron expression ${text}, which cannot be read: ${(error as Error).message}.`)
  }
  if (next === null) throw refusal(what, 'cron', `has the cron expression ${text}, which is never due.`)
}

function readCron(cron: string, timezone: string): Cron {
  return new Cron(cron, { timezone, mode: '5-or-6-parts', paused: true })
}

function cronTimes(cron: Cron): DueTimes {
  return {
    first: now => cron.nextRun(now) ?? undefined,
    next: dueAt => cron.nextRun(dueAt) ?? undefined,
    latest(dueAt, now) {
      // croner looks back from whole seconds, and skips the one it starts from.
      const [latest = dueAt] = cron.previousRuns(1, new Date(Math.floor(now.getTime() / 1000) * 1000 + 1000))
      return latest > dueAt ? latest : dueAt
    },
    before: (dueAt, count) => cron.previousRuns(count, dueAt),
  }
}

function intervalTimes(everyMs: number): DueTimes {
  return {
    first: now => new Date(now.getTime() + everyMs),
    next: dueAt => new Date(dueAt.getTime() + everyMs),
    latest: (dueAt, now) =>
      new Date(dueAt.getTime() + Math.floor((now.getTime() - dueAt.getTime()) / everyMs) * everyMs),
    before: (dueAt, count) => Array.from({ length: count }, (_, n) => new Date(dueAt.getTime() - (n + 1) * everyMs)),
  }
}

function oneTime(at: Date): DueTimes {
  return { first: () => at, next: () => undefined, latest: dueAt => dueAt, before: () => [] }
}

/**
 * - `'once'`: one run for all that were missed, at the latest of them.
 * - `'all'`: one run for each, the oldest first; of more than a thousand only the newest thousand.
 * - `'skip'`: none; it continues with the next due time.
 */
export type Missed = 'once' | 'all' | 'skip'

export interface Choice {
  readonly dueAt: Date
  /** Whether it is only recorded as skipped. */
  readonly isSkipped: boolean
}

/** The most missed due times that are run. */
export const maxCaughtUp = 1_000

/** How late the latest one may be and still not count as missed. */
export const toleranceMs = 60_000

const pageSize = 50

/** The due time that is to be run, of those from `dueAt` until now. */
export async function chooseDue(times: DueTimes, missed: Missed, dueAt: Date, now: Date): Promise<Choice> {
  const next = times.next(dueAt)
  const latest = next === undefined || next > now ? dueAt : times.latest(dueAt, now)
  if (missed === 'all') return { dueAt: await oldestWithin(times, dueAt, latest), isSkipped: false }
  const isLate = now.getTime() - latest.getTime() > toleranceMs
  return { dueAt: latest, isSkipped: missed === 'skip' && isLate }
}

/** Looked for from the end, and in pages: a due time of a cron expression takes a quarter of a millisecond to find. */
async function oldestWithin(times: DueTimes, dueAt: Date, latest: Date): Promise<Date> {
  let oldest = latest
  for (let found = 1; oldest > dueAt && found < maxCaughtUp; ) {
    const page = times.before(oldest, Math.min(pageSize, maxCaughtUp - found))
    for (const at of page) {
      if (at <= dueAt) return dueAt
      oldest = at
    }
    if (page.length === 0) return dueAt
    found += page.length
    await nextTurn()
  }
  return oldest
}
