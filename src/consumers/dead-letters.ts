/**
 * What operators do with dead letters: look, ask for a retry, resolve, delete.
 *
 * A retry is a request. It is carried out by whoever holds the consumer's lease, so that it never runs beside the
 * consumer's own batches; with nobody holding it the letter stays open until somebody does.
 */
import { ConsumerNotFound, DeadLetterConflict, DeadLetterNotFound } from '../core/consumer-errors.ts'
import { InvalidOption } from '../core/errors.ts'
import { canonicalUuid } from '../core/id.ts'
import { textFault } from '../core/name.ts'
import { nearestName } from '../core/nearest.ts'
import { type Statement, sql } from '../database/sql.ts'
import type { Log } from '../events/log.ts'
import { keptEntries, type DeadLetterState as State } from './dead-letter.ts'
import {
  checkLimit,
  checkTime,
  type DeadLetter,
  type DeadLetterDetails,
  type ListDeadLettersOptions,
  listDeadLetters,
  showDeadLetter,
} from './list-dead-letters.ts'

/** Which open letters of a consumer are to be tried again; all that is given must hold. */
export interface RetryFilter {
  type?: string | undefined
  stream?: string | undefined
  /** Only those that failed at or after this time. */
  since?: Date | undefined
  /** The most letters asked for at once, lowest positions first. Default and at most 10 000. */
  limit?: number | undefined
}

export interface RetryRequest {
  /** How many letters were asked for. */
  readonly requested: number
  /** False: nobody works for the consumer now, and the letters stay open until somebody does. */
  readonly isRunning: boolean
}

export interface DeadLetterStats extends Readonly<Record<State, number>> {
  readonly consumer: string
}

export interface DeadLetters {
  /** A page of them, by consumer and position. */
  list(options?: ListDeadLettersOptions): Promise<DeadLetter[]>
  /** How many there are in each state, for each consumer that has any. */
  stats(): Promise<DeadLetterStats[]>
  /** One with its event as stored, its errors and its history. */
  show(consumer: string, eventId: string): Promise<DeadLetterDetails>
  /** Asks for one open letter, or for all that match, at most `perSecond` (default 50) of them. */
  retry(
    consumer: string,
    which: string | RetryFilter,
    options?: { perSecond?: number | undefined },
  ): Promise<RetryRequest>
  /** Closes an open letter without applying its event. */
  resolve(consumer: string, eventId: string, note: string): Promise<void>
  delete(consumer: string, eventId: string): Promise<void>
}

export interface DeadLetterParts {
  readonly log: Log
  /** Called when a retry was asked for, so that a daemon of this process need not wait for its next look. */
  readonly onRequest?: ((consumer: string) => void) | undefined
}

export function openDeadLetters({ log, onRequest }: DeadLetterParts): DeadLetters {
  return {
    list: async (options = {}) => listDeadLetters(log, options),
    stats: () => countLetters(log),
    show: async (consumer, eventId) => showDeadLetter(log, consumer, eventId),
    async retry(consumer, which, { perSecond = 50 } = {}) {
      if (!(Number.isFinite(perSecond) && perSecond > 0))
        throw new InvalidOption({ option: 'perSecond', reason: `must be a number above 0, not ${String(perSecond)}` })
      const requested =
        typeof which === 'string'
          ? await requestOne(log, consumer, which)
          : await requestMatching(log, consumer, which, perSecond)
      const isRunning = await isHeld(log, consumer, requested)
      if (requested > 0) onRequest?.(consumer)
      return { requested, isRunning }
    },
    resolve: (consumer, eventId, note) => resolveLetter(log, consumer, eventId, note),
    delete: (consumer, eventId) => deleteLetter(log, consumer, eventId),
  }
}

async function countLetters(log: Log): Promise<DeadLetterStats[]> {
  const rows = await log.database.run<Record<State, bigint> & { consumer: string }>(sql`/* dead_letters.stats */
    select consumer,
      count(*) filter (where state = 'open') as open,
      count(*) filter (where state = 'retrying') as retrying,
      count(*) filter (where state = 'replayed') as replayed,
      count(*) filter (where state = 'resolved') as resolved
    from ${log.names.dead_letters}
    group by consumer
    order by consumer`)
  return rows.map(({ consumer, open, retrying, replayed, resolved }) => ({
    consumer,
    open: Number(open),
    retrying: Number(retrying),
    replayed: Number(replayed),
    resolved: Number(resolved),
  }))
}

async function requestOne(log: Log, consumer: string, eventId: string): Promise<number> {
  await change(
    log,
    { consumer, eventId, wanted: 'retried' },
    id => sql`/* dead_letters.request */
      update ${log.names.dead_letters}
      set retry_at = least(retry_at, clock_timestamp())
      where consumer = ${consumer}::text
        and event_id = ${id}::uuid
        and state = 'open'
      returning event_id`,
  )
  return 1
}

