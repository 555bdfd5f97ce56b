/** Queries use the declared indexes, and indexes never prevent a write. */
import { expect, test } from 'vitest'
import type { IndexingOptions } from '../../../src/documents/indexes.ts'
import {
  and,
  between,
  contains,
  eq,
  gt,
  isIn,
  isNull,
  lt,
  search,
  startsWith,
} from '../../../src/documents/query/condition.ts'
import { lower } from '../../../src/documents/query/field.ts'
import { type Customer, type Customers, openCustomers, strangers } from './customers.ts'

/** Two thousand customers, and statistics about them. */
async function manyCustomers(options: IndexingOptions<Customer>): Promise<Customers> {
  const many = Array.from({ length: 2000 }, (_, n) => [
    `c${n}`,
    {
      name: `Name ${n}`,
      email: `Mail${n}@shop.test`,
      age: n,
      active: n % 50 === 0,
      tier: n % 2 === 0 ? 'pro' : 'free',
      tags: [`tag${n % 500}`],
      address: { city: `City ${n % 400}` },
      notes: `remarkable shoes number${n}`,
    },
  ])
  const shop = await openCustomers({ ...Object.fromEntries(many), ...strangers }, options)
  await shop.query('analyze ~customers')
  return shop
}

test('RB-36: each condition uses the index on its field, for every kind of index', async () => {
  const { customers } = await manyCustomers({
    gin: false,
    indexes: [
      { path: 'email', unique: true },
      { path: 'email', lower: true },
      { path: 'age', as: 'number' },
      { paths: ['address.city', { path: 'age', as: 'number' }] },
      { path: 'name', where: { active: true }, name: 'customers_active' },
      { path: 'tags', method: 'gin' },
      'joined',
    ],
    search: ['name', 'notes'],
  })
  const query = customers.query()
  const plans = {
    customers_email: [
      query.where(c => eq(c.email, 'Mail7@shop.test')),
      query.where(c => isIn(c.email, ['Mail7@shop.test', 'Mail8@shop.test'])),
      query.where(c => startsWith(c.email, 'Mail77')),
      query.where(c => between(c.email, 'Mail10', 'Mail11')),
      query.orderBy(c => c.email).limit(5),
      query.orderBy(c => c.email, { direction: 'desc' }).limit(5),
    ],
    customers_email_lower: [query.where(c => eq(lower(c.email), 'mail7@SHOP.test'))],
    customers_age_number: [
      query.where(c => gt(c.age, 1990)),
      query.where(c => eq(c.age, 7)),
      query.where(c => between(c.age, 5, 9)),
      query.orderBy(c => c.age, { as: 'number' }).limit(3),
    ],
    customers_address_city_age_number: [
      query.where(c => eq(c.address.city, 'City 7')),
      query.where(c => and(eq(c.address.city, 'City 7'), lt(c.age, 500))),
    ],
    customers_active: [query.where(c => and(eq(c.active, true), eq(c.name, 'Name 100')))],
    customers_tags_gin: [query.where(c => contains(c.tags, ['tag7']))],
    customers_search: [query.where(c => search(c, 'number77'))],
  }

  for (const [name, queries] of Object.entries(plans)) {
    for (const [i, each] of queries.entries())
      expect(await each.explain(), `${name} ${i}`).toMatch(
        new RegExp(`(Index Scan|Index Only Scan|Bitmap Index Scan).* (using|on) ${name}\\b`),
      )
  }
})

test('the index on the body serves equality and containment on every field', async () => {
  const { customers, query: run, named } = await manyCustomers({})
  // New entries wait in a pending list that each search has to read, until it is flushed.
  await run('select gin_clean_pending_list($1::regclass)', [named('~customers_body')])
  const query = customers.query()

  expect(await query.where(c => eq(c.address.city, 'City 7')).explain()).toContain(
    'Bitmap Index Scan on customers_body',
  )
  expect(await query.where(c => contains(c.tags, ['tag7'])).explain()).toContain('Bitmap Index Scan on customers_body')
  expect(await query.where(c => eq(c.age, 12)).explain()).toContain('Bitmap Index Scan on customers_body')
})

test('the next page is found through the index, however far it is', async () => {
  const { customers, sent, database } = await manyCustomers({
    indexes: [{ path: 'age', as: 'number' }, 'name'],
  })
  const orders = {
    customers_age_number: customers.query().orderBy(c => c.age, { as: 'number' }),
    customers_name: customers.query().orderBy(c => c.name, { direction: 'desc', nulls: 'last' }),
  }

  for (const [name, ordered] of Object.entries(orders)) {
    let cursor: string | undefined
    for (let page = 0; page < 3; page++) cursor = (await ordered.page({ after: cursor, limit: 100 })).next
    const { text, values } = sent.at(-1)!
    const plan = await database.transaction(tx => tx.query<object>(`explain ${text}`, values))
    const lines = plan.map(line => Object.values(line)[0]).join('\n')
    expect(lines, name).toMatch(new RegExp(`Index Cond|using ${name}`))
    expect(lines, name).toContain(name)
    expect(lines, name).not.toContain('Seq Scan')
  }
})

