/**
 * The row of a dead letter, and every write to it. Nothing outside of this folder changes the table `dead_letters`.
 *
 *     record ──► open ──take──► retrying ──close──► replayed        it was applied, or run, after all
 *     parked ────►▲ │               │                               what it waited for is closed (`parked.ts`)
 *                 │ │               └──putBack, reopen──► open      it failed again, or its process is gone
 *                 │ └──resolve──► resolved                          an operator decided, with a note
 *                 └── replayed, resolved: the event failed again
 *
 * There is one row per consumer and event. Attempts are added up; the last 20 errors and the last 20 changes of state
 * are kept (without those by retries). The row names the event; the event itself stays in the log.
 *
 * A dead letter of a consumer is written under the fence of its lease; one of a handler in the transaction that
 * completes its execution. Lock order: dead letters before the consumer's row.
 */
import { snakeCase } from '../../core/name.ts'
import type { Executor } from '../../database/database.ts'
import type { OldRows } from '../../database/prune.ts'
import { type Fragment, fragment, type Statement, sql } from '../../database/sql.ts'
import { type Log, whereLogIs } from '../../events/log.ts'
import { lastEntries, withChange } from '../consumers.sql.ts'
import { type Held, heldRow, holdLease, lostBy, notOfAnError } from '../row.ts'
import { describeError } from '../run/failure.ts'
import { consumerNames } from '../schema.ts'
import { fingerprint } from './fingerprint.ts'
import { openNext, parking } from './parked.ts'

/** `'parked'`: not tried, because an earlier event of its stream has failed and holds it back. */
export type DeadLetterState = 'open' | 'retrying' | 'parked' | 'replayed' | 'resolved'

/** The facts about every event, also about one that could not be decoded. */
export interface EventPlace {
  readonly position: number
  readonly id: string
  readonly stream: string
  readonly version: number
  readonly type: string
}

export interface FailedEvent {
  readonly event: EventPlace
  /** The last error. */
  readonly error: unknown
  /** How often it was tried since it was last recorded. */
  readonly attempts: number
  /** When it failed first. Default: as the row of the consumer says, or now. */
  readonly firstFailedAt?: Date | undefined
  /** It holds back the later events of its stream. Default false. */
  readonly parks?: boolean | undefined
}

/** More about the dead letter of a handler. */
export interface FailedExecution {
  readonly id: string
  readonly correlationId: string
  readonly reason: string
  readonly fingerprint: string
  /** The errors of the attempts before the last, a JSON array with at most 20 entries. */
  readonly earlier: Fragment
  /** When the first of these attempts failed, or null. */
  readonly firstFailedAt: Fragment
  /** The error of the handler's `onDeadLetter`, if that failed. */
  readonly onDeadLetter?: string | undefined
}

// ── An event failed for good ─────────────────────────────────────────────────────────────────────────────────

/**
 * Records that an event failed for good, in the transaction that moves the checkpoint beyond it, or that completes the
 * execution: the fence is matched there. A dead letter that was closed is opened again; its note is in its history.
 */
