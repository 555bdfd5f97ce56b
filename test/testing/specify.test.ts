import { describe, expect, test } from 'vitest'
import { defineAggregate, defineClassAggregate } from '../../src/aggregates/aggregate.ts'
import { InvalidAggregateState } from '../../src/aggregates/errors.ts'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import { defineProjection } from '../../src/projections/projection.ts'
import { defineTableProjection } from '../../src/projections/table-projection.ts'
import { specify } from '../../src/testing/testing.ts'
import { batch, compensate } from '../../src/workflows/emit.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { defineJoin } from '../../src/workflows/joins/join.ts'
import { Order, OrderClass, orderDecider } from '../aggregates/orders.ts'
import { openDatabase } from '../support/engines.ts'
import { outcome, paid, placed, shipped, shopEvents } from '../support/shop.ts'

describe('an aggregate', () => {
  const { given } = specify(Order)
  const ship = { type: 'Ship' as const, parcels: ['a', 'b'] }

  test('given events, when a command, then the resulting events', () => {
    given([placed(), paid])
      .when(ship)
      .expect([shipped('a'), shipped('b')])
    given(placed()).when({ type: 'Pay' }).expect(paid)
    given([]).when({ type: 'Pay' }).expect([])
    given([placed(5)])
      .when({ type: 'Place', total: 2 })
      .expectState({ status: 'placed', total: 7, parcels: [] })
  })

  test('given events, when a command, then the refusing error', () => {
    given([placed()]).when(ship).expect(Error)
    given([placed()])
      .when(ship)
      .expect(/pay first/)
    given([placed()]).when(ship).expect(new Error('pay first'))
  })

  test('a mismatch is reported with both sides', () => {
    const failing = {
      events: () =>
        given([placed(), paid])
          .when(ship)
          .expect([shipped('a')]),
      data: () =>
        given(placed())
          .when({ type: 'Pay' })
          .expect({ type: 'OrderPaid', data: { method: 'cash' } }),
      error: () => given(placed()).when(ship).expect([]),
      noError: () => given([placed(), paid]).when(ship).expect(Error),
      otherError: () =>
        given(placed())
          .when(ship)
          .expect(/out of stock/),
      otherClass: () => given(placed()).when(ship).expect(RangeError),
      state: () => given([]).when({ type: 'Place', total: 1 }).expectState({ status: 'new', total: 1, parcels: [] }),
      stateOfError: () => given([]).when(ship).expectState({ status: 'new', total: 1, parcels: [] }),
    }

    for (const [name, fails] of Object.entries(failing))
      expect(fails, name).toThrow(expect.objectContaining({ code: 'specification_failed' }))
    expect(failing.events).toThrow(/^Given OrderPlaced, OrderPaid, when Ship: expected\n.*'a'.*but got.*'b'/s)
    expect(failing.error).toThrow(/but got\n {2}Error: pay first/)
  })

  test('only the fields of an expected event are compared', () => {
    const { given: tagged } = specify(
      defineAggregate('order', {
        ...orderDecider,
        decide: (_: { type: 'Pay' }) => ({ ...placed(1), headers: { from: 'shop' } }),
      }),
    )

    tagged([]).when({ type: 'Pay' }).expect(placed(1))
    tagged([])
      .when({ type: 'Pay' })
      .expect(placed(1, { headers: { from: 'shop' } }))
    const other = () =>
      tagged([])
        .when({ type: 'Pay' })
        .expect(placed(1, { headers: { from: 'web' } }))
    expect(other).toThrow('web')
  })

  test('the validator of an aggregate is applied', () => {
    const validate = (order: { total: number }) => (order.total > 10 ? 'too much' : undefined)
    const { given: limited } = specify(defineAggregate('order', { ...orderDecider, validate }))

    limited(placed(5)).when({ type: 'Place', total: 5 }).expect(placed(5))
    limited(placed(5)).when({ type: 'Place', total: 6 }).expect(InvalidAggregateState)
  })

  test('a class is asked by a call', () => {
    const { given: ofClass } = specify(defineClassAggregate('order', OrderClass))

    ofClass(placed(1))
      .when(order => order.ship('a'))
      .expect(shipped('a'))
    ofClass([])
      .when(order => order.ship('a'))
      .expect(/nothing to ship/)
  })

  test('an incomplete specification that is awaited reports that', async () => {
    const unfinished = async (): Promise<unknown> => await (given([]).when(ship) as unknown as Promise<unknown>)

    await expect(unfinished()).rejects.toThrow('must not be awaited before its end')
  })
})

