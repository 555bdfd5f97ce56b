import { expect, test } from 'vitest'
import { and, eq, exists, gt, gte, regex } from '../../../src/documents/query/condition.ts'
import { at } from '../../../src/documents/query/field.ts'
import { take } from '../../support/shop.ts'
import { openCustomers, strangers } from './customers.ts'

const people = {
  ada: { name: 'Ada', age: 36, active: true, address: { city: 'London' } },
  bob: { name: 'Bob', age: 7.5, active: false },
  cleo: { name: 'Cleo', age: 36, active: true },
  dan: { name: 'Dan' },
  eve: { name: 'bob', age: 100, active: true },
}
const idsOf = (rows: readonly { readonly id: string }[]): string[] => rows.map(row => row.id)

test('documents are ordered by one or several fields, by type, with missing values first or last as requested', async () => {
  const { customers } = await openCustomers(people)
  const query = customers.query()
  const ids = async (ordered: typeof query): Promise<string[]> => idsOf(await ordered.toArray())

  expect(await ids(query.orderBy(c => c.name))).toEqual(['ada', 'bob', 'cleo', 'dan', 'eve'])
  expect(await ids(query.orderBy(c => c.age, { as: 'number' }).orderBy(c => c.name))).toEqual([
    ...['bob', 'ada', 'cleo', 'eve', 'dan'],
  ])
  expect(await ids(query.orderBy(c => c.age, { as: 'number', direction: 'desc' }))).toEqual([
    ...['dan', 'eve', 'ada', 'cleo', 'bob'],
  ])
  expect(await ids(query.orderBy(c => c.age, { as: 'number', direction: 'desc', nulls: 'last' }))).toEqual([
    ...['eve', 'ada', 'cleo', 'bob', 'dan'],
  ])
  expect(await ids(query.orderBy(c => c.age, { as: 'number', nulls: 'first' }))).toEqual([
    ...['dan', 'bob', 'ada', 'cleo', 'eve'],
  ])
  expect(
    await ids(query.orderBy(c => c.active, { as: 'boolean' }).orderBy((_, meta) => meta.id, { direction: 'desc' })),
  ).toEqual([...['bob', 'eve', 'cleo', 'ada', 'dan']])
  expect(
    await ids(
      query
        .orderBy(c => c.name)
        .offset(1)
        .limit(2),
    ),
  ).toEqual(['bob', 'cleo'])
  expect(await ids(query.limit(0))).toEqual([])
})

test('a query is a value: steps derived from it do not change it', async () => {
  const { customers } = await openCustomers(people)
  const all = customers.query()
  const active = all.where(c => eq(c.active, true))

  expect(await active.where(c => gt(c.age, 50)).count()).toBe(1)
  expect(await active.count()).toBe(3)
  expect(await all.count()).toBe(5)
})

test('RB-35: first, one and optional combine with limit, offset, order and page', async () => {
  const { customers } = await openCustomers(people)
  const byName = customers.query().orderBy(c => c.name)

  expect((await byName.first())?.id).toBe('ada')
  expect((await byName.limit(3).first())?.id).toBe('ada')
  expect((await byName.limit(1).one()).id).toBe('ada')
  expect((await byName.offset(4).one()).id).toBe('eve')
  expect((await byName.limit(1).offset(1).optional())?.id).toBe('bob')
  expect(await byName.limit(0).first()).toBeUndefined()
  expect(await byName.offset(9).optional()).toBeUndefined()
  expect(await byName.where(c => eq(c.name, 'Nobody')).exists()).toBe(false)
  expect(await byName.limit(1).exists()).toBe(true)
  await expect(byName.one()).rejects.toMatchObject({ code: 'not_one', found: 'several' })
  await expect(byName.limit(3).optional()).rejects.toMatchObject({ code: 'not_one', found: 'several' })
  await expect(byName.where(c => eq(c.name, 'Nobody')).one()).rejects.toMatchObject({ found: 'none' })
})

test('a document is returned with its metadata', async () => {
  const { customers } = await openCustomers({})
  await customers.put('ada', { name: 'Ada' }, { userId: 'clerk' })

  expect(await customers.query().one()).toEqual(await customers.get('ada'))
})

