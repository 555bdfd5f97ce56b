/**
 * Streams: listing, describing, naming by alias, and taking out of use.
 *
 *     open ──archive──► archived ──restore──► open          refuses appends unless allowed, hidden from ordinary reads
 *     open or archived ──tombstone──► tombstoned            the same, for good; says so as its last event
 *
 * Both are marks on the stream's row. Its events stay where they are, so numbering, uniqueness and positions cannot be
 * touched by it, and rebuilds and followers, which read all events, still see them.
 */

import { InvalidName } from '../../core/errors.ts'
import { category, checkName } from '../../core/name.ts'
import { checkWhole, refuseUnknownOptions, refusingUnknownOptions } from '../../core/options.ts'
import { decodeCursor, type Page, type PageOptions, pageOf, pageOptionNames } from '../../core/page.ts'
import type { Executor } from '../../database/database.ts'
import { type Statement, sql } from '../../database/sql.ts'
import type { AnyTransaction } from '../../database/transaction.ts'
import { moment } from '../../schema/clock.sql.ts'
import type { AppendParts } from '../append/append.ts'
import { prepareParts, tombstoneType } from '../append/prepare.ts'
import { type Append, sendBatch } from '../append/send.ts'
import { StreamNotFound } from '../errors.ts'
import type { Log } from '../log.ts'
import { uuidPattern } from '../read/page.ts'
import { type Categories, readCategories } from './categories.ts'

/** A stream, as `store.streams.list()` shows it. */
export interface StreamDescription {
  readonly stream: string
  readonly category: string | undefined
  readonly version: number
  readonly createdAt: Date
  readonly lastEventAt: Date
  readonly lastPosition: number
  readonly state: 'open' | 'archived' | 'tombstoned'
  readonly archivedAt: Date | undefined
  /** Why it was archived or tombstoned. */
  readonly reason: string | undefined
}

/** `limit`: default 100, at most 10 000. */
export interface ListStreamsOptions extends PageOptions {
  category?: string | undefined
  /** Only streams whose name begins with it. */
  prefix?: string | undefined
  /** Default 'open'. */
  state?: 'open' | 'archived' | 'all' | undefined
}

export interface Streams {
  /** Streams by name, a page at a time. */
  list(options?: ListStreamsOptions): Promise<Page<StreamDescription>>
  describe(stream: string): Promise<StreamDescription | undefined>
  /** The categories that streams have, by name. */
  categories(): Promise<Categories>
  /** The stream that an alias stands for; undefined if it was never resolved. */
  find(alias: string): Promise<string | undefined>
  /** The stream an alias stands for, made on the first call anywhere: `<category>-<uuid>`, or a bare UUID. */
  resolve(alias: string, options?: StreamOptions & { category?: string | undefined }): Promise<string>
  /** Refuses appends from now on, and is hidden from ordinary reads. */
  archive(stream: string, options?: StreamOptions & { reason?: string | undefined }): Promise<void>
  restore(stream: string, options?: StreamOptions): Promise<void>
  /** Ends the stream for good, with a last event that says so. */
  tombstone(stream: string, options?: StreamOptions & { reason?: string | undefined }): Promise<void>
}

export interface StreamOptions {
  /** Runs inside this transaction. */
  tx?: AnyTransaction | undefined
}

export function openStreams(parts: Pick<AppendParts, 'log' | 'wake' | 'executorOf'>): Streams {
  const { log, wake, executorOf } = parts
  const executorFor = (tx: AnyTransaction | undefined): Executor => (tx === undefined ? log.database : executorOf(tx))
  const streams: Streams = {
    list: options => listStreams(log, options),
    describe: stream => describeStream(log, stream),
    categories: () => readCategories(log),
    find: alias => findAlias(log, log.database, alias),
    resolve: (alias, { tx, ...options } = {}) => resolveAlias(log, executorFor(tx), alias, options),
    archive: (stream, { tx, reason } = {}) => archiveStream(log, executorFor(tx), stream, reason),
    restore: (stream, { tx } = {}) => restoreStream(log, executorFor(tx), stream),
    async tombstone(stream, { tx, reason } = {}) {
      if (tx === undefined) {
        await log.database.transaction(own => tombstoneStream(log, own, stream, reason))
        return wake.appended()
      }
      await tombstoneStream(log, executorOf(tx), stream, reason)
      await wake.appendedIn(tx, executorOf(tx))
    },
  }
  return refusingUnknownOptions('store.streams', streams, optionsOfCalls)
}

