/** The errors of what follows the log: consumers, daemons, dead letters. */
import { defineError, type ErrorKind } from '../core/errors.ts'

export const ConsumerNotFound: ErrorKind<'consumer_not_found', { consumer: string; nearest?: string | undefined }> =
  defineError('consumer_not_found', d => {
    const hint = d.nearest === undefined ? 'Register it, or check the name.' : `Did you mean "${d.nearest}"?`
    return `There is no consumer "${d.consumer}" here. ${hint}`
  })
export const LeaseLost: ErrorKind<'lease_lost', { consumer: string; fence: number }> = defineError('lease_lost', d =>
  `Consumer "${d.consumer}" is held by somebody else by now (our fence was ${d.fence}); what was under way was rolled
back. Whoever holds it goes on from the last checkpoint.`.replace('\n', ' '),
)
export const CheckpointBeyondHead: ErrorKind<
  'checkpoint_beyond_head',
  { consumer: string; checkpoint: number; head: number }
> = defineError('checkpoint_beyond_head', d =>
  `The checkpoint of "${d.consumer}" is ${d.checkpoint}, but the log ends at ${d.head}: another or an older log was put
under it. Reset the consumer to a position you trust, or rebuild it.`.replace('\n', ' '),
)
export const NoHandler: ErrorKind<'no_handler', { consumer: string; type: string }> = defineError(
  'no_handler',
  d =>
    `"${d.consumer}" has no handler for events of type ${d.type}. Add one, or name the types it wants in its filter.`,
)
export const CircuitOpen: ErrorKind<'circuit_open', { consumer: string; retryInMs: number }> = defineError(
  'circuit_open',
  d => `The circuit breaker of "${d.consumer}" is open: its target failed too often. It is tried in ${d.retryInMs} ms.`,
  { retryable: true },
)
export const DeadLetterNotFound: ErrorKind<'dead_letter_not_found', { consumer: string; eventId: string }> =
  defineError(
    'dead_letter_not_found',
    d => `Consumer "${d.consumer}" has no dead letter of event ${d.eventId}. See store.deadLetters.list().`,
  )
export const DeadLetterConflict: ErrorKind<
  'dead_letter_conflict',
  { consumer: string; eventId: string; state: string; wanted: string }
> = defineError(
  'dead_letter_conflict',
  d => `The dead letter of event ${d.eventId} at "${d.consumer}" is ${d.state}, so it cannot be ${d.wanted}.`,
)
export const DeadLetterUnwritable: ErrorKind<'dead_letter_unwritable', { consumer: string; eventId: string }> =
  defineError('dead_letter_unwritable', d =>
    `Event ${d.eventId} failed at "${d.consumer}", and its dead letter could not be written; error.cause says why. The
checkpoint stays before the event. Mend what keeps the table from being written, then run it again.`.replace('\n', ' '),
  )
export const NodeNotFound: ErrorKind<'node_not_found', { node: string; nearest?: string | undefined }> = defineError(
  'node_not_found',
  d =>
    `No running daemon has the node name "${d.node}"${d.nearest === undefined ? '' : ` (did you mean "${d.nearest}"?)`}. See
store.daemons.list().`.replace('\n', ' '),
)

export const RetryPending: ErrorKind<'retry_pending', { consumer: string; eventId: string }> = defineError(
  'retry_pending',
  d =>
    `A retry of the dead letter of event ${d.eventId} at "${d.consumer}" with other data is asked for already. Wait until it was
tried, or resolve it.`.replace('\n', ' '),
)
