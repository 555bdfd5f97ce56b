import { expect, test } from 'vitest'
import type { Transaction } from '../../src/database/database.ts'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import { tableNames } from '../../src/projections/table.ts'
import { openShop, paid, placed, shipped, shopEvents } from '../support/shop.ts'
import { type Order, orders } from './read-models.ts'

test('events are folded into a document of their stream, and null deletes it', async () => {
  const { store } = await openShop()
  await store.projections.register(orders)
  await store.events.append('order-1', [placed(10), placed(5), paid])
  await store.events.append('order-2', [placed(1), shipped()])

  await store.consumers.runUntilIdle()

  expect((await store.documents(orders).get('order-1'))?.data).toEqual({ total: 15, note: null, isPaid: true })
  expect((await store.documents(orders).get('order-2'))?.data).toBeUndefined()
  expect((await store.documents(orders).get('order-3'))?.data).toBeUndefined()
})

test('a document has the layout of a collection: version of its stream, and when and by whom it was created and changed', async () => {
  const { store, query } = await openShop()
  await store.projections.register(orders)
  await store.events.append('order-1', placed(10, { userId: 'ada' }))
  await store.consumers.runUntilIdle()
  await store.events.append('order-1', [paid, placed(5, { userId: 'bob' })])

  await store.consumers.runUntilIdle()

  const events = await store.events.read('order-1').toArray()
  expect(await query('select * from ~orders')).toEqual([
    {
      id: 'order-1',
      body: { total: 15, note: null, isPaid: true },
      version: 3,
      created_at: events[0]!.createdAt,
      created_by: 'ada',
      updated_at: events[2]!.createdAt,
      updated_by: 'bob',
      deleted_at: null,
    },
  ])
})

test('a deleted document starts anew', async () => {
  const { store, query } = await openShop()
  await store.projections.register(orders)
  await store.events.append('order-1', [placed(10, { userId: 'ada' }), shipped(), placed(7, { userId: 'bob' })])

  await store.consumers.runUntilIdle()

  expect(await query('select body, version, created_by from ~orders')).toEqual([
    { body: { total: 7, note: null, isPaid: false }, version: 3, created_by: 'bob' },
  ])
})

test('with an identity, events of several streams are folded into one document, which counts them', async () => {
  const { store, query } = await openShop()
  interface Customer {
    orders: number
    spent: number
  }
  const customers = defineDocumentProjection('customers', {
    events: shopEvents,
    identity: event => event.headers.customers as string[] | undefined,
    initial: () => null as Customer | null,
    evolve: {
      OrderPlaced: (customer, event) => ({
        orders: (customer?.orders ?? 0) + 1,
        spent: (customer?.spent ?? 0) + event.data.total,
      }),
    },
  })
  await store.projections.register(customers)
  await store.events.append('order-1', placed(10, { headers: { customers: ['ada', 'bob', 'ada'] } }))
  await store.events.append('order-2', placed(5, { headers: { customers: ['ada'] } }))
  await store.events.append('order-3', placed(1))

  await store.consumers.runUntilIdle()

  expect((await store.documents(customers).get('ada'))?.data).toEqual({ orders: 2, spent: 15 })
  expect(await query('select id, version from ~customers order by id')).toEqual([
    { id: 'ada', version: 2 },
    { id: 'bob', version: 1 },
  ])
})

test('the documents of a batch are read and written once, however many events it has', async () => {
  const { store, schema } = await openShop()
  await store.projections.register(orders)
  await store.consumers.runUntilIdle()
  const many = Array.from({ length: 100 }, () => placed(1))
  await store.events.append('order-1', many)
  await store.events.append('order-2', [...many, shipped()])
  const events = await store.events.readAll().toArray()
  const labels: string[] = []

  await store.transaction(tx => {
    const noted = <S extends { label: string }>(statement: S): S => {
      labels.push(statement.label)
      return statement
    }
    const noting: Transaction = {
      ...tx,
      run: statement => tx.run(noted(statement)),
      runArrays: statement => tx.runArrays(noted(statement)),
    }
    const ctx = { attempt: 1, isReplay: false, isRebuild: false, isInline: false, at: () => {} }
    const tables = tableNames(schema, orders)
    return orders.apply(events, { ...ctx, tx: noting, tables, signal: new AbortController().signal })
  })

  const statements = ['load_documents', 'delete_documents', 'write_documents']
  expect(labels).toEqual(statements.map(name => `projections.${name}`))
  expect((await store.documents(orders).get('order-1'))?.data?.total).toBe(100)
})

