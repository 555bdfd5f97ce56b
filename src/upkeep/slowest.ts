/** How far all have read: the log may be forgotten up to there, and not beyond. */
import { consumerNames } from '../consumers/schema.ts'
import type { Executor } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import type { Log } from '../events/log.ts'
import { workflowNames } from '../workflows/schema.ts'

export interface Slowest {
  /** The consumer, or `handler <name>` of one that is still given what came before it. */
  readonly name: string
  readonly position: number
}

/** Also those that are paused, stopped, or run nowhere. Undefined if nobody follows the log. */
export async function slowest(log: Log, executor: Executor = log.database): Promise<Slowest | undefined> {
  const [row] = await executor.run<{ name: string; position: number }>(sql`/* upkeep.slowest */
    select r.name, r.position
    from (
      -- What is to be built anew begins where it began.
      select c.name,
        case when c.state = 'emptying' or c.definition ->> 'rebuild' = 'pending' then 0 else c.checkpoint end
          as position
      from ${consumerNames(log).consumers} as c
      where c.state <> 'inline'
        or c.definition ->> 'rebuild' = 'pending'
      union all
      select 'handler ' || h.handler, h.backfill_position
      from ${workflowNames(log).workflow_routes} as h
      where h.backfill_position is not null
        and h.retired_at is null) as r
    order by r.position, r.name
    limit 1`)
  return row
}
