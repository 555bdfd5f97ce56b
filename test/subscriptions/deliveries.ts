/** Shared by the tests of subscriptions. */
import type { FailurePolicy } from '../../src/consumers/run/policy.ts'
import type { Delivery } from '../../src/subscriptions/delivery.ts'
import type { ShopMap } from '../support/shop.ts'

/** Three quick retries. */
export const quick: FailurePolicy = {
  retries: 3,
  backoff: { baseMs: 1, factor: 1, maxMs: 1, jitter: 0 },
  end: 'dead-letter',
}

/** The next deliveries of a running iteration. */
export async function several(
  deliveries: AsyncIterator<Delivery<ShopMap>>,
  count: number,
): Promise<Delivery<ShopMap>[]> {
  const all: Delivery<ShopMap>[] = []
  while (all.length < count) all.push((await deliveries.next()).value)
  return all
}
