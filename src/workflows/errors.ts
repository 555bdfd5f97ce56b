/** The errors of workflows: handlers, executions, joins, schedules. */
import { defineError, type ErrorKind } from '../core/errors.ts'

// ── Definitions ──────────────────────────────────────────────────────────────────────────────────────────────

export const DuplicateHandler: ErrorKind<'duplicate_handler', { handler: string; version: number }> = defineError(
  'duplicate_handler',
  d =>
    `Version ${d.version} of handler "${d.handler}" is already registered in this store. Give each handler a name of its own, or a changed one a higher version.`,
)
export const HandlerNotFound: ErrorKind<'handler_not_found', { handler: string; nearest?: string | undefined }> =
  defineError('handler_not_found', d => {
    const hint = d.nearest === undefined ? 'See store.workflows.handlers.list().' : `Did you mean "${d.nearest}"?`
    return `Handler "${d.handler}" does not exist here. ${hint}`
  })
export const DuplicateSchedule: ErrorKind<'duplicate_schedule', { schedule: string }> = defineError(
  'duplicate_schedule',
  d => `Schedule "${d.schedule}" is already registered in this store. Give each schedule a name of its own.`,
)
export const ScheduleNotFound: ErrorKind<'schedule_not_found', { schedule: string; nearest?: string | undefined }> =
  defineError('schedule_not_found', d => {
    const hint = d.nearest === undefined ? 'See store.workflows.schedules.list().' : `Did you mean "${d.nearest}"?`
    return `Schedule "${d.schedule}" does not exist. ${hint}`
  })

export const StepTimeout: ErrorKind<'step_timeout', { handler: string; step: string; timeoutMs: number }> = defineError(
  'step_timeout',
  d =>
    `Step "${d.step}" of handler "${d.handler}" took longer than ${d.timeoutMs} ms. Give it retries, or a longer timeoutMs; its signal has aborted.`,
  { retryable: true },
)

// ── Results of handlers ──────────────────────────────────────────────────────────────────────────────────────

export const InvalidResult: ErrorKind<'invalid_result', { handler: string; reason: string }> = defineError(
  'invalid_result',
  d =>
    `Handler "${d.handler}" returned a value that cannot be emitted: ${d.reason}. Return nothing, emit(…), a list of them, batch([…]), complete(…) or compensate(…).`,
)
export const InvalidScheduleResult: ErrorKind<'invalid_schedule_result', { schedule: string; reason: string }> =
  defineError(
    'invalid_schedule_result',
    d =>
      `A run of schedule "${d.schedule}" returned a value that cannot be published: ${d.reason}. Return nothing, emit(…) or a list of them.`,
  )
export const InvalidStepResult: ErrorKind<'invalid_step_result', { handler: string; step: string; reason: string }> =
  defineError(
    'invalid_step_result',
    d =>
      `Step "${d.step}" of "${d.handler}" returned a value that cannot be recorded: ${d.reason}. Return plain JSON data, or nothing; store large values elsewhere, and return where they are.`,
  )
export const HopsExceeded: ErrorKind<'hops_exceeded', { handler: string; hops: number; maxHops: number }> = defineError(
  'hops_exceeded',
  d =>
    `Handler "${d.handler}" would emit an event ${d.hops} hops away from the first event of its workflow; the limit is ${d.maxHops}. Events that cause each other in a circle never end: break the circle, or raise maxHops.`,
)
export const TooManyEmitted: ErrorKind<'too_many_emitted', { handler: string; emitted: number; maxEmitted: number }> =
  defineError(
    'too_many_emitted',
    d =>
      `One run of "${d.handler}" emitted ${d.emitted} events; the limit is ${d.maxEmitted}. Emit them in several steps, or raise maxEmitted.`,
  )
/**
 * Thrown by a handler: it is tried again after this time, instead of after the wait of its backoff.
 *
 * @example
 * ```ts
 * const wait = () => {
 *   throw new RetryLater({ delayMs: 60_000, reason: 'the bank is closed' })
 * }
 * ```
 */
export const RetryLater: ErrorKind<'retry_later', { delayMs: number; reason: string }> = defineError(
  'retry_later',
  d => `${d.reason} (the next attempt is in ${d.delayMs} ms)`,
  { retryable: true },
)
/**
 * For programs to throw: `new NonRetryable('the card was declined')`.
 *
 * @example
 * ```ts
 * const decline = () => {
 *   throw new NonRetryable('the card is blocked')
 * }
 * ```
 */
export const NonRetryable: ErrorKind<'non_retryable', { reason: string }> = defineError(
  'non_retryable',
  d => d.reason || 'The handler has failed for good, and gave no reason.',
)
export const NonDeterministic: ErrorKind<
  'non_deterministic',
  { handler: string; step: string; recorded: string; asked: string }
> = defineError(
  'non_deterministic',
  d =>
    `Handler "${d.handler}" called ${d.asked} where an earlier run had recorded ${d.recorded} (step ${d.step}). Between runs a handler must make the same calls in the same order: put calls that may differ into ctx.step, and give changed code a new version. The execution is parked. Resume it when the code fits again.`,
)

