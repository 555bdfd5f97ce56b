/**
 * The outcome of an attempt, before it is stored: completed, tried again later, suspended, released, parked, or failed for
 * good. And how a failure becomes one of these, as the policy of its handler says.
 */

import { describeError, type ErrorDescription, isInterruption, propertyOf } from '../../consumers/run/failure.ts'
import { abortable, deadline } from '../../core/abort.ts'
import { isRillflowError } from '../../core/errors.ts'
import { elapsedMs } from '../../core/host.ts'
import { delay } from '../../core/retry.ts'
import type { Transaction } from '../../database/database.ts'
import type { Log } from '../../events/log.ts'
import { type DeadLetterReason, deadLetterOutcome } from '../dead-letters/record.ts'
import type { Emitted } from '../emit.ts'
import { InvalidResult } from '../errors.ts'
import { type FailureEnd, failureEnds, type Handler } from '../handler.ts'
import { pauseHandler } from '../insight/handlers.ts'
import { envelopeOf } from '../publish.ts'
import { retryAfter } from '../steps/step-failure.ts'
import type { AttemptParts } from './attempt.ts'
import type { Claimed } from './claim.ts'

export interface Outcome {
  readonly execution: Claimed
  /** Done: its row is deleted. Retry: later. Suspend: until woken or due. Release: not counted. Park: for an operator. */
  readonly kind: 'done' | 'retry' | 'suspend' | 'release' | 'park'
  /** The kind of the activity line to write. */
  readonly activity: 'completed' | 'skipped' | 'failed' | 'suspended' | 'released' | 'parked'
  /** More about it, in one word, for the activity line. */
  readonly detail?: string | undefined
  /** Undefined: until it is woken. */
  readonly delayMs?: number | undefined
  readonly runningMs: number
  readonly error?: ErrorDescription | undefined
  readonly emitted?: Emitted | undefined
  /** The types that the handler may emit, for joins that wait for them. */
  readonly emits: readonly string[]
  /** Writes of its own, in its transaction and before positions are drawn; if they throw, nothing of the outcome is stored. */
  readonly write?: ((tx: Transaction) => Promise<unknown>) | undefined
  /** The outcome to store instead if this one is refused. Undefined: it becomes a failure of the attempt. */
  readonly ifRefused?: ((error: unknown) => Partial<Outcome>) | undefined
  /** Whether the lane of the execution is parked with it. */
  readonly parksLane?: boolean | undefined
  /** Whether compensation begins with it: all of its workflow is locked first. */
  readonly compensates?: boolean | undefined
  /** When the execution expires, by `elapsedMs()`; undefined if it never does. */
  readonly expiresAt?: number | undefined
  /** Whether the execution has stored steps. */
  readonly hasSteps: boolean
}

/** The part of an outcome that is known before its kind is. */
export type OutcomeBase = Pick<Outcome, 'execution' | 'runningMs' | 'emits' | 'hasSteps' | 'expiresAt'>

/** The part that says how the attempt ended. */
export type OutcomeEnd = Omit<Outcome, keyof OutcomeBase>

/** Whether it can be stored with others by one statement, without a transaction. */
export function isPlain({ write, emitted, execution }: Outcome): boolean {
  return write === undefined && emitted === undefined && !isInBatch(execution) && !execution.isRetry
}

function isInBatch({ event, joinId }: Claimed): boolean {
  return joinId !== undefined || (event !== undefined && envelopeOf(event).batches.length > 0)
}

/** When the execution expires, by `elapsedMs()`. The claim says it by the database's clock. */
export function expiryOf({ claimedAt, leftMs, beyondRankMs }: Claimed, { deadlineMs }: Handler): number | undefined {
  const ms = beyondRankMs === undefined ? deadlineMs : leftMs
  return ms === undefined ? undefined : claimedAt + ms
}

/** A wait that would outlast the execution ends when the execution expires, so that it fails then. */
export function withinExpiry(delayMs: number, expiresAt: number | undefined): number {
  return expiresAt === undefined ? delayMs : Math.min(delayMs, Math.max(0, expiresAt - elapsedMs()))
}

export interface Failure {
  readonly handler: Handler
  readonly error: unknown
  /** Whether the handler's own code has thrown it. */
  readonly isThrown: boolean
  /** How often in a row the execution was interrupted on this worker because a database was away. */
  readonly interruptions: number
}

/** The outcome of an attempt that failed, as the policy of its handler says. */
export async function failureOutcome(parts: AttemptParts, base: OutcomeBase, failure: Failure): Promise<OutcomeEnd> {
  const { log } = parts
  const { execution, expiresAt } = base
  const { handler, error, isThrown } = failure
  log.telemetry.log.warn(
    { schema: log.schema, handler: handler.name, executionId: execution.id, attempt: execution.attempt, error },
    'a handler has failed',
  )
  if (isInterruption(error)) return interruptedOutcome(error, failure, expiresAt)
  const failures = execution.attempt - execution.crashes
  const final = finalReason(handler, error, isThrown)
  // An operator has decided already.
  const end = final === 'rejected' ? 'deadLetter' : await endOf(log, execution, failure, final === undefined)
  if (end === 'retry') {
    const delayMs = withinExpiry(
      retryAfter(error) ?? delay(handler.definition.backoff, Math.max(1, failures)),
      expiresAt,
    )
    return { kind: 'retry', activity: 'failed', detail: 'retry', delayMs, error: describeError(error) }
  }
  const reason = final ?? reasonOf(handler, error)
  // A retry of a dead letter that fails again leaves the dead letter open.
  if (end === 'skip' && !execution.isRetry)
    return { kind: 'done', activity: 'skipped', detail: reason, error: describeError(error) }
  try {
    if (end === 'stop') {
      await pauseHandler(log, handler.name)
      return { kind: 'release', activity: 'failed', detail: 'stopped', error: describeError(error) }
    }
    return await deadLetterOutcome(parts, { execution, handler, error, reason, parksLane: end === 'park' })
  } catch (problem) {
    if (isInterruption(problem)) return interruptedOutcome(problem, failure, expiresAt)
    throw problem
  }
}

