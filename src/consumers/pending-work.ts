/**
 * Whether consumers have anything to do, and when the next dead letter is due, as pieces of a statement that asks for a
 * whole store at once (`tenants/has-work.ts`).
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
