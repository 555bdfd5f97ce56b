import { expect, test } from 'vitest'
import { Order } from '../aggregates/orders.ts'
import { ada, type Customer } from '../documents/customers.ts'
import { openShop, paid, placed } from '../support/shop.ts'

test('a command is decided on the current state, and saved', async () => {
  const { store } = await openShop()

  await store.handle(Order, 'order-1', { type: 'Place', total: 5 })
  const handled = await store.handle(Order, 'order-1', { type: 'Pay' })

  expect(handled).toMatchObject({ state: { status: 'paid', total: 5 }, events: [paid] })
  expect(handled.saved.streams).toMatchObject([{ stream: 'order-1', version: 2 }])
  await expect(store.handle(Order, 'order-2', { type: 'Ship', parcels: ['a'] })).rejects.toThrow('pay first')
})

test('a command that loses a conflict is decided again', async () => {
  const { store } = await openShop()
  const customers = store.documents<Customer>('customers')
  await customers.put('ada', { ...ada, visits: 0 })

  const handled = await Promise.all(
    Array.from({ length: 6 }, () =>
      store.handle(
        async session => {
          await session.documents(customers).update('ada', data => ({ ...data, visits: (data.visits ?? 0) + 1 }))
          const order = await session.fetchForWriting(Order, 'order-1')
          order.decide({ type: 'Place', total: 1 })
        },
        { retries: 50 },
      ),
    ),
  )

  expect(new Set(handled.map(({ saved }) => saved.streams[0]!.version)).size).toBe(6)
  expect(await customers.get('ada')).toMatchObject({ data: { visits: 6 }, version: 7 })
  expect(await store.aggregates(Order).fetchLatest('order-1')).toMatchObject({ total: 6 })
})

test('it is repeated as often as allowed, and only after a conflict', async () => {
  const { store } = await openShop()
  let tries = 0
  const overtaken = store.handle(
    async session => {
      tries++
      const order = await session.fetchForWriting(Order, 'order-1')
      await store.events.append('order-1', placed(1))
      order.decide({ type: 'Place', total: 1 })
    },
    { retries: 2 },
  )

  await expect(overtaken).rejects.toMatchObject({ code: 'version_conflict' })
  expect(tries).toBe(3)
  const failing = store.handle(() => {
    tries++
    throw new Error('no')
  })
  await expect(failing).rejects.toThrow('no')
  expect(tries).toBe(4)
})

test('a command with a key is carried out once, whatever it would decide now', async () => {
  const { store } = await openShop()
  await store.handle(Order, 'order-1', { type: 'Place', total: 5 })
  const first = await store.handle(Order, 'order-1', { type: 'Pay' }, { idempotencyKey: 'pay-1' })
  await store.handle(Order, 'order-1', { type: 'Ship', parcels: ['a'] })

  const again = await store.handle(Order, 'order-1', { type: 'Pay' }, { idempotencyKey: 'pay-1' })

  expect(again).toMatchObject({ events: [], state: { status: 'shipped' }, saved: { repeated: true } })
  expect(again.saved.streams[0]).toMatchObject({ version: 2, position: first.saved.position })
  const refused = store.handle(Order, 'order-1', { type: 'Pay' }, { idempotencyKey: 'pay-1', onRepeat: 'error' })
  await expect(refused).rejects.toMatchObject({ code: 'idempotency_conflict' })
})
