import { expect, test } from 'vitest'
import type { RecordedEvent } from '../../src/events/definition.ts'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import { defineProjection } from '../../src/projections/projection.ts'
import { defineTableProjection } from '../../src/projections/table-projection.ts'
import { onServer, openShop, paid, placed, shipped, shopEvents } from '../support/shop.ts'
import { totalRows, totals } from './read-models.ts'

test('a projection keeps its own table up to date', async () => {
  const shop = await openShop()
  await shop.store.projections.register(totals())
  await shop.store.events.append('order-1', [placed(10), placed(5), paid])
  await shop.store.events.append('order-2', placed(1))

  expect(await shop.store.consumers.runUntilIdle()).toBe(3)

  expect(await totalRows(shop)).toEqual([
    { stream: 'order-1', orders: 2, total: '15' },
    { stream: 'order-2', orders: 1, total: '1' },
  ])
})

test('RB-24: a handler gets the full envelope and the context', async () => {
  const { store, schema } = await openShop()
  const seen: { event: RecordedEvent; ctx: object }[] = []
  await store.projections.register(
    defineProjection('seen', {
      events: shopEvents,
      on: {
        OrderPlaced: (event, { projection, attempt, isReplay, isRebuild, table }) => {
          seen.push({ event, ctx: { projection, attempt, isReplay, isRebuild, table: table('any') } })
        },
      },
    }),
  )
  const envelope = { headers: { channel: 'web' }, correlationId: 'cart-7', causationId: 'click-1', userId: 'ada' }
  const { position } = await store.events.append('order-1', placed(10, envelope))

  await store.consumers.runUntilIdle()

  expect(seen).toHaveLength(1)
  expect(seen[0]!.event).toMatchObject({ stream: 'order-1', version: 1, position, ...envelope })
  expect(seen[0]!.event.createdAt).toBeInstanceOf(Date)
  const reported = { projection: 'seen', attempt: 1, isReplay: false, isRebuild: false }
  expect(seen[0]!.ctx).toEqual({ ...reported, table: `"${schema}"."any"` })
})

test('RB-25: a projection reads the types it has handlers for, and its checkpoint moves past the others', async () => {
  const { store } = await openShop()
  const types: string[] = []
  await store.projections.register(
    defineProjection('shipping', { events: shopEvents, on: { OrderShipped: event => void types.push(event.type) } }),
  )
  await store.events.append('order-1', [placed(), paid, shipped(), paid])

  await store.consumers.runUntilIdle()

  expect(types).toEqual(['OrderShipped'])
  const { checkpoint, head, lag } = await store.consumers.status('shipping')
  expect(checkpoint).toBe(head)
  expect(lag).toBe(0)
})

test("the handler '*' gets events of types without their own handler", async () => {
  const { store } = await openShop()
  const calls: string[] = []
  await store.projections.register(
    defineProjection('all', {
      events: shopEvents,
      on: {
        OrderPlaced: () => void calls.push('placed'),
        '*': event => void calls.push(`* ${event.type}`),
      },
    }),
  )
  await store.events.append('order-1', [placed(), paid, shipped()])

  await store.consumers.runUntilIdle()

  expect(calls).toEqual(['placed', '* OrderPaid', '* OrderShipped'])
})

test('RB-81: tables are created once, before the first event, and never by a handler', async () => {
  const shop = await openShop()
  await shop.store.projections.register(totals())
  expect((await shop.store.schema.state()).pending).toEqual(['table order_totals', 'index order_totals_total'])
  await shop.store.events.append('order-1', placed(10))

  await shop.store.consumers.runUntilIdle()

  expect(await shop.store.schema.state()).toEqual({ status: 'current', pending: [] })
  const [{ oid }] = (await shop.query(`select '~order_totals'::regclass::oid::text as oid`)) as [{ oid: string }]
  await shop.store.events.append('order-1', placed(10))
  await shop.store.consumers.runUntilIdle()
  expect(await shop.query(`select '~order_totals'::regclass::oid::text as oid`)).toEqual([{ oid }])
})

