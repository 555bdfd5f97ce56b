import { expect, test } from 'vitest'
import { connect, onServer, waitersFor } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'
import { ada, bob, openCustomers } from './customers.ts'

test('putMany creates and replaces documents, also soft-deleted ones, and gives new ones an id', async () => {
  const { customers } = await openCustomers()
  await customers.put('ada', ada)
  await customers.put('gone', ada)
  await customers.softDelete('gone')

  const outcomes = await customers.putMany(
    [{ id: 'ada', data: bob }, { data: ada }, { id: 'gone', data: bob }, { id: 'new', data: ada }],
    { userId: 'clerk' },
  )

  expect(outcomes).toEqual([
    { id: 'ada', outcome: 'written', version: 2 },
    { id: expect.stringMatching(/^[0-9a-f-]{36}$/), outcome: 'written', version: 1 },
    { id: 'gone', outcome: 'written', version: 3 },
    { id: 'new', outcome: 'written', version: 1 },
  ])
  expect(await customers.get('gone')).toMatchObject({ data: bob, version: 3, updatedBy: 'clerk' })
  expect(await customers.count()).toBe(4)
  expect(await customers.putMany([])).toEqual([])
})

test('RB-47: of several puts of one id the last one counts, and the results of the others say so', async () => {
  const { customers } = await openCustomers()

  const outcomes = await customers.putMany([
    { id: 'ada', data: ada },
    { id: 'bob', data: bob },
    { id: 'ada', data: bob },
    { id: 'ada', data: { email: 'last@x' } },
  ])

  expect(outcomes).toEqual([
    { id: 'ada', outcome: 'superseded', version: 1 },
    { id: 'bob', outcome: 'written', version: 1 },
    { id: 'ada', outcome: 'superseded', version: 1 },
    { id: 'ada', outcome: 'written', version: 1 },
  ])
  expect((await customers.get('ada'))?.data).toEqual({ email: 'last@x' })
})

test('updates of one id are applied one after the other', async () => {
  const { customers } = await openCustomers()
  await customers.putMany(['ada', 'bob'].map(id => ({ id, data: ada })))

  const outcomes = await customers.updateMany([
    { id: 'ada', data: { email: '1@x' }, expected: 1 },
    { id: 'bob', data: { email: '1@x' } },
    { id: 'ada', data: { email: '2@x' }, expected: 2 },
    { id: 'ada', data: { email: '3@x' } },
  ])

  expect(outcomes.map(({ version }) => version)).toEqual([2, 2, 3, 4])
  expect((await customers.get('ada'))?.data.email).toBe('3@x')
})

test('RB-47: a bulk update is refused as a whole, with a reason for each document that prevents it', async () => {
  const { customers } = await openCustomers()
  await customers.putMany(['ada', 'bob', 'gone'].map(id => ({ id, data: ada })))
  await customers.softDelete('gone')
  const items = [
    { id: 'ada', data: bob, expected: 1 },
    { id: 'bob', data: bob, expected: 7 },
    { id: 'gone', data: bob },
    { id: 'nobody', data: bob },
  ]

  await expect(customers.updateMany(items)).rejects.toMatchObject({
    code: 'bulk_refused',
    collection: 'customers',
    items: [
      { index: 1, id: 'bob', outcome: 'conflict', version: 1 },
      { index: 2, id: 'gone', outcome: 'deleted', version: 2 },
      { index: 3, id: 'nobody', outcome: 'missing', version: undefined },
    ],
  })
  expect(await customers.get('ada')).toMatchObject({ data: ada, version: 1 })

  expect(await customers.updateMany(items, { partial: true })).toEqual([
    { id: 'ada', outcome: 'written', version: 2 },
    { id: 'bob', outcome: 'conflict', version: 1 },
    { id: 'gone', outcome: 'deleted', version: 2 },
    { id: 'nobody', outcome: 'missing', version: undefined },
  ])
  expect((await customers.get('ada'))?.data).toEqual(bob)
  expect(await customers.get('gone', { includeDeleted: true })).toMatchObject({ data: ada, version: 2 })
})