export async function record(
  log: Log,
  { consumer, fence }: Pick<Held, 'consumer' | 'fence'>,
  { event, error, attempts, firstFailedAt, parks = false }: FailedEvent,
  executor: Executor,
  execution?: FailedExecution,
): Promise<void> {
  const { position, id, stream, version, type } = event
  const { clock, stamp } = log.names
  const onDeadLetter = execution?.onDeadLetter
  const described = JSON.stringify({ ...describeError(error), ...(onDeadLetter === undefined ? {} : { onDeadLetter }) })
  const last = fragment`${stamp}('at', ${clock}(one.id)) || ${described}::jsonb`
  const [before] = await executor.run<{ first: string | null; earlier: string }>(sql`/* dead_letters.before */
    select
      (${execution?.firstFailedAt ?? firstFailure(log, consumer, id)})::text as first,
      (${execution?.earlier ?? earlierErrors(log, consumer, id)})::text as earlier
    from ${whereLogIs(log)}`)
  const first = execution === undefined ? (firstFailedAt?.toISOString() ?? before!.first) : before!.first
  const reason = execution === undefined ? (parks ? parking : null) : snakeCase(execution.reason)
  await executor.run(sql`/* dead_letters.record */
    insert into ${consumerNames(log).dead_letters} as d
      (consumer, event_id, position, stream, version, type, fence, attempts, execution, correlation_id, reason,
        fingerprint, first_failed_at, last_failed_at, errors)
    select ${consumer}::text, ${id}::uuid, ${position}::bigint, ${stream}::text, ${version}::bigint, ${type}::text,
      ${fence}::bigint, ${attempts}::integer, ${execution?.id ?? null}::uuid,
      ${execution?.correlationId ?? null}::text, ${reason}::text,
      ${execution?.fingerprint ?? fingerprint(consumer, error)}::text, coalesce(${first}::timestamptz, ${clock}(one.id)),
      ${clock}(one.id),
      ${lastEntries(fragment`${before!.earlier}::jsonb || (${last})`)}
    from ${whereLogIs(log)}
    on conflict (consumer, event_id) do update
    set state = 'open',
      fence = excluded.fence,
      attempts = d.attempts + excluded.attempts,
      failures = d.failures + 1,
      last_failed_at = excluded.last_failed_at,
      retry_at = case when d.state = 'open' then d.retry_at end,
      note = null,
      execution = excluded.execution,
      correlation_id = excluded.correlation_id,
      reason = excluded.reason,
      fingerprint = excluded.fingerprint,
      errors = ${lastEntries(fragment`d.errors || excluded.errors`)},
      history = case
        when d.state in ('open', 'retrying') then d.history
        else ${withChange(log.names.state_entry, fragment`excluded.last_failed_at`, fragment`'open'`)}
      end`)
  log.telemetry.count('dead_letters_total')
}

/** The errors of the attempts before this one are still in the consumer's row. */
function earlierErrors(log: Log, consumer: string, eventId: string): Fragment {
  return fragment`coalesce((
        select (c.last_error -> 'earlier') || (c.last_error - ${notOfAnError})
        from ${consumerNames(log).consumers} as c
        where c.name = ${consumer}::text
          and c.attempts > 0
          and c.last_error ->> 'eventId' = ${eventId}::text
          and c.last_error ? 'earlier'), '[]')`
}

/** When the event failed first, as the consumer's row says; null if it says nothing of it. */
function firstFailure(log: Log, consumer: string, eventId: string): Fragment {
  return fragment`(
        select (c.last_error ->> 'firstAt')::timestamptz
        from ${consumerNames(log).consumers} as c
        where c.name = ${consumer}::text
          and c.attempts > 0
          and c.last_error ->> 'eventId' = ${eventId}::text)`
}

// ── Retried under the lease of the consumer ──────────────────────────────────────────────────────────────────

/** A dead letter that is being retried. */
export interface TakenDeadLetter {
  readonly position: number
  readonly eventId: string
  readonly attempts: number
}

/**
 * Takes the first one whose retry is due, in a statement of its own: if this process dies, the row shows that it was
 * being retried. `nextInMs`: when the next request is due; undefined if there is none.
 */
export async function take(
  log: Log,
  held: Held,
): Promise<{ deadLetter: TakenDeadLetter | undefined; nextInMs: number | undefined }> {
  const { dead_letters } = consumerNames(log)
  const { clock } = log.names
  const [row] = await log.database.run<{
    held: boolean
    position: number | null
    event_id: string | null
    attempts: number | null
    next_in: number | null
  }>(sql`/* dead_letters.take */
    with held as (
      ${heldRow(log, held)}),
    due as (
      select d.event_id
      from ${dead_letters} as d
      where d.consumer = (select name from held)
        and d.state = 'open'
        and d.retry_at <= ${clock}(d.position)
      order by d.position
      limit 1
      for update skip locked),
    taken as (
      update ${dead_letters} as d
      set state = 'retrying',
        fence = ${held.fence}::bigint
      from due
      where d.consumer = ${held.consumer}::text
        and d.event_id = due.event_id
      returning d.position, d.event_id, d.attempts)
    select exists (select from held) as held, taken.position, taken.event_id, taken.attempts,
      (select min(extract(epoch from d.retry_at - ${clock}(d.position)) * 1000)::float8
        from ${dead_letters} as d
        where d.consumer = ${held.consumer}::text
          and d.retry_at is not null) as next_in
    from (select 1) as always
    left join taken on true`)
  if (row?.held !== true) throw lostBy(held)
  const nextInMs = row.next_in === null ? undefined : Math.max(0, row.next_in)
  if (row.event_id === null) return { deadLetter: undefined, nextInMs }
  return { deadLetter: { position: row.position!, eventId: row.event_id, attempts: row.attempts! }, nextInMs }
}