test('if a store may not change the schema, a projection without its tables names the call to make, and nothing is lost', async () => {
  const shop = await openShop()
  const other = await shop.sibling({ migrate: false })
  await other.projections.register(totals())
  await other.events.append('order-1', placed(10))

  await expect(other.consumers.runOnce('order-totals')).rejects.toMatchObject({
    code: 'projection_not_synced',
    missing: ['table order_totals', 'index order_totals_total'],
  })
  await other.schema.sync()

  expect(await other.consumers.runOnce('order-totals')).toEqual({ result: 'processed', count: 1 })
  expect(await totalRows(shop)).toEqual([{ stream: 'order-1', orders: 1, total: '10' }])
})

test('RB-81: projections belong to the store they are registered in', async () => {
  const shop = await openShop()
  const other = await shop.sibling(onServer ? {} : { migrate: true })
  await shop.store.projections.register(totals())

  await other.projections.register(totals())

  await expect(other.consumers.runOnce('missing')).rejects.toMatchObject({ code: 'consumer_not_found' })
  expect((await shop.store.consumers.list()).items.map(each => each.name)).toEqual(['order-totals'])
})

test('version 2 of a projection runs next to version 1, with its own checkpoint and tables', async () => {
  const shop = await openShop()
  await shop.store.projections.register(totals())
  await shop.store.projections.register(totals({ version: 2 }))
  await shop.store.events.append('order-1', placed(10))

  await shop.store.consumers.runUntilIdle()

  const names = (await shop.store.consumers.list()).items.map(each => each.name)
  expect(names).toEqual(['order-totals', 'order-totals@2'])
  expect(await shop.query('select total from ~order_totals_v2')).toEqual([{ total: '10' }])
  expect(await totalRows(shop)).toHaveLength(1)
})

test('two projections cannot write the same table', async () => {
  const { store } = await openShop()
  await store.projections.register(totals())
  const twin = defineTableProjection('twin', {
    columns: { id: 'text' },
    primaryKey: ['id'],
    table: 'order_totals',
    on: { OrderPlaced: (event, row) => row({ id: event.stream }, {}) },
  })

  expect(() => store.projections.register(twin)).toThrow(
    /projection "order-totals" both declare the table "order_totals"/,
  )

  // A refused one leaves nothing behind.
  expect((await store.consumers.list()).items.map(each => each.name)).toEqual(['order-totals'])
})

test('an invalid projection is refused when it is defined', () => {
  const on = { OrderPlaced: () => undefined }
  const long = 'x'.repeat(60)

  expect(() => defineProjection('', { on })).toThrow(/Consumer "" is empty/)
  expect(() => defineProjection('totals', { on: {} })).toThrow(/has no handlers/)
  expect(() => defineProjection('totals', { on: { OrderPlaced: 'insert' as never } })).toThrow(
    /needs a function as "on.OrderPlaced"/,
  )
  expect(() => defineProjection('totals', { on, version: 0 })).toThrow(/version/)
  expect(() => defineDocumentProjection(long, { initial: () => ({}), evolve: { OrderPlaced: () => ({}) } })).toThrow(
    /more than 54 bytes/,
  )
  expect(() => defineProjection('totals', { on, lifecycle: 'live' })).toThrow(/cannot be live/)
  expect(() => defineProjection('totals', { on, lifecyle: 'inline' } as never)).toThrow(/Did you mean "lifecycle"\?/)
  const columns = { id: 'money' } as never
  expect(() => defineTableProjection('totals', { columns, primaryKey: ['id'], on })).toThrow(/cannot have the type/)
})

test('a table that was not declared is refused with the nearest name', async () => {
  const { store } = await openShop()
  let error: unknown
  await store.projections.register(
    totals({
      on: {
        OrderPlaced: (_, ctx) => {
          try {
            ctx.table('order_total')
          } catch (caught) {
            error = caught
          }
        },
      },
    }),
  )
  await store.events.append('order-1', placed())

  await store.consumers.runUntilIdle()

  expect(error).toMatchObject({ code: 'invalid_option' })
  expect(String(error)).toContain('Did you mean "order_totals"?')
})
