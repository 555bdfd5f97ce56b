/**
 * One attempt: the handler is called with its event, and what it returns or throws becomes an outcome. Nothing is stored
 * here. What has not come back in time, or was taken away, is left to itself: its outcome is not asked for any more.
 */
import { describeError, isInterruption, propertyOf } from '../../consumers/run/failure.ts'
import type { Cutoff } from '../../core/cutoff.ts'
import { isRillflowError } from '../../core/errors.ts'
import { delay } from '../../core/retry.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import { undoOutcome } from '../cancel/compensate.ts'
import { loadUndo } from '../cancel/undo.ts'
import { setAside } from '../dead-letters/failure.ts'
import type { DeadLetterReason } from '../dead-letters/letters.ts'
import type { DispatchParts } from '../dispatch/dispatch.ts'
import { type ReadResult, readResult } from '../emit.ts'
import { prepareEmitted } from '../emitted.ts'
import { DeadlinePassed, EventGone, EventUndecodable, InvalidResult, WorkerCrashed } from '../errors.ts'
import type { Handler } from '../handler.ts'
import { joinedEvents, placeOf, withJoin } from '../joins/joined.ts'
import { type EarlyOutcome, type Invocation, invoke } from '../steps/invoke.ts'
import { mayRemember } from '../steps/remember.ts'
import { retryAfter } from '../steps/step-failure.ts'
import { isTransition } from '../transition.ts'
import type { Claimed } from './claim.ts'
import { byExpiry, expiryOf } from './deadline.ts'
import type { Outcome } from './outcome.ts'

/** How often a worker may die over one event before it is the event that is taken for the cause. */
export const mostCrashes = 3

type About = Pick<Outcome, 'execution' | 'runningMs' | 'emits' | 'hasSteps' | 'expiresAt'>

export interface RunOptions {
  /** Cut when the worker has to stop at once, or the execution is not ours any more. */
  readonly over: Cutoff
  /** How long without a sign of life until others take over. */
  readonly leaseMs: number
  /** How often in a row the execution was broken off here because a database was away. */
  readonly interruptions: number
  /** Is given the code that was still at work when it was not waited for any longer. */
  readonly leave: (running: Promise<unknown>) => void
}

export async function runExecution(
  parts: DispatchParts,
  claimed: Claimed,
  handler: Handler,
  options: RunOptions,
): Promise<Outcome> {
  const { telemetry } = parts.log
  // One that was held came after another of its lane: it was not ready before.
  if (!claimed.isHeld) telemetry.observe('execution_queue_seconds', queuedMs(claimed, handler) / 1000, handler.name)
  const run = (): Promise<Outcome> => runAttempt(parts, claimed, handler, options)
  const outcome = telemetry.isTraced ? await traced(parts, claimed, handler, run) : await run()
  telemetry.observe('execution_run_seconds', outcome.runningMs / 1000, handler.name)
  telemetry.count('attempts_total', 1, handler.name)
  if (outcome.told === 'failed') telemetry.count('attempt_failures_total', 1, handler.name)
  return outcome
}

/** A rank is the time in milliseconds, and ten seconds further for each step of priority. */
function queuedMs({ beyondRankMs, claimedAt }: Claimed, { priority }: Handler): number {
  const waitedMs = beyondRankMs === undefined ? 0 : beyondRankMs + priority * 10_000
  return Math.max(0, waitedMs + performance.now() - claimedAt)
}

function traced(
  { log: { telemetry, schema } }: DispatchParts,
  { id: executionId, attempt, correlationId, event }: Claimed,
  { name: handler, version }: Handler,
  run: () => Promise<Outcome>,
): Promise<Outcome> {
  const fields: Record<string, unknown> = { handler, version, executionId, attempt, correlationId }
  const causes = event === undefined ? [] : [event]
  return telemetry.span({ name: 'workflows.run', schema, causes, fields }, async span => {
    const outcome = await run()
    fields.outcome = outcome.told
    if (outcome.told === 'failed') span.fail(outcome.error)
    return outcome
  })
}

