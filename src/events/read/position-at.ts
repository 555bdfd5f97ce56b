/**
 * The position at a time, by bisection on the primary key: at most 53 events are looked at, in one statement, however
 * long the log is. Times rise with positions, but for events that were imported with older times: then it is approximate.
 */
import { InvalidOption } from '../../core/errors.ts'
import { describe } from '../../core/options.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../log.ts'
import { rereadable } from './read.ts'

/** The last position whose event was created before the time; 0 if there is none. */
export async function positionAt(log: Log, time: Date, settled: number): Promise<number> {
  if (!(time instanceof Date) || Number.isNaN(time.getTime()))
    throw new InvalidOption({ option: 'time', reason: `The time is ${describe(time)}. It must be a valid Date.` })
  const statement = sql`/* events.position_at */
    with recursive search (low, high) as (
      select 0::bigint, ${settled}::bigint + 1
      union all
      select
        case when e.created_at < ${time.toISOString()}::timestamptz then e.position else s.low end,
        case when e.created_at < ${time.toISOString()}::timestamptz then s.high else (s.low + s.high) / 2 end
      from search as s
      left join lateral (
        select position, created_at
        from ${log.names.events}
        where position >= (s.low + s.high) / 2
          and position < s.high
        order by position
        limit 1) as e on true
      where s.high - s.low > 1)
    select max(low) as position
    from search`
  const [row] = await rereadable(log.database, log, () => log.database.run<{ position: number }>(statement))
  return Number(row!.position)
}