/** At the end of the transaction of the event's effects: they are committed only if the lease is still ours. */
export async function close(log: Log, held: Held, eventId: string, tx: Executor): Promise<void> {
  const closed = await tx.run<{ stream: string; reason: string | null }>(sql`/* dead_letters.close */
    update ${consumerNames(log).dead_letters} as d
    set attempts = d.attempts + 1,
      ${changed(log, 'replayed')}
    where d.consumer = ${held.consumer}::text
      and d.event_id = ${eventId}::uuid
      and d.state = 'retrying'
      and d.fence = ${held.fence}::bigint
    returning d.stream, d.reason`)
  const [row] = closed
  if (row === undefined) throw lostBy(held)
  if (row.reason === parking) await tx.run(openNext(log, [{ consumer: held.consumer, stream: row.stream }]))
  await holdLease(log, held, tx)
}

/** Open again, with the error and without the request. */
export async function putBack(log: Log, held: Held, eventId: string, error: unknown): Promise<void> {
  const rows = await log.database.run(sql`/* dead_letters.put_back */
    with held as (
      ${heldRow(log, held)})
    update ${consumerNames(log).dead_letters} as d
    set state = 'open',
      retry_at = null,
      ${failedAgain(log, error, 1)}
    where d.consumer = (select name from held)
      and d.event_id = ${eventId}::uuid
      and d.state = 'retrying'
      and d.fence = ${held.fence}::bigint
    returning d.event_id`)
  if (rows.length === 0) throw lostBy(held)
}

/** Those that an earlier holder, or an earlier call that was interrupted, was retrying. The request stays. */
export async function reopenAbandoned(log: Log, { consumer, fence }: Held): Promise<void> {
  await log.database.run(sql`/* dead_letters.reopen_abandoned */
    update ${consumerNames(log).dead_letters}
    set state = 'open'
    where consumer = ${consumer}::text
      and state = 'retrying'
      and retry_at is not null
      and fence <= ${fence}::bigint`)
}

// ── Retried by an execution ──────────────────────────────────────────────────────────────────────────────────

export interface Requested {
  readonly consumer: string
  readonly event_id: string
  readonly correlation_id: string
}

export interface TakenForExecution extends Requested {
  readonly position: number
  readonly execution: string
  readonly state: DeadLetterState
  readonly is_edited: boolean
}

/**
 * Takes those of the given that are still due, for executions that the caller queues in the same transaction. `isOver`
 * (about `d`): of those only the request is withdrawn. `isRunning` (about `d`): those are left as they are.
 */
export async function takeForExecutions(
  log: Log,
  due: readonly Requested[],
  { isOver, isRunning }: { readonly isOver: Fragment; readonly isRunning: Fragment },
  tx: Executor,
): Promise<TakenForExecution[]> {
  return tx.run<TakenForExecution>(sql`/* dead_letters.take_for_executions */
    update ${consumerNames(log).dead_letters} as d
    set state = case when ${isOver} then d.state else 'retrying' end,
      retry_at = null
    from unnest(
      ${due.map(({ consumer }) => consumer)}::text[],
      ${due.map(({ event_id }) => event_id)}::uuid[]) as u(consumer, event_id)
    where d.consumer = u.consumer
      and d.event_id = u.event_id
      and d.state = 'open'
      and d.retry_at <= ${log.names.clock}(d.position)
      and not ${isRunning}
    returning d.consumer, d.event_id, d.correlation_id, d.position, d.execution, d.state,
      d.edited is not null as is_edited`)
}

/** The execution that retried it has completed. */
export async function closeRetried(log: Log, executionId: string, attempts: number, tx: Executor): Promise<void> {
  await tx.run(sql`/* dead_letters.close_retried */
    update ${consumerNames(log).dead_letters} as d
    set attempts = d.attempts + ${attempts}::integer,
      ${changed(log, 'replayed')}
    where d.execution = ${executionId}::uuid
      and d.state = 'retrying'`)
  log.telemetry.count('dead_letters_replayed_total')
}

