import { expect, test } from 'vitest'
import { identifier } from '../../src/database/sql.ts'
import { collectionOf } from '../../src/documents/collection.ts'
import { connect, onServer, openShop, outcome } from '../support/shop.ts'
import { ada, bob, type Customer, openCustomers } from './customers.ts'

test('a stored document can be read, with its version and when and by whom it was written', async () => {
  const { customers } = await openCustomers()

  expect(await customers.put('ada', ada, { userId: 'clerk' })).toBe(1)
  expect(await customers.put('ada', { ...ada, tier: 'pro' }, { userId: 'boss' })).toBe(2)

  const found = await customers.get('ada')
  expect(found).toEqual({
    id: 'ada',
    data: { email: 'ada@x', tier: 'pro' },
    version: 2,
    createdAt: expect.any(Date),
    updatedAt: expect.any(Date),
    createdBy: 'clerk',
    updatedBy: 'boss',
  })
  expect(found!.updatedAt.getTime()).toBeGreaterThanOrEqual(found!.createdAt.getTime())
  expect(await customers.get('bob')).toBeUndefined()
})

test('insert creates a document once, under a given id or a new one', async () => {
  const { customers } = await openCustomers()

  expect(await customers.insert('ada', ada)).toBe(1)
  const made = await customers.insert(bob)

  expect(made).toEqual({ id: expect.stringMatching(/^[0-9a-f]{8}-[0-9a-f]{4}-7/), version: 1 })
  expect((await customers.get(made.id))?.data).toEqual(bob)
  await expect(customers.insert('ada', bob)).rejects.toMatchObject({ code: 'document_exists', id: 'ada', version: 1 })
  expect((await customers.get('ada'))?.data).toEqual(ada)
})

test('of several concurrent inserts of one id, exactly one succeeds', async () => {
  const { customers } = await openCustomers()

  const outcomes = await Promise.all(Array.from({ length: 8 }, () => outcome(customers.insert('ada', ada))))

  expect(outcomes.filter(({ value }) => value === 1)).toHaveLength(1)
  expect(outcomes.filter(({ error }) => (error as { code?: string })?.code === 'document_exists')).toHaveLength(7)
})

test('RB-33: missing, soft-deleted and at another version are three different answers to an expected version', async () => {
  const { customers } = await openCustomers()
  await customers.put('ada', ada)
  await customers.put('ada', bob)
  await customers.put('gone', bob)
  await customers.softDelete('gone')

  const writes = {
    put: (id: string, expected: number) => customers.put(id, ada, { expected }),
    update: (id: string, expected: number) => customers.update(id, data => data, { expected }),
    patch: (id: string, expected: number) => customers.patch(id, { tier: 'pro' }, { expected }),
    merge: (id: string, expected: number) => customers.merge(id, { tier: 'pro' }, { expected }),
  }
  for (const write of Object.values(writes)) {
    await expect(write('nobody', 1)).rejects.toMatchObject({ code: 'document_not_found', id: 'nobody' })
    await expect(write('gone', 2)).rejects.toMatchObject({ code: 'document_deleted', id: 'gone', version: 2 })
    const conflict = { code: 'document_conflict', id: 'ada', expected: 1, actual: 2 }
    await expect(write('ada', 1)).rejects.toMatchObject(conflict)
  }
  await expect(customers.update('nobody', data => data)).rejects.toMatchObject({ code: 'document_not_found' })
  await expect(customers.patch('gone', { tier: 'pro' })).rejects.toMatchObject({ code: 'document_deleted' })

  expect(await customers.get('ada')).toMatchObject({ data: bob, version: 2 })
  for (const [i, write] of Object.values(writes).entries()) expect(await write('ada', 2 + i)).toBe(3 + i)
})

test('RB-32: a soft-deleted document is hidden until it is restored, or revived by a put', async () => {
  const { customers } = await openCustomers()
  await customers.put('ada', ada)

  expect(await customers.softDelete('ada')).toBe(2)

  expect(await customers.get('ada')).toBeUndefined()
  expect(await customers.exists('ada')).toBe(false)
  expect(await customers.count()).toBe(0)
  expect(await customers.get('ada', { includeDeleted: true })).toMatchObject({
    version: 2,
    deletedAt: expect.any(Date),
  })
  await expect(customers.insert('ada', bob)).rejects.toMatchObject({ code: 'document_deleted', version: 2 })

  expect(await customers.restore('ada')).toBe(3)
  expect(await customers.get('ada')).toMatchObject({ data: ada, version: 3 })

  await customers.softDelete('ada')
  expect(await customers.put('ada', bob)).toBe(5)
  expect(await customers.get('ada')).toMatchObject({ data: bob, version: 5 })
})

