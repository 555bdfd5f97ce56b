import { expect, test } from 'vitest'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import { defineTableProjection } from '../../src/projections/table-projection.ts'
import { openShop, shopEvents } from '../support/shop.ts'

const totals = (factor: number) =>
  defineDocumentProjection('totals', {
    events: shopEvents,
    initial: () => ({ total: 0 }),
    evolve: {
      OrderPlaced: (order, { data }) => ({ total: order.total + data.total * (data.total > 10 ? factor : 1) }),
    },
  })

test('a rehearsal says which rows other code would change, and changes none', async () => {
  const { store, sibling, query } = await openShop({ projections: [totals(1)] })
  for (const [at, total] of [5, 50, 500].entries())
    await store.events.append(`order-${at}`, { type: 'OrderPlaced', data: { total } })
  await store.consumers.runUntilIdle()
  const other = await sibling({ projections: [totals(2)] })

  const same = await store.projections.rehearse('totals')
  const found = await other.projections.rehearse('totals')

  expect(same).toMatchObject({ isExact: true, position: 3, tables: [{ same: 3, added: 0, removed: 0, changed: 0 }] })
  expect(found.tables).toMatchObject([{ table: 'totals', same: 1, added: 0, removed: 0, changed: 2 }])
  expect(found.tables[0]!.examples).toMatchObject([
    { before: { body: { total: 50 } }, after: { body: { total: 100 } } },
    { before: { body: { total: 500 } }, after: { body: { total: 1000 } } },
  ])
  expect((await store.documents(totals(1)).get('order-1'))?.data).toEqual({ total: 50 })
  const left = await query(
    `select from pg_class where relname = 'totals__rebuild' and relnamespace::regnamespace::text = $1`,
    [store.schema.name],
  )
  expect(left).toEqual([])
})

test('rows that were removed or added by hand are found, and a rebuild runs after a rehearsal', async () => {
  const { store, query } = await openShop({ projections: [totals(1)] })
  await store.events.append('order-1', { type: 'OrderPlaced', data: { total: 1 } })
  await store.events.append('order-2', { type: 'OrderPlaced', data: { total: 2 } })
  await store.consumers.runUntilIdle()
  await query(`update ~totals set id = 'order-9' where id = 'order-2'`)

  const { tables } = await store.projections.rehearse('totals')
  const { events } = await store.projections.rebuild('totals')

  expect(tables).toMatchObject([{ same: 1, added: 1, removed: 1, changed: 0 }])
  expect(events).toBe(2)
  expect((await store.projections.rehearse('totals')).tables).toMatchObject([{ same: 2, added: 0, removed: 0 }])
})

test('the rows of a table are read page by page, by a key of several columns', async () => {
  const sales = defineTableProjection('sales', {
    events: shopEvents,
    columns: { stream: 'text', total: 'integer', orders: 'integer' },
    primaryKey: ['stream', 'total'],
    on: { OrderPlaced: ({ data, stream }, row) => row({ stream, total: data.total }, { increment: { orders: 1 } }) },
  })
  const { store } = await openShop({ projections: [sales] })
  for (let n = 0; n < 5; n++)
    await store.events.append(`order-${n % 2}`, { type: 'OrderPlaced', data: { total: 100 - n } })
  await store.consumers.runUntilIdle()

  const first = await store.projections.rows(sales, { limit: 3 })
  const rest = await store.projections.rows('sales', { limit: 3, after: first.next })

  expect(first).toMatchObject({ table: 'sales', tables: ['sales'], primaryKey: ['stream', 'total'] })
  expect([...first.items, ...rest.items].map(row => [row.stream, row.total])).toEqual([
    ['order-0', 96],
    ['order-0', 98],
    ['order-0', 100],
    ['order-1', 97],
    ['order-1', 99],
  ])
  expect(rest.next).toBeUndefined()
  await expect(store.projections.rows('sales', { table: 'orders' })).rejects.toThrow('It has sales.')
})
