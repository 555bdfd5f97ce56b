/**
 * Trying dead letters again, for one consumer under its lease: each letter's event only, in a transaction of its own,
 * in which the letter is also marked as replayed. So an event is never applied without its letter being closed, nor
 * the other way round, and the checkpoint is left alone.
 *
 * A letter is marked as being retried before that, in a statement of its own: if we die, it is seen that somebody was at
 * it. Whoever holds the consumer next finds it so under an older fence and opens it again; the request stays.
 *
 * Locks are taken in the order of the consumer's batches: the letter, then the consumer's row at the end.
 */

import { HandlerTimeout, isRillflowError } from '../../core/errors.ts'
import { onAbort } from '../../core/lifecycle.ts'
import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import type { Log } from '../../events/log.ts'
import { eventColumns, eventsOfRows } from '../../events/read/rows.ts'
import type { Consumer } from '../consumer.ts'
import { LeaseLost } from '../errors.ts'
import { refuseInterruption } from '../run/batch.ts'
import { describeError, isInterruption } from '../run/failure.ts'
import type { Hold } from '../runners/host.ts'
import { consumerNames } from '../schema.ts'
import { keptEntries } from './dead-letter.ts'

export interface Replayed {
  readonly replayed: number
  readonly failed: number
  /** When the next request is due; undefined if there is none. */
  readonly nextInMs: number | undefined
}

/** A letter that is being tried again. */
export interface Letter {
  readonly position: number
  readonly eventId: string
  readonly attempts: number
}

/**
 * Carries out the requests that are due, lowest positions first, `limit` of them at most. Must not run beside another
 * one under the same fence. Rejects only if it cannot go on: the lease is lost, the database is away.
 */
export async function replayRequested(
  { log }: { readonly log: Log },
  consumer: Consumer,
  hold: Hold,
  { limit = 100 }: { limit?: number | undefined } = {},
): Promise<Replayed> {
  await reopenAbandoned(log, hold)
  let replayed = 0
  let failed = 0
  while (replayed + failed < limit && !hold.drain.aborted && !hold.lost.aborted) {
    const { letter, nextInMs } = await takeNext(log, hold)
    if (letter === undefined) return { replayed, failed, nextInMs }
    if (await replay(log, consumer, hold, letter)) replayed++
    else failed++
  }
  return { replayed, failed, nextInMs: 0 }
}

async function replay(log: Log, consumer: Consumer, hold: Hold, letter: Letter): Promise<boolean> {
  const about = { schema: log.schema, consumer: consumer.name, eventId: letter.eventId }
  try {
    await apply(log, consumer, hold, letter)
    log.telemetry.log.info(about, 'a dead letter was replayed')
    return true
  } catch (error) {
    if (hold.lost.aborted || isInterruption(error)) throw error
    await putBack(log, hold, letter, error)
    log.telemetry.log.warn({ ...about, error }, 'a dead letter failed again')
    return false
  }
}

async function apply(log: Log, consumer: Consumer, hold: Hold, letter: Letter): Promise<void> {
  const { telemetry, schema } = log
  const event = await readEvent(log, letter)
  if (!telemetry.isTraced) return applyEvent(log, consumer, hold, letter, event)
  const fields = { consumer: consumer.name, kind: consumer.kind, attempt: letter.attempts + 1 }
  const start = { name: 'consumers.replay', schema, causes: [event], fields } as const
  return telemetry.span(start, () => applyEvent(log, consumer, hold, letter, event))
}

async function applyEvent(
  log: Log,
  consumer: Consumer,
  hold: Hold,
  letter: Letter,
  event: RecordedEvent,
): Promise<void> {
  const over = new AbortController()
  const release = onAbort(hold.lost, () => over.abort(hold.lost.reason))
  const context = { consumer: consumer.name, signal: over.signal, attempt: letter.attempts + 1, isReplay: true }
  try {
    await log.database.transaction(
      async tx => {
        await consumer.handle([event], { ...context, tx, at: () => {} }).catch(async (error: unknown) => {
          await refuseInterruption(tx, error)
          throw error
        })
        await markReplayed(log, tx, hold, letter)
      },
      {
        timeoutMs: consumer.timeoutMs,
        signal: hold.lost,
        idleMs: consumer.leaseMs,
        lockTimeoutMs: consumer.leaseMs,
      },
    )
  } catch (error) {
    const timedOut = isRillflowError(error, 'transaction_timeout')
    const { timeoutMs } = error as { timeoutMs: number }
    const told = timedOut ? new HandlerTimeout({ consumer: consumer.name, timeoutMs }, error) : error
    over.abort(told)
    throw told
  } finally {
    release()
  }
}

