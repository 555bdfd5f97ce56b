/**
 * Reading: one stream (here), the whole log (`log`), and pages of the log for consumers (`page`, `copy-page`).
 *
 *     statement ──► rows ──► event, upcast to the shape its readers expect (`rows`, `upcast`) ──► sequence, page by page
 *
 * A stream is read in either direction, in pages of limited bytes: memory stays flat whatever its length. Each page is one keyset query on
 * (stream, version), so its cost does not depend on where in the stream it lies.
 */

import { InvalidOption } from '../../core/errors.ts'
import { checkName } from '../../core/name.ts'
import { describe, optionNames } from '../../core/options.ts'
import { maxPageBytes } from '../../core/page.ts'
import { retry } from '../../core/retry.ts'
import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { RecordedEvent } from '../definition.ts'
import type { Log } from '../log.ts'
import { eventColumns, eventsOfRows, isCut, storedColumns } from './rows.ts'
import { inPages } from './sequence.ts'

export interface ReadOptions {
  /** The lowest version wanted. */
  from?: number | undefined
  /** Only versions above this one. */
  after?: number | undefined
  /** The highest version wanted. */
  to?: number | undefined
  /** Only events created at or after this time. */
  since?: Date | undefined
  /** Only events created at or before this time. */
  until?: Date | undefined
  /** Default 'forwards'. */
  direction?: 'forwards' | 'backwards' | undefined
  /** The most events wanted. */
  limit?: number | undefined
  /** Events asked for at a time. Default 1000, embedded 500. */
  pageSize?: number | undefined
  /** Also read an archived or tombstoned stream. Default false: it reads as empty. */
  includeArchived?: boolean | undefined
  signal?: AbortSignal | undefined
}

export const readOptionNames: readonly string[] = optionNames<ReadOptions>({
  ...{ from: true, after: true, to: true, since: true, until: true, direction: true, limit: true, pageSize: true },
  ...{ includeArchived: true, signal: true },
})

export function readStream(
  log: Log,
  executor: Executor,
  stream: string,
  options: ReadOptions,
): AsyncIterableIterator<RecordedEvent> {
  checkName('Stream', stream)
  checkRange(options)
  const backwards = options.direction === 'backwards'
  const pageSize = options.pageSize ?? log.database.batch.readEvents
  let low = Math.max((options.from ?? 1) - 1, options.after ?? 0)
  let high = options.to ?? Number.MAX_SAFE_INTEGER
  let wanted = options.limit ?? Number.MAX_SAFE_INTEGER
  let done = false

  const next = async (): Promise<RecordedEvent[] | undefined> => {
    const limit = Math.min(pageSize, wanted)
    if (done || limit <= 0 || low >= high) return undefined
    const statement = pageOf(log, stream, { ...options, low, high, limit, backwards })
    const rows = await rereadable(executor, log, () => executor.runArrays(statement))
    done = rows.length < limit && !isCut(rows)
    wanted -= rows.length
    if (rows.length === 0) return undefined
    const last = Number((rows.at(-1) as unknown[])[2])
    if (backwards) high = last - 1
    else low = last
    return eventsOfRows(log, rows)
  }
  return inPages(next, { ahead: readsAhead(log, executor), signal: options.signal })
}

interface PageOptions extends ReadOptions {
  readonly low: number
  readonly high: number
  readonly limit: number
  readonly backwards: boolean
}

function pageOf(log: Log, stream: string, page: PageOptions): ReturnType<typeof sql> {
  const { low, high, limit, since, until, includeArchived = false } = page
  const times = { since: since?.toISOString() ?? null, until: until?.toISOString() ?? null }
  return page.backwards
    ? sql`/* events.read_backwards */
        select ${eventColumns}, total
        from (
          select ${storedColumns}, sum(bytes) over (order by version desc rows unbounded preceding) as total
          from ${log.names.events}
          where stream = ${stream}::text
            and version > ${low}::bigint
            and version <= ${high}::bigint
            and (${times.since}::timestamptz is null or created_at >= ${times.since}::timestamptz)
            and (${times.until}::timestamptz is null or created_at <= ${times.until}::timestamptz)
            and (${includeArchived}::boolean or not exists (
              select from ${log.names.streams} as archived
              where archived.stream = ${stream}::text
                and archived.archived_at is not null))
          order by version desc
          limit ${limit}::integer) as page
        where total - bytes < ${maxPageBytes}::bigint
        order by version desc`
    : sql`/* events.read */
        select ${eventColumns}, total
        from (
          select ${storedColumns}, sum(bytes) over (order by version rows unbounded preceding) as total
          from ${log.names.events}
          where stream = ${stream}::text
            and version > ${low}::bigint
            and version <= ${high}::bigint
            and (${times.since}::timestamptz is null or created_at >= ${times.since}::timestamptz)
            and (${times.until}::timestamptz is null or created_at <= ${times.until}::timestamptz)
            and (${includeArchived}::boolean or not exists (
              select from ${log.names.streams} as archived
              where archived.stream = ${stream}::text
                and archived.archived_at is not null))
          order by version
          limit ${limit}::integer) as page
        where total - bytes < ${maxPageBytes}::bigint
        order by version`
}

/** Not for an embedded database, which works on this thread, and not in a transaction, whose statements would wait. */
export function readsAhead(log: Log, executor: Executor): boolean {
  return executor === log.database && log.database.engine === 'postgres'
}

/**
 * Reading again after a lost connection is always safe; inside a transaction it is not, because the transaction is lost
 * with the connection.
 */
export function rereadable<T>(executor: Executor, log: Log, read: () => Promise<T>): Promise<T> {
  return executor === log.database ? retry(read, { retries: 6 }) : read()
}

function checkRange(options: ReadOptions): void {
  for (const name of ['from', 'after', 'to'] as const) checkWhole(name, options[name], 0)
  checkPaging(options)
  for (const name of ['since', 'until'] as const) {
    const time = options[name]
    if (time !== undefined && !(time instanceof Date && !Number.isNaN(time.getTime())))
      throw new InvalidOption({
        option: name,
        reason: `The option "${name}" of read is ${describe(time)}. It must be a valid Date.`,
      })
  }
  const { direction = 'forwards' } = options
  if (direction !== 'forwards' && direction !== 'backwards')
    throw new InvalidOption({
      option: 'direction',
      reason: `The option "direction" of read is ${describe(direction)}. It must be 'forwards' or 'backwards'.`,
    })
}

export function checkPaging({ limit, pageSize }: { limit?: number | undefined; pageSize?: number | undefined }): void {
  checkWhole('limit', limit, 0)
  checkWhole('pageSize', pageSize, 1)
}

function checkWhole(option: string, value: number | undefined, least: number): void {
  if (value !== undefined && !(Number.isSafeInteger(value) && value >= least))
    throw new InvalidOption({
      option,
      reason: `The option "${option}" is ${describe(value)}. It must be a whole number from ${least}.`,
    })
}
