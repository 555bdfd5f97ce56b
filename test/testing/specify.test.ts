import { describe, expect, test } from 'vitest'
import { defineAggregate, defineClassAggregate } from '../../src/aggregates/aggregate.ts'
import { InvalidAggregateState } from '../../src/aggregates/errors.ts'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import { defineProjection } from '../../src/projections/projection.ts'
import { defineTableProjection } from '../../src/projections/table-projection.ts'
import { specify } from '../../src/testing/testing.ts'
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