/** Behind those that were asked for before, so that several requests together are no faster than one. */
async function requestMatching(log: Log, consumer: string, filter: RetryFilter, perSecond: number): Promise<number> {
  const { type = null, stream = null, limit = 10_000 } = filter
  checkLimit(limit)
  const since = checkTime(filter.since)
  const rows = await log.database.runArrays(sql`/* dead_letters.request_matching */
    with line as (
      select greatest(now(), max(retry_at) + make_interval(secs => 1 / ${perSecond}::float8)) as free_at
      from ${log.names.dead_letters}
      where consumer = ${consumer}::text
        and retry_at is not null),
    wanted as (
      select event_id, row_number() over (order by position) - 1 as place
      from ${log.names.dead_letters}
      where consumer = ${consumer}::text
        and state = 'open'
        and retry_at is null
        and (${type}::text is null or type = ${type}::text)
        and (${stream}::text is null or stream = ${stream}::text)
        and (${since}::timestamptz is null or last_failed_at >= ${since}::timestamptz)
      order by position
      limit ${limit}::integer)
    update ${log.names.dead_letters} as d
    set retry_at = line.free_at + make_interval(secs => wanted.place / ${perSecond}::float8)
    from wanted, line
    where d.consumer = ${consumer}::text
      and d.event_id = wanted.event_id
      and d.state = 'open'
    returning 1`)
  return rows.length
}

async function isHeld(log: Log, consumer: string, requested: number): Promise<boolean> {
  const sign = log.database.soleUser ?? null
  const [row] = await log.database.run<{ held: boolean }>(sql`/* dead_letters.is_held */
    select owner is not null
      and lease_until > clock_timestamp()
      and paused_at is null
      and (${sign}::text is null or split_part(owner, '/', 1) = ${sign}::text) as held
    from ${log.names.consumers}
    where name = ${consumer}::text`)
  if (row === undefined && requested === 0) await refuseUnknown(log, consumer)
  return row?.held ?? false
}

async function refuseUnknown(log: Log, consumer: string): Promise<void> {
  const rows = await log.database.run<{ name: string }>(sql`/* dead_letters.consumers */
    (select name
    from ${log.names.consumers}
    limit 1000)
    union
    (select consumer
    from ${log.names.dead_letters}
    where consumer = ${consumer}::text
    limit 1)`)
  const names = rows.map(row => row.name)
  if (!names.includes(consumer)) throw new ConsumerNotFound({ consumer, nearest: nearestName(consumer, names) })
}

async function resolveLetter(log: Log, consumer: string, eventId: string, note: string): Promise<void> {
  const fault = typeof note !== 'string' || note.trim() === '' ? 'must say why it is resolved' : textFault(note)
  if (fault !== undefined) throw new InvalidOption({ option: 'note', reason: fault })
  if (note.length > longestNote)
    throw new InvalidOption({ option: 'note', reason: `must have at most ${longestNote} characters` })
  await change(
    log,
    { consumer, eventId, wanted: 'resolved' },
    id => sql`/* dead_letters.resolve */
      update ${log.names.dead_letters}
      set state = 'resolved',
        retry_at = null,
        note = ${note}::text,
        history = case when jsonb_array_length(history) < ${keptEntries}::integer then history else history - 0 end
          || jsonb_build_array(jsonb_build_object(
            'at', clock_timestamp(), 'from', 'open', 'to', 'resolved', 'note', ${note}::text))
      where consumer = ${consumer}::text
        and event_id = ${id}::uuid
        and state = 'open'
      returning event_id`,
  )
}

const longestNote = 4_000

/** One that is being tried right now stays: its outcome has to be written somewhere. */
async function deleteLetter(log: Log, consumer: string, eventId: string): Promise<void> {
  await change(
    log,
    { consumer, eventId, wanted: 'deleted' },
    id => sql`/* dead_letters.delete */
      delete from ${log.names.dead_letters}
      where consumer = ${consumer}::text
        and event_id = ${id}::uuid
        and state <> 'retrying'
      returning event_id`,
  )
}

/** The statement changes the letter only in a state that allows it; if it did not, this says why. */
async function change(
  log: Log,
  { consumer, eventId, wanted }: { consumer: string; eventId: string; wanted: string },
  statement: (id: string) => Statement,
): Promise<void> {
  const id = canonicalUuid(eventId)
  if (id === undefined) throw new DeadLetterNotFound({ consumer, eventId })
  if ((await log.database.run(statement(id))).length > 0) return
  if ((await reopenLeft(log, consumer, id)) && (await log.database.run(statement(id))).length > 0) return
  const [row] = await log.database.run<{ state: State }>(sql`/* dead_letters.state */
    select state
    from ${log.names.dead_letters}
    where consumer = ${consumer}::text
      and event_id = ${id}::uuid`)
  if (row === undefined) throw new DeadLetterNotFound({ consumer, eventId })
  throw new DeadLetterConflict({ consumer, eventId, state: row.state, wanted })
}

/** A letter that is being retried by somebody whose lease is over is open: the outcome will not count any more. */
async function reopenLeft(log: Log, consumer: string, id: string): Promise<boolean> {
  const sign = log.database.soleUser ?? null
  const rows = await log.database.run(sql`/* dead_letters.reopen_left */
    update ${log.names.dead_letters} as d
    set state = 'open'
    where d.consumer = ${consumer}::text
      and d.event_id = ${id}::uuid
      and d.state = 'retrying'
      and not exists (
        select from ${log.names.consumers} as c
        where c.name = d.consumer
          and c.fence = d.fence
          and c.lease_until > clock_timestamp()
          and (${sign}::text is null or split_part(c.owner, '/', 1) = ${sign}::text))
    returning d.event_id`)
  return rows.length > 0
}