// ── Times and lives ──────────────────────────────────────────────────────────────────────────────────────────

export const ExecutionTimeout: ErrorKind<'execution_timeout', { handler: string; timeoutMs: number }> = defineError(
  'execution_timeout',
  d =>
    `Handler "${d.handler}" had not returned after ${d.timeoutMs} ms, so its result is ignored. Listen to ctx.signal, or raise timeoutMs.`,
)
export const DeadlinePassed: ErrorKind<'deadline_passed', { handler: string; deadlineMs: number }> = defineError(
  'deadline_passed',
  d =>
    `Handler "${d.handler}" had not ended ${d.deadlineMs} ms after its event, waits included. Raise deadlineMs, or look for the cause of the delay.`,
)
export const ScheduleTimeout: ErrorKind<'schedule_timeout', { schedule: string; timeoutMs: number }> = defineError(
  'schedule_timeout',
  d =>
    `A run of schedule "${d.schedule}" had not returned after ${d.timeoutMs} ms, so its result is ignored. Leave long work to a handler, listen to ctx.signal, or raise timeoutMs.`,
)
export const ExecutionLost: ErrorKind<'execution_lost', { handler: string; executionId: string }> = defineError(
  'execution_lost',
  d =>
    `This run of "${d.handler}" (${d.executionId}) is over: it was cancelled, timed out or taken over by another worker. Its writes are refused, and nothing needs to be done.`,
)
export const WorkerCrashed: ErrorKind<'worker_crashed', { handler: string; crashes: number }> = defineError(
  'worker_crashed',
  d =>
    `${d.crashes} workers died while they ran "${d.handler}" for this event. If the event kills its process, fix the handler and retry the dead letter.`,
)

// ── Events ───────────────────────────────────────────────────────────────────────────────────────────────────

export const EventUndecodable: ErrorKind<'event_undecodable', { eventId: string; type: string }> = defineError(
  'event_undecodable',
  d =>
    `Event ${d.eventId} of type ${d.type} could not be upcast. error.cause says why. Fix the upcaster, then retry the dead letter.`,
)
export const EventGone: ErrorKind<'event_gone', { position: number }> = defineError(
  'event_gone',
  d =>
    `The event at position ${d.position} is no longer in the log, so its handler cannot run. Resolve the dead letter.`,
)

// ── Joins ────────────────────────────────────────────────────────────────────────────────────────────────────

export const JoinFailed: ErrorKind<
  'join_failed',
  { handler: string; batchId: string; size: number; arrived: number; failed: readonly number[] }
> = defineError('join_failed', d => {
  const failed = d.failed.length === 0 ? 'none' : `number ${d.failed.join(', ')}`
  return `Join "${d.handler}" cannot be complete: of the ${d.size} branches of batch ${d.batchId}, ${d.arrived} have an event and ${failed} failed. Retry the dead letters of those first, then the one of the join, which runs with all events that have arrived by then. Or choose another policy.`
})
export const JoinTimeout: ErrorKind<
  'join_timeout',
  { handler: string; batchId: string; size: number; arrived: number; timeoutMs: number }
> = defineError(
  'join_timeout',
  d =>
    `Join "${d.handler}" had ${d.arrived} of ${d.size} events of batch ${d.batchId} after ${d.timeoutMs} ms. A retry of its dead letter runs with all events that have arrived by then; onJoinTimeout: 'partial' does so at once.`,
)

// ── Operators ────────────────────────────────────────────────────────────────────────────────────────────────

export const ExecutionNotReady: ErrorKind<'execution_not_ready', { executionId: string; state: string }> = defineError(
  'execution_not_ready',
  d =>
    `Execution ${d.executionId} cannot be run by hand, because it is ${d.state}. Only one that is ready, or that waits for its next attempt outside of a lane, can; store.workflows.executions.list shows them.`,
)
export const ExecutionNotParked: ErrorKind<'execution_not_parked', { executionId: string; state: string }> =
  defineError('execution_not_parked', d =>
    d.state === 'gone'
      ? `Execution ${d.executionId} does not exist: it has ended, or there never was one.`
      : `Execution ${d.executionId} is ${d.state}, not parked, so it can be neither resumed nor rejected.`,
  )
export const ExecutionRejected: ErrorKind<'execution_rejected', { handler: string }> = defineError(
  'execution_rejected',
  d =>
    `An operator has rejected this execution of "${d.handler}", which was parked: its code did not fit its recorded steps. A retry of its dead letter runs it with the newest version of the handler.`,
)
export const LaneNotParked: ErrorKind<'lane_not_parked', { handler: string; key: string }> = defineError(
  'lane_not_parked',
  d => `Handler "${d.handler}" has no parked lane for "${d.key}". See store.workflows.lanes.list({ isParked: true }).`,
)
export const WorkflowNotActive: ErrorKind<
  'workflow_not_active',
  { correlationId: string; state: string; wanted: string }
> = defineError(
  'workflow_not_active',
  d => `Workflow ${d.correlationId} is ${d.state}, so ${d.wanted}. See its status for the reason.`,
)