/** The execution that retried it has failed, and its event is no longer in the log: the dead letter says so. */
export async function reopenRetried(
  log: Log,
  executionId: string,
  { attempts, error, reason }: { readonly attempts: number; readonly error: unknown; readonly reason: string },
  tx: Executor,
): Promise<void> {
  await tx.run(sql`/* dead_letters.reopen_retried */
    update ${consumerNames(log).dead_letters} as d
    set state = 'open',
      failures = d.failures + 1,
      reason = ${snakeCase(reason)}::text,
      ${failedAgain(log, error, attempts)}
    where d.execution = ${executionId}::uuid
      and d.state = 'retrying'`)
}

// ── Writes of an operator ────────────────────────────────────────────────────────────────────────────────────

/** Closes an open or parked one without applying its event. */
export function resolve(log: Log, consumer: string, eventId: string, note: string): Statement {
  return sql`/* dead_letters.resolve */
    update ${consumerNames(log).dead_letters} as d
    set note = ${note}::text,
      ${changed(log, 'resolved', note)}
    where d.consumer = ${consumer}::text
      and d.event_id = ${eventId}::uuid
      and d.state in ('open', 'parked')
    returning d.consumer, d.stream`
}

/** All open ones that match. Returns the place of each. */
export function resolveMatching(log: Log, condition: Fragment, note: string, limit: number): Statement {
  return sql`/* dead_letters.resolve_matching */
    with matching as (
      select d.consumer, d.event_id
      from ${consumerNames(log).dead_letters} as d
      where d.state = 'open'
        and ${condition}
      order by d.consumer, d.position
      limit ${limit}::integer
      for update)
    update ${consumerNames(log).dead_letters} as d
    set note = ${note}::text,
      ${changed(log, 'resolved', note)}
    from matching
    where d.consumer = matching.consumer
      and d.event_id = matching.event_id
    returning d.consumer, d.stream`
}

/** One that is being retried stays: its outcome has to be written somewhere. */
export function remove(log: Log, consumer: string, eventId: string): Statement {
  return sql`/* dead_letters.remove */
    delete from ${consumerNames(log).dead_letters}
    where consumer = ${consumer}::text
      and event_id = ${eventId}::uuid
      and state <> 'retrying'
    returning consumer, stream`
}

/** Those that are not closed, before the row of the consumer is locked: the order of batches and retries. */
export async function lockOpen(log: Log, consumers: readonly string[], tx: Executor): Promise<void> {
  await tx.runArrays(sql`/* dead_letters.lock_open */
    select
    from ${consumerNames(log).dead_letters}
    where consumer = any(${consumers}::text[])
      and state in ('open', 'retrying', 'parked')
    order by consumer, position
    for update`)
}

/** The events after the position will come again. */
export async function closeAfter(
  log: Log,
  consumers: readonly string[],
  position: number,
  tx: Executor,
): Promise<void> {
  await tx.run(sql`/* dead_letters.close_after */
    update ${consumerNames(log).dead_letters} as d
    set note = 'the consumer was reset to a position before this event',
      ${changed(log, 'resolved', 'reset')}
    where d.consumer = any(${consumers}::text[])
      and d.position > ${position}::bigint
      and d.state in ('open', 'retrying', 'parked')`)
}

/** A rebuild has emptied the read model: an event that fails again is recorded again. */
export async function closeRebuilt(log: Log, consumer: string, tx: Executor): Promise<void> {
  await tx.run(sql`/* dead_letters.close_rebuilt */
    update ${consumerNames(log).dead_letters} as d
    set ${changed(log, 'replayed', 'rebuilt')}
    where d.consumer = ${consumer}::text
      and d.state in ('open', 'retrying', 'parked')`)
}

/**
 * A rebuild is switched in: the events that failed in it (`from`) are now the dead letters of the consumer; an event
 * that it has applied has no dead letter from then on.
 */
