/**
 * Watching the activity, of one workflow or of all: every line above a position, in order, none twice, none passed over,
 * first what is there, then what comes.
 *
 *     settle ─► lines up to there, in pages ─► wait for a hint or a poll ─► settle …
 *
 * Invariant: the cursor never passes `settled`. After a restart of the server it goes back to the last line given out, and
 * that line must still be there: positions between it and the settled head may not have been on disk yet, and are then
 * drawn again. A server that is away is waited for. Nothing is kept but a page; who leaves frees everything at once, also
 * while a line is waited for.
 */

import { InvalidOption, isRillflowError } from '../../core/errors.ts'
import { onAbort, sleep, throwIfAborted } from '../../core/lifecycle.ts'
import { checkName } from '../../core/name.ts'
import { defaultBackoff, delay } from '../../core/retry.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import type { Settled } from '../../events/order/order.ts'
import { type LogWatch, rewound } from '../../events/order/watch.ts'
import { checkPosition } from '../../events/read/log.ts'
import { rereadable } from '../../events/read/read.ts'
import { workflowNames } from '../schema.ts'
import type { SettledWatch } from '../settled.ts'
import { type Activity, type ActivityFilter, type ActivityKind, readActivity, settleActivity } from './activity.ts'

export interface WatchOptions {
  /** Only lines above this position: that of the last one seen. 'start' for all there are, 'now' for new ones only. */
  after?: number | 'start' | 'now' | undefined
  handler?: string | undefined
  /** Default: all. */
  kinds?: readonly ActivityKind[] | undefined
  signal?: AbortSignal | undefined
}

/** Of one workflow; `after` is 'start' by default. */
export interface WatchFlowOptions extends WatchOptions {
  /** 'settled': ends after the last line once the workflow is settled. Default: goes on until it is left. */
  until?: 'settled' | undefined
}

/** Of all workflows; `after` is 'now' by default. */
export interface WatchFlowsOptions extends WatchOptions {
  correlationId?: string | undefined
}

export interface WatchParts {
  readonly log: Log
  readonly activityWatch: LogWatch
  readonly settledWatch: SettledWatch
}

interface Watch {
  readonly filter: ActivityFilter
  readonly after: number | 'start' | 'now'
  readonly until: 'settled' | undefined
  readonly signal: AbortSignal | undefined
}

/** What is read in one go. */
const pageSize = 256
/** How many positions are looked at in one go for a filter that no index helps: a rare line must not cost a whole scan. */
const windowSize = 10_000

/** Each iteration watches anew. */
export function watchActivity(
  parts: WatchParts,
  options: WatchFlowsOptions & WatchFlowOptions,
  defaultAfter: 'start' | 'now',
): AsyncIterable<Activity> {
  const { after = defaultAfter, correlationId, handler, kinds, until, signal } = options
  if (after !== 'now' && after !== 'start') checkPosition('after', after)
  if (correlationId !== undefined) checkName('Correlation id', correlationId)
  if (handler !== undefined) checkName('Handler', handler)
  if (kinds !== undefined && !Array.isArray(kinds))
    throw new InvalidOption({ option: 'kinds', reason: `must be a list, not ${String(kinds)}` })
  if (until !== undefined && until !== 'settled')
    throw new InvalidOption({ option: 'until', reason: `must be 'settled' or left out, not ${String(until)}` })
  const watch = { filter: { correlationId, handler, kinds }, after, until, signal }
  return { [Symbol.asyncIterator]: () => leavable(left => followActivity(parts, watch, left)) }
}

/** A generator's own `return` would wait for the line that is waited for. */
function leavable(start: (left: AbortController) => AsyncGenerator<Activity, void>): AsyncIterator<Activity, void> {
  const left = new AbortController()
  const lines = start(left)
  let isLeft = false
  return {
    async next() {
      if (isLeft) return { done: true, value: undefined }
      try {
        const step = await lines.next()
        return isLeft ? { done: true, value: undefined } : step
      } catch (error) {
        if (isLeft) return { done: true, value: undefined }
        throw error
      }
    },
    async return() {
      isLeft = true
      left.abort()
      lines.return().catch(() => {})
      return { done: true, value: undefined }
    },
  }
}

