/**
 * The pending work of consumers, as pieces of statements about a whole store: whether there is work
 * (`tenants/has-work.ts`), when there is some again (`testing/advance.ts`), and up to which position every consumer has read (`upkeep/archived-streams.ts`).
 */
import { type Fragment, fragment, type Identifier, identifier } from '../database/sql.ts'
import { consumerNames } from './schema.ts'

/** A store, known by its schema. */
interface StoreSchema {
  readonly schema: string
}

/** True if one of these consumers is behind the head of the log, or is being rebuilt. Paused ones do not count. */
export function hasConsumerBehind(store: StoreSchema, consumers: readonly string[], head: Identifier): Fragment {
  return fragment`exists (
        select
        from ${consumerNames(store).consumers} as c
        where c.name = any(${consumers}::text[])
          and c.paused_at is null
          and c.state <> 'inline'
          and (c.checkpoint < ${head} or c.state in ('emptying', 'rebuilding')))`
}

/** When the next dead letter is retried: also one whose runner has died. */
export function nextDeadLetterAt(store: StoreSchema): Fragment {
  return fragment`(select min(d.retry_at) from ${consumerNames(store).dead_letters} as d where d.retry_at is not null)`
}

/** When, after `now`, a consumer that has failed tries again, or a dead letter is retried. */
export function nextRetryAfter(store: StoreSchema, now: Fragment): Fragment {
  const { consumers, dead_letters } = consumerNames(store)
  return fragment`least(
        (select min(c.retry_at) from ${consumers} as c where c.retry_at > ${now} and c.paused_at is null),
        (select min(d.retry_at) from ${dead_letters} as d where d.retry_at > ${now}))`
}

/** How far each consumer has read, as rows of a name and a position: also those that are paused or run nowhere. */
export function consumerPositions(store: StoreSchema): Fragment {
  return fragment`
      -- A read model that is to be rebuilt begins at the start.
      select c.name,
        case when c.state = 'emptying' or c.definition ->> 'rebuild' = 'pending' then 0 else c.checkpoint end
          as position
      from ${consumerNames(store).consumers} as c
      where c.state <> 'inline'
        or c.definition ->> 'rebuild' = 'pending'`
}

/** True if there is a dead letter of a stream, or of a correlation id, that is not closed. */
export function hasOpenDeadLetter(
  store: StoreSchema,
  column: 'stream' | 'correlation_id',
  value: Identifier,
): Fragment {
  return fragment`exists (
        select
        from ${consumerNames(store).dead_letters} as d
        where d.${identifier(column)} = ${value}
          and d.state in ('open', 'retrying', 'parked'))`
}