test('RB-81: nulls stay null, and missing fields stay missing', async () => {
  const { store, query } = await openShop()
  const notes = defineDocumentProjection('notes', {
    events: shopEvents,
    initial: () => null as object | null,
    evolve: {
      OrderPlaced: (_, event) => ({ note: event.data.note ?? null, parcel: undefined }),
    },
  })
  await store.projections.register(notes)
  await store.events.append('order-1', placed(1))

  await store.consumers.runUntilIdle()

  expect(await query('select body from ~notes')).toEqual([{ body: { note: null } }])
})

test.each([
  ['undefined', () => undefined, /is undefined after OrderPlaced: return the document/],
  ['a promise', async () => ({}), /is a promise/],
  ['a number that JSON does not have', () => ({ total: Number.NaN }), /body\.total/],
])('a handler that returns %s fails on its event, which the error names', async (_, handler, message) => {
  const { store } = await openShop()
  const broken = defineDocumentProjection('broken', {
    retries: 0,
    onFailure: 'stop',
    initial: () => null as object | null,
    evolve: { OrderPlaced: handler as unknown as () => object },
  })
  await store.projections.register(broken)
  await store.events.append('order-1', placed())

  expect(await store.consumers.runOnce('broken')).toMatchObject({ result: 'stopped' })

  const { lastError, checkpoint } = await store.consumers.status('broken')
  expect(lastError).toMatchObject({ code: 'invalid_projection_value', message: expect.stringMatching(message) })
  expect(checkpoint).toBe(0)
})

test('an event that cannot be folded is dead-lettered, and the events around it are applied', async () => {
  const { store } = await openShop()
  const careful = defineDocumentProjection('careful', {
    events: shopEvents,
    retries: 0,
    initial: (): Order => ({ total: 0, note: null, isPaid: false }),
    evolve: {
      OrderPlaced: (order, event) => {
        if (event.data.total < 0) throw new Error('a negative total')
        return { ...order, total: order.total + event.data.total }
      },
    },
  })
  await store.projections.register(careful)
  await store.events.append('order-1', [placed(1), placed(-5), placed(2)])

  await store.consumers.runUntilIdle()

  expect((await store.documents(careful).get('order-1'))?.data?.total).toBe(3)
  expect((await store.consumers.status('careful')).deadLetters).toBe(1)
})

test('a document can be read within a transaction', async () => {
  const { store } = await openShop()
  await store.projections.register(orders)
  await store.events.append('order-1', placed(10))
  await store.consumers.runUntilIdle()

  const read = await store.transaction(tx =>
    store
      .documents(orders)
      .get('order-1', { tx })
      .then(found => found?.data),
  )

  expect(read?.total).toBe(10)
})

test('a date in a document is text for the next event, of the same batch, of a later one, and of a live fold', async () => {
  for (const lifecycle of ['async', 'live'] as const) {
    const { store } = await openShop()
    const seen: unknown[] = []
    const parcels = defineDocumentProjection('parcels', {
      events: shopEvents,
      lifecycle,
      initial: () => ({ placed: [] as Date[] }),
      evolve: {
        OrderPlaced(parcel, event) {
          seen.push(...parcel.placed)
          return { placed: [...parcel.placed, event.createdAt.toISOString()].map(text => new Date(text)) }
        },
      },
    })
    await store.register(parcels)
    await store.events.append('order-1', [placed(1), placed(2)])
    if (lifecycle === 'async') await store.consumers.runUntilIdle(parcels)
    await store.events.append('order-1', placed(3))
    if (lifecycle === 'async') await store.consumers.runUntilIdle(parcels)

    const document = await store.documents(parcels).get('order-1')

    expect(document!.data.placed).toHaveLength(3)
    expect(seen).toHaveLength(3)
    expect(new Set(seen.map(each => typeof each))).toEqual(new Set(['string']))
  }
})
