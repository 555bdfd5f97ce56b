/** Shared by the tests of subscriptions. */
import type { FailureOptions } from '../../src/consumers/run/policy.ts'
import type { Store } from '../../src/store.ts'
import type { Delivery } from '../../src/subscriptions/delivery.ts'
import type { GroupStatus } from '../../src/subscriptions/status.ts'
import type { ShopMap } from '../support/shop.ts'

/** Three quick retries. */
export const quick: FailureOptions = { retries: 3, backoff: { baseMs: 1, factor: 1, maxMs: 1, jitter: 0 } }

/** The next deliveries of a running iteration. */
export async function several(
  deliveries: AsyncIterator<Delivery<ShopMap>>,
  count: number,
): Promise<Delivery<ShopMap>[]> {
  const all: Delivery<ShopMap>[] = []
  while (all.length < count) all.push((await deliveries.next()).value)
  return all
}

/** A group with its partitions. */
export async function groupStatus(
  store: Pick<Store, 'subscriptions'>,
  name: string,
  group = 'default',
): Promise<GroupStatus> {
  return (await store.subscriptions.groups(name)).items.find(each => each.group === group)!
}