export async function readEvent(log: Log, { position, eventId }: Letter): Promise<RecordedEvent> {
  const rows = await log.database.runArrays(sql`/* dead_letters.read_event */
    select ${eventColumns}
    from ${log.names.events}
    where position = ${position}::bigint
      and event_id = ${eventId}::uuid`)
  const [event] = await eventsOfRows(log, rows)
  if (event === undefined) throw new Error(`Event ${eventId} is not in the log any more; resolve or delete the letter.`)
  return event
}

/** A letter that an older holder, or an earlier call that was interrupted, was at. */
export async function reopenAbandoned(log: Log, { lease }: Pick<Hold, 'lease'>): Promise<void> {
  await log.database.run(sql`/* dead_letters.reopen */
    update ${consumerNames(log).dead_letters}
    set state = 'open'
    where consumer = ${lease.consumer}::text
      and state = 'retrying'
      and retry_at is not null
      and fence <= ${lease.fence}::bigint`)
}

export async function takeNext(
  log: Log,
  { lease }: Pick<Hold, 'lease'>,
): Promise<{ letter: Letter | undefined; nextInMs: number | undefined }> {
  const { consumer, fence } = lease
  const [row] = await log.database.run<{
    held: boolean
    position: number | null
    event_id: string | null
    attempts: number | null
    next_in: number | null
  }>(sql`/* dead_letters.take */
    with held as (
      select name
      from ${consumerNames(log).consumers}
      where name = ${consumer}::text
        and fence = ${fence}::bigint
      for share),
    due as (
      select event_id
      from ${consumerNames(log).dead_letters}
      where consumer = (select name from held)
        and state = 'open'
        and retry_at <= ${log.names.clock}(retry_at)
      order by position
      limit 1
      for update skip locked),
    taken as (
      update ${consumerNames(log).dead_letters} as d
      set state = 'retrying',
        fence = ${fence}::bigint
      from due
      where d.consumer = ${consumer}::text
        and d.event_id = due.event_id
      returning d.position, d.event_id, d.attempts)
    select exists (select from held) as held, taken.position, taken.event_id, taken.attempts,
      (select (extract(epoch from min(retry_at) - ${log.names.clock}(min(retry_at))) * 1000)::float8
        from ${consumerNames(log).dead_letters}
        where consumer = ${consumer}::text
          and retry_at is not null) as next_in
    from (select 1) as always
    left join taken on true`)
  if (row?.held !== true) throw new LeaseLost({ consumer, fence })
  const nextInMs = row.next_in === null ? undefined : Math.max(0, row.next_in)
  if (row.event_id === null) return { letter: undefined, nextInMs }
  return { letter: { position: row.position!, eventId: row.event_id, attempts: row.attempts! }, nextInMs }
}

/** At the end of the transaction of the event's effects: they stand only if the lease is ours until the commit. */
export async function markReplayed(
  log: Log,
  tx: Executor,
  { lease }: Pick<Hold, 'lease'>,
  { eventId }: Letter,
): Promise<void> {
  const { consumer, fence } = lease
  const marked = await tx.run(sql`/* dead_letters.replayed */
    update ${consumerNames(log).dead_letters}
    set state = 'replayed',
      retry_at = null,
      attempts = attempts + 1,
      history = case when jsonb_array_length(history) < ${keptEntries}::integer then history else history - 0 end
        || jsonb_build_array(jsonb_build_object('at', ${log.names.clock}(last_failed_at), 'from', 'retrying', 'to', 'replayed'))
    where consumer = ${consumer}::text
      and event_id = ${eventId}::uuid
      and state = 'retrying'
      and fence = ${fence}::bigint
    returning event_id`)
  const held = await tx.run(sql`/* dead_letters.hold */
    select name
    from ${consumerNames(log).consumers}
    where name = ${consumer}::text
      and fence = ${fence}::bigint
    for share`)
  if (marked.length === 0 || held.length === 0) throw new LeaseLost({ consumer, fence })
}

/** Open again, with the error and without the request. */
export async function putBack(
  log: Log,
  { lease }: Pick<Hold, 'lease'>,
  { eventId }: Letter,
  error: unknown,
): Promise<void> {
  const { consumer, fence } = lease
  const description = JSON.stringify(describeError(error))
  const rows = await log.database.run(sql`/* dead_letters.put_back */
    with held as (
      select name
      from ${consumerNames(log).consumers}
      where name = ${consumer}::text
        and fence = ${fence}::bigint
      for share)
    update ${consumerNames(log).dead_letters}
    set state = 'open',
      retry_at = null,
      attempts = attempts + 1,
      last_failed_at = ${log.names.clock}(last_failed_at),
      errors = case when jsonb_array_length(errors) < ${keptEntries}::integer then errors else errors - 0 end
        || jsonb_build_array(jsonb_build_object('at', ${log.names.clock}(last_failed_at)) || ${description}::jsonb)
    where consumer = (select name from held)
      and event_id = ${eventId}::uuid
      and state = 'retrying'
      and fence = ${fence}::bigint
    returning event_id`)
  if (rows.length === 0) throw new LeaseLost({ consumer, fence })
}
