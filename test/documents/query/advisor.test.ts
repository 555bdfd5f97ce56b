import { expect, test } from 'vitest'
import { and, eq, gt, or, startsWith } from '../../../src/documents/query/condition.ts'
import { at, lower } from '../../../src/documents/query/field.ts'
import { openCustomers } from './customers.ts'

const people = { ada: { name: 'Ada', age: 36, address: { city: 'London' } } }

test('the advisor names the indexes that the queries run would have used, and what they took', async () => {
  const { customers } = await openCustomers(people, { gin: false, indexes: ['name'] })
  const query = customers.query()

  await query.where(c => and(gt(c.age, 3), eq(c.address.city, 'London'))).toArray()
  await query
    .where(c => and(gt(c.age, 4), eq(c.address.city, 'Paris')))
    .orderBy(c => c.name)
    .toArray()
  await query
    .where(c => and(gt(c.age, 4), eq(c.address.city, 'Paris')))
    .orderBy(c => c.name)
    .toArray()
  await query.orderBy(c => c.joined).first()
  await query.where(c => eq(lower(c.email), 'x')).first()
  await query.where(c => startsWith(c.name, 'A')).toArray()
  await query.where(c => or(eq(c.tier, 'pro'), eq(c.notes, 'x'))).toArray()

  const advice = customers.adviseIndexes()
  expect(new Map(advice.map(each => [each.index, each.runs]))).toEqual(
    new Map([
      [`{ paths: ['address.city', { path: 'age', as: 'number' }] }`, 3],
      [`'joined'`, 1],
      [`{ path: 'email', lower: true }`, 1],
    ]),
  )
  expect(advice.map(each => each.totalMs)).toEqual(advice.map(each => each.totalMs).sort((a, b) => b - a))
  expect(advice.every(each => each.averageMs > 0)).toBe(true)
})

test('queries served by the index on the body need no advice, and shapes from outside do not accumulate', async () => {
  const { customers } = await openCustomers(people)

  await customers
    .query()
    .where(c => eq(c.name, 'Ada'))
    .toArray()
  expect(customers.adviseIndexes()).toEqual([])

  const stock = customers.query() as never as ReturnType<typeof customers.query>
  for (let n = 0; n < 230; n++) await stock.where(c => gt(at(c.address, `field${n}` as 'city'), 'x')).exists()
  expect(customers.adviseIndexes()).toHaveLength(200)
})
