/** The size of a document is that of the text which the database gives back. */
import { expect, test } from 'vitest'
import { identifier, sql } from '../../src/database/sql.ts'
import { append } from '../../src/patch.ts'
import { compileQuery, eq, ne } from '../../src/query.ts'
import { onServer } from '../support/shop.ts'
import { ada, openCustomers } from './customers.ts'

/** In JSON a number of these takes 6 bytes, and in the text of the database 310. */
const wide = (count: number): number[] => Array.from({ length: count }, () => 1e308)

test('a document that the database would give back far larger than it was sent is refused', async () => {
  const { customers } = await openCustomers()
  const data = { ...ada, tags: wide(60_000) as never[] }

  await expect(customers.put('ada', data)).rejects.toMatchObject({ code: 'invalid_document', path: 'data' })
  await expect(customers.importMany([{ id: 'ada', data }])).rejects.toMatchObject({ code: 'invalid_document' })
  expect(await customers.exists('ada')).toBe(false)
})

test('patches cannot make a document larger than it may be', async () => {
  const { customers } = await openCustomers()
  await customers.put('ada', { ...ada, tags: [] })
  const more = { tags: append(...(wide(30_000) as unknown as string[])) } as never

  await customers.patch('ada', more)
  await customers.patch('ada', more)

  await expect(customers.patch('ada', more)).rejects.toMatchObject({ code: 'invalid_document' })
  const all = customers.patchMany(c => eq(c.email, 'ada@x'), more)
  await expect(all).rejects.toMatchObject({ code: 'invalid_document' })
  expect((await customers.get('ada'))!.data.tags).toHaveLength(60_000)
})

/** Bob's document becomes one that no process can read. */
async function openUnreadable() {
  const shop = await openCustomers({ history: true })
  const { database, schema, customers } = shop
  for (const id of ['ada', 'bob', 'cleo']) await customers.put(id, ada)
  for (const table of ['customers', 'customers__history'])
    await database.run(sql`/* shop.make_wide */
      update ${identifier(schema, table)}
      set body = jsonb_build_object('email', 'bob@x', 'weights', (select jsonb_agg(1e308) from generate_series(1, 450000)))
      where id = 'bob'`)
  return shop
}

test('a list with a document that no process can read returns all others, and of that one all but its data', async () => {
  const { customers } = await openUnreadable()
  await customers.put('bob-2', { ...ada, tags: ['bob'] })

  const query = customers.query().orderBy((_, meta) => meta.id)
  const lists = {
    all: await query.toArray(),
    page: (await query.page()).items,
    numbered: (await query.pageNumber(1, 10)).items,
    unordered: (await customers.query().page()).items,
    iterated: await everyOne(query.iterate({ pageSize: 2 })),
    many: [...(await customers.getMany(['ada', 'bob', 'bob-2', 'cleo'])).values()],
    compiled: await compileQuery(customers, (q, city: string) => q.where(c => ne(c.email, city)))('x').toArray(),
  }

  for (const [list, found] of Object.entries(lists)) {
    const sorted = found.toSorted((a, b) => (a.id < b.id ? -1 : 1))
    expect(
      sorted.map(({ id }) => id),
      list,
    ).toEqual(['ada', 'bob', 'bob-2', 'cleo'])
    expect(sorted.filter(each => each.tooLarge === undefined).map(({ data }) => data.email)).toEqual(
      Array(3).fill('ada@x'),
    )
    const [, bob] = sorted
    expect(bob!.tooLarge).toBeGreaterThan(128 * 1024 * 1024)
    expect(() => bob!.data).toThrow(/Document "bob" of customers takes \d+ bytes/)
    expect(JSON.parse(JSON.stringify(bob))).toMatchObject({ id: 'bob', version: 1 })
  }
})

test('a history with a version that no process can read returns the others', async () => {
  const { customers } = await openUnreadable()
  await customers.put('bob', ada)

  const versions = await customers.history('bob')
  expect(versions.items.map(({ version }) => version)).toEqual([1, 2])
  expect(versions.items[1]!.data).toEqual(ada)
  expect(() => versions.items[0]!.data).toThrow('takes')
}, 120_000)

// The embedded engine has not always the memory for several texts of such a size.
test.runIf(onServer)(
  'a selection and included documents with one that no process can read return the others',
  async () => {
    const { customers: others } = await openUnreadable()
    const byId = (q: ReturnType<typeof others.query>) => q.orderBy((_, meta) => meta.id)
    const selected = await byId(others.query())
      .select({ id: (_, meta) => meta.id, weights: c => (c as unknown as Record<string, typeof c.tags>).weights! })
      .toArray()
    expect(selected.map(({ id }) => id)).toEqual(['ada', 'bob', 'cleo'])
    expect(selected[0]!.weights).toBe(null)
    expect(() => selected[1]!.weights).toThrow('takes')
    const joined = await byId(others.query())
      .include('self', others, { from: (_, meta) => meta.id })
      .toArray()
    expect(joined.map(({ id }) => id)).toEqual(['ada', 'bob', 'cleo'])
    expect(joined[2]!.included.self!.data).toEqual(ada)
    expect(() => joined[1]!.included).toThrow('takes')
  },
  120_000,
)

test('doctor names the documents that no process can read, and how to get rid of them', async () => {
  const { store, customers } = await openUnreadable()

  const { findings } = await store.doctor()
  expect(findings.filter(({ check }) => check === 'documents.too_large')).toEqual([
    {
      check: 'documents.too_large',
      level: 'error',
      message: expect.stringMatching(/^Document "bob" of collection customers takes \d+ bytes/),
      fix: expect.stringContaining('rillflow documents delete customers bob'),
    },
  ])

  await customers.delete('bob')
  const after = await store.doctor()
  expect(after.findings.filter(({ check }) => check === 'documents.too_large')).toMatchObject([{ level: 'ok' }])
})

test('a document that is there already and that no process can read fails its own reads, and nothing else', async () => {
  const { customers } = await openUnreadable()

  await expect(customers.get('bob')).rejects.toMatchObject({ code: 'document_too_large', id: 'bob' })
  await expect(customers.get('bob', { includeDeleted: true })).rejects.toMatchObject({ code: 'document_too_large' })

  const emails = await customers
    .query()
    .select({ email: c => c.email })
    .toArray()
  expect(emails.map(({ email }) => email).sort()).toEqual(['ada@x', 'ada@x', 'bob@x'])
  expect((await customers.get('ada'))!.data).toEqual(ada)
  await customers.put('bob', ada)
  expect((await customers.get('bob'))!.data).toEqual(ada)
})

async function everyOne<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = []
  for await (const item of items) all.push(item)
  return all
}