/** How long a function that decides about a failure may take. */
const maxDecisionMs = 5_000

/**
 * The decision of the handler's `onFailure`. A function is called after every failure; if it fails, the execution is
 * dead-lettered.
 */
async function endOf(
  log: Log,
  { event, attempt, crashes, id }: Claimed,
  { handler, error }: Failure,
  canRetry: boolean,
): Promise<FailureEnd | 'retry'> {
  const { onFailure, definition, name } = handler
  const attempts = attempt - crashes
  if (typeof onFailure !== 'function') return canRetry && attempts <= definition.retries ? 'retry' : onFailure
  const limit = deadline(undefined, maxDecisionMs, { what: `The answer of onFailure of "${name}"`, clock: log.clock })
  try {
    const answer = await abortable(
      (async () => onFailure({ handler: name, error, attempt: attempts, event }))(),
      limit.signal,
    )
    if (answer === 'retry') return canRetry ? 'retry' : 'deadLetter'
    if (!failureEnds.includes(answer)) throw new InvalidResult({ handler: name, reason: `its onFailure: ${answer}` })
    return answer === 'park' && !definition.ordered ? 'deadLetter' : answer
  } catch (problem) {
    const about = { schema: log.schema, handler: name, executionId: id, error: problem }
    log.telemetry.log.warn(about, 'onFailure itself has failed, so the execution is dead-lettered.')
    return 'deadLetter'
  } finally {
    limit.dispose()
  }
}

function reasonOf({ definition }: Handler, error: unknown): DeadLetterReason {
  if (isRillflowError(error, 'execution_timeout')) return 'timeout'
  return definition.retries > 0 ? 'maxRetries' : 'failed'
}

const interruptionBackoff = { baseMs: 500, factor: 2, maxMs: 30_000, jitter: 0.5 }

/**
 * A database was away, which is not a failure of the handler: the attempt does not count, but its activity is recorded.
 */
function interruptedOutcome(error: unknown, { interruptions }: Failure, expiresAt: number | undefined): OutcomeEnd {
  const delayMs = withinExpiry(delay(interruptionBackoff, interruptions + 1), expiresAt)
  return { kind: 'release', activity: 'failed', detail: 'interrupted', delayMs, error: describeError(error) }
}

/** The outcome of an attempt whose outcome was refused when it was to be stored. */
export async function refusedOutcome(
  parts: AttemptParts,
  outcome: Outcome,
  handler: Handler,
  error: unknown,
): Promise<Outcome> {
  if (outcome.ifRefused !== undefined)
    return { ...outcome, emitted: undefined, ifRefused: undefined, ...outcome.ifRefused(error) }
  // A failure that cannot be stored stays: other workers take the execution over when its time is over.
  if (outcome.activity === 'failed' || outcome.activity === 'released') throw error
  const { execution, runningMs, emits, hasSteps, expiresAt } = outcome
  const base = { execution, runningMs, emits, hasSteps, expiresAt }
  return { ...base, ...(await failureOutcome(parts, base, { handler, error, isThrown: false, interruptions: 0 })) }
}

/**
 * Why no retry can help; undefined if one can. Of the errors that the handler's own code throws, only those count that are
 * about the handler: an event that it could not append elsewhere is not one that it emits.
 */
function finalReason(handler: Handler, error: unknown, isThrown: boolean): DeadLetterReason | undefined {
  if (isRillflowError(error)) {
    const reason = isThrown && !aboutItself.has(error.code) ? undefined : finalReasons[error.code]
    if (reason !== undefined) return reason
  } else if (propertyOf(error, 'retryable') === false) return 'nonRetryable'
  try {
    return handler.isRetryable?.(error) === false ? 'nonRetryable' : undefined
  } catch {
    return undefined
  }
}

/** Codes of errors that only the handler itself and its context throw. */
const aboutItself: ReadonlySet<string> = new Set([
  ...['non_retryable', 'invalid_step_result', 'hops_exceeded', 'event_undecodable', 'event_gone', 'deadline_passed'],
])

const finalReasons: Readonly<Record<string, DeadLetterReason>> = {
  non_retryable: 'nonRetryable',
  hops_exceeded: 'hops',
  too_many_emitted: 'tooManyEmitted',
  invalid_result: 'invalidResult',
  invalid_step_result: 'invalidResult',
  invalid_event: 'invalidEmission',
  invalid_name: 'invalidEmission',
  duplicate_event_id: 'invalidEmission',
  event_undecodable: 'undecodable',
  event_gone: 'eventGone',
  worker_crashed: 'crashed',
  deadline_passed: 'deadline',
  execution_rejected: 'rejected',
  join_failed: 'joinFailed',
  join_timeout: 'joinTimeout',
}