async function runAttempt(
  parts: DispatchParts,
  claimed: Claimed,
  handler: Handler,
  options: RunOptions,
): Promise<Outcome> {
  const started = performance.now()
  const known = { expiresAt: expiryOf(claimed, handler), hasSteps: mayRemember(claimed) }
  const invocation: Invocation = { parts, execution: claimed, handler, ...options, ...known }
  const about = (): About => ({
    execution: invocation.execution,
    runningMs: performance.now() - started,
    emits: handler.definition.emits ?? [],
    hasSteps: invocation.hasSteps,
    expiresAt: invocation.expiresAt,
  })
  let isTheirs = false
  const call = async (input: unknown): Promise<ReadResult | { early: EarlyOutcome }> => {
    isTheirs = true
    const invoked = await invoke(invocation, input)
    isTheirs = false
    if ('early' in invoked) return invoked
    const read = readResult(invoked.result)
    if ('reason' in read) throw new InvalidResult({ handler: handler.name, reason: read.reason })
    return read
  }
  try {
    const execution = handler.kind === 'join' ? await withJoin(parts.log, claimed) : claimed
    invocation.execution = execution
    refuseWorn(execution, handler, invocation.expiresAt)
    if (execution.undoId !== undefined) {
      const undone = await call(await loadUndo(parts.log, execution.undoId))
      if ('early' in undone) return Object.assign(undone.early, about())
      return { ...about(), ...(await undoOutcome(parts, execution, handler, undone)) }
    }
    const event = refuseUnfit(execution)
    // Whoever was to find its lane could not: now it tells why.
    if (execution.lane === undefined) refuseKeyless(handler, event)
    const input = handler.kind === 'join' ? joinedEvents(handler, execution) : event
    isTheirs = true
    const isChoosy = handler.when !== undefined || handler.transition !== undefined
    if (isChoosy && !(await isWanted(parts, handler, event))) return { ...about(), kind: 'done', told: 'skipped' }
    const read = await call(input)
    if ('early' in read) return Object.assign(read.early, about())
    const emitter = { handler: handler.name, event, emits: handler.definition.emits, ...placeOf(execution) }
    const emitted = await prepareEmitted(parts.log, emitter, read.emitted, parts.limits)
    return { ...about(), kind: 'done', told: 'completed', emitted, inside: read.work }
  } catch (error) {
    // Cut off because its worker stops: that says nothing about the handler.
    if (options.over.isCut) return { ...about(), kind: 'release', told: 'released', detail: 'stopped' }
    const failure = { handler, error, isTheirs, interruptions: options.interruptions }
    return { ...about(), ...(await failed(parts, about(), failure)) }
  }
}

/** What came of what was refused when it was to be stored. */
export async function refusedOutcome(
  parts: DispatchParts,
  outcome: Outcome,
  handler: Handler,
  error: unknown,
): Promise<Outcome> {
  const { execution, runningMs, emits, hasSteps, expiresAt } = outcome
  // A failure that could not be stored with what tells of it is stored without; one that could not be stored at all stays.
  if (outcome.instead !== undefined)
    return { ...outcome, emitted: undefined, instead: undefined, ...outcome.instead(error) }
  if (outcome.told === 'failed' || outcome.told === 'released') throw error
  const about = { execution, runningMs, emits, hasSteps, expiresAt }
  return { ...about, ...(await failed(parts, about, { handler, error, isTheirs: false, interruptions: 0 })) }
}

function refuseWorn({ crashes }: Claimed, handler: Handler, expiresAt = Number.POSITIVE_INFINITY): void {
  if (crashes > mostCrashes) throw new WorkerCrashed({ handler: handler.name, crashes })
  if (expiresAt <= performance.now())
    throw new DeadlinePassed({ handler: handler.name, deadlineMs: handler.deadlineMs ?? 0 })
}

function refuseUnfit({ event, fault, position }: Claimed): RecordedEvent {
  if (event === undefined) throw new EventGone({ position })
  if (fault !== undefined) throw new EventUndecodable({ eventId: event.id, type: event.type }, fault)
  return event
}

