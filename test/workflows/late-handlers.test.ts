import { expect, test } from 'vitest'
import { defineHandler } from '../../src/workflows/handler.ts'
import { defineSchedule } from '../../src/workflows/schedules/schedule.ts'
import { openShop, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

test('a runner runs handlers and schedules that are registered after it was started', async () => {
  const { store } = await openShop()
  let runs = 0
  await using _ = await store.start()

  await store.register(
    defineHandler('ship', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: (_, { emit }) => emit('OrderShipped', { parcel: 'p-1' }),
    }),
    defineSchedule('restock', { everyMs: 20, run: () => void runs++ }),
  )
  const workflow = await store.workflows.publish('OrderPlaced', { total: 1 })

  await workflow.waitForEvent('OrderShipped')
  await waitUntil(() => runs > 0)
  expect((await store.workflows.handlers.list()).items).toMatchObject([{ handler: 'ship', workers: 1 }])
})

test('a runner with a list of definitions does not run a late handler that is not in it', async () => {
  const { store, sibling } = await openShop()
  const pay = defineHandler('pay', { events: shopEvents, on: 'OrderPlaced', run: () => {} })
  const ran: string[] = []
  await store.register(pay)
  await using _ = await store.start({ only: [pay] })
  const late = (runner: string) =>
    defineHandler('ship', { events: shopEvents, on: 'OrderPlaced', run: () => void ran.push(runner) })

  await store.register(late('first'))
  const other = await sibling()
  await other.register(late('second'))
  await using _other = await other.start()
  await (await store.workflows.publish('OrderPlaced', { total: 1 })).waitUntilSettled()

  expect(ran).toEqual(['second'])
})
