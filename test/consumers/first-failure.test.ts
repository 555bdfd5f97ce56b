/** The time of the first failure of an event is kept, however often it is tried before it becomes a dead letter. */
import { expect, test } from 'vitest'
import { defineProcessor } from '../../src/consumers/processor.ts'
import { defineSubscription } from '../../src/subscriptions/subscription.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { openShop, placed, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

/** Fails, and says when: by the clock of this machine, which is that of the database, too. */
function failing(): { failedAt: number[]; run: () => never } {
  const failedAt: number[] = []
  const run = (): never => {
    failedAt.push(Date.now())
    throw new Error('out of stock')
  }
  return { failedAt, run }
}

const tries = { retries: 25, backoff: { baseMs: 10, factor: 1, jitter: 0 } } as const

test.each(['processor', 'subscription', 'handler'] as const)(
  'firstFailedAt of a dead letter is the time of the first failure: %s',
  async kind => {
    const { store } = await openShop()
    const { failedAt, run } = failing()
    if (kind === 'processor')
      await store.register(
        defineProcessor('pack', { events: shopEvents, on: { OrderPlaced: run }, onFailure: 'deadLetter', ...tries }),
      )
    else if (kind === 'subscription')
      await store.register(defineSubscription('pack', { events: shopEvents, run, ...tries }))
    else await store.register(defineHandler('pack', { events: shopEvents, on: 'OrderPlaced', run, ...tries }))
    await store.start()
    await store.events.append('order-1', placed())
    await waitUntil(async () => (await store.deadLetters.list()).items.length === 1)

    const [deadLetter] = (await store.deadLetters.list()).items

    expect(failedAt).toHaveLength(26)
    const { firstFailedAt, lastFailedAt } = deadLetter!
    // It failed before the second attempt began, and after the first one did; with a tolerance for rounded clocks.
    expect(firstFailedAt.getTime()).toBeGreaterThanOrEqual(failedAt[0]! - 2)
    expect(firstFailedAt.getTime()).toBeLessThanOrEqual(failedAt[1]! + 2)
    expect(lastFailedAt.getTime()).toBeGreaterThanOrEqual(failedAt[25]! - 2)
  },
)
