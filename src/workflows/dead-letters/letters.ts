/**
 * Dead letters of handlers: the same table, the same states as those of every consumer, under the name of the handler.
 * A retry is an execution again; its completion closes the letter in the same transaction, its failure opens it again.
 */

import { createHash } from 'node:crypto'
import { keptEntries } from '../../consumers/dead-letters/dead-letter.ts'
import { describeError } from '../../consumers/run/failure.ts'
import { consumerNames } from '../../consumers/schema.ts'
import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { moment } from '../../schema/clock.sql.ts'
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

/** How the letters of a handler are called among those of consumers. */
export function consumerOf(handler: string): string {
  return `handler:${handler}`
}

export interface FailedExecution {
  readonly execution: Claimed
  readonly handler: string
  readonly error: unknown
  readonly reason: DeadLetterReason
  /** What went wrong when the handler's `onFailure` was told of it. */
  readonly onFailure?: string | undefined
}

/** Records that an execution failed for good, in the transaction that ends it. */
export async function recordLetter(log: Log, tx: Executor, failed: FailedExecution): Promise<void> {
  const { execution, handler, error, reason, onFailure } = failed
  const { event, attempt } = execution
  if (event === undefined) return reopenGone(log, tx, failed)
  await keepEnds(log, tx, execution.id)
  const description = { ...describeError(error), ...(onFailure === undefined ? {} : { onFailure }) }
  await tx.run(sql`/* workflows.record_letter */
    insert into ${consumerNames(log).dead_letters} as d
      (consumer, event_id, position, stream, version, type, fence, attempts, execution, correlation_id,
        reason, fingerprint, first_failed_at, last_failed_at, errors)
    select ${consumerOf(handler)}::text, ${event.id}::uuid, ${event.position}::bigint, ${event.stream}::text,
      ${event.version}::bigint, ${event.type}::text, ${execution.fence}::bigint, ${attempt}::integer,
      ${execution.id}::uuid, ${execution.correlationId}::text, ${reason}::text,
      ${fingerprint(handler, error)}::text, moment.at, moment.at,
      -- What the attempts before this one came to: each has one line, the newest of a workflow that may have many.
      coalesce((
        select jsonb_agg(jsonb_build_object('at', earlier.at) || earlier.error order by earlier.position)
        from (
          select a.position, a.at, a.error
          from ${workflowNames(log).workflow_activity} as a
          where a.correlation_id = ${execution.correlationId}::text
            and a.execution = ${execution.id}::uuid
            and a.kind = 'failed'
            and a.outcome in ('retry', 'lost')
            and a.error is not null
            and a.at > coalesce((
              select l.last_failed_at
              from ${consumerNames(log).dead_letters} as l
              where l.consumer = ${consumerOf(handler)}::text
                and l.event_id = ${event.id}::uuid), '-infinity')
          order by a.position desc
          limit ${Math.max(0, Math.min(keptEntries, attempt) - 1)}::integer) as earlier), '[]')
        || jsonb_build_array(jsonb_build_object('at', moment.at) || ${JSON.stringify(description)}::jsonb)
    from ${moment(log.names.clock)}
    on conflict (consumer, event_id) do update
    set state = 'open',
      fence = excluded.fence,
      attempts = d.attempts + excluded.attempts,
      failures = d.failures + 1,
      last_failed_at = excluded.last_failed_at,
      retry_at = null,
      note = null,
      execution = excluded.execution,
      correlation_id = excluded.correlation_id,
      reason = excluded.reason,
      fingerprint = excluded.fingerprint,
      errors = (
        select jsonb_agg(kept.error order by kept.n)
        from jsonb_array_elements(d.errors || excluded.errors) with ordinality as kept(error, n)
        where kept.n > jsonb_array_length(d.errors || excluded.errors) - ${keptEntries}::integer),
      history = case
        when d.state in ('open', 'retrying') then d.history
        else case when jsonb_array_length(d.history) < ${keptEntries}::integer then d.history else d.history - 0 end
          || jsonb_build_array(jsonb_build_object('at', excluded.last_failed_at, 'from', d.state, 'to', 'open'))
      end`)
  log.telemetry.count('dead_letters_total')
}

/** A letter that was tried again names an event that is gone by now: it says so. Without a letter only the activity does. */
async function reopenGone(log: Log, tx: Executor, { execution, error, reason }: FailedExecution): Promise<void> {
  await tx.run(sql`/* workflows.reopen_letter */
    update ${consumerNames(log).dead_letters}
    set state = 'open',
      attempts = attempts + ${execution.attempt}::integer,
      failures = failures + 1,
      last_failed_at = ${log.names.clock}(last_failed_at),
      reason = ${reason}::text,
      errors = case when jsonb_array_length(errors) < ${keptEntries}::integer then errors else errors - 0 end
        || jsonb_build_array(
          jsonb_build_object('at', ${log.names.clock}(last_failed_at)) || ${JSON.stringify(describeError(error))}::jsonb)
    where execution = ${execution.id}::uuid
      and state = 'retrying'`)
}

/** How often this execution was set aside before. */
export async function countFailures(log: Log, handler: string, eventId: string): Promise<number> {
  const [row] = await log.database.run<{ failures: number }>(sql`/* workflows.count_failures */
    select failures
    from ${consumerNames(log).dead_letters}
    where consumer = ${consumerOf(handler)}::text
      and event_id = ${eventId}::uuid`)
  return row?.failures ?? 0
}

/** The letter whose retry has come to its end. */
export async function closeLetter(log: Log, tx: Executor, execution: Claimed): Promise<void> {
  const { id, attempt } = execution
  await tx.run(sql`/* workflows.close_letter */
    update ${consumerNames(log).dead_letters}
    set state = 'replayed',
      retry_at = null,
      attempts = attempts + ${attempt}::integer,
      history = case when jsonb_array_length(history) < ${keptEntries}::integer then history else history - 0 end
        || jsonb_build_array(jsonb_build_object('at', ${log.names.clock}(last_failed_at), 'from', state, 'to', 'replayed'))
    where execution = ${id}::uuid
      and state = 'retrying'`)
  await unparkAfter(log, tx, execution)
  log.telemetry.count('dead_letters_replayed_total')
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
