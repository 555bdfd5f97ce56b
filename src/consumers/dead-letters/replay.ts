/**
 * Retries dead letters of one consumer, under its lease: the event of each, by itself, in a transaction in which the
 * dead letter is also closed. So an event is never applied without its dead letter being closed, nor the other way
 * round. The checkpoint stays where it is.
 *
 * Before that the dead letter is marked as being retried, in a statement of its own. If this process dies, the next
 * holder of the consumer finds it under an older fence and opens it again; the request stays.
 *
 * Locks are taken in the order of the consumer's batches: the dead letter, then the consumer's row at the end.
 */

import { onAbort } from '../../core/abort.ts'
import { ConsumerTimeout, isRillflowError } from '../../core/errors.ts'
import { sql } from '../../database/sql.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import type { Log } from '../../events/log.ts'
import { eventColumns, eventsOfRows } from '../../events/read/rows.ts'
import type { Consumer } from '../consumer.ts'
import { refuseInterruption } from '../run/batch.ts'
import { isInterruption } from '../run/failure.ts'
import type { HeldLease } from '../runners/runnable.ts'
import { close, putBack, reopenAbandoned, type TakenDeadLetter, take } from './row.ts'

export interface Replayed {
  readonly replayed: number
  readonly failed: number
  /** When the next request is due; undefined if there is none. */
  readonly nextInMs: number | undefined
}

/**
 * Carries out the requests that are due, lowest positions first, `limit` of them at most. Only one call at a time under
 * one fence. Rejects only if it cannot continue: the lease is lost, the database is away.
 */
export async function replayRequested(
  { log }: { readonly log: Log },
  consumer: Consumer,
  hold: HeldLease,
  { limit = 100 }: { limit?: number | undefined } = {},
): Promise<Replayed> {
  await reopenAbandoned(log, hold.lease)
  let replayed = 0
  let failed = 0
  while (replayed + failed < limit && !hold.drain.aborted && !hold.lost.aborted) {
    const { deadLetter, nextInMs } = await take(log, hold.lease)
    if (deadLetter === undefined) return { replayed, failed, nextInMs }
    if (await replay(log, consumer, hold, deadLetter)) replayed++
    else failed++
  }
  return { replayed, failed, nextInMs: 0 }
}

async function replay(log: Log, consumer: Consumer, hold: HeldLease, deadLetter: TakenDeadLetter): Promise<boolean> {
  const { eventId } = deadLetter
  const about = { schema: log.schema, consumer: consumer.name, eventId }
  try {
    await apply(log, consumer, hold, deadLetter)
    log.telemetry.log.info(about, 'A dead letter was replayed.')
    return true
  } catch (error) {
    if (hold.lost.aborted || isInterruption(error)) throw error
    await putBack(log, hold.lease, eventId, error)
    log.telemetry.log.warn({ ...about, error }, 'A dead letter failed again.')
    return false
  }
}

async function apply(log: Log, consumer: Consumer, hold: HeldLease, deadLetter: TakenDeadLetter): Promise<void> {
  const { telemetry, schema } = log
  const event = await readEvent(log, deadLetter)
  const attempt = deadLetter.attempts + 1
  if (!telemetry.isTraced) return applyEvent(log, consumer, hold, event, attempt)
  const fields = { consumer: consumer.name, kind: consumer.kind, attempt }
  const start = { name: 'consumers.replay', schema, causes: [event], fields } as const
  return telemetry.span(start, () => applyEvent(log, consumer, hold, event, attempt))
}

async function applyEvent(
  log: Log,
  consumer: Consumer,
  { lease, lost }: HeldLease,
  event: RecordedEvent,
  attempt: number,
): Promise<void> {
  const { leaseMs, timeoutMs } = consumer
  const ended = new AbortController()
  const stopWaiting = onAbort(lost, () => ended.abort(lost.reason))
  const context = { consumer: consumer.name, signal: ended.signal, attempt, isReplay: true, at: () => {} }
  try {
    await log.database.transaction(
      async tx => {
        await consumer.handle([event], { ...context, tx }).catch(async (error: unknown) => {
          await refuseInterruption(tx, error)
          throw error
        })
        await close(log, lease, event.id, tx)
      },
      { timeoutMs, signal: lost, idleMs: leaseMs, lockTimeoutMs: leaseMs },
    )
  } catch (error) {
    const reason = isRillflowError(error, 'transaction_timeout')
      ? new ConsumerTimeout({ consumer: consumer.name, timeoutMs: (error as { timeoutMs?: number }).timeoutMs! }, error)
      : error
    ended.abort(reason)
    throw reason
  } finally {
    stopWaiting()
  }
}

export async function readEvent(log: Log, { position, eventId }: TakenDeadLetter): Promise<RecordedEvent> {
  const rows = await log.database.runArrays(sql`/* dead_letters.read_event */
    select ${eventColumns}
    from ${log.names.events}
    where position = ${position}::bigint
      and event_id = ${eventId}::uuid`)
  const [event] = await eventsOfRows(log, rows)
  if (event === undefined)
    throw new Error(`Event ${eventId} is no longer in the log. Resolve or delete its dead letter.`)
  return event
}