const optionsOfCalls = {
  ...({ resolve: [1, ['tx', 'category']], restore: [1, ['tx']] } as const),
  ...({ archive: [1, ['tx', 'reason']], tombstone: [1, ['tx', 'reason']] } as const),
}

async function listStreams(log: Log, options: ListStreamsOptions = {}): Promise<Page<StreamDescription>> {
  refuseUnknownOptions('store.streams.list', options, ['category', 'prefix', 'state', ...pageOptionNames])
  const { limit = 100, state = 'open', prefix = '' } = options
  checkWhole('limit', limit, 1, 10_000)
  const [after] = options.after === undefined ? [''] : (decodeCursor(options.after, 1) as [string])
  const rows = await log.database.run<StreamRow>(
    options.category === undefined
      ? sql`/* streams.list */
          select s.stream, s.version, s.created_at, s.archived_at, s.tombstoned_at, s.reason,
            e.created_at as last_event_at, e.position as last_position
          from ${log.names.streams} as s
          join ${log.names.events} as e on e.stream = s.stream and e.version = s.version
          where s.stream > ${after}::text
            and s.stream >= ${prefix}::text
            and s.stream < ${`${prefix}${lastCharacter}`}::text
            and (${state}::text = 'all' or (${state}::text = 'archived') = (s.archived_at is not null))
          order by s.stream
          limit ${limit + 1}::integer`
      : listCategory(log, checkName('Stream', options.category), { after, limit, state, prefix }),
  )
  return pageOf(rows.map(descriptionOf), limit, last => [last.stream])
}

/** Names sort by bytes, and this character comes after all others. */
const lastCharacter = '\u{10ffff}'

/** Names sort by bytes, and '.' comes right after '-': a category lies between its own name and that with a dot. */
function listCategory(
  log: Log,
  category: string,
  options: { after: string; limit: number; state: string; prefix: string },
): Statement {
  const { after, limit, state, prefix } = options
  return sql`/* streams.list_category */
    select s.stream, s.version, s.created_at, s.archived_at, s.tombstoned_at, s.reason,
      e.created_at as last_event_at, e.position as last_position
    from ${log.names.streams} as s
    join ${log.names.events} as e on e.stream = s.stream and e.version = s.version
    where s.stream > ${after}::text
      and s.stream >= ${category}::text
      and s.stream < ${`${category}.`}::text
      and (s.stream = ${category}::text or s.stream >= ${`${category}-`}::text)
      and not (length(s.stream) = 36 and s.stream ~* ${uuidPattern}::text)
      and starts_with(s.stream, ${prefix}::text)
      and (${state}::text = 'all' or (${state}::text = 'archived') = (s.archived_at is not null))
    order by s.stream
    limit ${limit + 1}::integer`
}

async function describeStream(log: Log, stream: string): Promise<StreamDescription | undefined> {
  const [row] = await log.database.run<StreamRow>(sql`/* streams.describe */
    select s.stream, s.version, s.created_at, s.archived_at, s.tombstoned_at, s.reason, e.created_at as last_event_at,
      e.position as last_position
    from ${log.names.streams} as s
    join ${log.names.events} as e on e.stream = s.stream and e.version = s.version
    where s.stream = ${checkName('Stream', stream)}::text`)
  return row === undefined ? undefined : descriptionOf(row)
}

