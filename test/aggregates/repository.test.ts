import { expect, test } from 'vitest'
import { defineAggregate, defineClassAggregate } from '../../src/aggregates/aggregate.ts'
import { defineEvents } from '../../src/events/definition.ts'
import { openShop, outcome, paid, placed, shipped, shopEvents } from '../support/shop.ts'
import { Order, OrderClass, orderDecider } from './orders.ts'

test('an order is loaded, decided on and committed, and its version is that of its stream', async () => {
  const { store } = await openShop()
  const orders = store.aggregates(Order)
  const order = await orders.load('order-1')

  order.decide({ type: 'Place', total: 99 })
  const decided = order.decide({ type: 'Pay' })
  const { version } = await orders.commit(order)

  expect(decided).toEqual([{ type: 'OrderPaid', data: { method: 'card' } }])
  expect(version).toBe(2)
  expect(order).toMatchObject({ version: 2, events: [], state: { status: 'paid', total: 99 } })
  expect(await orders.load('order-1')).toMatchObject({ version: 2, state: { status: 'paid', total: 99, parcels: [] } })
  expect(await store.streams.describe('order-1')).toMatchObject({ version: 2 })
})

test('a loaded aggregate can be used further after its commit', async () => {
  const { store } = await openShop()
  const orders = store.aggregates(Order)
  const order = await orders.load('order-1')
  order.decide({ type: 'Place', total: 1 })
  await orders.commit(order)

  order.decide({ type: 'Pay' })
  await orders.commit(order)
  const nothing = await orders.commit(order)

  expect(nothing).toMatchObject({ version: 2, eventIds: [] })
  expect(await orders.fetchLatest('order-1')).toEqual({ status: 'paid', total: 1, parcels: [] })
})

test('of two callers that decided on the same state one commits, and the other gets a conflict with the actual version', async () => {
  const { store } = await openShop()
  const orders = store.aggregates(Order)
  await store.events.append('order-1', [placed(), paid])
  const [one, two] = [await orders.load('order-1'), await orders.load('order-1')]
  one.decide({ type: 'Ship', parcels: ['a'] })
  two.decide({ type: 'Ship', parcels: ['b'] })

  await orders.commit(one)

  await expect(orders.commit(two)).rejects.toMatchObject({ code: 'version_conflict', expected: 2, actual: 3 })
  expect(two.events).toHaveLength(1)
  expect(await orders.fetchLatest('order-1')).toMatchObject({ parcels: ['a'] })
})

test('handle decides again on the state that another writer has produced', async () => {
  const { store } = await openShop()
  const orders = store.aggregates(Order)
  await store.events.append('order-1', [placed(), paid])

  const handled = await Promise.all(
    Array.from({ length: 4 }, (_, n) =>
      orders.handle('order-1', { type: 'Ship', parcels: [`parcel-${n}`] }, { retries: 20 }).then(
        ({ saved }) => saved.streams[0]!.version,
        error => error.message,
      ),
    ),
  )

  expect(handled.sort()).toEqual([3, 'pay first', 'pay first', 'pay first'])
  await expect(orders.handle('order-1', { type: 'Ship', parcels: [] })).rejects.toThrow('pay first')
})

test('a command without events appends nothing', async () => {
  const { store } = await openShop()

  const { events, saved } = await store.aggregates(Order).handle('order-1', { type: 'Pay' })

  expect(events).toEqual([])
  expect(saved).toMatchObject({ streams: [], position: undefined })
  expect(await store.aggregates(Order).fetchLatest('order-1')).toBeUndefined()
})

