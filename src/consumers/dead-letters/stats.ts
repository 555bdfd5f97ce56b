/**
 * How many dead letters there are, by owner and state. Owners are found one after the other in an index, and of each at
 * most 10 000 are counted in each state: no table is counted whole.
 */
import { checkWhole, refuseUnknownOptions } from '../../core/options.ts'
import { decodeCursor, type Page, type PageOptions, pageOf, pageOptionNames } from '../../core/page.ts'
import { type Fragment, fragment, joinFragments, numeral, sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { consumerNames } from '../schema.ts'
import { type OwnerName, ownerOfRow } from './owner.ts'
import type { DeadLetterState } from './row.ts'

/** A count of 10 000 stands for that many or more. */
export interface DeadLetterStats extends OwnerName, Readonly<Record<DeadLetterState, number>> {}

const maxCounted = numeral(10_000)

/**
 * How many of this owner are in a state, counted up to 10 000. The state is part of the text, and the order is that of an
 * index: otherwise an owner with few of them among many others would cost a scan of the table.
 */
export function cappedCount(log: Log, owner: Fragment, state: Fragment): Fragment {
  return fragment`(select count(*)
        from (
          select
          from ${consumerNames(log).dead_letters} as each
          where each.state = ${state}
            and each.consumer = ${owner}
          order by each.position
          limit ${maxCounted}) as counted)`
}

/** Those that are open or being retried. */
export function cappedOpen(log: Log, owner: Fragment): Fragment {
  return fragment`${cappedCount(log, owner, fragment`'open'`)} + ${cappedCount(log, owner, fragment`'retrying'`)}`
}

/** By owner. */
export async function countDeadLetters(log: Log, options: PageOptions): Promise<Page<DeadLetterStats>> {
  refuseUnknownOptions('store.deadLetters.stats', options, pageOptionNames)
  const { after, limit = 100 } = options
  checkWhole('limit', limit, 1, 1_000)
  const [last] = after === undefined ? [''] : (decodeCursor(after, 1) as [string])
  const owner = fragment`o.consumer`
  const states = [
    fragment`'open'`,
    fragment`'retrying'`,
    fragment`'parked'`,
    fragment`'replayed'`,
    fragment`'resolved'`,
  ]
  const counts = states.map(state => cappedCount(log, owner, state))
  const rows = await log.database.runArrays(sql`/* dead_letters.stats */
    with recursive owners (consumer, number) as (
      (select d.consumer, 1
        from ${consumerNames(log).dead_letters} as d
        where d.consumer > ${last}::text
        order by d.consumer
        limit 1)
      union all
      select following.consumer, o.number + 1
      from owners as o
      cross join lateral (
        select d.consumer
        from ${consumerNames(log).dead_letters} as d
        where d.consumer > o.consumer
        order by d.consumer
        limit 1) as following
      where o.number <= ${limit}::integer)
    select o.consumer, ${joinFragments(counts, ', ')}
    from owners as o
    order by o.number`)
  const { items, next } = pageOf(rows, limit, row => [row[0]])
  return {
    items: items.map(([consumer, open, retrying, parked, replayed, resolved]) => ({
      ...ownerOfRow(consumer as string),
      open: Number(open),
      retrying: Number(retrying),
      parked: Number(parked),
      replayed: Number(replayed),
      resolved: Number(resolved),
    })),
    next,
  }
}
