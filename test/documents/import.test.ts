import { expect, test } from 'vitest'
import { ada, bob, type Customer, openCustomers } from './customers.ts'

async function* numbered(count: number): AsyncGenerator<{ id: string; data: Customer }> {
  for (let i = 0; i < count; i++)
    yield { id: `customer-${i}`, data: { email: `${i}@x`, tags: ['\t', '\n', '\\N', '"'] } }
}

test('an import stores its documents in chunks, and reports progress', async () => {
  const { customers } = await openCustomers()
  const seen: number[] = []

  const done = await customers.importMany(numbered(25), {
    chunkSize: 10,
    userId: 'mover',
    onProgress: ({ documents }) => seen.push(documents),
  })

  expect(done).toEqual({ documents: 25, written: 25 })
  expect(seen).toEqual([10, 20, 25])
  expect(await customers.count()).toBe(25)
  expect(await customers.get('customer-7')).toMatchObject({
    data: { email: '7@x', tags: ['\t', '\n', '\\N', '"'] },
    version: 1,
    createdBy: 'mover',
    createdAt: expect.any(Date),
  })
})

test('documents without an id get one', async () => {
  const { customers } = await openCustomers()

  await customers.importMany([{ data: ada }, { data: bob }])

  expect(await customers.count()).toBe(2)
})

test.each([{ history: false }, { history: true }])('existing ids are refused, kept or replaced (%j)', async options => {
  const { customers } = await openCustomers(options)
  await customers.put('customer-3', ada)

  const refused = customers.importMany(numbered(5), { chunkSize: 2 })
  await expect(refused).rejects.toMatchObject({ code: 'document_exists', id: 'customer-3' })
  expect(await customers.count()).toBe(3)

  expect(await customers.importMany(numbered(5), { existing: 'keep' })).toEqual({ documents: 5, written: 2 })
  expect(await customers.get('customer-3')).toMatchObject({ data: ada, version: 1 })

  expect(await customers.importMany(numbered(5), { existing: 'replace' })).toEqual({ documents: 5, written: 5 })
  expect(await customers.get('customer-3')).toMatchObject({ data: { email: '3@x' }, version: 2 })
  if (options.history) expect((await customers.history('customer-3')).items).toHaveLength(2)
})

test('for an id that comes twice the import is refused, or the first or the last document is stored', async () => {
  const { customers } = await openCustomers()
  const twice = [
    { id: 'ada', data: ada },
    { id: 'ada', data: bob },
  ]

  await expect(customers.importMany(twice)).rejects.toMatchObject({ code: 'document_exists', id: 'ada' })
  expect(await customers.exists('ada')).toBe(false)
  await customers.importMany(twice, { existing: 'keep' })
  expect((await customers.get('ada'))?.data).toEqual(ada)
  await customers.importMany(twice, { existing: 'replace' })
  expect((await customers.get('ada'))?.data).toEqual(bob)
})

test('an invalid document, an invalid option or an abort stops an import, and earlier chunks stay', async () => {
  const { customers } = await openCustomers()
  const source = [
    { id: 'ada', data: ada },
    { id: 'bob', data: bob },
    { id: 'eve', data: [] as never },
  ]

  const invalid = customers.importMany(source, { chunkSize: 2 })
  await expect(invalid).rejects.toMatchObject({ code: 'invalid_document', id: 'eve' })
  expect(await customers.count()).toBe(2)

  for (const chunkSize of [0, 1.5, 10_001])
    await expect(customers.importMany([], { chunkSize })).rejects.toMatchObject({ option: 'chunkSize' })
  await expect(customers.importMany([], { existing: 'ask' as never })).rejects.toMatchObject({ option: 'existing' })

  const controller = new AbortController()
  const aborted = customers.importMany(numbered(10), {
    chunkSize: 3,
    signal: controller.signal,
    onProgress: () => controller.abort(),
  })
  await expect(aborted).rejects.toMatchObject({ code: 'aborted' })
  expect(await customers.count()).toBe(5)
})

test('an import keeps every character of a document, wherever the text is cut on its way to the database', async () => {
  const { customers } = await openCustomers()
  const emails = Array.from({ length: 8 }, (_, shift) => 'a'.repeat(shift) + '😀'.repeat(50_000))

  await customers.importMany(emails.map((email, n) => ({ id: `customer-${n}`, data: { email } })))

  for (const [n, email] of emails.entries())
    expect((await customers.get(`customer-${n}`))?.data.email === email).toBe(true)
})
