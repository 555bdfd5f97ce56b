/**
 * Dead letters of handlers: the same table, the same states as those of every consumer, under the name of the handler.
 * A retry is an execution again; its completion closes the letter in the same transaction, its failure opens it again.
 */

import { createHash } from 'node:crypto'
import { closeRetried, record, reopenRetried } from '../../consumers/dead-letters/row.ts'
import { describeError } from '../../consumers/run/failure.ts'
import { consumerNames } from '../../consumers/schema.ts'
import type { Executor } from '../../database/database.ts'
import { fragment, sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { workflowNames } from '../schema.ts'
import { keepEnds } from '../steps/keep.ts'
import type { Claimed } from '../work/claim.ts'
import { unparkAfter } from '../work/lanes.ts'

/** Why an execution was set aside. */
export type DeadLetterReason =
  /** Its handler threw, and has no retries. */
  | 'failed'
  /** Its handler threw, each time it was tried. */
  | 'max_retries'
  /** Its handler had not come back in time. */
  | 'timeout'
  /** Its handler said that no other try can help. */
  | 'non_retryable'
  /** What it emits is too far from the event that began it all. */
  | 'hops'
  | 'too_many_emitted'
  /** Its handler returned what is no emission. */
  | 'invalid_result'
  /** What it emits was refused for what it is. */
  | 'invalid_emission'
  /** Its event could not be given its shape. */
  | 'undecodable'
  /** Its event is not in the log any more. */
  | 'event_gone'
  /** Workers died over it, one after the other. */
  | 'crashed'
  /** It was not done by the handler's `deadlineMs`. */
  | 'deadline'
  | 'join_timeout'
  | 'join_failed'

/** How the dead letters of a handler are named among those of consumers. */
export function consumerOf(handler: string): string {
  return `${prefix}${handler}`
}

export function handlerOf(consumer: string): string {
  return consumer.slice(prefix.length)
}

export const prefix = 'handler:'

export interface FailedExecution {
  readonly execution: Claimed
  readonly handler: string
  readonly error: unknown
  readonly reason: DeadLetterReason
  /** What went wrong when the handler's `onFailure` was told of it. */
  readonly onFailure?: string | undefined
}

/** Records that an execution failed for good, in the transaction that completes it. */
export async function recordLetter(log: Log, tx: Executor, failed: FailedExecution): Promise<void> {
  const { execution, handler, error, reason, onFailure } = failed
  const { id, event, attempt, fence, correlationId } = execution
  // Without its event there is nothing to record but that a retry has failed; the activity has the rest.
  if (event === undefined) return reopenRetried(log, id, { attempts: attempt, error, reason }, tx)
  await keepEnds(log, tx, id)
  const consumer = consumerOf(handler)
  // Each earlier attempt has a line in the activity; a workflow may have many.
  const earlier = fragment`coalesce((
        select jsonb_agg(jsonb_build_object('at', earlier.at) || earlier.error order by earlier.position)
        from (
          select a.position, a.at, a.error
          from ${workflowNames(log).workflow_activity} as a
          where a.correlation_id = ${correlationId}::text
            and a.execution = ${id}::uuid
            and a.kind = 'failed'
            and a.outcome in ('retry', 'lost')
            and a.error is not null
            and a.at > coalesce((
              select l.last_failed_at
              from ${consumerNames(log).dead_letters} as l
              where l.consumer = ${consumer}::text
                and l.event_id = ${event.id}::uuid), '-infinity')
          order by a.position desc
          limit ${Math.max(0, Math.min(maxEarlier, attempt - 1))}::integer) as earlier), '[]')`
  const more = { id, correlationId, reason, fingerprint: fingerprint(handler, error), earlier, onFailure }
  await record(log, { consumer, fence }, { event, error, attempts: attempt }, tx, more)
}

/** The dead letter keeps the last 20 errors. */
const maxEarlier = 19

/** How often this execution was set aside before. */
export async function countFailures(log: Log, handler: string, eventId: string): Promise<number> {
  const [row] = await log.database.run<{ failures: number }>(sql`/* workflows.count_failures */
    select failures
    from ${consumerNames(log).dead_letters}
    where consumer = ${consumerOf(handler)}::text
      and event_id = ${eventId}::uuid`)
  return row?.failures ?? 0
}

/** The execution that retried a dead letter has completed. */
export async function closeLetter(log: Log, tx: Executor, execution: Claimed): Promise<void> {
  await closeRetried(log, execution.id, execution.attempt, tx)
  await unparkAfter(log, tx, execution)
}

/** Equal for failures that are alike: numbers and ids, which differ from one to the next, are left out. */
export function fingerprint(handler: string, error: unknown): string {
  const { name, code, message } = describeError(error)
  const alike = message.replaceAll(/[0-9a-f]{8}-[0-9a-f-]{27}|0x[0-9a-f]+|\d+/gi, '#').slice(0, 300)
  return createHash('sha256')
    .update([handler, name, code ?? '', alike].join('\n'))
    .digest('hex')
    .slice(0, 16)
}
