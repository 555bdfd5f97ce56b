/** What becomes of an event that failed, written in the transaction that keeps the ones before it. */

import type { Transaction } from '../../database/database.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import { channels } from '../../telemetry/telemetry.ts'
import { record } from '../dead-letters/row.ts'
import { DeadLetterUnwritable } from '../errors.ts'
import { save } from '../row.ts'
import type { Work } from './batch.ts'
import { describeError, isInterruption } from './failure.ts'
import { decide, type FailureEnd } from './policy.ts'

export interface Conclusion {
  readonly checkpoint: number
  /** How often the event after the checkpoint has failed. */
  readonly attempts: number
  /** How long it has to wait before it is tried again. */
  readonly retryInMs: number
  readonly isPaused: boolean
  /** What the failure came to; undefined if there was none, or it is tried again. */
  readonly end: FailureEnd | undefined
  readonly error: unknown
}

/** If the event is done with and others follow, the caller may save the checkpoint with theirs. */
export async function conclude(
  work: Work,
  tx: Transaction,
  event: RecordedEvent,
  error: unknown,
  attempt: number,
  savesWhatIsDone = true,
): Promise<Conclusion> {
  const { log, consumer, lease, breaker } = work
  const told = { schema: log.schema, consumer: consumer.name, eventId: event.id, position: event.position, attempt }
  log.telemetry.count('consumer_failures_total', 1, consumer.name)
  const stored = { ...describeError(error), eventId: event.id, position: event.position, attempt }
  const before = event.position - 1

  // A breaker that has opened over it says that the target is down, not that the event is bad.
  if (breaker !== undefined && breaker.openings() > work.openings) {
    const retryInMs = breaker.retryInMs()
    const progress = { checkpoint: before, attempts: attempt - 1, retryInMs, error: stored }
    const { isPaused } = await save(log, lease, progress, tx)
    return { checkpoint: before, attempts: attempt - 1, retryInMs, isPaused, end: undefined, error }
  }

  const decided = await decide(consumer.policy, { consumer: consumer.name, event, error, attempt })
  log.telemetry.publish(channels.failure, () => ({ ...told, error, decision: decided.decision }))
  log.telemetry.log.warn({ ...told, error, decision: decided.decision }, 'an event could not be applied')
  if (decided.decision === 'retry') {
    const retryInMs = decided.delayMs
    const progress = { checkpoint: before, attempts: attempt, retryInMs, error: stored }
    const { isPaused } = await save(log, lease, progress, tx)
    return { checkpoint: before, attempts: attempt, retryInMs, isPaused, end: undefined, error }
  }
  const end = decided.decision
  const checkpoint = end === 'stop' ? before : event.position
  if (end === 'dead-letter') {
    await record(log, lease, { event, error, attempts: attempt }, tx).catch((cause: unknown) => {
      throw isInterruption(cause)
        ? cause
        : new DeadLetterUnwritable({ consumer: consumer.name, eventId: event.id }, cause)
    })
  }
  if (end !== 'stop' && !savesWhatIsDone) return { checkpoint, attempts: 0, retryInMs: 0, isPaused: false, end, error }
  const attempts = end === 'stop' ? attempt : 0
  // A processor stops by rejecting; whatever else stops must not be started again by the next daemon.
  const pause = end === 'stop' && consumer.kind !== 'processor'
  const { isPaused } = await save(log, lease, { checkpoint, attempts, error: stored, pause }, tx)
  return { checkpoint, attempts, retryInMs: 0, isPaused, end, error }
}