test('a command with an idempotency key is decided once, and repeats return the first outcome', async () => {
  const { store } = await openShop()
  const orders = store.aggregates(Order)
  await store.events.append('order-1', [placed(), paid])
  const ship = () => orders.handle('order-1', { type: 'Ship', parcels: ['a'] }, { idempotencyKey: 'ship-1' })

  const first = await ship()
  const second = await ship()
  const events = [{ type: 'OrderShipped' as const, data: { parcel: 'a' } }]
  const third = await orders.commit('order-1', events, { idempotencyKey: 'ship-1', expected: 2 })

  expect([first, second].map(({ saved }) => saved.streams[0]!.version)).toEqual([3, 3])
  expect([second.saved.repeated, third.repeated]).toEqual([true, true])
  expect(second.saved.streams[0]!.eventIds).toEqual(first.saved.streams[0]!.eventIds)
  await expect(
    orders.handle('order-1', { type: 'Pay' }, { idempotencyKey: 'ship-1', onRepeat: 'error' }),
  ).rejects.toMatchObject({ code: 'idempotency_conflict' })
  await expect(orders.handle('order-2', { type: 'Pay' }, { idempotencyKey: 'ship-1' })).rejects.toMatchObject({
    code: 'idempotency_mismatch',
  })
})

test('a repository refuses an idempotency key of another stream', async () => {
  const { store } = await openShop()
  const orders = store.aggregates(Order)
  await orders.handle('order-1', { type: 'Place', total: 5 }, { idempotencyKey: 'place' })

  const session = store.session()
  session.documents(store.documents<{ name: string }>('customers')).put('c-1', { name: 'Ada' })
  await session.save({ idempotencyKey: 'customer' })

  for (const key of ['place', 'customer']) {
    const other = orders.handle('order-2', { type: 'Place', total: 5 }, { idempotencyKey: key })
    await expect(other).rejects.toMatchObject({ code: 'idempotency_mismatch', key })
  }
})

test('of commands with one key that come at once one is carried out, and the others are its repeats', async () => {
  const { store, sibling } = await openShop()
  const stores = [store, await sibling(), store]
  await store.aggregates(Order).handle('order-1', { type: 'Place', total: 5 })

  for (const command of [{ type: 'Pay' }, { type: 'Ship', parcels: ['a'] }] as const) {
    const key = { idempotencyKey: command.type }
    const all = await Promise.all(stores.map(each => each.aggregates(Order).handle('order-1', command, key)))

    expect(all.map(({ saved }) => saved.repeated).sort()).toEqual([false, true, true])
    expect(new Set(all.map(({ saved }) => saved.position)).size).toBe(1)
  }
})

test('load returns the state at a version, and at a time', async () => {
  const { store, query } = await openShop()
  const orders = store.aggregates(Order)
  await store.events.append('order-1', placed(5))
  await store.events.append('order-1', [paid, shipped()])
  await query("update ~events set created_at = ~later('2026-01-01T00:00:00Z', version * 86400000.0)")

  expect(await orders.load('order-1', { version: 1 })).toMatchObject({ version: 1, state: { status: 'placed' } })
  expect(await orders.load('order-1', { version: 0 })).toMatchObject({ version: 0, state: { status: 'new' } })
  expect(await orders.load('order-1', { at: new Date('2026-01-03T00:00:00Z') })).toMatchObject({
    version: 2,
    state: { status: 'paid' },
  })
  expect(await orders.load('order-1', { at: new Date('2025-01-01') })).toMatchObject({ version: 0 })
  await expect(orders.load('order-1', { version: 4 })).rejects.toMatchObject({ code: 'invalid_option' })
  await expect(orders.load('order-1', { version: 1, at: new Date() })).rejects.toMatchObject({ code: 'invalid_option' })
})