describe('a projection', () => {
  const totals = defineDocumentProjection('totals', {
    events: shopEvents,
    initial: () => ({ total: 0 }),
    evolve: {
      OrderPlaced: (document, event) => ({ total: document.total + event.data.total }),
      OrderShipped: () => null,
    },
  })
  const latest = defineDocumentProjection('latest', {
    events: shopEvents,
    initial: () => ({ total: 0 }),
    evolve: { OrderPlaced: (_, event) => ({ total: event.data.total }) },
  })
  const on = (stream: string, event: ReturnType<typeof placed>) => ({ ...event, stream })

  test('given events, expect these documents and no others', async () => {
    const { given } = specify(totals, { database: await openDatabase() })
    const events = [on('order-1', placed(1)), on('order-2', placed(5)), on('order-1', placed(2))]

    await given(events).expect({ 'order-1': { total: 3 }, 'order-2': { total: 5 } })
    await given([...events, { ...shipped(), stream: 'order-2' }]).expect({ 'order-1': { total: 3 } })
    await given(placed(7)).expect({ 'stream-1': { total: 7 } })

    const { error } = await outcome(given(events).expect({ 'order-1': { total: 3 } }))
    expect(error).toMatchObject({ code: 'specification_failed', actual: { 'order-2': { total: 5 } } })
  })

  test('delivered twice, the read model is the same, or the projection is not idempotent', async () => {
    const database = await openDatabase()
    const events = [placed(1), placed(2)]

    await specify(latest, { database })
      .given(events, { repeat: true })
      .expect({ 'stream-1': { total: 2 } })
    const { error } = await outcome(
      specify(totals, { database })
        .given(events, { repeat: true })
        .expect({ 'stream-1': { total: 3 } }),
    )

    expect(error).toMatchObject({ code: 'specification_failed', actual: { 'stream-1': { total: 6 } } })
    expect((error as Error).message).toContain('delivered twice')
  })

  test('one that is live is folded', async () => {
    const live = defineDocumentProjection('live', {
      lifecycle: 'live',
      events: shopEvents,
      initial: () => ({ total: 0 }),
      evolve: { OrderPlaced: (document, event) => ({ total: document.total + event.data.total }) },
    })

    const { given } = specify(live, { database: await openDatabase() })

    await given([on('order-1', placed(1)), on('order-2', placed(2))], { repeat: true }).expect({
      'order-1': { total: 1 },
      'order-2': { total: 2 },
    })
  })

  test('a table projection is specified by its rows', async () => {
    const database = await openDatabase()
    const flat = defineTableProjection('order-totals', {
      events: shopEvents,
      columns: { stream: 'text', orders: 'bigint', total: 'numeric' },
      primaryKey: ['stream'],
      on: {
        OrderPlaced: ({ stream, data }, row) => row({ stream }, { increment: { orders: 1, total: data.total } }),
      },
    })
    const own = defineProjection('placed', {
      events: shopEvents,
      tables: { placed: { columns: { id: 'uuid' }, primaryKey: ['id'] } },
      on: {
        OrderPlaced: (event, ctx) =>
          ctx.tx.query(`insert into ${ctx.table('placed')} values ($1) on conflict do nothing`, [event.id]),
      },
    })
    const id = '0198a0aa-0000-7000-8000-000000000001'

    await specify(flat, { database })
      .given([on('b', placed(2)), on('a', placed(0.5)), on('b', placed(1))])
      .expect({
        order_totals: [
          { stream: 'a', orders: 1, total: 0.5 },
          { stream: 'b', orders: 2, total: 3 },
        ],
      })
    await specify(own, { database })
      .given(placed(1, { id }), { repeat: true })
      .expect({ placed: [{ id }] })
  })

  test('the error of a handler is thrown unchanged', async () => {
    const cause = new Error('out of paper')
    const failing = defineProjection('failing', {
      events: shopEvents,
      on: {
        OrderPlaced() {
          throw cause
        },
      },
    })

    const { error } = await outcome(
      specify(failing, { database: await openDatabase() })
        .given(placed())
        .expect({}),
    )

    expect(error).toBe(cause)
  })

  test('an incomplete specification that is awaited reports that', async () => {
    const unfinished = async (): Promise<unknown> =>
      await (specify(totals).given(placed()) as unknown as Promise<unknown>)

    await expect(unfinished()).rejects.toThrow('must not be awaited before its end')
  })
})

