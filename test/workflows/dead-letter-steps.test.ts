/** A dead letter remembers the steps of its execution: completed steps do not run again when it is retried. */

import { expect, test } from 'vitest'
import { defineHandler } from '../../src/workflows/handler.ts'
import { pruneAttempts } from '../../src/workflows/retention.ts'
import { logOf } from '../support/consumer-parts.ts'
import { openShop, type Shop, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

interface Desk {
  readonly shop: Shop
  /** Effects of the steps, in order. */
  readonly done: string[]
  /** Until then no parcel is sent. */
  open(): void
  place(): Promise<string>
  retry(id: string, data?: { total: number }): Promise<void>
  /** Number of stored calls. */
  remembered(): Promise<number>
}

/** Charges, waits for a signal and a moment, and then ships, which fails until it is allowed. */
async function openDesk(): Promise<Desk> {
  const shop = await openShop()
  const { store, query } = shop
  const flows = store.workflows
  const done: string[] = []
  let isOpen = false
  flows.register(
    defineHandler('deliver', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 0,
      run: async ({ data }, ctx) => {
        const receipt = await ctx.step('charge', () => `receipt ${done.push(`charged ${data.total}`)}`)
        await ctx.tx('book', async () => void done.push('booked'))
        const paid = await ctx.waitForEvent('OrderPaid', { timeoutMs: 60_000 })
        await ctx.sleep(5)
        await ctx.step('ship', () => {
          if (!isOpen) throw new Error('nobody is there')
          done.push(`shipped with ${receipt}, paid by ${paid?.data.method}`)
        })
      },
    }),
  )
  const worker = flows.worker()
  await worker.start()
  const failures = async (id: string): Promise<number> => {
    const [row] = await query<{ failures: number }>(
      `select failures from ~dead_letters where event_id = $1 and state = 'open'`,
      [id],
    )
    return row?.failures ?? 0
  }
  return {
    shop,
    done,
    open: () => {
      isOpen = true
    },
    async place() {
      const id = crypto.randomUUID()
      const flow = await flows.publish('OrderPlaced', { total: 1 }, { id })
      await flow.signal('OrderPaid', { method: 'card' })
      await waitUntil(async () => (await failures(id)) === 1)
      return id
    },
    async retry(id, data) {
      const before = await failures(id)
      await flows.deadLetters.retry('deliver', id, data === undefined ? {} : { data })
      await waitUntil(async () => {
        const { state } = (await flows.deadLetters.show('deliver', id))!
        return state === 'replayed' || (await failures(id)) > before
      })
    },
    remembered: async () => (await query('select 1 as n from ~workflow_steps')).length,
  }
}

test('a retried dead letter runs only steps that were not completed: no customer is charged twice', async () => {
  const desk = await openDesk()
  const id = await desk.place()
  await desk.retry(id)
  expect(desk.done).toEqual(['charged 1', 'booked'])

  desk.open()
  await desk.retry(id)

  expect(desk.done).toEqual(['charged 1', 'booked', 'shipped with receipt 1, paid by card'])
  expect(await desk.remembered()).toBe(0)
})

test('with edited data all steps run again, and also in the retry after that', async () => {
  const desk = await openDesk()
  const id = await desk.place()
  await desk.retry(id, { total: 2 })
  expect(desk.done).toEqual(['charged 1', 'booked', 'charged 2', 'booked'])

  desk.open()
  await desk.retry(id)

  expect(desk.done.slice(4)).toEqual(['charged 1', 'booked', 'shipped with receipt 5, paid by card'])
  expect(await desk.remembered()).toBe(0)
})

test('the steps of a dead letter are kept as long as it is open, and deleted by retention', async () => {
  const { shop, place, remembered } = await openDesk()
  const { workflows } = shop.store
  const id = await place()

  await pruneAttempts(logOf(shop), { olderThanMs: 0 })
  expect(await remembered()).toBeGreaterThan(0)

  await workflows.deadLetters.resolve('deliver', id, 'picked up by the customer')
  await waitUntil(async () => {
    await pruneAttempts(logOf(shop), { olderThanMs: 0 })
    return (await remembered()) === 0
  })
})