test('a put that expects a version is a checked update, also in bulk', async () => {
  const { customers } = await openCustomers()
  await customers.put('ada', ada)

  const mixed = [
    { id: 'new', data: bob },
    { id: 'ada', data: bob, expected: 2 },
  ]
  await expect(customers.putMany(mixed)).rejects.toMatchObject({ code: 'bulk_refused' })
  expect(await customers.exists('new')).toBe(false)
  expect(await customers.putMany(mixed.map(item => ({ ...item, expected: item.expected && 1 })))).toMatchObject([
    { version: 1 },
    { version: 2 },
  ])
})

test('deleteMany deletes for good or softly; missing documents are reported, and are not a failure', async () => {
  const { customers } = await openCustomers()
  await customers.putMany(['ada', 'bob', 'eve', 'mia'].map(id => ({ id, data: ada })))

  expect(await customers.deleteMany(['ada', { id: 'bob', expected: 1 }, 'nobody'])).toEqual([
    { id: 'ada', outcome: 'written', version: 1 },
    { id: 'bob', outcome: 'written', version: 1 },
    { id: 'nobody', outcome: 'missing', version: undefined },
  ])
  expect(await customers.deleteMany(['eve', 'eve'], { soft: true })).toMatchObject([{ version: 2 }, { version: 2 }])
  await expect(customers.deleteMany(['mia', { id: 'nobody', expected: 1 }])).rejects.toMatchObject({
    code: 'bulk_refused',
    items: [{ index: 1, outcome: 'missing' }],
  })
  await expect(customers.deleteMany(['nobody'], { soft: true })).rejects.toMatchObject({ code: 'bulk_refused' })

  expect([...(await customers.getMany(['ada', 'bob', 'eve', 'mia'])).keys()]).toEqual(['mia'])
  expect(await customers.count({ includeDeleted: true })).toBe(2)
})

test('a write larger than one statement is still all or nothing', async () => {
  const { customers } = await openCustomers({ gin: false })
  const many = Array.from({ length: onServer ? 11_000 : 1200 }, (_, i) => ({
    id: `customer-${i}`,
    data: { email: `${i}@x` },
  }))

  const outcomes = await customers.putMany(many)
  expect(outcomes).toHaveLength(many.length)
  expect(outcomes.every(({ outcome, version }) => outcome === 'written' && version === 1)).toBe(true)

  const refused = customers.updateMany([...many, { id: 'nobody', data: ada }])
  await expect(refused).rejects.toMatchObject({ code: 'bulk_refused', items: [{ index: many.length, id: 'nobody' }] })
  expect(await customers.get('customer-0')).toMatchObject({ version: 1 })
})

test('one document that cannot be stored stops the write before anything is sent', async () => {
  const { customers } = await openCustomers()
  const items = [
    { id: 'ada', data: ada },
    { id: 'bob', data: { email: 'bob\0' } },
  ]

  await expect(customers.putMany(items)).rejects.toMatchObject({ code: 'invalid_document', id: 'bob' })
  await expect(customers.putMany([{ id: '', data: ada }])).rejects.toMatchObject({ code: 'invalid_name' })
  await expect(customers.deleteMany([{ id: 'ada', expected: 0 }])).rejects.toMatchObject({ code: 'invalid_option' })
  expect(await customers.count()).toBe(0)
})

test('bulk writes join a transaction and are rolled back with it', async () => {
  const { customers, store } = await openCustomers()
  await customers.put('ada', ada)

  const work = store.transaction(async tx => {
    await customers.putMany([{ id: 'bob', data: bob }], { tx })
    await customers.deleteMany(['ada'], { tx })
    expect(await customers.count({ tx })).toBe(1)
    throw new Error('never mind')
  })
  await expect(work).rejects.toThrow('never mind')

  expect([...(await customers.getMany(['ada', 'bob'])).keys()]).toEqual(['ada'])
})

