/**
 * Lists of events for people, the newest first, a page at a time.
 *
 *     page ─► window of 10 000 positions ─► the next one below it … until the page is full, or 100 000 positions were
 *             searched, or 250 ms are over: then a short page, whose `next` continues where it stopped
 *
 * So a page costs about the same wherever it is and however rare its events are. A workflow and a stream have an index of
 * their own and need no windows.
 */

import { InvalidOption } from '../../core/errors.ts'
import { elapsedMs } from '../../core/host.ts'
import { checkWhole, describe, optionNames } from '../../core/options.ts'
import { decodeCursor, encodeCursor, maxPageBytes, type Page, type PageOptions } from '../../core/page.ts'
import { type Fragment, fragment, type Statement, sql } from '../../database/sql.ts'
import type { RecordedEvent } from '../definition.ts'
import type { Log } from '../log.ts'
import { settle } from '../order/order.ts'
import type { EventFilter } from './log.ts'
import { uuidPattern } from './page.ts'
import { positionAt } from './position-at.ts'
import { rereadable } from './read.ts'
import { eventColumns, eventsOfRows, isCut, storedColumns } from './rows.ts'

/** `limit`: default 100, at most 1000. */
export interface ListEventsOptions<Type extends string = string> extends EventFilter<Type>, PageOptions {
  /** Default 'newest': the newest first. */
  order?: 'newest' | 'oldest' | undefined
  userId?: string | undefined
  /** Only events created at or after this time, as `positionAt` finds it. */
  since?: Date | undefined
  /** Only events created before this time, as `positionAt` finds it. */
  until?: Date | undefined
  /** Default true. */
  includeArchived?: boolean | undefined
}

/** A page may be short although there is a `next`: then the search has stopped at `reached`, and `next` continues it. */
export interface EventPage<Event = RecordedEvent> extends Page<Event> {
  /** The position up to which the log was searched. */
  readonly reached: number
}

export const listEventsNames: readonly string[] = optionNames<ListEventsOptions>({
  ...{ types: true, streams: true, categories: true, correlationId: true, headers: true, userId: true },
  ...{ order: true, since: true, until: true, includeArchived: true, after: true, limit: true },
})

const window = 10_000
const maxWindows = 10
const maxMs = 250

export async function listEvents(log: Log, options: ListEventsOptions): Promise<EventPage> {
  const { limit = 100, order = 'newest' } = options
  checkWhole('limit', limit, 1, 1000)
  checkOrder(order)
  const isDown = order === 'newest'
  const range = await rangeOf(log, options)
  const types = options.types === undefined ? undefined : new Set<string>(options.types)
  const found: RecordedEvent[] = []
  const until = elapsedMs() + maxMs
  let { low, high } = range
  for (let looked = 0; low < high && found.length <= limit && looked < maxWindows; looked++) {
    if (looked > 0 && elapsedMs() > until) break
    const [from, to] = isWindowed(options) ? windowOf(low, high, isDown) : [low, high]
    const wanted = limit + 1 - found.length
    const statement = pageStatement(log, options, { low: from, high: to, limit: wanted, isDown })
    const rows = await rereadable(log.database, log, () => log.database.runArrays(statement))
    const isLast = isCut(rows)
    const last = rows.length < wanted && !isLast ? undefined : (rows.at(-1)![0] as number)
    // An upcaster may have made another type of it.
    const events = await eventsOfRows(log, rows)
    found.push(...(types === undefined ? events : events.filter(event => types.has(event.type))))
    if (isDown) high = last === undefined ? from : last - 1
    else low = last === undefined ? to : last
    if (isLast) break
  }
  const items = found.slice(0, limit)
  const isMore = found.length > limit
  const last = items.at(-1)?.position ?? 0
  const reached = isMore ? (isDown ? last - 1 : last) : isDown ? high : low
  return { items, next: isMore || low < high ? encodeCursor([reached]) : undefined, reached }
}

/** Positions above `low`, up to `high`. */
interface Range {
  readonly low: number
  readonly high: number
}

async function rangeOf(log: Log, options: ListEventsOptions): Promise<Range> {
  const { since, until, after, order = 'newest' } = options
  const { settled } = await rereadable(log.database, log, () => settle(log))
  const low = since === undefined ? 0 : await positionAt(log, since, settled)
  const high = until === undefined ? settled : Math.min(settled, await positionAt(log, until, settled))
  if (after === undefined) return { low, high }
  const [reached] = decodeCursor(after, 1) as [number]
  checkWhole('after', reached, 0, Number.MAX_SAFE_INTEGER)
  return order === 'newest' ? { low, high: Math.min(high, reached) } : { low: Math.max(low, reached), high }
}

function isWindowed({ types, streams, categories, correlationId, headers, userId }: ListEventsOptions): boolean {
  if (correlationId !== undefined || streams?.length === 1) return false
  return [types, streams, categories, headers, userId].some(each => each !== undefined)
}

function windowOf(low: number, high: number, isDown: boolean): [low: number, high: number] {
  return isDown ? [Math.max(low, high - window), high] : [low, Math.min(high, low + window)]
}

interface Look extends Range {
  readonly limit: number
  readonly isDown: boolean
}

/** One stream is read in the order of its versions, which is that of its positions: both have an index. */
function pageStatement(log: Log, options: ListEventsOptions, { low, high, limit, isDown }: Look): Statement {
  const { correlationId, streams } = options
  const stream = correlationId === undefined && streams?.length === 1 ? streams[0]! : undefined
  const one =
    correlationId !== undefined
      ? fragment`correlation_id = ${correlationId}::text`
      : stream !== undefined
        ? fragment`stream = ${stream}::text`
        : fragment`true`
  const column = stream === undefined ? fragment`position` : fragment`version`
  const direction = isDown ? fragment`desc` : fragment`asc`
  return sql`/* events.list */
    select ${eventColumns}, total
    from (
      select ${storedColumns}, sum(bytes) over (order by ${column} ${direction} rows unbounded preceding) as total
      from ${log.names.events} as e
      where ${one}
        and position > ${low}::bigint
        and position <= ${high}::bigint
        and ${conditionsOf(log, options)}
      order by ${column} ${direction}
      limit ${limit}::integer) as page
    where total - bytes < ${maxPageBytes}::bigint
    order by ${column} ${direction}`
}

function conditionsOf(log: Log, options: ListEventsOptions): Fragment {
  const { streams = null, categories = null, userId = null, includeArchived = true } = options
  const headers = options.headers === undefined ? null : JSON.stringify(options.headers)
  const types = options.types?.flatMap(type => log.upcasters.sourcesOf(type)) ?? null
  return fragment`(${types}::text[] is null or type = any(${types}::text[]))
      and (${streams}::text[] is null or stream = any(${streams}::text[]))
      and (${categories}::text[] is null or (
        split_part(stream, '-', 1) = any(${categories}::text[])
        and not (length(stream) = 36 and stream ~* ${uuidPattern}::text)))
      and (${headers}::jsonb is null or headers @> ${headers}::jsonb)
      and (${userId}::text is null or user_id = ${userId}::text)
      and (${includeArchived}::boolean or not exists (
        select from ${log.names.streams} as archived
        where archived.stream = e.stream
          and archived.archived_at is not null))`
}

function checkOrder(order: string): void {
  if (order === 'newest' || order === 'oldest') return
  throw new InvalidOption({
    option: 'order',
    reason: `The option "order" of store.events.list is ${describe(order)}. It must be 'newest' or 'oldest'.`,
  })
}
