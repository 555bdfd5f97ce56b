/** The errors of consumers, runners and dead letters. */
import { defineError, type ErrorKind } from '../core/errors.ts'

export const ConsumerNotFound: ErrorKind<
  'consumer_not_found',
  { consumer: string; group?: string | undefined; nearest?: string | undefined }
> = defineError('consumer_not_found', d => {
  const what = d.group === undefined ? `consumer "${d.consumer}"` : `group "${d.group}" of consumer "${d.consumer}"`
  const hint = d.nearest === undefined ? 'Register it, or see store.consumers.list().' : `Did you mean "${d.nearest}"?`
  return `There is no ${what}. ${hint}`
})

export const LeaseLost: ErrorKind<'lease_lost', { consumer: string; fence: number }> = defineError(
  'lease_lost',
  d =>
    `Consumer "${d.consumer}" was taken over by another runner, so this batch was rolled back (its fence ${d.fence} is no longer valid). Nothing is lost and nothing needs to be done: the other runner continues from the last checkpoint.`,
)

export const CheckpointMoved: ErrorKind<'checkpoint_moved', { consumer: string; expected: number; found: number }> =
  defineError(
    'checkpoint_moved',
    d =>
      `The checkpoint of "${d.consumer}" is ${d.found}, but its runner had left it at ${d.expected}: the database has lost its last writes, as after a fail-over, or the row was changed by hand. This batch was rolled back, and nothing needs to be done: the runner continues from ${d.found}.`,
  )

export const CheckpointBeyondHead: ErrorKind<
  'checkpoint_beyond_head',
  { consumer: string; checkpoint: number; head: number }
> = defineError(
  'checkpoint_beyond_head',
  d =>
    `The checkpoint of "${d.consumer}" is ${d.checkpoint}, but the log ends at ${d.head}: another log, or an older one, was put in its place. Reset the consumer to a position that you trust, or rebuild it.`,
)

export const EventTypeUnhandled: ErrorKind<'event_type_unhandled', { consumer: string; type: string }> = defineError(
  'event_type_unhandled',
  d =>
    `"${d.consumer}" has no code for events of type ${d.type}. Add a function for the type, or name the types that it wants in its filter.`,
)

export const CircuitOpen: ErrorKind<'circuit_open', { consumer: string; retryInMs: number }> = defineError(
  'circuit_open',
  d =>
    `The circuit breaker of "${d.consumer}" is open, because its target failed too often. The next attempt is in ${d.retryInMs} ms.`,
  { retryable: true },
)
export const DeadLetterNotFound: ErrorKind<'dead_letter_not_found', { of: string; eventId: string }> = defineError(
  'dead_letter_not_found',
  d => `"${d.of}" has no dead letter of event ${d.eventId}. See store.deadLetters.list().`,
)
export const DeadLetterConflict: ErrorKind<
  'dead_letter_conflict',
  { of: string; eventId: string; state: string; wanted: string }
> = defineError('dead_letter_conflict', d => {
  const hint = d.state === 'parked' ? ' An earlier event of its stream holds it back: retry or resolve that one.' : ''
  return `The dead letter of event ${d.eventId} of "${d.of}" is ${d.state}, so it cannot be ${d.wanted}.${hint}`
})

export const DeadLetterUnwritable: ErrorKind<'dead_letter_unwritable', { consumer: string; eventId: string }> =
  defineError(
    'dead_letter_unwritable',
    d =>
      `Event ${d.eventId} failed at "${d.consumer}", and its dead letter could not be written. error.cause says why. The checkpoint stays before the event. Fix the cause, then run the consumer again.`,
  )

export const RetryPending: ErrorKind<'retry_pending', { of: string; eventId: string }> = defineError(
  'retry_pending',
  d =>
    `A retry of the dead letter of event ${d.eventId} of "${d.of}" with other data is already requested. Wait until it was carried out, or resolve the dead letter.`,
)

export const RunnerNotFound: ErrorKind<'runner_not_found', { runner: string; nearest?: string | undefined }> =
  defineError('runner_not_found', d => {
    const hint = d.nearest === undefined ? 'See store.runners.list().' : `Did you mean "${d.nearest}"?`
    return `There is no running runner of the name "${d.runner}". ${hint}`
  })