test('RB-64: the validator sees the state after the new events, also on a plain commit', async () => {
  const { store } = await openShop()
  const Limited = defineAggregate('order', {
    ...orderDecider,
    validate: order => (order.total > 100 ? `${order.total} is above the limit of 100` : undefined),
  })
  const orders = store.aggregates(Limited)
  await orders.handle('order-1', { type: 'Place', total: 60 })
  const order = await orders.load('order-1')

  order.decide({ type: 'Place', total: 60 })

  const refused = { code: 'invalid_aggregate_state', version: 2, reason: '120 is above the limit of 100' }
  await expect(orders.commit(order)).rejects.toMatchObject(refused)
  await expect(orders.commit('order-1', { type: 'OrderPlaced', data: { total: 60 } })).rejects.toMatchObject(refused)
  await expect(orders.handle('order-1', { type: 'Place', total: 60 })).rejects.toMatchObject(refused)
  expect(await orders.commit('order-1', { type: 'OrderPlaced', data: { total: 40 } })).toMatchObject({ version: 2 })
})

test('a validator may throw, and the error is the cause', async () => {
  const { store } = await openShop()
  const cause = new Error('never')
  const Never = defineAggregate('order', {
    ...orderDecider,
    validate() {
      throw cause
    },
  })

  const { error } = await outcome(store.aggregates(Never).handle('order-1', { type: 'Place', total: 1 }))

  expect(error).toMatchObject({ code: 'invalid_aggregate_state', reason: 'never', cause })
})

test('a plain commit expects the version it was given', async () => {
  const { store } = await openShop()
  const orders = store.aggregates(Order)
  const event = { type: 'OrderPlaced' as const, data: { total: 1 } }

  await orders.commit('order-1', event, { expected: 'empty' })

  const conflict = { code: 'version_conflict', actual: 1 }
  await expect(orders.commit('order-1', event, { expected: 'empty' })).rejects.toMatchObject(conflict)
  await expect(orders.commit('order-1', event, { expected: 7 })).rejects.toMatchObject(conflict)
  expect(await orders.commit('order-1', [event, event], { expected: 1 })).toMatchObject({ version: 3 })
})

test('a class folds itself, and its methods make decisions', async () => {
  const { store } = await openShop()
  const orders = store.aggregates(defineClassAggregate('order', OrderClass))
  await store.events.append('order-1', placed(7))

  const { state } = await orders.handle('order-1', order => order.ship('a'))

  expect(state).toBeInstanceOf(OrderClass)
  expect(state).toMatchObject({ total: 7, parcels: ['a'] })
  expect(await orders.fetchLatest('order-1')).toMatchObject({ total: 7, parcels: ['a'] })
  await expect(orders.handle('order-2', order => order.ship('a'))).rejects.toThrow('nothing to ship')
})

test('a commit in a transaction is stored with it, or not at all', async () => {
  const { store } = await openShop()
  const orders = store.aggregates(Order)

  const failed = store.transaction(async tx => {
    await orders.handle('order-1', { type: 'Place', total: 1 }, { tx })
    expect(await orders.fetchLatest('order-1', { tx })).toMatchObject({ status: 'placed' })
    throw new Error('changed my mind')
  })

  await expect(failed).rejects.toThrow('changed my mind')
  expect(await orders.fetchLatest('order-1')).toBeUndefined()
  await store.transaction(tx => orders.handle('order-1', { type: 'Place', total: 2 }, { tx }))
  expect(await orders.fetchLatest('order-1')).toMatchObject({ total: 2 })
})

test('inside a transaction a call without its handle is refused', async () => {
  const { store } = await openShop()

  const inside = store.transaction(() => store.aggregates(Order).load('order-1'))

  await expect(inside).rejects.toMatchObject({ code: 'inside_transaction' })
})

test("an id must be a stream of the aggregate's category", async () => {
  const { store } = await openShop()
  const orders = store.aggregates(Order)

  expect(Order.stream('42')).toBe('order-42')
  await expect(orders.load('42')).rejects.toMatchObject({ code: 'invalid_name' })
  await expect(orders.load('orders-42')).rejects.toThrow('order-')
  await expect(orders.load('')).rejects.toMatchObject({ code: 'invalid_name' })
  expect(() => defineAggregate('web-order', orderDecider)).toThrow('has a "-" in it')
})

