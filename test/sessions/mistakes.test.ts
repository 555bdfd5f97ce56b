/** The most common mistakes of a first hour: each has a message that says what to do. */
import { describe, expect, test } from 'vitest'
import * as library from '../../src/index.ts'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import { defineTableProjection } from '../../src/projections/table-projection.ts'
import { openStore } from '../../src/store.ts'
import { NonRetryable } from '../../src/workflows/errors.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { openDatabase } from '../support/engines.ts'
import { openShop, placed, shopEvents } from '../support/shop.ts'

const totals = defineDocumentProjection('totals', {
  events: shopEvents,
  initial: () => ({ total: 0 }),
  evolve: { OrderPlaced: (order, { data }) => ({ total: order.total + data.total }) },
})
const sales = defineTableProjection('sales', {
  events: shopEvents,
  columns: { note: 'text', orders: 'integer' },
  primaryKey: ['note'],
  on: { OrderPlaced: ({ data }, row) => row({ note: data.note ?? '' }, { increment: { orders: 1 } }) },
})
const pay = defineHandler('pay', { events: shopEvents, on: 'OrderPlaced', run: () => {} })

test('a wait while no runner runs says that one has to be started', async () => {
  const { store } = await openShop({ projections: [totals], handlers: [pay] })
  const { position } = await store.events.append('order-1', placed(1))
  const workflow = await store.workflows.publish('OrderPlaced', { total: 1 })

  for (const waiting of [
    () => store.consumers.waitFor(totals, position, { timeoutMs: 50 }),
    () => workflow.waitUntilSettled({ timeoutMs: 50 }),
    () => workflow.waitForEvent('OrderPaid', { timeoutMs: 50 }),
  ])
    await expect(waiting()).rejects.toThrow(/store\.start\(\)/)
})

test('a projection that never ran reads as empty, registered or not', async () => {
  const { store } = await openShop()

  for (const _ of ['not registered', 'registered']) {
    expect(await store.documents(totals).get('order-1')).toBeUndefined()
    expect(await store.documents(totals).query().toArray()).toEqual([])
    expect(await store.rows(sales).toArray()).toEqual([])
    await store.register(...(_ === 'not registered' ? [totals, sales] : []))
  }
})

test('the transaction of another library is named, not a TypeError', async () => {
  const { store } = await openShop()
  const drizzle = { execute: async () => [], select: () => ({}), insert: () => ({}) } as never
  const prisma = { $queryRawUnsafe: async () => [] } as never
  const session = store.session()
  session.events.append('order-1', placed(1))

  for (const work of [
    () => store.events.append('order-1', placed(1), { tx: drizzle }),
    () => store.documents('customers').put('ada', {}, { tx: drizzle }),
    () => store.workflows.publish('OrderPlaced', { total: 1 }, { tx: drizzle }),
    () => session.save({ tx: drizzle }),
  ])
    await expect(work()).rejects.toThrow(/"tx" is a transaction of Drizzle.*fromDrizzle\(tx\)/)
  await expect(store.events.append('order-1', placed(1), { tx: prisma })).rejects.toThrow('Prisma')
  await expect(store.events.append('order-1', placed(1), { tx: null as never })).rejects.toThrow('"tx" is null')
  session.discard()
})

test('an error that no retry can fix has the text it was given', () => {
  expect(new NonRetryable('card declined')).toMatchObject({ message: 'card declined', reason: 'card declined' })
  expect(new NonRetryable({ reason: 'card declined' }).message).toBe('card declined')
  expect(new NonRetryable('x')).toBeInstanceOf(NonRetryable)
  expect(new (NonRetryable as unknown as new () => Error)().message).toContain('gave no reason')
})

test('a definition without its name, or with a function in place of its object, is shown the call', () => {
  const defines = { ...library } as unknown as Record<string, (...given: unknown[]) => unknown>
  const names = Object.keys(defines).filter(name => /^define(?!Events|Config|Class|Collection)/.test(name))

  expect(names.length).toBeGreaterThan(10)
  for (const name of names) {
    expect(() => defines[name]!({ on: 'OrderPlaced', run() {} })).toThrow(`${name} takes a name and one object`)
    expect(() => defines[name]!('pay', () => {})).toThrow('It was given "pay" and a function')
  }
})

test('a name stands for its definition, and another is named', async () => {
  const { store } = await openShop({ projections: [totals, sales] })
  const named = store as unknown as { rows(name: string): { toArray(): Promise<unknown[]> } }

  expect(await named.rows('sales').toArray()).toEqual([])
  expect(() => named.rows('salse')).toThrow('There is no projection "salse" in this store')
  await expect(store.handle('order' as never, 'order-1', {} as never)).rejects.toThrow(
    'store.handle takes an aggregate (of defineAggregate), or a function of a session. It was given "order".',
  )
  await using session = store.session()
  session.documents('customers' as never).put('ada', {})
  await session.save()
  expect(await store.documents('customers').get('ada')).toMatchObject({ version: 1 })
})

test('an update that changes the document in place says to return it', async () => {
  const { store } = await openShop()
  const customers = store.documents<{ visits?: number }>('customers')
  await customers.put('ada', {})
  const change = ((data: { visits?: number }) => {
    data.visits = 1
  }) as never
  await using session = store.session()

  await expect(customers.update('ada', change)).rejects.toThrow('return the new data')
  await expect(session.documents(customers).update('ada', change)).rejects.toThrow('return the new data')
})

describe('openStore refuses nonsense', () => {
  const nonsense: [object, RegExp][] = [
    [{ pollMs: 0 }, /"pollMs" is 0\. It must be a number from 1 on/],
    [{ channel: '' }, /"channel" is ""\. It must be a name/],
    [{ maxConnections: -3 }, /"maxConnections" is -3\. It must be a number from 1 on/],
    [{ logger: {} }, /"logger" is an object without debug\(\), .*pino/],
    [{ projectons: [] }, /no option "projectons"\. Did you mean "projections"\?/],
    [{ projections: totals }, /"projections" is an object\. It must be a list/],
    [{ handlers: [totals] }, /"handlers" has the projection "totals" at index 0\. Give it as "projections"/],
    [{ projections: [{}] }, /"projections" has an object at index 0\. Make it with defineProjection/],
    [{ clock: {} }, /"clock" is an object without now\(\), setTimeout\(\)/],
    [{ events: { OrderPlaced: 1 } }, /"events".*defineEvents/],
    [{ migrate: 'yes' }, /"migrate" is "yes"/],
    [{ register: 'yes' }, /"register" is "yes"/],
    [{ closeMs: 'soon' }, /"closeMs" is "soon"/],
    [{ folder: 5 }, /"folder" is 5\. It must be text/],
  ]

  for (const [options, message] of nonsense)
    test(JSON.stringify(options).slice(0, 60), async () => {
      const database = await openDatabase()

      await expect(openStore({ database, schema: 'nonsense', ...options } as never)).rejects.toThrow(message)
    })

  test('a text, or nothing', async () => {
    await expect(openStore('postgres://localhost' as never)).rejects.toThrow('takes an object')
    await expect(openStore(null as never)).rejects.toThrow('takes an object')
  })
})
