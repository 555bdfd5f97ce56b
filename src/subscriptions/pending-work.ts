/** The pending work of subscriptions, as a piece of a statement about a whole store: `testing/advance.ts`. */
import { type Fragment, fragment } from '../database/sql.ts'
import { subscriptionNames } from './schema.ts'

/** When, after `now`, an event that was given back is delivered again. */
export function nextDeliveryAfter(store: { readonly schema: string }, now: Fragment): Fragment {
  return fragment`(
        select min(d.retry_at)
        from ${subscriptionNames(store).deliveries} as d
        where d.retry_at > ${now}
          and d.acked_at is null)`
}
