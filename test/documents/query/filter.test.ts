import { expect, test } from 'vitest'
import { and, eq } from '../../../src/documents/query/condition.ts'
import { filterFrom } from '../../../src/documents/query/filter.ts'
import { onServer } from '../../support/shop.ts'
import { openCustomers } from './customers.ts'

const people = {
  ada: { name: 'Ada', age: 36, tier: 'pro', tags: ['vip', 'early'], address: { city: 'London' } },
  bob: { name: 'Bob', age: 8, tier: 'free', tags: ['vip'] },
  cleo: { name: 'Cleo', email: 'cleo@shop.test' },
}

test('a filter from outside finds the documents it describes', async () => {
  const { ids, customers } = await openCustomers(people)
  const found = (json: unknown): Promise<string[]> => ids(filterFrom(json, { regex: true }))

  expect(await found({ name: 'Ada' })).toEqual(['ada'])
  expect(await found({ 'address.city': 'London', age: { $gte: 18, $lt: 40 } })).toEqual(['ada'])
  expect(await found({ $or: [{ tier: 'free' }, { email: { $exists: true } }] })).toEqual(['bob', 'cleo'])
  expect(await found({ $and: [{ age: { $gt: 1 } }, { $not: { name: { $startsWith: 'A' } } }] })).toEqual(['bob'])
  expect(await found({ tags: { $contains: ['early'] } })).toEqual(['ada'])
  expect(await found({ name: { $in: ['Bob', 'Cleo'] } })).toEqual(['bob', 'cleo'])
  expect(await found({ name: { $nin: ['Bob', 'Cleo'] } })).toEqual(['ada'])
  expect(await found({ age: { $ne: 8 } })).toEqual(['ada', 'cleo'])
  expect(await found({ age: { $lte: 8 } })).toEqual(['bob'])
  expect(await found({ email: null })).toEqual(['ada', 'bob'])
  expect(await found({ email: { $exists: false } })).toEqual(['ada', 'bob'])
  expect(await found({ name: { $like: '%o%' } })).toEqual(['bob', 'cleo'])
  expect(await found({ name: { $regex: '^[AB]' } })).toEqual(['ada', 'bob'])
  expect(await found({})).toEqual(['ada', 'bob', 'cleo'])
  const both = customers.query().where(c => and(filterFrom({ tier: 'pro' }), eq(c.name, 'Ada')))
  expect(await both.count()).toBe(1)
})

test('SQL in names and values of a filter stays a name and a value', async () => {
  const { ids, customers, query } = await openCustomers(people)
  const attacks = [
    `'; drop table customers; --`,
    `") or true --`,
    `name' or '1'='1`,
    'x$1',
    '\\',
    `{"a":1}`,
    `a'}' is null or true --`,
  ]

  for (const attack of attacks) {
    expect(await ids(filterFrom({ [attack]: 'x' })), attack).toEqual([])
    expect(await ids(filterFrom({ name: attack })), attack).toEqual([])
    expect(await ids(filterFrom({ name: { $in: [attack] } })), attack).toEqual([])
    expect(await ids(filterFrom({ [attack]: { $gt: 1 } })), attack).toEqual([])
    expect(await ids(filterFrom({ [attack]: { $contains: [attack] } })), attack).toEqual([])
    expect(await ids(filterFrom({ [attack]: { $startsWith: attack } })), attack).toEqual([])
  }
  expect(await customers.count()).toBe(3)
  expect(await query('select count(*) from ~customers')).toEqual([{ count: 3 }])
})

const nested = (depth: number): object => (depth === 0 ? { name: 'Ada' } : { $not: nested(depth - 1) })
const bad: Record<string, [unknown, string]> = {
  'no object': ['name', '$'],
  'an array': [[{ name: 'Ada' }], '$'],
  'an unknown operator': [{ age: { $near: 5 } }, '$.age.$near'],
  'an operator of JavaScript': [{ age: { constructor: 5 } }, '$.age.constructor'],
  'an unknown connective': [{ $nor: [] }, '$.$nor'],
  'a regular expression that was not allowed': [{ name: { $regex: '(a+)+$' } }, '$.name.$regex'],
  'an object to be equal to': [{ address: { $eq: { city: 'x' } } }, '$.address.$eq'],
  'nothing to compare with': [{ age: {} }, '$.age'],
  'a range of true': [{ age: { $gt: true } }, '$.age.$gt'],
  'a NUL': [{ name: 'a\0b' }, '$.name'],
  'half a character': [{ name: { $in: ['\ud800'] } }, '$.name.$in[0]'],
  'a text that is too long': [{ name: 'x'.repeat(10_001) }, '$.name'],
  'a pattern that ends in the middle': [{ name: { $like: 'a\\' } }, '$.name.$like'],
  'too many values': [{ name: { $in: Array.from({ length: 1001 }, () => 'x') } }, '$.name.$in'],
  'too many comparisons': [{ $or: Array.from({ length: 51 }, () => ({ name: 'x' })) }, '$.$or[50].name'],
  'too much nesting': [nested(9), '$.$not.$not.$not.$not.$not.$not.$not.$not'],
  'an empty step': [{ 'address..city': 'x' }, '$.address..city'],
  'a prototype': [JSON.parse('{"__proto__": {"$eq": 1}}'), '$.__proto__'],
  'a prototype further down': [JSON.parse('{"a.__proto__.polluted": true}'), '$.a.__proto__.polluted'],
  'a constructor': [{ 'constructor.prototype.x': 1 }, '$.constructor.prototype.x'],
}
for (const [what, [json, path]] of Object.entries(bad)) {
  test(`a filter with ${what} is refused, with the path`, () => {
    expect(() => filterFrom(json)).toThrow(expect.objectContaining({ code: 'invalid_filter', path }))
    expect(({} as Record<string, unknown>).polluted).toBeUndefined()
  })
}

test('only the allowed fields may be queried, if any are listed', async () => {
  const { ids } = await openCustomers(people)
  const fields = ['name', 'address.city']

  expect(await ids(filterFrom({ 'address.city': 'London' }, { fields }))).toEqual(['ada'])
  expect(() => filterFrom({ $or: [{ name: 'Ada' }, { email: { $exists: true } }] }, { fields })).toThrow(
    expect.objectContaining({ code: 'invalid_filter', path: '$.$or[1].email' }),
  )
})

// The embedded engine drops the oldest ones by itself.
if (onServer) {
  test('filters of any number of shapes use a limited number of prepared statements on a connection', async () => {
    const { customers, store } = await openCustomers(people)

    await store.transaction(async tx => {
      for (let n = 0; n < 230; n++)
        await customers
          .query()
          .where(filterFrom({ [`field${n}`]: { $gt: 1 } }))
          .exists({ tx })
      const kept = await tx.query(
        `select from pg_prepared_statements where statement like '/* documents.any */%field%'`,
      )
      expect(kept.length).toBeLessThanOrEqual(200)
    })
  })
}
