/**
 * Streams that are parked: an event that failed for good holds back the later events of its stream, and only those.
 *
 *     5 fails ──► 5 open, and the checkpoint passes it      6, 7 of the same stream ──► parked, not tried
 *     retry 5 ──► 5 replayed, 6 open and requested ──► 6 replayed, 7 open and requested ──► … ──► the stream is free
 *
 * Everything follows from the rows. A stream is parked while one of its dead letters with the reason `park` is open or being
 * retried: its head. It is the first of those that are not closed, and all others are `parked`. What closes a head, a retry
 * or an operator, opens the next one in the same transaction, with a request. So no row stays parked without a head.
 *
 * Guarantee: while a stream is parked, its events are applied in order, those that come meanwhile included. A batch locks
 * the head before it parks events behind it, so a head that is closed at the same time is closed before (then they are not
 * parked) or after (then the first of them is opened).
 */
import type { Executor } from '../../database/database.ts'
import { fragment, type Statement, sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { lastEntries, withChange } from '../consumers.sql.ts'
import type { Held } from '../row.ts'
import { consumerNames } from '../schema.ts'
import { fingerprint } from './fingerprint.ts'
import type { EventPlace } from './row.ts'

/** The reason of a dead letter of a consumer that holds back its stream, and of those behind it. */
export const parking = 'park'

/** Those of the streams that are parked for this consumer. */
export function parkedStreams(log: Log, consumer: string, streams: readonly string[]): Promise<ReadonlySet<string>> {
  return streamsOf(
    log.database,
    sql`/* dead_letters.parked */
      select distinct d.stream
      from ${consumerNames(log).dead_letters} as d
      where d.consumer = ${consumer}::text
        and d.stream = any(${streams}::text[])
        and d.reason = 'park'
        and d.state in ('open', 'retrying')`,
  )
}

/** All streams that are parked for this consumer. */
export function streamsParked(log: Log, consumer: string): Promise<ReadonlySet<string>> {
  return streamsOf(
    log.database,
    sql`/* dead_letters.all_parked */
      select distinct d.stream
      from ${consumerNames(log).dead_letters} as d
      where d.consumer = ${consumer}::text
        and d.reason = 'park'
        and d.state in ('open', 'retrying')`,
  )
}

/** Those of these that are, and they stay parked until the end of the transaction. */
export function lockParked(
  log: Log,
  consumer: string,
  streams: readonly string[],
  tx: Executor,
): Promise<ReadonlySet<string>> {
  return streamsOf(
    tx,
    sql`/* dead_letters.lock_parked */
      select d.stream
      from ${consumerNames(log).dead_letters} as d
      where d.consumer = ${consumer}::text
        and d.stream = any(${streams}::text[])
        and d.reason = 'park'
        and d.state in ('open', 'retrying')
      order by d.position
      for update`,
  )
}

async function streamsOf(executor: Executor, statement: Statement): Promise<ReadonlySet<string>> {
  const rows = await executor.run<{ stream: string }>(statement)
  return new Set(rows.map(row => row.stream))
}

/** Parks events behind the heads of their streams, which the transaction has locked. One that is a head itself stays it. */
export async function parkBehind(log: Log, held: Held, events: readonly EventPlace[], tx: Executor): Promise<void> {
  const { clock, stamp, state_entry } = log.names
  const error = new Error('An earlier event of its stream has failed and holds it back. Retry or resolve that one.')
  error.name = 'Parked'
  const described = JSON.stringify({ name: error.name, message: error.message })
  await tx.run(sql`/* dead_letters.park */
    insert into ${consumerNames(log).dead_letters} as d
      (consumer, event_id, position, stream, version, type, fence, attempts, failures, state, reason, fingerprint,
        first_failed_at, last_failed_at, errors)
    select ${held.consumer}::text, e.id, e.position, e.stream, e.version, e.type, ${held.fence}::bigint, 0, 0, 'parked',
      'park', ${fingerprint(held.consumer, error)}::text, ${clock}(e.position), ${clock}(e.position),
      jsonb_build_array(${stamp}('at', ${clock}(e.position)) || ${described}::jsonb)
    from unnest(
      ${events.map(event => event.id)}::uuid[],
      ${events.map(event => event.position)}::bigint[],
      ${events.map(event => event.stream)}::text[],
      ${events.map(event => event.version)}::bigint[],
      ${events.map(event => event.type)}::text[]) as e(id, position, stream, version, type)
    on conflict (consumer, event_id) do update
    set state = excluded.state,
      reason = excluded.reason,
      fence = excluded.fence,
      retry_at = null,
      note = null,
      last_failed_at = excluded.last_failed_at,
      errors = ${lastEntries(fragment`d.errors || excluded.errors`)},
      history = ${withChange(state_entry, fragment`excluded.last_failed_at`, fragment`excluded.state`)}
    where d.state in ('replayed', 'resolved')`)
}

/** After a head was closed: the next of each stream is the head, and is retried. Nothing changes while there is a head. */
export function openNext(
  log: Log,
  streams: readonly { readonly consumer: string; readonly stream: string }[],
): Statement {
  const { dead_letters } = consumerNames(log)
  return sql`/* dead_letters.open_next */
    update ${dead_letters} as d
    set state = 'open',
      retry_at = ${log.names.clock}(d.position)
    from (
      select distinct consumer, stream
      from unnest(
        ${streams.map(each => each.consumer)}::text[],
        ${streams.map(each => each.stream)}::text[]) as u(consumer, stream)) as freed
    cross join lateral (
      select p.event_id, p.state
      from ${dead_letters} as p
      where p.consumer = freed.consumer
        and p.stream = freed.stream
        and p.reason = 'park'
        and p.state in ('open', 'retrying', 'parked')
      order by p.position
      limit 1) as head
    where d.consumer = freed.consumer
      and d.event_id = head.event_id
      and head.state = 'parked'`
}
