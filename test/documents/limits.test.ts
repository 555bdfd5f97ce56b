/** Requests that are far larger than any use: they are refused at once, or cost no more than they should. */
import { describe, expect, test } from 'vitest'
import { and, type Condition, elemMatch, eq, filterFrom, like, not, or, regex, search } from '../../src/query.ts'
import { engine } from '../support/engines.ts'
import { connect } from '../support/shop.ts'
import { ada, openCustomers } from './customers.ts'

describe('patches', () => {
  test('a patch that names a far element of an array is refused before anything is sent', async () => {
    const { customers } = await openCustomers()
    await customers.put('ada', ada)

    await expect(customers.patch('ada', { 'tags[5000000]': 'vip' })).rejects.toMatchObject({ code: 'invalid_patch' })
    await expect(customers.patch('ada', { 'tags[90000]': 'vip' })).rejects.toMatchObject({ code: 'patch_mismatch' })

    expect((await customers.get('ada'))?.version).toBe(1)
  })

  test('a patch of thousands of paths is refused, and one of a thousand is applied', async () => {
    const { customers } = await openCustomers()
    await customers.put('ada', ada)
    const paths = (count: number, make: (n: number) => string) =>
      Object.fromEntries(Array.from({ length: count }, (_, n) => [make(n), n])) as never

    await expect(
      customers.patch(
        'ada',
        paths(5000, n => `field${n}`),
      ),
    ).rejects.toMatchObject({ code: 'invalid_patch' })
    await expect(
      customers.merge(
        'ada',
        paths(5000, n => `field${n}`),
      ),
    ).rejects.toMatchObject({
      code: 'invalid_patch',
    })
    await customers.patch(
      'ada',
      paths(1000, n => `numbers[${n}]`),
    )
    await customers.patch(
      'ada',
      paths(1000, n => `group${n % 50}.field${n}`),
    )

    const data = (await customers.get('ada'))!.data as unknown as { numbers: number[]; group7: object }
    expect(data.numbers).toEqual(Array.from({ length: 1000 }, (_, n) => n))
    expect(Object.keys(data.group7)).toHaveLength(20)
  })

  test('a patch is applied as deep as it may be, and fields of many names are removed', async () => {
    const { customers } = await openCustomers()
    await customers.put('ada', ada)
    const deep = Array.from({ length: 50 }, (_, n) => `level${n}`)

    await customers.patch('ada', { [deep.join('.')]: 'found' } as never)
    await customers.merge('ada', Object.fromEntries(Array.from({ length: 900 }, (_, n) => [`a${n}`, { b: null }])))

    const data = (await customers.get('ada'))!.data as unknown
    expect(deep.reduce<unknown>((at, key) => (at as Record<string, unknown>)[key], data)).toBe('found')
    const tooDeep = deep.reduceRight<unknown>((below, key) => ({ [key]: below }), { more: 1 })
    await expect(customers.merge('ada', tooDeep as never)).rejects.toMatchObject({ code: 'invalid_patch' })
  })
})

describe('queries', () => {
  const refused = async (condition: (c: never) => Condition) => {
    const { customers } = await openCustomers({ search: ['email'] })
    await expect(
      customers
        .query()
        .where(condition as never)
        .toArray(),
    ).rejects.toMatchObject({ code: 'invalid_query' })
  }

  test('a search of thousands of words is refused, and one of hundreds is answered', async () => {
    const { customers } = await openCustomers({ search: ['email'] })
    await customers.put('ada', ada)
    const words = (count: number): string => Array.from({ length: count }, (_, n) => `word${n}`).join(' ')

    await refused(c => search(c, words(8000)))
    const found = await customers
      .query()
      .where(c => search(c, `${words(490)} or ada@x`))
      .toArray()

    expect(found.map(({ id }) => id)).toEqual(['ada'])
  })

  test('a long pattern is refused, and so are conditions in great number or depth', async () => {
    await refused(c => like((c as { email: never }).email, '%a'.repeat(5000) as never))
    await refused(c => regex((c as { email: never }).email, `${'('.repeat(5000)}a${')'.repeat(5000)}` as never))
    await refused(c => or(...Array.from({ length: 3000 }, (_, n) => eq((c as { visits: never }).visits, n as never))))
    await refused(c => {
      let condition = eq((c as { visits: never }).visits, 1 as never)
      for (let n = 0; n < 60; n++) condition = not(and(condition, condition))
      return condition
    })
  })

  test('conditions that are as deep and as many as they may be are answered', async () => {
    const { customers } = await openCustomers()
    await customers.put('ada', { ...ada, visits: 3 })
    let deep: (c: { visits: never }) => Condition = c => eq(c.visits, 3 as never)
    for (let n = 0; n < 24; n++) {
      const inner = deep
      deep = c => not(not(inner(c)))
    }

    const found = await customers
      .query()
      .where(c => deep(c as never))
      .toArray()
    const many = await customers
      .query()
      .where(c => or(...Array.from({ length: 1900 }, (_, n) => eq(c.visits, n))))
      .count()
    const nested = await customers
      .query()
      .where(c => {
        const within = (field: never, depth: number): Condition =>
          depth === 0 ? eq(field, 'x' as never) : elemMatch(field, element => within(element as never, depth - 1))
        return within(c.tags as never, 12)
      })
      .count()

    expect([found.length, many, nested]).toEqual([1, 1, 0])
  })
})

test('statements of ever new shape do not stay prepared', async () => {
  const { store, customers } = await openCustomers()
  await customers.put('ada', ada)

  for (let n = 0; n < 150; n++) {
    await customers
      .query()
      .where(filterFrom({ [`made.up.field${n}`]: n }))
      .toArray()
    await customers.patch('ada', {
      [`made${n}`]: n,
      ...Object.fromEntries(Array.from({ length: n }, (_, i) => [`x.y${i}`, i])),
    } as never)
  }

  const [kept] = await store.transaction(tx =>
    tx.query<{ number: number; bytes: number; longest: number }>(
      `select count(*)::integer as number, sum(length(statement))::integer as bytes, max(length(statement)) as longest
       from pg_prepared_statements where statement ~ 'documents.(query|patch)'`,
    ),
  )
  expect(kept!.number).toBeGreaterThan(engine === 'pglite' ? 10 : 0)
  expect(kept!.number).toBeLessThanOrEqual(200)
  expect(kept!.bytes).toBeLessThan(300_000)
  expect(kept!.longest).toBeLessThan(20_000)
})

test('a pattern of a request is short, and refers back to nothing', () => {
  expect(() => filterFrom({ email: { $like: '%a'.repeat(200) } })).toThrow('is longer than 200')
  expect(() => filterFrom({ email: { $regex: '(a+)+'.repeat(50) } }, { regex: true })).toThrow('is longer than 200')
  expect(() => filterFrom({ email: { $regex: '(a*)\\1' } }, { regex: true })).toThrow('must not refer back to a group')
})

if (engine !== 'pglite')
  test('a filter of a request has a budget of time, after which the server ends its query', async () => {
    const { customers, named } = await openCustomers()
    await customers.put('ada', ada)
    const client = await connect()
    await client.query('begin')
    await client.query(named('lock table ~customers in access exclusive mode'))

    const query = customers.query().where(filterFrom({ email: { $like: '%x%' } }, { timeoutMs: 200 }))

    await expect(query.toArray()).rejects.toMatchObject({ code: 'statement_cancelled' })
    await client.query('rollback')
    expect(await query.count()).toBe(1)
  })