/** The stream an alias stands for; the first call makes it, every other call anywhere gets the same. */
async function resolveAlias(
  log: Log,
  executor: Executor,
  alias: string,
  options: { category?: string | undefined } = {},
): Promise<string> {
  checkName('Alias', alias)
  const made = options.category === undefined ? log.ids.next() : `${options.category}-${log.ids.next()}`
  checkName('Stream', made)
  if (category(made) !== options.category)
    throw new InvalidName({ what: 'Category', given: String(options.category), reason: 'is empty or contains a "-"' })
  const before = await findAlias(log, executor, alias)
  if (before !== undefined) return before
  await executor.run(sql`/* streams.make_alias */
    insert into ${log.names.stream_aliases} (alias, stream, created_at)
    select ${alias}::text, ${made}::text, moment.at
    from ${moment(log.names.clock)}
    on conflict do nothing`)
  // The first one has committed by now: the insert waited for it.
  return (await findAlias(log, executor, alias))!
}

async function findAlias(log: Log, executor: Executor, alias: string): Promise<string | undefined> {
  const [row] = await executor.run<{ stream: string }>(sql`/* streams.alias */
    select stream
    from ${log.names.stream_aliases}
    where alias = ${checkName('Alias', alias)}::text`)
  return row?.stream
}

async function archiveStream(log: Log, executor: Executor, stream: string, reason?: string): Promise<void> {
  await mark(
    executor,
    stream,
    sql`/* streams.archive */
      update ${log.names.streams}
      set archived_at = coalesce(archived_at, ${log.names.clock}(archived_at)),
        reason = coalesce(${reason ?? null}::text, reason)
      where stream = ${checkName('Stream', stream)}::text
        and version > 0
      returning stream`,
  )
}

/** A tombstoned stream stays as it is. */
async function restoreStream(log: Log, executor: Executor, stream: string): Promise<void> {
  await mark(
    executor,
    stream,
    sql`/* streams.restore */
      update ${log.names.streams}
      set archived_at = case when tombstoned_at is null then null else archived_at end,
        reason = case when tombstoned_at is null then null else reason end
      where stream = ${checkName('Stream', stream)}::text
        and version > 0
      returning stream`,
  )
}

/** Ends a stream: its last event is the tombstone, in the transaction that marks it. */
async function tombstoneStream(log: Log, executor: Executor, stream: string, reason?: string): Promise<void> {
  const event = { type: tombstoneType, data: { reason: reason ?? null } }
  const parts = await prepareParts(log, [{ stream, events: [event], expected: 'exists' }], {}, true)
  const append: Append = {
    parts,
    key: undefined,
    digest: undefined,
    onRepeat: 'return',
    allowArchived: true,
    advisoryLock: false,
    checkIds: false,
    eventCount: 1,
    bytes: 0,
  }
  const [outcome] = await sendBatch(executor, log, [append], true)
  if (outcome!.kind === 'tombstoned') return
  if (outcome!.kind !== 'appended') throw new StreamNotFound({ stream })
  await executor.run(sql`/* streams.tombstone */
    update ${log.names.streams}
    set archived_at = coalesce(archived_at, moment.at),
      tombstoned_at = moment.at,
      reason = ${reason ?? null}::text
    from ${moment(log.names.clock)}
    where stream = ${stream}::text`)
}

async function mark(executor: Executor, stream: string, statement: ReturnType<typeof sql>): Promise<void> {
  if ((await executor.run(statement)).length === 0) throw new StreamNotFound({ stream })
}

interface StreamRow {
  stream: string
  version: number
  created_at: Date
  archived_at: Date | null
  tombstoned_at: Date | null
  reason: string | null
  last_event_at: Date
  last_position: number
}

function descriptionOf(row: StreamRow): StreamDescription {
  return {
    stream: row.stream,
    category: category(row.stream),
    version: Number(row.version),
    createdAt: row.created_at,
    lastEventAt: row.last_event_at,
    lastPosition: row.last_position,
    state: row.tombstoned_at !== null ? 'tombstoned' : row.archived_at !== null ? 'archived' : 'open',
    archivedAt: row.archived_at ?? undefined,
    reason: row.reason ?? undefined,
  }
}
