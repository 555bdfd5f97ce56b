/** Failures that are alike, whatever numbers and ids their messages have. */
import { camelCase } from '../../core/name.ts'
import { checkWhole, refuseUnknownOptions } from '../../core/options.ts'
import { decodeCursor, type Page, type PageOptions, pageOf, pageOptionNames } from '../../core/page.ts'
import { numeral, sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { consumerNames } from '../schema.ts'
import { checkState, type DeadLetterError, dated, maxPage } from './dead-letter.ts'
import { type DeadLetterOwner, type OwnerName, ownerOfRow, rowsOf } from './owner.ts'
import type { DeadLetterState } from './row.ts'

/** Failures of one consumer or handler that are alike. */
export interface DeadLetterGroup extends OwnerName {
  readonly fingerprint: string
  /** Among the latest 10 000 failures. */
  readonly count: number
  /** Of the latest; undefined for a consumer. */
  readonly reason: string | undefined
  readonly latestError: DeadLetterError
  readonly firstFailedAt: Date
  readonly lastFailedAt: Date
}

/** `limit`: default 100, at most 10 000. */
export interface GroupDeadLettersOptions extends PageOptions {
  /** Default: those of all consumers and handlers. */
  of?: DeadLetterOwner | undefined
  /** Default 'open'. */
  state?: DeadLetterState | undefined
}

const latest = numeral(10_000)

/** The largest group first, among the latest 10 000 failures: however many there are, it costs the same. */
export async function groupDeadLetters(log: Log, options: GroupDeadLettersOptions): Promise<Page<DeadLetterGroup>> {
  refuseUnknownOptions('store.deadLetters.groups', options, ['of', 'state', ...pageOptionNames])
  const { of, state = 'open', limit = 100, after } = options
  checkState(state)
  checkWhole('limit', limit, 1, maxPage)
  const [count, consumer, fingerprint] =
    after === undefined ? [null, null, null] : (decodeCursor(after, 3) as [number, string, string])
  const owners = of === undefined ? null : await rowsOf(log, of)
  const rows = await log.database.run<GroupRow>(sql`/* dead_letters.groups */
    with latest as materialized (
      select d.consumer, d.event_id, d.fingerprint, d.first_failed_at, d.last_failed_at, d.position
      from ${consumerNames(log).dead_letters} as d
      where d.state = ${state}::text
        and d.fingerprint is not null
        and (${owners}::text[] is null or d.consumer = any(${owners}::text[]))
      order by d.last_failed_at desc, d.position desc
      limit ${latest}),
    alike as (
      select l.consumer, l.fingerprint, count(*) as count,
        min(l.first_failed_at) as first_failed_at, max(l.last_failed_at) as last_failed_at,
        (array_agg(l.event_id order by l.last_failed_at desc, l.position desc))[1] as event_id
      from latest as l
      group by l.consumer, l.fingerprint)
    select g.consumer, g.fingerprint, g.count, g.first_failed_at, g.last_failed_at, d.reason, d.errors -> -1 as error
    from alike as g
    join ${consumerNames(log).dead_letters} as d on d.consumer = g.consumer and d.event_id = g.event_id
    where ${count}::bigint is null
      or (-g.count, g.consumer, g.fingerprint) > (-${count}::bigint, ${consumer}::text, ${fingerprint}::text)
    order by g.count desc, g.consumer, g.fingerprint
    limit ${limit + 1}::integer`)
  const { items, next } = pageOf(rows, limit, last => [Number(last.count), last.consumer, last.fingerprint])
  return {
    items: items.map(row => ({
      ...ownerOfRow(row.consumer),
      fingerprint: row.fingerprint,
      count: Number(row.count),
      reason: row.reason === null ? undefined : camelCase(row.reason),
      latestError: dated(row.error),
      firstFailedAt: row.first_failed_at,
      lastFailedAt: row.last_failed_at,
    })),
    next,
  }
}

interface GroupRow {
  readonly consumer: string
  readonly fingerprint: string
  readonly reason: string | null
  readonly error: Omit<DeadLetterError, 'at'> & { at: string }
  readonly first_failed_at: Date
  readonly last_failed_at: Date
  readonly count: number
}
