import { expect, test } from 'vitest'
import { defineAggregate } from '../../src/aggregates/aggregate.ts'
import { fakeClock } from '../../src/testing/fakes.ts'
import { Order, orderDecider } from '../aggregates/orders.ts'
import { ada, type Customer } from '../documents/customers.ts'
import { openShop, outcome, paid, placed, shipped } from '../support/shop.ts'

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
  const other = store.handle(Order, 'order-2', { type: 'Pay' }, { idempotencyKey: 'pay-1' })
  await expect(other).rejects.toMatchObject({ code: 'idempotency_mismatch', key: 'pay-1' })
})

test('of commands with one key that come at once one is carried out, and the others are its repeats', async () => {
  const { store, sibling } = await openShop()
  const stores = [store, await sibling(), store]
  await store.handle(Order, 'order-1', { type: 'Place', total: 5 })

  for (const command of [{ type: 'Pay' }, { type: 'Ship', parcels: ['a'] }] as const) {
    const key = { idempotencyKey: command.type }
    const all = await Promise.all(stores.map(each => each.handle(Order, 'order-1', command, key)))

    expect(all.map(({ saved }) => saved.repeated).sort()).toEqual([false, true, true])
    expect(new Set(all.map(({ saved }) => saved.position)).size).toBe(1)
  }
})

test('a command inside a transaction is saved with it, and gone if it is rolled back', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', placed(2))

  const inside = await store.transaction(async tx => {
    const { state } = await store.handle(Order, 'order-1', { type: 'Pay' }, { tx, idempotencyKey: 'pay-1' })
    return state
  })
  const undone = outcome(
    store.transaction(async tx => {
      await store.decide(Order, 'order-1', () => shipped(), { tx })
      throw new Error('no van')
    }),
  )

  expect((await undone).error).toMatchObject({ message: 'no van' })
  expect(inside).toMatchObject({ status: 'paid' })
  expect((await store.events.read('order-1').toArray()).map(event => event.type)).toEqual(['OrderPlaced', 'OrderPaid'])
})

test('an idempotency key of another stream is refused', async () => {
  const { store } = await openShop()
  await store.handle(Order, 'order-1', { type: 'Place', total: 5 }, { idempotencyKey: 'place' })
  const customers = store.documents<Customer>('customers')
  await customers.put('c-1', ada)
  const session = store.session()
  session.documents(customers).put('c-2', ada)
  await session.save({ idempotencyKey: 'customer' })

  const refused = await Promise.all([
    outcome(store.handle(Order, 'order-2', { type: 'Place', total: 5 }, { idempotencyKey: 'place' })),
    outcome(store.decide(Order, 'order-2', () => placed(), { idempotencyKey: 'place' })),
    outcome(store.handle(Order, 'order-3', { type: 'Place', total: 5 }, { idempotencyKey: 'customer' })),
  ])

  for (const { error } of refused) expect(error).toMatchObject({ code: 'idempotency_mismatch' })
  expect(await store.aggregates(Order).fetchLatest('order-2')).toBeUndefined()
})

test('a decision can be made on the spot, and is decided anew after a conflict', async () => {
  const { store } = await openShop()
  const id = store.newId('order')
  await store.events.append(id, placed(2))
  let attempts = 0

  const { state, events, saved } = await store.decide(Order, id, order => {
    if (attempts++ === 0) void store.events.append(id, placed(3))
    return order.total < 10 ? { type: 'OrderPaid', data: { method: 'card' } } : []
  })

  expect(events).toMatchObject([{ type: 'OrderPaid' }])
  expect(saved.streams).toMatchObject([{ stream: id }])
  expect(state).toMatchObject({ status: 'paid' })
  await expect(store.decide(Order, id, () => 'OrderPaid' as never)).rejects.toMatchObject({ code: 'invalid_decision' })
})

test('an aggregate without a decision takes no commands, and says what to do', async () => {
  const { store } = await openShop()
  const { decide: _, ...folding } = orderDecider
  const Folded = defineAggregate('order', folding)

  await expect(store.handle(Folded, 'order-1', undefined as never)).rejects.toThrow(/has no "decide"/)
  await store.decide(Folded, 'order-1', () => placed(1))
  expect((await store.aggregates(Folded).fetchLatest('order-1'))?.total).toBe(1)
})