export async function replaceBy(log: Log, consumer: string, from: string, tx: Executor): Promise<void> {
  const { dead_letters } = consumerNames(log)
  await tx.run(sql`/* dead_letters.close_applied */
    update ${dead_letters} as d
    set ${changed(log, 'replayed', 'rebuilt')}
    where d.consumer = ${consumer}::text
      and d.state in ('open', 'retrying', 'parked')
      and not exists (
        select
        from ${dead_letters} as again
        where again.consumer = ${from}::text
          and again.event_id = d.event_id)`)
  await tx.run(sql`/* dead_letters.take_over */
    insert into ${dead_letters} as d
      (consumer, event_id, position, stream, version, type, state, reason, fence, attempts, errors, first_failed_at,
        last_failed_at)
    select ${consumer}::text, event_id, position, stream, version, type,
      case state when 'parked' then state else 'open' end, reason, fence, attempts, errors, first_failed_at,
      last_failed_at
    from ${dead_letters}
    where consumer = ${from}::text
    on conflict (consumer, event_id) do update
    set state = excluded.state,
      reason = excluded.reason,
      retry_at = null,
      attempts = d.attempts + excluded.attempts,
      last_failed_at = excluded.last_failed_at,
      errors = excluded.errors,
      history = ${withChange(log.names.state_entry, fragment`excluded.last_failed_at`, fragment`excluded.state`, fragment`'failed again in a rebuild'`)}`)
  await removeAll(log, [from], tx)
}

/** Those of some consumers belong to others from now on, by the stream: the partitions of a group are other ones. */
export async function divideAmong(
  log: Log,
  consumers: readonly string[],
  ownerOf: (stream: string) => string,
  tx: Executor,
): Promise<void> {
  const { dead_letters } = consumerNames(log)
  const streams = (
    await tx.run<{ stream: string }>(sql`/* dead_letters.streams */
      select distinct stream
      from ${dead_letters}
      where consumer = any(${consumers}::text[])`)
  ).map(row => row.stream)
  if (streams.length === 0) return
  await tx.run(sql`/* dead_letters.divide */
    update ${dead_letters} as d
    set consumer = given.owner
    from unnest(
      ${streams}::text[],
      ${streams.map(ownerOf)}::text[]) as given(stream, owner)
    where d.consumer = any(${consumers}::text[])
      and d.stream = given.stream
      and d.consumer <> given.owner`)
}

export async function removeAll(log: Log, consumers: readonly string[], tx: Executor): Promise<void> {
  await tx.run(sql`/* dead_letters.remove_all */
    delete from ${consumerNames(log).dead_letters}
    where consumer = any(${consumers}::text[])`)
}

/** The log was cut at the position. */
export async function removeBeyond(store: { readonly schema: string }, position: number, tx: Executor): Promise<void> {
  await tx.run(sql`/* dead_letters.remove_beyond */
    delete from ${consumerNames(store).dead_letters}
    where position > ${position}::bigint`)
}

/** Those that were closed, by the time of their last change. */
export function closedDeadLetters(log: Log): OldRows {
  return {
    label: 'dead_letters.prune',
    table: consumerNames(log).dead_letters,
    clock: log.names.clock,
    later: log.names.later,
    key: ['consumer', 'event_id'],
    where: `t.state in ('replayed', 'resolved')
        and coalesce((t.history -> -1 ->> 'at')::timestamptz, t.last_failed_at) < $1`,
  }
}

// ── Parts of the statements ──────────────────────────────────────────────────────────────────────────────────

/** The state of `d` changes to another: a request is over, and the history has one more entry. */
function changed({ names }: Log, to: DeadLetterState, note: string | null = null): Fragment {
  return fragment`state = ${to}::text,
      retry_at = null,
      history = ${withChange(names.state_entry, fragment`${names.clock}(d.position)`, fragment`${to}::text`, fragment`${note}::text`)}`
}

/** A retry of `d` has failed: its attempts and its error are added. */
function failedAgain({ names }: Log, error: unknown, attempts: number): Fragment {
  const described = JSON.stringify(describeError(error))
  const entry = fragment`${names.stamp}('at', ${names.clock}(d.position)) || ${described}::jsonb`
  return fragment`attempts = d.attempts + ${attempts}::integer,
      last_failed_at = ${names.clock}(d.position),
      errors = ${lastEntries(fragment`d.errors || (${entry})`)}`
}