test('repeated soft deletes and restores change nothing, and a missing document is not found', async () => {
  const { customers } = await openCustomers()
  await customers.put('ada', ada)

  expect(await customers.restore('ada')).toBe(1)
  expect(await customers.softDelete('ada', { expected: 1 })).toBe(2)
  expect(await customers.softDelete('ada')).toBe(2)
  await expect(customers.softDelete('ada', { expected: 1 })).rejects.toMatchObject({
    code: 'document_conflict',
    actual: 2,
  })
  await expect(customers.restore('ada', { expected: 1 })).rejects.toMatchObject({
    code: 'document_conflict',
    actual: 2,
  })
  await expect(customers.softDelete('nobody')).rejects.toMatchObject({ code: 'document_not_found' })
  await expect(customers.restore('nobody')).rejects.toMatchObject({ code: 'document_not_found' })
})

test('delete is permanent: true if the document existed, and only at an expected version', async () => {
  const { customers } = await openCustomers()
  await customers.put('ada', ada)
  await customers.put('bob', bob)
  await customers.softDelete('bob')

  await expect(customers.delete('ada', { expected: 2 })).rejects.toMatchObject({ code: 'document_conflict', actual: 1 })
  expect(await customers.delete('ada', { expected: 1 })).toBe(true)
  expect(await customers.delete('ada')).toBe(false)
  await expect(customers.delete('ada', { expected: 1 })).rejects.toMatchObject({ code: 'document_not_found' })
  expect(await customers.delete('bob')).toBe(true)

  expect(await customers.count({ includeDeleted: true })).toBe(0)
  expect(await customers.insert('ada', ada)).toBe(1)
})

test('several documents are read by one query, in the requested order', async () => {
  const { customers } = await openCustomers()
  await customers.put('ada', ada)
  await customers.put('bob', bob)
  await customers.put('eve', ada)
  await customers.softDelete('eve')

  const found = await customers.getMany(['eve', 'bob', 'nobody', 'ada', 'bob'])

  expect([...found.keys()]).toEqual(['bob', 'ada'])
  expect(found.get('bob')).toEqual(await customers.get('bob'))
  expect([...(await customers.getMany(['eve', 'ada'], { includeDeleted: true })).keys()]).toEqual(['eve', 'ada'])
  expect((await customers.getMany([])).size).toBe(0)
  expect(await customers.exists('ada')).toBe(true)
  expect(await customers.count()).toBe(2)
})

test('update passes the stored document to the function; concurrent updates each see the one before', async () => {
  const { customers } = await openCustomers()
  await customers.put('ada', { ...ada, visits: 0 })

  const visit = (): Promise<number> =>
    customers.update('ada', async customer => ({ ...customer, visits: customer.visits! + 1 }), { userId: 'door' })
  const versions = await Promise.all(Array.from({ length: 5 }, visit))

  expect(versions.sort()).toEqual([2, 3, 4, 5, 6])
  expect(await customers.get('ada')).toMatchObject({ data: { visits: 5 }, version: 6, updatedBy: 'door' })
})

test('an update whose function fails, or returns nothing, changes nothing', async () => {
  const { customers } = await openCustomers()
  await customers.put('ada', ada)

  const failing = customers.update('ada', () => {
    throw new Error('no')
  })
  await expect(failing).rejects.toThrow('no')
  const empty = customers.update('ada', () => undefined as unknown as Customer)
  await expect(empty).rejects.toMatchObject({ code: 'invalid_document', id: 'ada' })

  expect((await customers.get('ada'))?.version).toBe(1)
})