test('new ids begin with their category and sort by time', async () => {
  const { store } = await openShop()
  const ids = Array.from({ length: 50 }, () => store.newId(Order))

  expect(ids.every(id => /^order-[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]+$/.test(id))).toBe(true)
  expect([...ids].sort()).toEqual(ids)
  expect(() => store.newId('')).toThrow(expect.objectContaining({ code: 'invalid_name' }))
})

test('with a clock that stands still, a command that loses a conflict is decided again', async () => {
  const { store } = await openShop({ clock: fakeClock() })
  let tries = 0

  const { saved } = await store.handle(async session => {
    const order = await session.fetchForWriting(Order, 'order-1')
    if (++tries === 1) await store.events.append('order-1', placed())
    order.append([paid])
  })

  expect(tries).toBe(2)
  expect(saved.streams).toMatchObject([{ stream: 'order-1', version: 2 }])
})

test('50 parallel commands on one hot pair of streams succeed with the defaults, in either order of the pair', async () => {
  const { store } = await openShop()
  const pair = ['order-1', 'order-2'] as const
  const transfer = (n: number) =>
    store.handle(async session => {
      for (const id of n % 2 === 0 ? pair : [...pair].reverse()) {
        const order = await session.fetchForWriting(Order, id)
        order.decide({ type: 'Place', total: 1 })
      }
    })

  await Promise.all(Array.from({ length: 50 }, (_, n) => transfer(n)))
  await Promise.all(Array.from({ length: 50 }, () => store.handle(Order, 'order-1', { type: 'Place', total: 1 })))

  expect(await store.aggregates(Order).fetchLatest('order-1')).toMatchObject({ total: 100 })
  expect(await store.aggregates(Order).fetchLatest('order-2')).toMatchObject({ total: 50 })
})

test('a command inside a command on the same stream does not wait for itself', async () => {
  const { store } = await openShop()

  await store.handle(async session => {
    await session.fetchForWriting(Order, 'order-1')
    await store.handle(Order, 'order-1', { type: 'Place', total: 1 })
  })

  expect(await store.aggregates(Order).fetchLatest('order-1')).toMatchObject({ total: 1 })
})

test('a stream that is locked in a transaction cannot be overtaken by another process', async () => {
  const { store, sibling } = await openShop()
  const other = await sibling()
  await store.events.append('order-1', placed(1))
  const add = async (within: typeof store, id: string) =>
    within.transaction(tx =>
      within.handle(
        async session => {
          const order = await session.fetchForWriting(Order, id, { tx, lock: true })
          order.decide({ type: 'Place', total: 1 })
        },
        { tx },
      ),
    )
  const stores = [store, other, store, other, store, other]

  await Promise.all(stores.flatMap(each => [add(each, 'order-1'), add(each, 'order-2')]))

  expect(await store.aggregates(Order).fetchLatest('order-1')).toMatchObject({ total: 7 })
  expect(await store.aggregates(Order).fetchLatest('order-2')).toMatchObject({ total: 6 })
  const outside = store.handle(session => session.fetchForWriting(Order, 'order-1', { lock: true }))
  await expect(outside).rejects.toThrow('only in a transaction')
})

test('a conflict that is left after all tries says that the same call can succeed later', async () => {
  const { store } = await openShop()
  const overtaken = store.handle(
    async session => {
      const order = await session.fetchForWriting(Order, 'order-1')
      await store.events.append('order-1', placed(1))
      order.decide({ type: 'Place', total: 1 })
    },
    { retries: 0 },
  )

  await expect(overtaken).rejects.toMatchObject({ code: 'version_conflict', retryable: true })
  await expect(store.events.append('order-1', placed(1), { expected: 7 })).rejects.toMatchObject({ retryable: false })
})

test('a command has the same outcome by the store and by a repository', async () => {
  const { store } = await openShop()

  const one = await store.handle(Order, 'order-1', { type: 'Place', total: 1 })
  const two = await store.aggregates(Order).handle('order-2', { type: 'Place', total: 1 })

  const shape = (value: object) => JSON.stringify(value).replaceAll(/"[^"]*-[^"]*"|\d+/g, '…')
  expect(shape(two)).toBe(shape(one))
  expect(Object.keys({ ...two.saved })).toEqual(['documents', 'streams', 'position', 'repeated'])
})
