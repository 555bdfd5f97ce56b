/**
 * The categories of all streams. Names of one category lie together in the index, so one look finds the first name and
 * the next one continues behind its category: the cost is the number of categories, not of streams.
 *
 * A bare UUID has no category and cannot be passed over together with others, so the search is limited to 500 looks.
 */
import { category } from '../../core/name.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../log.ts'
import { uuidPattern } from '../read/page.ts'

export interface Categories {
  readonly items: readonly Category[]
  /** False if the search has stopped at its limit of 500 looks: then later names were not looked at. */
  readonly isWhole: boolean
}

export interface Category {
  readonly category: string
  /** The first stream of it, by name. */
  readonly first: string
}

const maxLooks = 500

export async function readCategories(log: Log): Promise<Categories> {
  const rows = await log.database.run<{ stream: string }>(sql`/* streams.categories */
    with recursive looks (stream, number) as (
      (select s.stream, 1
        from ${log.names.streams} as s
        where s.version > 0
        order by s.stream
        limit 1)
      union all
      select following.stream, l.number + 1
      from looks as l
      cross join lateral (
        select s.stream
        from ${log.names.streams} as s
        where s.stream > l.stream
          and s.version > 0
          and s.stream >= case
            when strpos(l.stream, '-') > 1 and not (length(l.stream) = 36 and l.stream ~* ${uuidPattern}::text)
              then split_part(l.stream, '-', 1) || '.'
            else l.stream end
        order by s.stream
        limit 1) as following
      where l.number < ${maxLooks}::integer)
    select stream
    from looks
    order by number`)
  const found = new Map<string, Category>()
  for (const { stream } of rows) {
    const name = category(stream)
    if (name !== undefined && !found.has(name)) found.set(name, { category: name, first: stream })
  }
  return { items: [...found.values()], isWhole: rows.length < maxLooks }
}