test('an archived stream is not loaded as a new one', async () => {
  const { store } = await openShop()
  const orders = store.aggregates(Order)
  for (const stream of ['order-1', 'order-2']) await orders.handle(stream, { type: 'Place', total: 1 })

  await store.streams.archive('order-1')
  await store.streams.tombstone('order-2')

  await expect(orders.load('order-1')).rejects.toMatchObject({ code: 'stream_archived' })
  await expect(orders.load('order-2')).rejects.toMatchObject({ code: 'stream_tombstoned' })
  expect(await orders.load('order-1', { version: 1 })).toMatchObject({ state: { status: 'placed' } })
})

test('an event that cannot be folded is named, and nothing is committed on the partial state', async () => {
  const { store } = await openShop()
  const Picky = defineAggregate('order', {
    events: shopEvents,
    initial: () => 0,
    evolve(total, event) {
      if (event.type === 'OrderPlaced') return total + event.data.total
      if (event.type === 'OrderShipped') throw new Error('no parcels here')
      return undefined as unknown as number
    },
    decide: (command: 'pay' | 'ship') => (command === 'pay' ? paid : shipped()),
  })
  const orders = store.aggregates(Picky)
  await store.events.append('order-1', placed())
  const order = await orders.load('order-1')

  const failure = {
    code: 'fold_failed',
    stream: 'order-1',
    version: 2,
    type: 'OrderShipped',
    reason: 'no parcels here',
  }
  expect(() => order.decide('ship')).toThrow(expect.objectContaining(failure))
  await expect(orders.commit(order)).rejects.toMatchObject(failure)
  await expect(orders.handle('order-1', 'pay')).rejects.toMatchObject({
    code: 'fold_failed',
    reason: 'it returned nothing',
  })
  await store.events.append('order-1', shipped())
  await expect(orders.load('order-1')).rejects.toMatchObject(failure)
})

test('a decision that is not an event is refused', async () => {
  const { store } = await openShop()
  const decide = (given: unknown): never => given as never
  const orders = store.aggregates(defineAggregate('order', { ...orderDecider, decide }))

  for (const nonsense of [undefined, 'OrderPaid', Promise.resolve([])])
    await expect(orders.handle('order-1', nonsense as never)).rejects.toMatchObject({ code: 'invalid_decision' })
})

test('the state folded before the commit equals the state read after it', async () => {
  const { store } = await openShop()
  const Note = defineAggregate('note', {
    events: defineEvents<{ Noted: { at: Date } }>(),
    initial: (): { at: unknown } => ({ at: undefined }),
    evolve: { Noted: (_, event) => ({ at: event.data.at }) },
    decide: (at: Date) => ({ type: 'Noted', data: { at: at as unknown as string } }),
  })
  const notes = store.aggregates(Note)

  const { state } = await notes.handle('note-1', new Date('2026-05-01T00:00:00Z'))

  expect(state).toEqual({ at: '2026-05-01T00:00:00.000Z' })
  expect(await notes.fetchLatest('note-1')).toEqual(state)
})

test('RB-64: options that make no sense, such as a snapshot every 0 events, are refused when the aggregate is defined', () => {
  const define = (options: object) => () => defineAggregate('order', { ...orderDecider, ...options })

  expect(define({ snapshots: { every: 0 } })).toThrow('snapshots.every')
  expect(define({ snapshots: { every: 1.5 } })).toThrow('snapshots.every')
  expect(define({ snapshots: { evry: 5 } })).toThrow('Did you mean "every"?')
  expect(define({ snapshots: { every: 5, lifecycle: 'live' } })).toThrow("'inline' or 'async'")
  expect(define({ snapshot: { every: 5 } })).toThrow('Did you mean "snapshots"?')
  expect(define({ stateVersion: 0 })).toThrow('stateVersion')
  expect(define({ cacheSize: -1 })).toThrow('cacheSize')
  expect(define({ toSnapshot: () => ({}) })).toThrow('fromSnapshot')
  expect(define({ evolve: 'add' })).toThrow('evolve')
})