test('RB-47: a batch is flushed as a whole, and keeps everything when it fails', async () => {
  const { customers } = await openCustomers()
  await customers.putMany(['ada', 'bob', 'eve'].map(id => ({ id, data: ada })))
  await customers.softDelete('eve')
  const batch = customers
    .batch()
    .put('new', ada)
    .update('ada', bob, { expected: 1 })
    .delete('bob')
    .restore('eve')
    .insert('mia', ada)
    .update('mia', bob)
    .softDelete('mia')
  batch.insert('taken', ada)
  await customers.put('taken', bob)

  await expect(batch.flush()).rejects.toMatchObject({
    items: [{ index: 7, id: 'taken', outcome: 'exists', version: 1 }],
  })
  expect(batch.size).toBe(8)
  expect(await customers.get('ada')).toMatchObject({ data: ada, version: 1 })
  expect(await customers.exists('new')).toBe(false)

  await customers.delete('taken')
  const outcomes = await batch.flush({ userId: 'clerk' })

  expect(outcomes.map(({ id, version }) => `${id} ${version}`)).toEqual([
    ...['new 1', 'ada 2', 'bob 1', 'eve 3', 'mia 1', 'mia 2', 'mia 3', 'taken 1'],
  ])
  expect(batch.size).toBe(0)
  expect(await batch.flush()).toEqual([])
  expect(await customers.get('mia', { includeDeleted: true })).toMatchObject({ data: bob, deletedAt: expect.any(Date) })
  expect(await customers.get('new')).toMatchObject({ createdBy: 'clerk' })
  expect([...(await customers.getMany(['new', 'ada', 'bob', 'eve', 'mia', 'taken'])).keys()]).toEqual([
    ...['new', 'ada', 'eve', 'taken'],
  ])
})

test('a batch immediately refuses documents that cannot be stored, and any when it is full', async () => {
  const { customers } = await openCustomers()
  const batch = customers.batch({ maxChanges: 2 })

  expect(() => batch.put('', ada)).toThrow(expect.objectContaining({ code: 'invalid_name' }))
  expect(() => batch.put('ada', undefined as never)).toThrow(expect.objectContaining({ code: 'invalid_document' }))
  expect(() => batch.delete('ada', { expected: 1.5 })).toThrow(expect.objectContaining({ code: 'invalid_option' }))
  batch.put('ada', ada).put('bob', bob)
  expect(() => batch.delete('ada')).toThrow(/holds its limit of 2/)
  batch.clear()
  expect(batch.size).toBe(0)
})

test.runIf(onServer)('an insert that another transaction commits first fails its whole batch', async () => {
  const { customers, named } = await openCustomers()
  await customers.put('ada', ada)
  const client = await connect()
  await client.query('begin')
  await customers.insert('new', ada, { tx: client })

  const flushed = customers.batch().update('ada', bob).insert('new', bob).flush()
  flushed.catch(() => {})
  await waitUntil(async () => (await waitersFor(client)) > 0)
  await client.query('commit')

  await expect(flushed).rejects.toMatchObject({ items: [{ index: 1, id: 'new', outcome: 'exists' }] })
  const { rows } = await client.query(named('select id, version::integer from ~customers order by id'))
  expect(rows).toEqual([
    { id: 'ada', version: 1 },
    { id: 'new', version: 1 },
  ])
})

test.runIf(onServer)('an upsert of a document that another transaction is writing comes after it', async () => {
  const { customers } = await openCustomers()
  await customers.put('ada', ada)
  const client = await connect()
  await client.query('begin')
  await customers.put('ada', bob, { tx: client })
  await customers.insert('new', ada, { tx: client })

  const written = customers.putMany([
    { id: 'new', data: bob },
    { id: 'ada', data: ada },
  ])
  await waitUntil(async () => (await waitersFor(client)) > 0)
  await client.query('commit')

  expect(await written).toMatchObject([{ version: 2 }, { version: 3 }])
})

test.runIf(onServer)('an expected version is compared with the stored one after the wait', async () => {
  const { customers } = await openCustomers()
  await customers.putMany(['ada', 'bob', 'eve'].map(id => ({ id, data: ada })))
  const client = await connect()
  await client.query('begin')
  await customers.putMany(
    ['ada', 'bob', 'eve'].map(id => ({ id, data: bob })),
    { tx: client },
  )

  const put = customers.put('ada', ada, { expected: 1 })
  const updated = customers.updateMany([{ id: 'bob', data: ada, expected: 1 }])
  const patched = customers.patch('eve', { visits: 1 })
  for (const each of [put, updated]) each.catch(() => {})
  await waitUntil(async () => (await waitersFor(client)) === 3)
  await client.query('commit')

  await expect(put).rejects.toMatchObject({ code: 'document_conflict', actual: 2 })
  await expect(updated).rejects.toMatchObject({ items: [{ outcome: 'conflict', version: 2 }] })
  expect(await patched).toBe(3)
  expect((await customers.get('eve'))?.data).toEqual({ ...bob, visits: 1 })
})