async function* followActivity(parts: WatchParts, watch: Watch, left: AbortController): AsyncGenerator<Activity, void> {
  const { log, activityWatch, settledWatch } = parts
  const { filter, until, signal } = watch
  log.database.refuseInsideTransaction('watch')
  const release = signal === undefined ? () => {} : onAbort(signal, () => left.abort(signal.reason))
  const end = until === undefined ? undefined : endOf(settledWatch, filter.correlationId!, left.signal)
  try {
    throwIfAborted(left.signal)
    const place = await placeOf(log, watch)
    /** Known once the workflow is settled: no line of it is above this. */
    let goal: number | undefined
    for (let failures = 0; ; ) {
      try {
        const isEndNew: boolean = goal === undefined && end?.isReached === true
        const waiting = goal === undefined && end !== undefined ? end.waiting : left.signal
        const now = isEndNew ? await settleActivity(log) : await activityWatch.beyond(place.cursor, place.seen, waiting)
        if (place.seen !== undefined && place.seen.epoch !== now.epoch) {
          await goBack(log, place, now)
          if (goal !== undefined) goal = now.head
        }
        place.seen = now
        if (isEndNew) goal = now.head
        yield* linesUpTo(log, filter, place, goal !== undefined && goal < now.settled ? goal : now.settled, left.signal)
        if (goal !== undefined && place.cursor >= goal) return
        failures = 0
      } catch (error) {
        throwIfAborted(left.signal)
        // The wait was cut short because the workflow is settled.
        if (end?.isReached === true && goal === undefined && isRillflowError(error, 'aborted')) continue
        if (end?.failure !== undefined) throw end.failure
        if (!isRillflowError(error) || !error.retryable) throw error
        await sleep(delay(defaultBackoff, ++failures), { signal: left.signal, clock: log.clock })
      }
    }
  } finally {
    release()
    left.abort()
  }
}

/** How far a watch has come. */
interface Place {
  /** Nothing at or below it is given out any more. */
  cursor: number
  /** Where it began. */
  start: number
  readonly isFromNow: boolean
  last: Activity | undefined
  seen: Settled | undefined
}

async function placeOf(log: Log, { after }: Watch): Promise<Place> {
  if (after === 'start') return { cursor: 0, start: 0, isFromNow: false, last: undefined, seen: undefined }
  const seen = await rereadable(log.database, log, () => settleActivity(log))
  const start = after === 'now' ? seen.settled : after
  if (seen.head < start) throw rewound(log, start, seen, 'its head is below where to begin')
  return { cursor: start, start, isFromNow: after === 'now', last: undefined, seen }
}

/** The server may have restarted: from the last line given out on, everything is read anew. */
async function goBack(log: Log, place: Place, now: Settled): Promise<void> {
  if (place.last !== undefined) await verify(log, place.last, now)
  // The head that was 'now' may have been in the server's memory only.
  else if (place.isFromNow && now.head < place.start) place.start = now.head
  else if (now.head < place.start) throw rewound(log, place.start, now, 'its head is below where to begin')
  place.cursor = place.last?.position ?? place.start
}

async function* linesUpTo(
  log: Log,
  filter: ActivityFilter,
  place: Place,
  to: number,
  left: AbortSignal,
): AsyncGenerator<Activity, void> {
  while (place.cursor < to) {
    throwIfAborted(left)
    const isFar = filter.correlationId === undefined && to - place.cursor > windowSize
    const upTo = isFar ? place.cursor + windowSize : to
    const lines = await readActivity(log, filter, { after: place.cursor, to: upTo, limit: pageSize })
    throwIfAborted(left)
    for (const line of lines) {
      place.last = line
      place.cursor = line.position
      yield line
      throwIfAborted(left)
    }
    if (lines.length < pageSize) place.cursor = upTo
  }
}

interface End {
  readonly isReached: boolean
  readonly failure: unknown
  /** Aborts when the end is reached, will not be, or is not waited for any more. */
  readonly waiting: AbortSignal
}

/** The end of a workflow, looked for while its lines are given out. */
function endOf(settledWatch: SettledWatch, correlationId: string, signal: AbortSignal): End {
  const waiting = new AbortController()
  const end = { isReached: false, failure: undefined as unknown, waiting: waiting.signal }
  settledWatch
    .settled(correlationId, { signal, timeoutMs: Number.POSITIVE_INFINITY })
    .then(
      () => {
        end.isReached = true
      },
      (error: unknown) => {
        end.failure = error
      },
    )
    .finally(() => waiting.abort())
  return end
}

/** Is the activity still the one we read? */
async function verify(log: Log, last: Activity, now: Settled): Promise<void> {
  if (now.head < last.position) throw rewound(log, last.position, now, 'its head is below what was read')
  const [found] = await log.database.run<{ execution: string; kind: string; at: Date; older: boolean }>(
    sql`/* workflows.verify_activity */
      select a.execution, a.kind, a.at, exists (
        select
        from ${workflowNames(log).workflow_activity} as o
        where o.position < ${last.position}::bigint) as older
      from (select ${last.position}::bigint as position) as l
      left join ${workflowNames(log).workflow_activity} as a on a.position = l.position`,
  )
  const { execution, kind, at, older } = found!
  const isSame = execution === last.executionId && kind === last.kind && at.getTime() === last.at.getTime()
  // The oldest lines may be deleted after a while, and then it is the first of them that are missing.
  const isForgotten = execution === null && !older
  if (!isSame && !isForgotten)
    throw rewound(log, last.position, now, `the activity at ${last.position} is not there any more`)
}
