/**
 * Requests to retry dead letters. Nothing is applied here: the time of the retry is stored with the dead letter, and
 * the runner that serves its kind carries it out.
 *
 *     consumers  under the lease of the consumer, so never at the same time as a batch of it (`replay.ts`)
 *     handlers   by an execution, in any runner that has the handler: workflows registers how (`DeadLetterKind`)
 *
 * Guarantee: as long as a request with edited data waits to be carried out, a request with other data is refused
 * (`RetryPending`). Of two at the same moment one is stored.
 */

import { InvalidOption } from '../../core/errors.ts'
import { snakeCase } from '../../core/name.ts'
import { checkWhole, describe } from '../../core/options.ts'
import { type Fragment, fragment, type Statement, sql } from '../../database/sql.ts'
import { checkEvent } from '../../events/append/prepare.ts'
import type { Log } from '../../events/log.ts'
import { ConsumerNotFound } from '../errors.ts'
import { isHeld } from '../row.ts'
import { consumerNames } from '../schema.ts'
import { checkTime, type DeadLetterFilter } from './dead-letter.ts'

/** The differences of the dead letters of one kind. The conditions are SQL about `d`, the dead letter. */
export interface DeadLetterKind {
  /** Whether it can be retried with other data than its event has. */
  readonly takesData: boolean
  /** Whether it may be retried at all. */
  readonly mayRetry: Fragment
  /** Whether the process that retried it is gone, although its state still says `retrying`. */
  readonly isAbandoned: Fragment
  /** Whether a runner serves the consumer or handler of this name now; undefined if there is none. */
  isServed(name: string): Promise<boolean | undefined>
  /** All names, for an error that says which was probably meant. */
  names(): Promise<readonly string[]>
  notFound(name: string, nearest: string | undefined): Error
  /** The reason why an open one of this workflow may not be retried; undefined if it may. */
  whyNot(correlationId: string): Promise<Error | undefined>
}

/** Those of consumers: retried by the holder of the lease. */
export function ofConsumers(log: Log): DeadLetterKind {
  const { consumers } = consumerNames(log)
  return {
    takesData: false,
    mayRetry: fragment`true`,
    isAbandoned: fragment`not exists (
        select
        from ${consumers} as c
        where c.name = d.consumer
          and c.fence = d.fence
          and ${isHeld(log)})`,
    async isServed(name) {
      const [row] = await log.database.run<{ served: boolean }>(sql`/* dead_letters.is_served */
        select ${isHeld(log)} and c.paused_at is null as served
        from ${consumers} as c
        where c.name = ${name}::text`)
      return row?.served
    },
    async names() {
      const rows = await log.database.run<{ name: string }>(sql`/* dead_letters.consumers */
        select name
        from ${consumers}
        limit 1000`)
      return rows.map(row => row.name)
    },
    notFound: (consumer, nearest) => new ConsumerNotFound({ consumer, nearest }),
    whyNot: async () => undefined,
  }
}

/** Which open dead letters are to be retried; all given conditions must hold. */
export interface RetryFilter extends DeadLetterFilter {
  /** The most that are requested at once, lowest positions first. Default and at most 10 000. */
  limit?: number | undefined
}

export interface RetryRequest {
  /** How many retries were requested. */
  readonly requested: number
  /** False: no runner serves the consumer or handler now, and its dead letters stay open until one does. */
  readonly isRunning: boolean
}

/** How many are retried in a second, unless the call says otherwise. */
export const defaultPerSecond = 50

/** The data of a retry, instead of the data of the event. */
export interface EditedData {
  readonly type: string
  /** As JSON. */
  readonly data: string
  readonly schemaVersion: number
}

/** The data, checked as that of an event of this type is when it is appended: a retry gets it in the newest shape. */
export async function editedData(log: Log, type: string, data: unknown): Promise<EditedData> {
  const checks: Promise<void>[] = []
  const checked = checkEvent(log, '', { type, data }, {}, checks)
  await Promise.all(checks)
  return { type, data: checked.data, schemaVersion: checked.schemaVersion }
}

