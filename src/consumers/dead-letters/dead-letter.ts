/**
 * A dead letter: one event that one consumer could not apply, set aside so that the others can go on.
 *
 *     open ──► retrying ──► replayed          retrying ──► open       it failed again, or whoever tried it is gone
 *     open ──► resolved (with a note)         replayed, resolved ──► open     the event failed again
 *
 * There is one per consumer and event, whatever happens to the two: attempts are added up, errors and changes of state
 * are kept, the last of each. The letter names the event; the event itself stays in the log.
 */

import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { moment } from '../../schema/clock.sql.ts'
import type { Lease } from '../lease.ts'
import { describeError } from '../run/failure.ts'
import { consumerNames } from '../schema.ts'

export type DeadLetterState = 'open' | 'retrying' | 'replayed' | 'resolved'

/** What is known of an event that could not be decoded, too. */
export interface EventPlace {
  readonly position: number
  readonly id: string
  readonly stream: string
  readonly version: number | number
  readonly type: string
}

export interface FailedEvent {
  readonly event: EventPlace
  /** The last error. */
  readonly error: unknown
  /** How often it was tried since it was last recorded. */
  readonly attempts: number
}

/** How many errors of a letter are kept, and how many changes of its state. */
export const keptEntries = 20

/**
 * Records that an event failed for good, in the transaction that moves the checkpoint beyond it: the fence is matched
 * there. A letter that was closed is opened again, and its note is found in its history.
 */
export async function recordDeadLetter(
  log: Log,
  executor: Executor,
  lease: Pick<Lease, 'consumer' | 'fence'>,
  { event, error, attempts }: FailedEvent,
): Promise<void> {
  const { position, id, stream, version, type } = event
  const description = JSON.stringify(describeError(error))
  await executor.run(sql`/* dead_letters.record */
    insert into ${consumerNames(log).dead_letters} as d
      (consumer, event_id, position, stream, version, type, fence, attempts, first_failed_at, last_failed_at, errors)
    select ${lease.consumer}::text, ${id}::uuid, ${position}::bigint, ${stream}::text, ${version}::bigint,
      ${type}::text, ${lease.fence}::bigint, ${attempts}::integer, moment.at, moment.at,
      -- What the attempts before this one came to is still with the consumer.
      coalesce((
        select c.last_error->'earlier' || jsonb_build_array(c.last_error - '{earlier,eventId,position}'::text[])
        from ${consumerNames(log).consumers} as c
        where c.name = ${lease.consumer}::text
          and c.attempts > 0
          and c.last_error->>'eventId' = ${id}::text
          and c.last_error ? 'earlier'), '[]')
        || jsonb_build_array(jsonb_build_object('at', moment.at) || ${description}::jsonb)
    from ${moment(log.names.clock)}
    on conflict (consumer, event_id) do update
    set state = 'open',
      fence = excluded.fence,
      attempts = d.attempts + excluded.attempts,
      last_failed_at = excluded.last_failed_at,
      retry_at = case when d.state = 'open' then d.retry_at end,
      note = null,
      errors = (
        select jsonb_agg(kept.error order by kept.n)
        from jsonb_array_elements(d.errors || excluded.errors) with ordinality as kept(error, n)
        where kept.n > jsonb_array_length(d.errors || excluded.errors) - ${keptEntries}::integer),
      history = case
        when d.state = 'open' then d.history
        else case when jsonb_array_length(d.history) < ${keptEntries}::integer then d.history else d.history - 0 end
          || jsonb_build_array(jsonb_build_object('at', excluded.last_failed_at, 'from', d.state, 'to', 'open'))
      end`)
}
