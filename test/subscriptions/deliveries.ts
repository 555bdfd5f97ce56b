/** What the tests of subscriptions share. */
import type { FailurePolicy } from '../../src/consumers/run/policy.ts'
import type { Delivery } from '../../src/subscriptions/delivery.ts'
import type { ShopMap } from '../support/shop.ts'

/** Tries again almost at once, three times. */
export const quick: FailurePolicy = {
  retries: 3,
  backoff: { baseMs: 1, factor: 1, maxMs: 1, jitter: 0 },
  end: 'dead-letter',
}

/** The next deliveries of an iteration that goes on. */
export async function several(
  deliveries: AsyncIterator<Delivery<ShopMap>>,
  count: number,
): Promise<Delivery<ShopMap>[]> {
  const all: Delivery<ShopMap>[] = []
  while (all.length < count) all.push((await deliveries.next()).value)
  return all
}
