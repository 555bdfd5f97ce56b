import { expect, test } from 'vitest'
import type { CollectionOptions } from '../../../src/documents/collection.ts'
import {
  and,
  between,
  contains,
  elemMatch,
  eq,
  exists,
  gt,
  gte,
  isIn,
  isNull,
  like,
  lt,
  lte,
  ne,
  not,
  or,
  regex,
  startsWith,
} from '../../../src/documents/query/condition.ts'
import { at, lower } from '../../../src/documents/query/field.ts'
import { type Customer, openCustomers, strangers } from './customers.ts'

const people = {
  ada: {
    name: 'Ada',
    email: 'ada@shop.test',
    age: 36,
    active: true,
    tier: 'pro',
    joined: '2026-01-05T10:00:00.000Z',
    tags: ['vip', 'early'],
    address: { city: 'London', street: { name: 'Square', number: 12 } },
    orders: [
      { sku: 'tea', quantity: 2 },
      { sku: 'cup', quantity: 10, gift: true },
    ],
  },
  bob: { name: 'Bob', age: 7.5, active: false, tier: 'free', joined: '2026-03-01T00:00:00.000Z', tags: ['vip'] },
  zoe: { name: 'zoé', email: null, age: -1, address: { city: 'Köln' }, orders: [{ sku: 'tea', quantity: 10 }] },
}
const strange = Object.keys(strangers).sort()
const everyone = [...Object.keys(people), ...strange].sort()
const without = (...ids: string[]): string[] => everyone.filter(id => !ids.includes(id))

const indexes = ['name', { path: 'age', as: 'number' }, 'address.city', 'joined'] as const
for (const [how, options] of Object.entries<CollectionOptions<Customer>>({
  'with the index on the body': {},
  'without any index': { gin: false },
  'with an index on each field': { gin: false, indexes },
})) {
  test(`every operator finds the matching documents, ${how}`, async () => {
    const { ids } = await openCustomers({ ...people, ...strangers }, options)

    expect(await ids(c => eq(c.name, 'Ada'))).toEqual(['ada'])
    expect(await ids(c => eq(c.age, 36))).toEqual(['ada'])
    expect(await ids(c => eq(c.age, 7.5))).toEqual(['bob'])
    expect(await ids(c => eq(c.active, false))).toEqual(['bob'])
    expect(await ids(c => eq(c.address.city, 'London'))).toEqual(['ada'])
    expect(await ids(c => eq(c.address, { city: 'Köln' }))).toEqual(['zoe'])
    expect(await ids(c => eq(c.tags, ['vip']))).toEqual(['bob'])
    expect(await ids(c => ne(c.name, 'Ada'))).toEqual(without('ada'))
    expect(await ids(c => gt(c.age, 7))).toEqual(['ada', 'bob'])
    expect(await ids(c => gte(c.age, 36))).toEqual(['ada'])
    expect(await ids(c => lt(c.age, 7.5))).toEqual(['zoe'])
    expect(await ids(c => lte(c.age, 7.5))).toEqual(['bob', 'zoe'])
    expect(await ids(c => gt(c.name, 'Ada'))).toEqual(['bob', 'zoe'])
    expect(await ids(c => between(c.age, -1, 7.5))).toEqual(['bob', 'zoe'])
    expect(await ids(c => between(c.name, 'A', 'B'))).toEqual(['ada'])
    expect(await ids(c => between(c.joined, new Date('2026-01-01'), new Date('2026-02-01')))).toEqual(['ada'])
    expect(await ids(c => gte(c.joined, new Date('2026-03-01')))).toEqual(['bob'])
    expect(await ids(c => isIn(c.name, ['Ada', 'Bob', 'Eve']))).toEqual(['ada', 'bob'])
    expect(await ids(c => isIn(c.age, [36, -1]))).toEqual(['ada', 'zoe'])
    expect(await ids(c => isIn(c.active, [true, false]))).toEqual(['ada', 'bob'])
    expect(await ids(c => isIn(c.name, []))).toEqual([])
    expect(await ids(c => contains(c.tags, ['vip']))).toEqual(['ada', 'bob'])
    expect(await ids(c => contains(c.tags, ['early', 'vip']))).toEqual(['ada'])
    expect(await ids(c => contains(c.address, { street: { number: 12 } }))).toEqual(['ada'])
    expect(await ids(c => contains(c.orders, [{ sku: 'tea' }]))).toEqual(['ada', 'zoe'])
    expect(await ids(c => startsWith(c.name, 'A'))).toEqual(['ada'])
    expect(await ids(c => startsWith(c.name, 'zo'))).toEqual(['zoe'])
    expect(await ids(c => startsWith(c.name, ''))).toEqual(['ada', 'bob', 'zoe'])
    expect(await ids(c => like(c.name, '_o%'))).toEqual(['bob', 'zoe'])
    expect(await ids(c => like(c.email, '%\\_%'))).toEqual([])
    expect(await ids(c => regex(c.name, '^[AB]'))).toEqual(['ada', 'bob'])
    expect(await ids(c => regex(c.name, '(?i)^a'))).toEqual(['ada'])
    expect(await ids(c => eq(at(at(c.orders, 0), 'sku'), 'tea'))).toEqual(['ada', 'zoe'])
    expect(await ids(c => eq(lower(c.name), 'ADA'))).toEqual(['ada'])
    expect(await ids(c => startsWith(lower(c.name), 'AD'))).toEqual(['ada'])
    expect(await ids(c => isIn(lower(c.name), ['BOB', 'Ada']))).toEqual(['ada', 'bob'])
    expect(await ids(c => and(eq(c.active, true), gt(c.age, 30)))).toEqual(['ada'])
    expect(await ids(c => or(eq(c.name, 'Bob'), lt(c.age, 0)))).toEqual(['bob', 'zoe'])
    expect(await ids(() => and())).toEqual(everyone)
    expect(await ids(() => or())).toEqual([])
  })
}