test('the times of given events, and matchers of the test runner, are part of a specification of a projection', async () => {
  const days = defineDocumentProjection('days', {
    events: shopEvents,
    identity: event => event.createdAt.toISOString().slice(0, 10),
    initial: () => ({ orders: 0, last: '' }),
    evolve: { OrderPlaced: (day, event) => ({ orders: day.orders + 1, last: event.id }) },
  })

  await specify(days, { database: await openDatabase() })
    .given([
      { ...placed(1), createdAt: '2030-01-01T23:59:00Z' },
      { ...placed(2), createdAt: new Date('2030-01-02T00:01:00Z') },
      placed(3),
    ])
    .expect({
      '2030-01-01': { orders: 1, last: expect.any(String) },
      '2030-01-02': { orders: 2, last: expect.stringMatching(/^[0-9a-f-]{36}$/) },
    })

  specify(Order)
    .given([placed(1), paid])
    .when({ type: 'Ship', parcels: ['a'] })
    .expect([{ type: 'OrderShipped', data: expect.objectContaining({ parcel: 'a' }) }])
})

describe('a handler', () => {
  const charge = defineHandler('charge', {
    events: shopEvents,
    on: 'OrderPlaced',
    async run(event, { step, emit }) {
      const method = await step('charge-card', (): 'card' | 'cash' => {
        throw new Error('no bank in a test')
      })
      return [emit('OrderPaid', { method }, { stream: event.stream }), batch([emit('OrderShipped', { parcel: 'a' })])]
    },
  })
  const approve = defineHandler('approve', {
    events: shopEvents,
    on: 'OrderPlaced',
    async run(_, { waitForEvent, sleep, now, emit }) {
      await sleep(1000)
      const answer = await waitForEvent('OrderPaid', { timeoutMs: 60_000, match: { method: 'cash' } })
      if (answer === undefined)
        return compensate(`too late at ${now().toISOString()}`, emit('OrderShipped', { parcel: 'no' }))
      return emit('OrderShipped', { parcel: 'yes' })
    },
  })
  const cash = { type: 'OrderPaid', data: { method: 'cash' } } as const
  const given = { ...placed(1), stream: 'order-1' } as const

  test('given events and stubbed steps, expect the emitted events, without a database', async () => {
    const charged = specify(charge).given([given]).stub('charge-card', 'card')

    await charged.expect([
      { type: 'OrderPaid', data: { method: 'card' } },
      { type: 'OrderShipped', data: { parcel: expect.any(String) } },
    ] as never)
    const { error } = await outcome(charged.expect([{ type: 'OrderPaid', data: { method: 'cash' } }]))
    expect(error).toMatchObject({ code: 'specification_failed' })
    await specify(charge)
      .given(given)
      .expect(/no bank/)
    await specify(charge)
      .given(given)
      .stub('charge-card', new Error('declined'))
      .expect(/declined/)
  })

  test('waits are answered by the other given events, or are over at once', async () => {
    await specify(approve)
      .given([{ ...placed(1) }, cash])
      .expect({ type: 'OrderShipped', data: { parcel: 'yes' } })
    await specify(approve)
      .given([
        { ...placed(1), createdAt: '2030-05-01T12:00:00Z' },
        { type: 'OrderPaid', data: { method: 'card' } },
      ])
      .expectCompensation('too late at 2030-05-01T12:01:01.000Z', { type: 'OrderShipped', data: { parcel: 'no' } })
    const { error } = await outcome(specify(approve).given(placed(1)).expect([]))
    expect(error).toMatchObject({ code: 'specification_failed' })
  })

  test('a stub that no step asked for, and an event that the handler is not for, are named', async () => {
    const misspelt = specify(charge).given(given).stub('charge-card', 'card').stub('charge-crad', 'card')

    await expect(misspelt.expect([])).rejects.toThrow('did not call the stubbed "charge-crad"')
    await expect(specify(charge).given(cash).expect([])).rejects.toThrow('runs for OrderPlaced')
    const unfinished = async (): Promise<unknown> => await (specify(charge).given(given) as unknown as Promise<unknown>)
    await expect(unfinished()).rejects.toThrow('must not be awaited before its end')
  })

  test('a join is given all its events', async () => {
    const ship = defineJoin('ship', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: (orders, { emit }) => emit('OrderShipped', { parcel: `${orders.length} orders` }),
    })

    await specify(ship)
      .given([placed(1), placed(2)] as never)
      .expect({ type: 'OrderShipped', data: { parcel: '2 orders' } })
  })
})