async function isWanted({ log }: DispatchParts, handler: Handler, event: RecordedEvent): Promise<boolean> {
  if (handler.when?.(event) === false) return false
  return handler.transition === undefined || isTransition(log, handler.transition, event)
}

function refuseKeyless(handler: Handler, event: RecordedEvent): void {
  const key: unknown = handler.keyOf?.(event)
  if (handler.keyOf === undefined || typeof key === 'string') return
  throw new InvalidResult({ handler: handler.name, reason: `its key must be text, not ${String(key)}` })
}

type Failed = Pick<
  Outcome,
  'kind' | 'told' | 'detail' | 'delayMs' | 'error' | 'emitted' | 'inside' | 'instead' | 'compensates'
>

interface Failure {
  readonly handler: Handler
  readonly error: unknown
  /** The handler's own code has thrown it. */
  readonly isTheirs: boolean
  readonly interruptions: number
}

/** Tried again, or set aside: what the handler's policy says. */
async function failed(parts: DispatchParts, { execution, expiresAt }: About, failure: Failure): Promise<Failed> {
  const { log } = parts
  const { handler, error, isTheirs, interruptions } = failure
  log.telemetry.log.warn(
    { schema: log.schema, handler: handler.name, executionId: execution.id, attempt: execution.attempt, error },
    'a handler has failed',
  )
  // The database was away: that says nothing about the handler.
  if (isInterruption(error)) return interrupted(error)
  const description = describeError(error)
  const failures = execution.attempt - execution.crashes
  const final = finalReason(handler, error, isTheirs)
  const { retries, backoff } = handler.definition
  if (final === undefined && failures <= retries) {
    const delayMs = byExpiry(retryAfter(error) ?? delay(backoff, Math.max(1, failures)), expiresAt)
    return { kind: 'retry', told: 'failed', detail: 'retry', delayMs, error: description }
  }
  const reason =
    final ?? (isRillflowError(error, 'execution_timeout') ? 'timeout' : retries > 0 ? 'max_retries' : 'failed')
  return setAside(parts, { execution, handler, error, reason }).catch((problem: unknown) => {
    if (isInterruption(problem)) return interrupted(problem)
    throw problem
  })

  /** Does not count as a try, but is told of. */
  function interrupted(reason: unknown): Failed {
    const delayMs = byExpiry(delay(interruptionBackoff, interruptions + 1), expiresAt)
    return { kind: 'release', told: 'failed', detail: 'interrupted', delayMs, error: describeError(reason) }
  }
}

const interruptionBackoff = { baseMs: 500, factor: 2, maxMs: 30_000, jitter: 0.5 }

/**
 * Why no other try can help; undefined if one can. What the handler's own code throws is taken for what it says of itself
 * only: an event that it could not append elsewhere is not one that it emits.
 */
function finalReason(handler: Handler, error: unknown, isTheirs: boolean): DeadLetterReason | undefined {
  if (isRillflowError(error)) {
    const reason = isTheirs && !spokenOfItself.has(error.code) ? undefined : finalReasons[error.code]
    if (reason !== undefined) return reason
  } else if (propertyOf(error, 'retryable') === false) return 'non_retryable'
  try {
    return handler.isRetryable?.(error) === false ? 'non_retryable' : undefined
  } catch {
    return undefined
  }
}

/** Raised by nobody but the handler itself, and by its context. */
const spokenOfItself: ReadonlySet<string> = new Set([
  ...['non_retryable', 'invalid_step_result', 'hops_exceeded', 'event_undecodable', 'event_gone', 'deadline_passed'],
])

const finalReasons: Readonly<Record<string, DeadLetterReason>> = {
  non_retryable: 'non_retryable',
  hops_exceeded: 'hops',
  too_many_emitted: 'too_many_emitted',
  invalid_result: 'invalid_result',
  invalid_step_result: 'invalid_result',
  invalid_event: 'invalid_emission',
  invalid_name: 'invalid_emission',
  duplicate_event_id: 'invalid_emission',
  event_undecodable: 'undecodable',
  event_gone: 'event_gone',
  worker_crashed: 'crashed',
  deadline_passed: 'deadline',
  join_failed: 'join_failed',
  join_timeout: 'join_timeout',
}
