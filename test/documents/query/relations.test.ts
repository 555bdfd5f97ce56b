import { expect, test } from 'vitest'
import { defineCollection } from '../../../src/documents/collection.ts'
import { and, eq, gt, startsWith } from '../../../src/documents/query/condition.ts'
import { avg, count, max, min, sum } from '../../../src/documents/query/group.ts'
import { openCustomers, strangers } from './customers.ts'

interface Order {
  customer: string
  products: string[]
  total: number
}

const people = {
  ada: { name: 'Ada', tier: 'pro', age: 36, friend: 'bob', address: { city: 'London' } },
  bob: { name: 'Bob', tier: 'free', age: 8, friend: 'ada', address: { city: 'London' } },
  cleo: { name: 'Cleo', tier: 'pro', age: 30, friend: 'nobody' },
}

test('RB-39: groups have their key, and can be ordered and filtered by it and by their aggregates', async () => {
  const { customers } = await openCustomers({
    ...people,
    dan: { name: 'Dan', tier: null },
    eve: { name: 'Eve', age: 'old' },
  })

  const groups = await customers
    .query()
    .groupBy({ tier: c => c.tier }, c => ({ people: count(), total: sum(c.age), mean: avg(c.age), least: min(c.age) }))
    .orderBy(group => group.tier)
    .toArray()

  expect(groups).toEqual([
    { tier: 'free', people: 1, total: 8, mean: 8, least: 8 },
    { tier: 'pro', people: 2, total: 66, mean: 33, least: 30 },
    { tier: null, people: 2, total: null, mean: null, least: null },
  ])
  const cities = customers.query().groupBy({ city: c => c.address.city, tier: c => c.tier }, c => ({
    people: count(),
    last: max(c.name, { as: 'text' }),
  }))
  expect(
    await cities
      .having(group => and(eq(group.city, 'London'), gt(group.people, 0)))
      .orderBy(group => group.last, { direction: 'desc' })
      .toArray(),
  ).toEqual([
    { city: 'London', tier: 'free', people: 1, last: 'Bob' },
    { city: 'London', tier: 'pro', people: 1, last: 'Ada' },
  ])
  expect(
    await cities
      .orderBy(group => group.people, { as: 'number', direction: 'desc' })
      .limit(1)
      .toArray(),
  ).toHaveLength(1)
  const all = customers
    .query()
    .where(c => startsWith(c.name, 'C'))
    .groupBy({}, c => ({ people: count(), age: sum(c.age) }))
  expect(await all.toArray()).toEqual([{ people: 1, age: 30 }])
  const names = customers.query().groupBy({ "it's": c => c.tier }, () => ({ 'a"b': count() }))
  expect(await names.having(group => gt(group['a"b'], 1)).toArray()).toHaveLength(2)
})

test('RB-38: a collection can be included into itself, without soft-deleted documents', async () => {
  const { customers } = await openCustomers({ ...people, ...strangers })
  const withFriends = customers
    .query()
    .where(c => eq(c.tier, 'pro'))
    .orderBy(c => c.name)
    .include('friend', customers, { from: c => c.friend })

  const [ada, cleo] = await withFriends.toArray()
  expect(ada!.included.friend).toEqual(await customers.get('bob'))
  expect(cleo!.included.friend).toBeUndefined()

  await customers.softDelete('bob')
  expect((await withFriends.first())!.included.friend).toBeUndefined()
  const all = customers.query().includeDeleted()
  const seen = await customers
    .query()
    .where(c => eq(c.name, 'Ada'))
    .include('friend', all, { from: c => c.friend })
    .one()
  expect(seen.included.friend?.deletedAt).toBeInstanceOf(Date)
})

test('related documents are read in the same round trip: by a list of ids, and by a field of theirs', async () => {
  const { customers, store, sent } = await openCustomers(people)
  const orders = store.documents<Order>('orders', { indexes: ['customer'] })
  const products = store.documents<{ title: string }>('products')
  await orders.putMany([
    { id: 'o1', data: { customer: 'ada', products: ['tea', 'cup', 'gone'], total: 5 } },
    { id: 'o2', data: { customer: 'ada', products: [], total: 50 } },
    { id: 'o3', data: { customer: 'bob', products: 'tea' as never, total: 7 } },
  ])
  await products.putMany([
    { id: 'tea', data: { title: 'Tea' } },
    { id: 'cup', data: { title: 'Cup' } },
  ])

  sent.length = 0
  const found = await orders
    .query()
    .orderBy(o => o.total, { as: 'number' })
    .include('products', products, { from: o => o.products, many: true })
    .include('customer', customers, { from: o => o.customer })
    .toArray()
  expect(
    found.map(each => [each.id, each.included.customer?.data.name, each.included.products.map(p => p.data.title)]),
  ).toEqual([
    ['o1', 'Ada', ['Cup', 'Tea']],
    ['o3', 'Bob', ['Tea']],
    ['o2', 'Ada', []],
  ])

  expect(sent).toHaveLength(1)

  const large = orders.query().where(o => gt(o.total, 6))
  const people2 = await customers
    .query()
    .select({ name: c => c.name })
    .orderBy(c => c.name)
    .include('orders', large, { from: (_, meta) => meta.id, to: o => o.customer, many: true })
    .toArray()
  expect(people2.map(each => [each.name, each.included.orders.map(o => o.id)])).toEqual([
    ['Ada', ['o2']],
    ['Bob', ['o3']],
    ['Cleo', []],
  ])
})

test('RB-42: names given for included documents, selections and groups never become SQL', async () => {
  const { customers } = await openCustomers(people)
  const odd = `x"; drop table customers; --'`

  const row = await customers
    .query()
    .where(c => eq(c.name, 'Ada'))
    .select({ [odd]: c => c.name })
    .include(odd, customers, { from: c => c.friend })
    .one()
  expect((row as never as Record<string, unknown>)[odd]).toBe('Ada')
  expect((row.included as Record<string, { id: string }>)[odd]!.id).toBe('bob')
  expect(
    await customers
      .query()
      .groupBy({ [odd]: c => c.tier }, () => ({ [`${odd}2`]: count() }))
      .toArray(),
  ).toHaveLength(2)
  expect(() => defineCollection('odd', { indexes: [{ path: odd, name: odd }] })).not.toThrow()
  expect(await customers.count()).toBe(3)
})
