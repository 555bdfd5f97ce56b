/**
 * Watching the activity, of one workflow or of all: every line above a position, in order, each once, first the
 * existing ones, then new ones.
 *
 *     settle ─► lines up to there, in pages ─► wait for a hint or a poll ─► settle …
 *
 * Invariant: the cursor never passes `settled`. After a restart of the server it goes back to the last line given out, and
 * that line must still be there: positions between it and the settled head may not have been on disk yet, and are then
 * drawn again. While the server is away it waits. It holds nothing but a page; leaving the loop frees everything at once,
 * also during a wait for the next line.
 */

import { onAbort, sleep, throwIfAborted } from '../../core/abort.ts'
import { type Named, nameOf } from '../../core/definition.ts'
import { isRillflowError } from '../../core/errors.ts'
import { checkName } from '../../core/name.ts'
import { describe, refuseUnknownOptions } from '../../core/options.ts'
import { defaultBackoff, delay } from '../../core/retry.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import type { Settled } from '../../events/order/order.ts'
import { type HeadWatch, rewound } from '../../events/order/watch.ts'
import { rereadable } from '../../events/read/read.ts'
import { checkCount, refusal } from '../handler.ts'
import { workflowNames } from '../schema.ts'
import type { SettledWatch } from '../settled.ts'
import { type Activity, type ActivityFilter, type ActivityKind, readActivity, settleActivity } from './activity.ts'
import { type RecordedStep, readSteps } from './open-work.ts'

export interface WatchOptions {
  /** 'start' for all lines, 'now' for new ones only, or the position of the last line seen. */
  from?: number | 'start' | 'now' | undefined
  handler?: Named | undefined
  /** Default: all. */
  kinds?: readonly ActivityKind[] | undefined
  signal?: AbortSignal | undefined
}

/** Of one workflow; `from` is 'start' by default. */
export interface WatchWorkflowOptions extends WatchOptions {
  /** 'settled': ends after the last line once the workflow is settled. Default: continues until it is left. */
  until?: 'settled' | undefined
}

/** Of all workflows; `from` is 'now' by default. */
export interface WatchWorkflowsOptions extends WatchOptions {
  correlationId?: string | undefined
}

export interface WatchParts {
  readonly log: Log
  readonly activityWatch: HeadWatch
  readonly settledWatch: SettledWatch
}

interface Watch {
  readonly filter: ActivityFilter
  readonly from: number | 'start' | 'now'
  readonly until: 'settled' | undefined
  readonly signal: AbortSignal | undefined
}

const what = 'A watch of workflows'
/** The lines that one statement reads. */
const pageSize = 256
/** The positions that one statement reads for a filter without an index: a rare line must not cost a whole scan. */
const windowSize = 10_000

/** Each iteration watches from the beginning. */
export function watchActivity(
  parts: WatchParts,
  options: WatchWorkflowsOptions & WatchWorkflowOptions,
  defaultFrom: 'start' | 'now',
): AsyncIterable<Activity> {
  refuseUnknownOptions(what, options, ['from', 'handler', 'kinds', 'signal', 'until', 'correlationId'])
  const { from = defaultFrom, correlationId, kinds, until, signal } = options
  const handler = options.handler === undefined ? undefined : nameOf(options.handler)
  if (from !== 'now' && from !== 'start') checkCount(what, 'from', from, 0, Number.MAX_SAFE_INTEGER)
  if (correlationId !== undefined) checkName('Correlation id', correlationId)
  if (handler !== undefined) checkName('Handler', handler)
  if (kinds !== undefined && !Array.isArray(kinds))
    throw refusal(what, 'kinds', `needs a list as "kinds", not ${describe(kinds)}.`)
  if (until !== undefined && until !== 'settled')
    throw refusal(what, 'until', `needs 'settled' as "until", or nothing, not ${describe(until)}.`)
  const watch = { filter: { correlationId, handler, kinds }, from, until, signal }
  return { [Symbol.asyncIterator]: () => leavable(left => followActivity(parts, watch, left), signal) }
}