test('RB-36: a generated column is compared by its own type, and gives the same results as the body', async () => {
  const options: IndexingOptions<Customer> = {
    gin: false,
    columns: ['email', { path: 'age', as: 'number' }, { path: 'active', as: 'boolean' }],
    indexes: [
      { path: 'email', unique: true },
      { path: 'age', as: 'number' },
    ],
  }
  const { customers, query } = await manyCustomers(options)
  const found = customers.query()

  expect(await found.where(c => eq(c.email, 'Mail7@shop.test')).explain()).toContain('customers_email')
  expect(await found.where(c => gt(c.age, 1990)).explain()).toContain('customers_age_number')
  expect(await found.where(c => eq(c.email, 'Mail7@shop.test')).count()).toBe(1)
  expect(await found.where(c => isIn(c.email, ['Mail7@shop.test', 'x'])).count()).toBe(1)
  expect(await found.where(c => gt(c.age, 1990)).count()).toBe(9)
  expect(await found.where(c => isIn(c.age, [1, 2, 2.5])).count()).toBe(2)
  expect(await found.where(c => eq(c.active, true)).count()).toBe(40)
  expect(await found.where(c => isNull(c.email)).count()).toBe(5)
  expect(await found.orderBy(c => c.age, { as: 'number', direction: 'desc', nulls: 'last' }).first()).toMatchObject({
    id: 'c1999',
  })
  expect(
    await query(
      `select email, age::integer as age, active from ~customers where id in ('c7', 'numberForName') order by id`,
    ),
  ).toEqual([
    { email: 'Mail7@shop.test', age: 7, active: false },
    { email: null, age: null, active: null },
  ])
})

test('RB-57: indexes can be added later, columns only before there are documents; both are planned and created once', async () => {
  const { store, customers, sibling } = await openCustomers({ ada: { name: 'Ada', age: 36 } })
  const later = await sibling({ migrate: true })
  const more = later.documents<Customer>('customers', { indexes: ['name', { path: 'age', as: 'number' }] })

  expect((await later.schema.check()).problems.map(each => each.object)).toEqual([
    ...['index customers_name', 'index customers_age_number'],
  ])
  expect(
    await more
      .query()
      .where(c => eq(c.name, 'Ada'))
      .count(),
  ).toBe(1)
  expect(await later.schema.plan()).toEqual({ steps: [], problems: [] })

  const third = await sibling({ migrate: true })
  const withColumn = third.documents<Customer>('customers', { columns: ['name'] })
  await expect(withColumn.query().count()).rejects.toMatchObject({
    code: 'collection_not_synced',
    missing: ['column customers.name'],
  })
  expect((await third.schema.check()).problems).toMatchObject([{ kind: 'column_missing' }])
  expect(await customers.query().count()).toBe(1)

  const empty = store.documents<Customer>('newcomers')
  await empty.ready()
  const fourth = await sibling({ migrate: true })
  const grown = fourth.documents<Customer>('newcomers', { columns: ['name'] })
  await grown.put('bob', { name: 'Bob' })
  expect(
    await grown
      .query()
      .where(c => eq(c.name, 'Bob'))
      .count(),
  ).toBe(1)
  expect((await fourth.schema.check()).isHealthy).toBe(true)
})

test('RB-37: a case-insensitive lookup finds a value, however it is written on either side', async () => {
  const { ids } = await openCustomers(
    { a: { name: 'A', email: 'Ada@Shop.Test' }, b: { name: 'B', email: 'bob@shop.test' } },
    { indexes: [{ path: 'email', lower: true, unique: true }] },
  )

  expect(await ids(c => eq(lower(c.email), 'ADA@shop.test'))).toEqual(['a'])
  expect(await ids(c => isIn(lower(c.email), ['ada@SHOP.TEST', 'BOB@shop.test']))).toEqual(['a', 'b'])
  expect(await ids(c => startsWith(lower(c.email), 'BOB@'))).toEqual(['b'])
})

test('a unique index refuses duplicates, accepts long texts with equal beginnings, and ignores documents without the field', async () => {
  const { customers, store } = await openCustomers(strangers, {
    indexes: [
      { path: 'email', unique: true },
      { paths: ['tier', { path: 'age', as: 'number' }], unique: true },
    ],
  })
  const long = 'x'.repeat(3000)

  await customers.put('a', { name: 'A', email: 'a@shop.test', tier: 'pro', age: 1 })
  await customers.put('b', { name: 'B', email: `${long}1`, tier: 'pro', age: 2 })
  await customers.put('c', { name: 'C', email: `${long}2`, tier: 'pro' })
  await customers.put('d', { name: 'D', tier: 'pro' })
  await expect(customers.put('e', { name: 'E', email: 'a@shop.test' })).rejects.toMatchObject({
    code: 'unique_violation',
    fields: ['email'],
  })
  await expect(customers.put('e', { name: 'E', email: `${long}2` })).rejects.toMatchObject({ code: 'unique_violation' })
  await expect(customers.put('e', { name: 'E', tier: 'pro', age: 2 })).rejects.toMatchObject({
    code: 'unique_violation',
  })
  await customers.put('e', { name: 'E', tier: 'free', age: 2 })
  expect(await customers.count()).toBe(10)
  expect(await store.schema.check()).toMatchObject({ isHealthy: true })
})

