/** The size of a document is that of the text which the database gives back. */
import { expect, test } from 'vitest'
import { identifier, sql } from '../../src/database/sql.ts'
import { append } from '../../src/patch.ts'
import { eq } from '../../src/query.ts'
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

test('a document that is there already and that no process can read fails its readers, and nothing else', async () => {
  const { database, schema, customers } = await openCustomers()
  await customers.put('ada', ada)
  await customers.put('bob', ada)
  await database.run(sql`/* shop.make_wide */
    update ${identifier(schema, 'customers')}
    set body = jsonb_build_object('email', 'bob@x', 'weights', (select jsonb_agg(1e308) from generate_series(1, 450000)))
    where id = 'bob'`)

  await expect(customers.get('bob')).rejects.toMatchObject({ code: 'result_too_large' })
  await expect(customers.query().toArray()).rejects.toMatchObject({ code: 'result_too_large' })

  const emails = await customers
    .query()
    .select({ email: c => c.email })
    .toArray()
  expect(emails.map(({ email }) => email).sort()).toEqual(['ada@x', 'bob@x'])
  expect((await customers.get('ada'))!.data).toEqual(ada)
  await customers.put('bob', ada)
  expect((await customers.get('bob'))!.data).toEqual(ada)
})
