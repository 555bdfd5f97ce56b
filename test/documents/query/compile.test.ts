import { expect, test } from 'vitest'
import { compileQuery } from '../../../src/documents/query/compile.ts'
import { and, contains, eq, gt, isIn, like, startsWith } from '../../../src/documents/query/condition.ts'
import { openCustomers } from './customers.ts'

const people = {
  ada: { name: 'Ada', age: 36, tags: ['vip'], address: { city: 'London' } },
  bob: { name: 'Bob', age: 8, tags: ['vip', 'new'], address: { city: 'London' } },
  cleo: { name: 'Cleo', age: 30, email: null, address: { city: 'Paris' } },
}

test('a compiled query gives the results of the same query, with other arguments each time', async () => {
  const { customers } = await openCustomers(people, { indexes: ['name'] })
  const inCity = compileQuery(customers, (q, city: string, age: number) =>
    q.where(c => and(eq(c.address.city, city), gt(c.age, age))).orderBy(c => c.name),
  )
  const names = async (...args: Parameters<typeof inCity>): Promise<string[]> =>
    (await inCity(...args).toArray()).map(each => each.data.name)

  expect(await names('London', 1)).toEqual(['Ada', 'Bob'])
  expect(await names('London', 8)).toEqual(['Ada'])
  expect(await names('Paris', -1.5)).toEqual(['Cleo'])
  expect(await names('Rome', 0)).toEqual([])
  expect(await inCity('London', 1).count()).toBe(2)
  expect((await inCity('London', 1).first())?.id).toBe('ada')
  expect((await inCity('Paris', 1).one()).id).toBe('cleo')
  expect(await inCity('Rome', 1).optional()).toBeUndefined()
  await expect(inCity('London', 1).optional()).rejects.toMatchObject({ code: 'not_one' })
  await expect(inCity('Rome', 1).one()).rejects.toMatchObject({ code: 'not_one' })
})

test('an argument may be of another kind, a list, null, part of an operand, or a limit', async () => {
  const { customers } = await openCustomers(people, { indexes: ['name'] })
  const named = compileQuery(customers, (q, names: readonly string[], most: number) =>
    q
      .where(c => isIn(c.name, names))
      .orderBy(c => c.name)
      .limit(most)
      .select({ name: c => c.name }),
  )
  const mailed = compileQuery(customers, (q, email: string | null) => q.where(c => eq(c.email, email)))
  const tagged = compileQuery(customers, (q, tag: string, prefix: string) =>
    q.where(c => and(contains(c.tags, [tag]), startsWith(c.name, prefix))),
  )

  expect(await named(['Ada', 'Cleo'], 5).toArray()).toEqual([{ name: 'Ada' }, { name: 'Cleo' }])
  expect(await named(['Bob', 'Cleo', 'Ada'], 2).toArray()).toEqual([{ name: 'Ada' }, { name: 'Bob' }])
  expect(await named([], 2).toArray()).toEqual([])
  expect(await named(['Bob'], 0).first()).toBeUndefined()
  expect(await mailed(null).count()).toBe(3)
  expect(await mailed('cleo@shop.test').count()).toBe(0)
  expect(await tagged('vip', '').count()).toBe(2)
  expect(await tagged('new', 'B').count()).toBe(1)
  await expect(named(['Bob'], -1).toArray()).rejects.toMatchObject({ code: 'invalid_query' })
  await expect(mailed('a\0').toArray()).rejects.toMatchObject({ code: 'invalid_query' })
})

test('an argument that the query function changes is refused instead of being built in', async () => {
  const { customers } = await openCustomers(people)
  const beginning = compileQuery(customers, (q, text: string) => q.where(c => like(c.name, `${text}%`)))

  expect(() => beginning('A')).toThrow(expect.objectContaining({ code: 'invalid_query' }))
})

test('RB-44: a compiled query is built once, and its statement and plan are reused', async () => {
  const { customers, store, sent } = await openCustomers(people)
  let described = 0
  const byCity = compileQuery(customers, (q, city: string) => {
    described++
    return q.where(c => eq(c.address.city, city))
  })

  for (const city of ['London', 'Paris', 'Rome', 'London']) await byCity(city).toArray()

  expect(described).toBe(1)
  expect(new Set(sent.map(each => each.text)).size).toBe(1)
  expect(sent.map(each => each.values)).toHaveLength(4)
  const { text } = sent[0]!
  await customers
    .query()
    .where(c => eq(c.address.city, 'Paris'))
    .toArray()
  expect(sent.at(-1)!.text).toBe(text)
  await store.transaction(async tx => {
    for (let i = 0; i < 3; i++) await byCity('London').toArray({ tx })
    const plans = await tx.query<{ plans: number }>(
      'select (custom_plans + generic_plans)::integer as plans from pg_prepared_statements where statement = $1',
      [text],
    )
    expect(plans).toHaveLength(1)
    expect(plans[0]!.plans).toBeGreaterThanOrEqual(3)
  })
})
