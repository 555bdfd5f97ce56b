/**
 * What consumers have still to read, as pieces of statements that ask for a whole store at once: whether there is anything
 * to do (`tenants/has-work.ts`), and up to which position nothing is needed (`upkeep/archived-streams.ts`).
 */
import { type Fragment, fragment, type Identifier } from '../database/sql.ts'
import type { LogNames } from '../events/log.ts'

/** True if one of these consumers is behind the head of the log, or is being rebuilt. Paused ones do not count. */
export function hasConsumerBehind(names: LogNames, consumers: readonly string[], head: Identifier): Fragment {
  return fragment`exists (
        select
        from ${names.consumers} as c
        where c.name = any(${consumers}::text[])
          and c.paused_at is null
          and c.state <> 'inline'
          and (c.checkpoint < ${head} or c.state = 'rebuilding'))`
}

/** When the next dead letter is retried: also one whose runner has died. */
export function nextDeadLetterAt(names: LogNames): Fragment {
  return fragment`(select min(d.retry_at) from ${names.dead_letters} as d where d.retry_at is not null)`
}

/** How far each consumer has read, as rows of a name and a position: also those that are paused or run nowhere. */
export function consumerPositions(names: LogNames): Fragment {
  return fragment`
      -- A read model that is to be rebuilt begins at the start.
      select c.name,
        case when 'pending' in (c.definition ->> 'reset', c.definition ->> 'rebuild') then 0 else c.checkpoint end
          as position
      from ${names.consumers} as c
      where c.state <> 'inline'
        or c.definition ->> 'rebuild' = 'pending'`
}
