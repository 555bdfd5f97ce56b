/** The errors of workflows: handlers, executions, waits, joins, schedules. */
import { defineError, type ErrorKind } from '../core/errors.ts'

export const DuplicateHandler: ErrorKind<'duplicate_handler', { handler: string; version: number }> = defineError(
  'duplicate_handler',
  d =>
    `Version ${d.version} of handler "${d.handler}" is registered in this store already. Give each handler a name of its own,
or a changed one a higher version.`.replace('\n', ' '),
)
export const HandlerNotFound: ErrorKind<'handler_not_found', { handler: string; nearest?: string | undefined }> =
  defineError('handler_not_found', d => {
    const hint = d.nearest === undefined ? 'See store.workflows.handlers().' : `Did you mean "${d.nearest}"?`
    return `There is no handler "${d.handler}" here. ${hint}`
  })
export const InvalidResult: ErrorKind<'invalid_result', { handler: string; reason: string }> = defineError(
  'invalid_result',
  d =>
    `Handler "${d.handler}" returned what cannot be emitted: ${d.reason}. Return nothing, emit(…), a list of them, batch([…]) or
complete(…).`.replace('\n', ' '),
)
export const HopsExceeded: ErrorKind<'hops_exceeded', { handler: string; hops: number; maxHops: number }> = defineError(
  'hops_exceeded',
  d =>
    `Handler "${d.handler}" would emit the event ${d.hops} hops away from the one that began it all; the limit is ${d.maxHops}. Events
that cause each other in a circle never end: break the circle, or raise maxHops.`.replace('\n', ' '),
)
export const TooManyEmitted: ErrorKind<'too_many_emitted', { handler: string; emitted: number; maxEmitted: number }> =
  defineError('too_many_emitted', d =>
    `One run of "${d.handler}" emitted ${d.emitted} events; the limit is ${d.maxEmitted}. Emit them in several steps, or raise
maxEmitted.`.replace('\n', ' '),
  )
export const ExecutionTimeout: ErrorKind<'execution_timeout', { handler: string; timeoutMs: number }> = defineError(
  'execution_timeout',
  d =>
    `Handler "${d.handler}" had run for ${d.timeoutMs} ms; what it still does is ignored. Listen to ctx.signal, or raise
timeoutMs.`.replace('\n', ' '),
)
export const DeadlinePassed: ErrorKind<'deadline_passed', { handler: string; deadlineMs: number }> = defineError(
  'deadline_passed',
  d => `Handler "${d.handler}" was not done ${d.deadlineMs} ms after its event, waits included. Raise deadlineMs.`,
)
export const ExecutionLost: ErrorKind<'execution_lost', { handler: string; executionId: string }> = defineError(
  'execution_lost',
  d =>
    `This run of "${d.handler}" (${d.executionId}) is over: it was cancelled, timed out or taken over. What it writes is
refused.`.replace('\n', ' '),
)
export const WorkerCrashed: ErrorKind<'worker_crashed', { handler: string; crashes: number }> = defineError(
  'worker_crashed',
  d =>
    `${d.crashes} workers died while they ran "${d.handler}" for this event. If the event kills its process, mend the handler
and retry the dead letter.`.replace('\n', ' '),
)
export const EventUndecodable: ErrorKind<'event_undecodable', { eventId: string; type: string }> = defineError(
  'event_undecodable',
  d =>
    `Event ${d.eventId} of type ${d.type} could not be given the shape its readers expect; error.cause says why. Mend the
upcaster, then retry the dead letter.`.replace('\n', ' '),
)
export const EventGone: ErrorKind<'event_gone', { position: number }> = defineError(
  'event_gone',
  d => `The event at position ${d.position} is not in the log any more, so nothing can be done because of it.`,
)
export const NonDeterministic: ErrorKind<
  'non_deterministic',
  { handler: string; step: string; recorded: string; asked: string }