test('writes join a transaction of the store, and are rolled back with it', async () => {
  const { customers, store } = await openCustomers()
  await customers.ready()

  const work = store.transaction(async tx => {
    await customers.put('ada', ada, { tx })
    await customers.update('ada', data => ({ ...data, tier: 'pro' }), { tx })
    await customers.patch('ada', { visits: 1 }, { tx })
    expect(await customers.get('ada', { tx })).toMatchObject({ version: 3, data: { tier: 'pro', visits: 1 } })
    await expect(customers.insert('ada', ada, { tx })).rejects.toMatchObject({ code: 'document_exists', version: 3 })
    await expect(customers.get('ada')).rejects.toMatchObject({ code: 'inside_transaction' })
    throw new Error('never mind')
  })
  await expect(work).rejects.toThrow('never mind')

  expect(await customers.get('ada')).toBeUndefined()
})

test.runIf(onServer)('writes join a transaction of the user', async () => {
  const { customers, named } = await openCustomers()
  await customers.put('bob', bob)
  const client = await connect()

  await client.query('begin')
  await customers.insert('ada', ada, { tx: client })
  await customers.patch('bob', { visits: 1 }, { tx: client, expected: 1 })
  await customers.putMany([{ id: 'eve', data: ada }], { tx: client })
  const batch = customers.batch().insert('mia', ada).insert('bob', ada)
  await expect(batch.flush({ tx: client })).rejects.toMatchObject({ code: 'bulk_refused' })
  expect(await customers.get('ada')).toBeUndefined()
  expect(await customers.get('ada', { tx: client })).toMatchObject({ data: ada, createdAt: expect.any(Date) })
  await client.query('commit')

  const { rows } = await client.query(named('select id, version::integer from ~customers order by id'))
  expect(rows).toEqual([
    { id: 'ada', version: 1 },
    { id: 'bob', version: 2 },
    { id: 'eve', version: 1 },
  ])
})

test('a table is created before the first use, and not inside a transaction', async () => {
  const { customers, store, query } = await openCustomers()

  const early = store.transaction(tx => customers.put('ada', ada, { tx }))
  await expect(early).rejects.toMatchObject({
    code: 'collection_not_synced',
    missing: ['table customers'],
    message: expect.stringContaining('ready()'),
  })
  await customers.ready()
  await store.transaction(tx => customers.put('ada', ada, { tx }))

  expect(await query('select id from ~customers')).toEqual([{ id: 'ada' }])
  expect((await store.schema.check()).problems).toEqual([])
  expect((await store.schema.plan()).steps).toEqual([])
})

test('if the store may not change the schema, the error names the call that does', async () => {
  const { sibling } = await openShop()
  const store = await sibling({ migrate: false })
  const customers = store.documents<Customer>('customers', { history: true })

  const refused = { code: 'collection_not_synced', missing: ['table customers', 'table customers__history'] }
  await expect(customers.get('ada')).rejects.toMatchObject(refused)
  await expect(customers.put('ada', ada)).rejects.toThrow('store.schema.sync()')

  await store.schema.sync()
  expect(await customers.put('ada', ada)).toBe(1)
})

test('many concurrent first uses create the table once', async () => {
  const { customers } = await openCustomers()

  await Promise.all(Array.from({ length: 10 }, (_, i) => customers.put(`customer-${i}`, ada)))

  expect(await customers.count()).toBe(10)
})

test('a dropped table is reported, and created again on the next use', async () => {
  const { customers, query } = await openCustomers()
  await customers.put('ada', ada)
  await query('drop table ~customers')

  await expect(customers.put('ada', ada)).rejects.toMatchObject({ code: 'collection_not_synced' })
  expect(await customers.put('ada', ada)).toBe(1)
})

test('the index on the body exists unless it is switched off', async () => {
  const { store, query, schema } = await openCustomers({ gin: false })
  await store.documents('orders').ready()
  await store.documents('customers', { gin: false }).ready()

  const rows = await query<{ name: string }>(
    `select tablename || ' ' || split_part(indexdef, ' USING ', 2) as name
    from pg_indexes where schemaname = $1 and tablename in ('orders', 'customers') order by 1`,
    [schema],
  )

  const names = rows.map(row => row.name.split('(')[0])
  expect(names).toEqual(['customers btree ', 'orders btree ', 'orders gin '])
})

test('two stores in two schemas keep their collections apart', async () => {
  const here = await openCustomers()
  const there = await openCustomers()

  await here.customers.put('ada', ada)

  expect(await there.customers.get('ada')).toBeUndefined()
  expect(collectionOf(here.customers)?.table.quoted).toBe(identifier(here.schema, 'customers').quoted)
})