/** The `return` of a generator would wait for the next line. It ends quietly when the signal aborts. */
function leavable(
  start: (left: AbortController) => AsyncGenerator<Activity, void>,
  signal: AbortSignal | undefined,
): AsyncIterator<Activity, void> {
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
        if (isLeft || (signal?.aborted && isRillflowError(error, 'aborted'))) return { done: true, value: undefined }
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
        await sleep(delay(defaultBackoff, ++failures), { signal: left.signal })
      }
    }
  } finally {
    release()
    left.abort()
  }
}

/** How far a watch has come. */
interface WatchPlace {
  /** Lines at or below it were given out. */
  cursor: number
  /** Where it began. */
  start: number
  readonly isFromNow: boolean
  last: Activity | undefined
  seen: Settled | undefined
}

async function placeOf(log: Log, { from }: Watch): Promise<WatchPlace> {
  if (from === 'start') return { cursor: 0, start: 0, isFromNow: false, last: undefined, seen: undefined }
  const seen = await rereadable(log.database, log, () => settleActivity(log))
  const start = from === 'now' ? seen.settled : from
  if (seen.head < start) throw rewound(log, start, seen, 'its head is below the position to begin from')
  return { cursor: start, start, isFromNow: from === 'now', last: undefined, seen }
}

/** The server may have restarted: from the last line given out on, everything is read anew. */
async function goBack(log: Log, place: WatchPlace, now: Settled): Promise<void> {
  if (place.last !== undefined) await verify(log, place.last, now)
  // The head at the time of 'now' may have been in the server's memory only.
  else if (place.isFromNow && now.head < place.start) place.start = now.head
  else if (now.head < place.start) throw rewound(log, place.start, now, 'its head is below the position to begin from')
  place.cursor = place.last?.position ?? place.start
}

async function* linesUpTo(
  log: Log,
  filter: ActivityFilter,
  place: WatchPlace,
  to: number,
  left: AbortSignal,
): AsyncGenerator<Activity, void> {
  while (place.cursor < to) {
    throwIfAborted(left)
    const isFar = filter.correlationId === undefined && to - place.cursor > windowSize
    const upTo = isFar ? place.cursor + windowSize : to
    const lines = await readActivity(log, filter, { after: place.cursor, to: upTo, limit: pageSize })
    throwIfAborted(left)
    for (const line of await withSteps(log, filter, lines)) {
      place.last = line
      place.cursor = line.position
      yield line
      throwIfAborted(left)
    }
    if (lines.length < pageSize) place.cursor = upTo
  }
}

/** Steps are read once a page, and only if an execution of it may still have some. */
async function withSteps(
  log: Log,
  { correlationId }: ActivityFilter,
  lines: readonly Activity[],
): Promise<readonly Activity[]> {
  const mayHave = ({ kind }: Activity): boolean => kind === 'suspended' || kind === 'failed' || kind === 'parked'
  if (correlationId === undefined || !lines.some(mayHave)) return lines
  const steps = await readSteps(log, correlationId)
  const of = ({ executionId }: Activity): RecordedStep[] => steps.filter(step => step.executionId === executionId)
  return lines.map(line => (mayHave(line) ? { ...line, steps: of(line) } : line))
}

interface End {
  readonly isReached: boolean
  readonly failure: unknown
  /** Aborts when the end is reached, cannot be, or is no longer waited for. */
  readonly waiting: AbortSignal
}

/** The end of a workflow, watched while its lines are given out. */
function endOf(settledWatch: SettledWatch, correlationId: string, signal: AbortSignal): End {
  const waiting = new AbortController()
  const end = { isReached: false, failure: undefined as unknown, waiting: waiting.signal }
  settledWatch
    .waitUntilSettled(correlationId, { signal, timeoutMs: Number.POSITIVE_INFINITY })
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

/** Whether the activity is still the one that was read. */
async function verify(log: Log, last: Activity, now: Settled): Promise<void> {
  if (now.head < last.position)
    throw rewound(log, last.position, now, 'its head is below the last position that was read')
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
  // Retention deletes the oldest lines first.
  const isForgotten = execution === null && !older
  if (!isSame && !isForgotten)
    throw rewound(log, last.position, now, `the activity at ${last.position} is no longer there`)
}