test('RB-34: soft-deleted documents are excluded, included, or returned alone', async () => {
  const { customers } = await openCustomers({ ...people, zed: { name: 'Zed', deleted_at: 'a field of his own' } })
  await customers.softDelete('ada')
  await customers.softDelete('bob')

  const query = customers.query().orderBy(c => c.name)
  expect(idsOf(await query.toArray())).toEqual(['cleo', 'dan', 'zed', 'eve'])
  expect(await query.count()).toBe(4)
  expect(idsOf(await query.includeDeleted().toArray())).toHaveLength(6)
  const deleted = await query.onlyDeleted().toArray()
  expect(idsOf(deleted)).toEqual(['ada', 'bob'])
  expect(deleted[0]!.deletedAt).toBeInstanceOf(Date)
})

test('a page includes the total count, also when it is past the end', async () => {
  const { customers } = await openCustomers(people)
  const query = customers.query().orderBy(c => c.name)

  const second = await query.pageNumber(2, 2)
  expect({ ...second, items: idsOf(second.items) }).toEqual({ items: ['cleo', 'dan'], total: 5, page: 2, pages: 3 })
  expect(await query.pageNumber(3, 2)).toMatchObject({ items: [{ id: 'eve' }], total: 5 })
  expect(await query.pageNumber(4, 2)).toEqual({ items: [], total: 5, page: 4, pages: 3 })
  expect(await query.where(c => eq(c.name, 'Nobody')).pageNumber(1, 2)).toMatchObject({ items: [], total: 0, pages: 0 })
  for (const [number, size] of [
    [0, 5],
    [1, 0],
    [1.5, 5],
    [1, Number.NaN],
    [-1, 5],
  ] as const)
    await expect(query.pageNumber(number, size)).rejects.toMatchObject({ code: 'invalid_query' })
})

test('pages after a cursor hold every document once, in every order', async () => {
  const { customers } = await openCustomers(
    { ...people, ...strangers, twin: { name: 'Ada', age: 36 } },
    { indexes: ['name', { path: 'age', as: 'number' }] },
  )
  const query = customers.query()
  const orders = [
    query,
    query.orderBy(c => c.name),
    query.orderBy(c => c.name, { direction: 'desc' }),
    query.orderBy(c => c.age, { as: 'number', nulls: 'first' }),
    query.orderBy(c => c.age, { as: 'number', direction: 'desc', nulls: 'last' }).orderBy(c => c.name),
    query.orderBy(c => c.active, { as: 'boolean' }).orderBy(c => c.age, { as: 'number', direction: 'desc' }),
    query.orderBy((_, meta) => meta.createdAt, { direction: 'desc' }),
  ]

  for (const [i, ordered] of orders.entries()) {
    const paged: string[] = []
    let cursor: string | undefined
    do {
      const page = await ordered.page({ after: cursor, limit: 2 })
      paged.push(...idsOf(page.items))
      cursor = page.next
    } while (cursor !== undefined)
    expect(paged, `order ${i}`).toEqual(idsOf(await ordered.offset(0).toArray()))
  }
})

test('a cursor that was changed, invented, or belongs to another query is refused', async () => {
  const { customers } = await openCustomers(people)
  const byName = customers.query().orderBy(c => c.name)
  const { next: cursor } = await byName.page({ limit: 2 })
  const [head, sum] = cursor!.split('.') as [string, string]
  const other = Buffer.from(JSON.stringify([['bob'], `x' or true --`])).toString('base64url')

  const refused = { code: 'invalid_cursor' }
  for (const bad of [
    '',
    'nonsense',
    `${head}.`,
    `${head}x.${sum}`,
    `${other}.${sum}`,
    cursor!.slice(1),
    `${cursor}.x`,
    7,
  ])
    await expect(byName.page({ after: bad as string, limit: 2 }), String(bad)).rejects.toMatchObject(refused)
  await expect(customers.query().page({ after: cursor, limit: 2 })).rejects.toMatchObject(refused)
  await expect(byName.orderBy(c => c.email).page({ after: cursor, limit: 2 })).rejects.toMatchObject(refused)
  expect(idsOf((await byName.page({ after: cursor, limit: 2 })).items)).toEqual(['cleo', 'dan'])
})