/** Requests a retry of one open dead letter. */
export function requestRetry(
  log: Log,
  { mayRetry }: DeadLetterKind,
  consumer: string,
  eventId: string,
  edited?: EditedData,
): Statement {
  const text =
    edited === undefined
      ? null
      : `{"type":${JSON.stringify(edited.type)},"schemaVersion":${edited.schemaVersion},"data":${edited.data}}`
  return sql`/* dead_letters.request */
    update ${consumerNames(log).dead_letters} as d
    set retry_at = least(d.retry_at, ${log.names.clock}(d.position)),
      edited = coalesce(${text}::jsonb, case when d.retry_at is not null then d.edited end)
    where d.consumer = ${consumer}::text
      and d.event_id = ${eventId}::uuid
      and d.state = 'open'
      and (${text}::jsonb is null or d.retry_at is null or coalesce(d.edited = ${text}::jsonb, true))
      and ${mayRetry}
    returning d.event_id`
}

/**
 * Requests all open ones that match, of these rows or of all. They come after those that were requested before, so that
 * several requests together are not faster than one. Returns the row of each.
 */
export async function requestMatching(
  log: Log,
  kinds: readonly DeadLetterKind[],
  owners: readonly string[] | undefined,
  filter: Omit<RetryFilter, 'of'>,
  perSecond: number,
): Promise<string[]> {
  const { dead_letters } = consumerNames(log)
  const { clock } = log.names
  const { type = null, stream = null, correlationId = null, fingerprint = null, limit = 10_000 } = filter
  const reason = filter.reason === undefined ? null : snakeCase(filter.reason)
  checkWhole('limit', limit, 1, 10_000)
  const since = checkTime(filter.since)
  const isOwned = owners === undefined ? fragment`true` : fragment`d.consumer = any(${owners}::text[])`
  const mayRetry = kinds
    .map(kind => kind.mayRetry)
    .reduce(
      (all, each) => fragment`${all}
        and ${each}`,
    )
  const rows = await log.database.run<{ consumer: string }>(sql`/* dead_letters.request_matching */
    with requested as materialized (
      select greatest(${clock}(count(*)), ${log.names.later}(max(d.retry_at), 1000 / ${perSecond}::float8)) as free_at
      from ${dead_letters} as d
      where ${isOwned}
        and d.retry_at is not null),
    wanted as (
      select d.consumer, d.event_id, row_number() over (order by d.position, d.consumer) - 1 as place
      from ${dead_letters} as d
      where ${isOwned}
        and d.state = 'open'
        and d.retry_at is null
        and (${type}::text is null or d.type = ${type}::text)
        and (${stream}::text is null or d.stream = ${stream}::text)
        and (${correlationId}::text is null or d.correlation_id = ${correlationId}::text)
        and (${reason}::text is null or d.reason = ${reason}::text)
        and (${fingerprint}::text is null or d.fingerprint = ${fingerprint}::text)
        and (${since}::timestamptz is null or d.last_failed_at >= ${since}::timestamptz)
        and ${mayRetry}
      order by d.position, d.consumer
      limit ${limit}::integer)
    update ${dead_letters} as d
    set retry_at = ${log.names.later}(requested.free_at, 1000 * wanted.place / ${perSecond}::float8),
      edited = null
    from wanted, requested
    where d.consumer = wanted.consumer
      and d.event_id = wanted.event_id
      and d.state = 'open'
      and d.retry_at is null
    returning d.consumer`)
  return rows.map(row => row.consumer)
}

/** One that was being retried by a process that is gone is open: that outcome will not count. */
export async function reopenLeft(
  log: Log,
  { isAbandoned }: DeadLetterKind,
  consumer: string,
  eventId: string,
): Promise<boolean> {
  const rows = await log.database.run(sql`/* dead_letters.reopen_left */
    update ${consumerNames(log).dead_letters} as d
    set state = 'open'
    where d.consumer = ${consumer}::text
      and d.event_id = ${eventId}::uuid
      and d.state = 'retrying'
      and ${isAbandoned}
    returning d.event_id`)
  return rows.length > 0
}

export function checkRate(perSecond: number): void {
  if (!(Number.isFinite(perSecond) && perSecond > 0))
    throw new InvalidOption({
      option: 'perSecond',
      reason: `The option "perSecond" is ${describe(perSecond)}. It must be a number above 0.`,
    })
}