> = defineError('non_deterministic', d =>
  `Handler "${d.handler}" came to ${d.asked} where an earlier run had recorded ${d.recorded} (step ${d.step}). Between runs a
handler must make the same calls in the same order: put what may differ into ctx.step, and give changed code a new version. The
execution is parked; resume it when the code fits again.`.replaceAll('\n', ' '),
)
export const InvalidStepResult: ErrorKind<'invalid_step_result', { handler: string; step: string; reason: string }> =
  defineError('invalid_step_result', d =>
    `Step "${d.step}" of "${d.handler}" returned what cannot be remembered: ${d.reason}. Return plain JSON data, or nothing; keep
large things elsewhere, and return where they are.`.replace('\n', ' '),
  )
export const ExecutionNotParked: ErrorKind<'execution_not_parked', { executionId: string; state: string }> =
  defineError('execution_not_parked', d =>
    d.state === 'gone'
      ? `There is no execution ${d.executionId}: it has ended, or never was.`
      : `Execution ${d.executionId} is ${d.state}, not parked, so there is nothing to resume.`,
  )
export const RetryLater: ErrorKind<'retry_later', { delayMs: number; reason: string }> = defineError(
  'retry_later',
  d => `${d.reason} (to be tried again in ${d.delayMs} ms)`,
  { retryable: true },
)
export const NonRetryable: ErrorKind<'non_retryable', { reason: string }> = defineError('non_retryable', d => d.reason)
export const JoinFailed: ErrorKind<
  'join_failed',
  { handler: string; batchId: string; size: number; arrived: number; failed: readonly number[] }
> = defineError('join_failed', d =>
  `Join "${d.handler}" cannot have what it waits for: of the ${d.size} branches of batch ${d.batchId}, ${d.arrived} came to an event and
${d.failed.length === 0 ? 'none' : `number ${d.failed.join(', ')}`} failed. Retry the dead letters of those first, then this one, which runs with all that is
there; or choose another policy.`.replaceAll('\n', ' '),
)
export const JoinTimeout: ErrorKind<
  'join_timeout',
  { handler: string; batchId: string; size: number; arrived: number; timeoutMs: number }
> = defineError('join_timeout', d =>
  `Join "${d.handler}" had ${d.arrived} of ${d.size} events of batch ${d.batchId} after ${d.timeoutMs} ms. Its dead letter, when it is retried, runs with
all that is there then; onTimeout: 'partial' does so at once.`.replace('\n', ' '),
)
export const DuplicateSchedule: ErrorKind<'duplicate_schedule', { schedule: string }> = defineError(
  'duplicate_schedule',
  d => `Schedule "${d.schedule}" is registered in this store already. Give each schedule a name of its own.`,
)
export const ScheduleNotFound: ErrorKind<'schedule_not_found', { schedule: string; nearest?: string | undefined }> =
  defineError('schedule_not_found', d => {
    const hint = d.nearest === undefined ? 'See store.workflows.schedules.list().' : `Did you mean "${d.nearest}"?`
    return `There is no schedule "${d.schedule}". ${hint}`
  })
export const ScheduleTimeout: ErrorKind<'schedule_timeout', { schedule: string; timeoutMs: number }> = defineError(
  'schedule_timeout',
  d =>
    `A run of schedule "${d.schedule}" had taken ${d.timeoutMs} ms; what it still does is ignored. Leave long work to a handler,
listen to ctx.signal, or raise timeoutMs.`.replace('\n', ' '),
)
export const InvalidScheduleResult: ErrorKind<'invalid_schedule_result', { schedule: string; reason: string }> =
  defineError('invalid_schedule_result', d =>
    `A run of schedule "${d.schedule}" returned what cannot be published: ${d.reason}. Return nothing, emit(…) or a list of
them.`.replace('\n', ' '),
  )
export const LaneNotParked: ErrorKind<'lane_not_parked', { handler: string; key: string }> = defineError(
  'lane_not_parked',
  d => `Handler "${d.handler}" has no parked lane for "${d.key}". See store.workflows.lanes({ isParked: true }).`,
)

export const WorkflowNotActive: ErrorKind<
  'workflow_not_active',
  { correlationId: string; state: string; wanted: string }
> = defineError(
  'workflow_not_active',
  d => `Workflow ${d.correlationId} is ${d.state}, so ${d.wanted}. See its status for the reason.`,
)
