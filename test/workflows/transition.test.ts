import { expect, test } from 'vitest'
import { defineAggregate } from '../../src/aggregates/aggregate.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { transition } from '../../src/workflows/transition.ts'
import { openShop, paid, placed, shopEvents } from '../support/shop.ts'

const Order = defineAggregate('order', {
  events: shopEvents,
  initial: () => ({ total: 0, payments: 0 }),
  evolve: (order, event) => {
    if (event.type === 'OrderPlaced') return { ...order, total: event.data.total }
    return event.type === 'OrderPaid' ? { ...order, payments: order.payments + 1 } : order
  },
  decide: (_: { type: 'Pay' }) => paid,
})

test('a handler may want an event only for its effect on an aggregate', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const shipped: string[] = []
  const isPaid = transition(Order, (before, after) => before.payments < before.total && after.payments >= after.total)
  flows.register(
    defineHandler('ship', {
      events: shopEvents,
      on: 'OrderPaid',
      transition: isPaid,
      run: event => void shipped.push(`${event.stream} ${event.version}`),
    }),
  )
  await using worker = flows.worker()
  await worker.start()

  await store.events.append('order-1', [placed(2), paid, paid, paid], { correlationId: 'order-1' })
  await store.events.append('invoice-1', [paid], { correlationId: 'invoice-1' })
  await flows.get('order-1').waitUntilSettled()
  await flows.get('invoice-1').waitUntilSettled()

  expect(shipped).toEqual(['order-1 3'])
})

test('SB-26: many concurrent decisions on one aggregate all succeed in turn, without a gap', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', [placed(20)])

  await Promise.all(Array.from({ length: 20 }, () => store.handle(Order, 'order-1', { type: 'Pay' }, { retries: 50 })))

  const events = await store.events.read('order-1').toArray()
  expect(events.map(event => event.version)).toEqual(Array.from({ length: 21 }, (_, at) => at + 1))
})