test('iterating reads page after page, and stops where the loop stops', async () => {
  const many = Object.fromEntries(
    Array.from({ length: 950 }, (_, n) => [`c${String(n).padStart(3, '0')}`, { name: `n${n % 7}`, age: n }]),
  )
  const { customers } = await openCustomers(many)
  const query = customers
    .query()
    .orderBy(c => c.name)
    .where(c => gte(c.age, 50))

  const seen: string[] = []
  for await (const { id } of query) seen.push(id)
  expect(seen).toEqual(idsOf(await query.toArray()))
  expect(seen).toHaveLength(900)
  expect(await take(query, 3)).toHaveLength(3)
  expect(await take(query.limit(250).offset(100), Number.POSITIVE_INFINITY)).toEqual(
    await query.limit(250).offset(100).toArray(),
  )
  expect(await take(query.iterate({ pageSize: 7 }), Number.POSITIVE_INFINITY)).toHaveLength(900)
  const gone = AbortSignal.abort()
  await expect(take(query.iterate({ signal: gone }), Number.POSITIVE_INFINITY)).rejects.toMatchObject({
    code: 'aborted',
  })
})

test('select returns the requested fields, and null where there is none', async () => {
  const { customers } = await openCustomers(people)
  const rows = await customers
    .query()
    .where(c => exists(c.age))
    .orderBy(c => c.name)
    .limit(2)
    .select({
      name: c => c.name,
      city: c => c.address.city,
      age: c => c.age,
      key: (_, meta) => meta.id,
      version: (_, meta) => meta.version,
    })
    .toArray()

  expect(rows).toEqual([
    { name: 'Ada', city: 'London', age: 36, key: 'ada', version: 1 },
    { name: 'Bob', city: null, age: 7.5, key: 'bob', version: 1 },
  ])
  const names = customers
    .query()
    .orderBy(c => c.name)
    .select({ __proto__name: c => c.name })
  expect((await names.page({ limit: 1 })).items).toEqual([{ __proto__name: 'Ada' }])
})

test('a query inside a transaction sees its writes, and a query outside of it is refused there', async () => {
  const { customers, store } = await openCustomers(people)
  await store.transaction(async tx => {
    await customers.put('fay', { name: 'Fay' }, { tx })
    expect(await customers.query().count({ tx })).toBe(6)
    await expect(customers.query().count()).rejects.toMatchObject({ code: 'inside_transaction' })
  })
})

test('RB-43: explain shows the plan of a query with its parameters, with analyze that of a run', async () => {
  const { customers } = await openCustomers(people)
  const query = customers.query().where(c => and(eq(c.name, 'Ada'), gt(c.age, 3)))

  expect(await query.explain()).toMatch(/Scan/)
  expect(await query.explain({ analyze: true })).toMatch(/actual/)
})

test('an invalid query is refused with the reason', async () => {
  const { customers } = await openCustomers(people)
  const query = customers.query()
  const refused = expect.objectContaining({ code: 'invalid_query' })

  expect(() => query.where(true as never)).toThrow(refused)
  expect(() => query.where({ test: { op: 'all', of: [] } } as never)).toThrow(refused)
  expect(() => query.where(() => eq('name' as never, 'Ada' as never))).toThrow(refused)
  expect(() => query.orderBy(c => c.name, { as: 'money' as never })).toThrow(refused)
  expect(() => query.orderBy(c => c.name, { direction: 'up' as never })).toThrow(refused)
  expect(() => query.select({})).toThrow(refused)
  expect(() => query.where(c => eq(at(c.address, 'a\0b' as 'city'), 'x'))).toThrow(refused)
  const runs = [
    query.where(c => eq(c.name, undefined as never)),
    query.where(c => eq(c.name, 'a\0b')),
    query.where(c => gt(c.age, Number.NaN)),
    query.where(c => gt(c.joined, new Date(Number.NaN))),
    query.where(c => regex(c.name, '(')),
    query.limit(-1),
    query.limit(1.5),
    query.offset('1; drop table customers' as never),
  ]
  for (const run of runs) await expect(run.toArray()).rejects.toEqual(refused)
  expect(await query.count()).toBe(5)
})
