import { expect, test } from 'vitest'
import { copyInto, dropRetired, readState, switchOver } from '../../../src/transfer/move/move.ts'
import { defineHandler } from '../../../src/workflows/handler.ts'
import { ada, bob, type Customer } from '../../documents/customers.ts'
import { orders, totals } from '../../projections/read-models.ts'
import { paid, placed } from '../../support/shop.ts'
import { contentsOf, sequencesOf, shapeOf } from './schema-contents.ts'
import { type OpenMove, openMove } from './two-servers.ts'

/** Data of every kind that a store can hold. */
async function fill({ store }: OpenMove): Promise<void> {
  const customers = store.documents<Customer>('customers')
  await store.projections.register(orders)
  await store.projections.register(totals())
  store.workflows.register(defineHandler('pack', { on: 'OrderPlaced', run: async () => {} }))
  await store.schema.sync()
  for (let order = 1; order <= 30; order++)
    await store.events.append(`order-${order}`, [
      placed(order, { headers: { note: 'tab\t, "quote", \\ and ünï\n' } }),
      paid,
    ])
  await store.events.append('order-1', paid, { idempotencyKey: 'pay-1' })
  const session = store.session()
  session.documents(customers).put('ada', ada)
  session.documents(customers).put('bob', bob)
  session.events.append('order-2', paid)
  await session.save()
  await store.projections.runUntilIdle()
}

test('a store is moved with its whole content, and continues above its positions', async () => {
  const opened = await openMove()
  const { move, source, target, open } = opened
  const { schema } = move.source
  await fill(opened)
  const before = await contentsOf(source, schema)
  const shape = await shapeOf(source, schema)
  const { position } = await opened.store.events.append('order-3', paid)

  const moved = await switchOver(move)

  const after = await contentsOf(target, schema)
  expect(after).toEqual(await contentsOf(source, move.retired))
  expect(after.customers).toEqual(before.customers)
  expect(after.events).toHaveLength(63)
  expect(await shapeOf(target, schema)).toEqual(shape)
  expect(moved).toMatchObject({ events: 63 })
  const there = await open(target)
  expect((await there.events.append('order-3', paid)).position).toBeGreaterThan(position)
  expect(await there.documents<Customer>('customers').get('ada')).toMatchObject({ data: ada })
  expect((await there.schema.check()).problems).toEqual([])
})

test('a moved store can be moved back, over the marker it left', async () => {
  const opened = await openMove()
  const { move, back, source, target, open } = opened
  const { schema } = move.source
  await fill(opened)
  await switchOver(move)
  await dropRetired(move)
  const there = await open(target)
  await there.events.append('order-99', placed())
  await switchOver(back)

  const sequences = await sequencesOf(source, schema)

  expect(await contentsOf(source, schema)).toEqual(await contentsOf(target, back.retired))
  const old = await sequencesOf(target, back.retired)
  for (const [name, last] of Object.entries(old)) expect(sequences[name], name).toBeGreaterThanOrEqual(last)
  const here = await open(source)
  await here.events.append('order-100', placed())
  expect(await readState(back)).toBe('active')
})

test('a store can be moved there, back and there again, whatever it left on the way', async () => {
  const { move, back, store, source, target } = await openMove()
  await store.events.append('order-1', placed())

  for (const each of [move, back, move]) await switchOver(each)

  expect(await readState(move)).toBe('active')
  expect(await contentsOf(target, move.target.schema)).toEqual(await contentsOf(source, move.retired))
  expect((await contentsOf(target, move.target.schema)).events).toHaveLength(1)
})

test('copying can be repeated, copies only changes, and reports progress', async () => {
  const opened = await openMove()
  const { move, store } = opened
  await fill(opened)
  const first = await copyInto(move)
  await store.events.append('order-1', paid)
  await store.documents<Customer>('customers').put('bob', { ...bob, email: 'bob@example.org' })
  await store.documents<Customer>('customers').delete('ada')

  const reported: string[] = []
  const second = await copyInto(move, {
    onProgress: ({ phase, table, rows }) => reported.push(`${phase} ${table} ${rows}`),
  })

  expect(first.events).toBe(62)
  expect(second).toMatchObject({ passes: 1 })
  expect(reported).toContain('copying events 63')
  expect(reported.some(each => each.startsWith('copying customers'))).toBe(true)
  expect(reported.some(each => each.includes('order_totals'))).toBe(false)
  expect(await readState(move)).toBe('copying')
})

test('tables that are created, dropped and changed during the copy are on the target as they are at the end', async () => {
  const opened = await openMove()
  const { move, source, target, store } = opened
  const { schema } = move.source
  await fill(opened)
  await copyInto(move)
  const suppliers = store.documents<{ city: string; since: number; tags: string[] }>('suppliers', {
    columns: [{ path: 'since', as: 'number' }],
    indexes: [
      { path: 'city', lower: true, unique: true },
      { path: 'tags', method: 'gin' },
    ],
  })
  await store.schema.sync()
  await suppliers.put('tea', { city: 'Kandy', since: 1867, tags: ['hills'] })
  await source.query(schema, 'drop table ~order_totals')
  await source.query(schema, 'alter table ~customers add column note text')
  await source.query(schema, `update ~customers set note = E'tab\\t'`)
  const shape = await shapeOf(source, schema)

  await switchOver(move)

  expect(await shapeOf(target, schema)).toEqual(shape)
  expect(await contentsOf(target, schema)).toEqual(await contentsOf(source, move.retired))
})

test('events deleted by retention during a move are deleted on the target, and positions continue above every checkpoint', async () => {
  const opened = await openMove()
  const { move, source, target, open } = opened
  const { schema } = move.source
  await fill(opened)
  await copyInto(move)
  await source.query(schema, 'delete from ~events where position between 3 and 20')
  await source.query(schema, 'update ~consumers set checkpoint = 1000, fence = 2000')

  await switchOver(move)

  expect(await contentsOf(target, schema)).toEqual(await contentsOf(source, move.retired))
  expect((await contentsOf(target, schema)).events).toHaveLength(62 - 18)
  expect(await sequencesOf(target, schema)).toMatchObject({ events_position: 1000, consumers_fence: 2000 })
  const there = await open(target)
  expect(await there.events.append('order-1', paid)).toMatchObject({ position: 1001 })
})