test('documents of any shape and size can be written, whatever is indexed', async () => {
  const { customers } = await openCustomers(strangers, {
    indexes: [
      'name',
      { path: 'age', as: 'number' },
      { path: 'active', as: 'boolean' },
      { paths: ['name', 'email', 'notes', 'friend', 'address.city'] },
      { path: 'tags', method: 'gin' },
    ],
    columns: ['joined', { path: 'address.street.number', as: 'number' }],
    search: { fields: ['name', 'notes'], language: 'german' },
  })
  const huge = Array.from({ length: 90_000 }, (_, n) => `w${n.toString(36)}ü`).join(' ')
  const wide = '😀'.repeat(5000)

  await customers.put('huge', { name: wide, email: wide, notes: huge, friend: wide, address: { city: wide } })
  await customers.put('exact', { name: 'x', age: 1e308, tags: [wide] })
  await customers.put('tiny', { name: 'x', age: 5e-324 })
  expect(
    await customers
      .query()
      .where(c => eq(c.name, wide))
      .count(),
  ).toBe(1)
  expect(
    await customers
      .query()
      .orderBy(c => c.age, { as: 'number' })
      .first(),
  ).toMatchObject({ id: 'tiny' })
})

test('RB-40: full text is found in the declared language, and in any other', async () => {
  const { ids } = await openCustomers(
    {
      a: { name: 'Ada', notes: 'She likes running shoes' },
      b: { name: 'Bernd', notes: 'Er kauft gern Schuhe und Häuser' },
      c: { name: 'Cleo', notes: ['running'] },
      d: strangers.numberForName!,
    },
    { search: { fields: ['name', 'notes'], language: 'english' } },
  )

  expect(await ids(c => search(c, 'run shoe'))).toEqual(['a'])
  expect(await ids(c => search(c, 'ada'))).toEqual(['a'])
  expect(await ids(c => search(c, 'shoes -running'))).toEqual([])
  expect(await ids(c => search(c, 'haus', { language: 'german' }))).toEqual(['b'])
  expect(await ids(c => search(c.notes, 'Schuh', { language: 'german' }))).toEqual(['b'])
  expect(await ids(c => search(c.notes, 'ada'))).toEqual([])
  expect(await ids(c => search(c, `'"(( & | :* `))).toEqual([])
})

test('an unknown text search language is reported as such', async () => {
  const { customers, store } = await openCustomers({ a: { name: 'A' } })
  const unknown = { code: 'unknown_language' }

  expect(() => store.documents<Customer>('others', { search: { fields: ['name'], language: 'klingon' } })).toThrow(
    expect.objectContaining(unknown),
  )
  const inKlingon = (language: string) =>
    customers
      .query()
      .where(c => search(c.name, 'x', { language }))
      .count()
  await expect(inKlingon('klingon')).rejects.toMatchObject({ ...unknown, language: 'klingon' })
  await expect(inKlingon(`english'); drop table customers; --`)).rejects.toMatchObject(unknown)
  await expect(inKlingon('public.klingon')).rejects.toMatchObject(unknown)
  await expect(
    customers
      .query()
      .where(c => search(c, 'x'))
      .count(),
  ).rejects.toMatchObject({ code: 'invalid_query' })
})

const refused: Record<string, () => IndexingOptions<Customer>> = {
  'no field': () => ({ indexes: [{ paths: [] }] }),
  'an empty step': () => ({ indexes: ['address.' as 'name'] }),
  'a NUL in its path': () => ({ indexes: ['a\0' as 'name'] }),
  'too many texts': () => ({ indexes: [{ paths: ['name', 'email', 'notes', 'friend', 'joined', 'tier'] }] }),
  'a unique one on what is contained': () => ({ indexes: [{ path: 'tags', method: 'gin', unique: true }] }),
  'two of one name': () => ({ indexes: ['name', 'name'] }),
  'a column that is there already': () => ({ columns: [{ path: 'name', name: 'version' }] }),
}
test('an invalid index declaration is refused before the table is created', async () => {
  const { store } = await openCustomers({})

  for (const [what, options] of Object.entries(refused)) {
    const declare = () => store.documents<Customer>('others', options())
    expect(declare, what).toThrow(expect.objectContaining({ code: 'invalid_option' }))
  }
})