test('one element of an array must meet a condition as a whole, whatever else is in the array', async () => {
  const { ids } = await openCustomers({ ...people, ...strangers })

  expect(await ids(c => elemMatch(c.orders, o => and(eq(o.sku, 'tea'), gte(o.quantity, 10))))).toEqual(['zoe'])
  expect(await ids(c => elemMatch(c.orders, o => eq(o.gift, true)))).toEqual(['ada'])
  expect(await ids(c => elemMatch(c.tags, tag => startsWith(tag, 'e')))).toEqual(['ada'])
  expect(await ids(c => elemMatch(c.orders, o => and(eq(c.name, 'Ada'), eq(o.sku, 'tea'))))).toEqual(['ada'])
  expect(await ids(c => not(elemMatch(c.orders, o => eq(o.sku, 'tea'))))).toEqual(without('ada', 'zoe'))
})

test('RB-41: documents of another shape never break a query, and missing fields mean the same everywhere', async () => {
  const { ids } = await openCustomers({ ...people, ...strangers })

  expect(await ids(c => gt(c.age, 0))).toEqual(['ada', 'bob'])
  expect(await ids(c => not(gt(c.age, 0)))).toEqual(without('ada', 'bob'))
  expect(await ids(c => not(not(gt(c.age, 0))))).toEqual(['ada', 'bob'])
  expect(await ids(c => ne(c.age, 36))).toEqual(without('ada'))
  expect(await ids(c => isNull(c.email))).toEqual(without('ada'))
  expect(await ids(c => eq(c.email, null))).toEqual(without('ada'))
  expect(await ids(c => exists(c.email))).toEqual(['ada'])
  expect(await ids(c => not(exists(c.email)))).toEqual(without('ada'))
  expect(await ids(c => isIn(c.email, [null, 'ada@shop.test']))).toEqual(everyone)
  expect(await ids(c => exists(c.address.city))).toEqual(['ada', 'objectForAge', 'zoe'])
  expect(await ids(c => eq(c.name, '42'))).toEqual([])
  expect(await ids(c => not(contains(c.tags, ['vip'])))).toEqual(without('ada', 'bob'))
})

test('metadata of a document can be queried like its fields', async () => {
  const { customers, ids } = await openCustomers(people)
  const version = await customers.update('bob', bob => ({ ...bob, age: 8 }), { userId: 'clerk' })
  const bob = (await customers.get('bob'))!

  expect(version).toBe(2)
  expect(await ids((_, meta) => eq(meta.id, 'zoe'))).toEqual(['zoe'])
  expect(await ids((_, meta) => gt(meta.version, 1))).toEqual(['bob'])
  expect(await ids((_, meta) => eq(meta.updatedBy, 'clerk'))).toEqual(['bob'])
  expect(await ids((_, meta) => isNull(meta.createdBy))).toEqual(['ada', 'bob', 'zoe'])
  expect(await ids((_, meta) => eq(meta.updatedAt, bob.updatedAt))).toContain('bob')
  expect(await ids((_, meta) => and(lte(meta.updatedAt, bob.updatedAt), gt(meta.version, 1)))).toEqual(['bob'])
  expect(await ids((_, meta) => isIn(meta.updatedAt, [bob.updatedAt, new Date(0)]))).toContain('bob')
})

test('texts of any length are distinguished, also with an index on them', async () => {
  const long = 'x'.repeat(5000)
  const { ids } = await openCustomers(
    { a: { name: `${long}a` }, b: { name: `${long}b` }, c: { name: 'x' }, d: { name: '😀'.repeat(3000) } },
    { indexes: [{ path: 'name', unique: true }] },
  )

  expect(await ids(c => eq(c.name, `${long}a`))).toEqual(['a'])
  expect(await ids(c => gt(c.name, `${long}a`))).toEqual(['b', 'd'])
  expect(await ids(c => lte(c.name, `${long}a`))).toEqual(['a', 'c'])
  expect(await ids(c => isIn(c.name, [`${long}b`, 'x']))).toEqual(['b', 'c'])
  expect(await ids(c => startsWith(c.name, long))).toEqual(['a', 'b'])
  expect(await ids(c => startsWith(c.name, '😀'))).toEqual(['d'])
})

test('fields of any name can be queried', async () => {
  const odd = [`it's`, 'a"b', 'back\\slash', 'then', 'constructor', 'toString', '$1', '{}', 'ä b', '-1', '']
  const { store } = await openCustomers({})
  const things = store.documents<Record<string, unknown>>('things', { gin: false })
  await things.put('thing', Object.fromEntries(odd.map((name, i) => [name, { [name]: i }])))

  for (const [i, name] of odd.entries()) {
    const found = things.query().where(c => eq(at(at(c, name), name), i))
    expect(await found.count(), name).toBe(1)
    expect(
      await things
        .query()
        .where(c => eq(at(at(c, name), name), i + 1))
        .count(),
      name,
    ).toBe(0)
  }
})

test('the field of the empty name is not taken for the document itself', async () => {
  const { ids } = await openCustomers({ ada: { '': 'x' }, bob: { name: 'x' } } as never, { gin: false })

  const whole = await ids(c => eq(c as never, 'x' as never))
  const named = await ids(c => eq(at(c as never, '' as never) as never, 'x' as never))

  expect([whole, named]).toEqual([[], ['ada']])
})
