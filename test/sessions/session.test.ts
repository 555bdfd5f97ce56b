import { expect, test } from 'vitest'
import { defineCollection } from '../../src/documents/collection.ts'
import { append, increment, insert, remove, rename, unset } from '../../src/documents/patch/patch.ts'
import { listeningDatabase, Order } from '../aggregates/orders.ts'
import { ada, bob, type Customer } from '../documents/customers.ts'
import { openShop, paid, placed } from '../support/shop.ts'

test('a save stores documents and events together, and returns their versions and the last position', async () => {
  const { store } = await openShop()
  const customers = store.documents<Customer>('customers')
  await using session = store.session()

  session.documents(customers).put('ada', ada)
  session.events.append('order-1', [placed(1), paid])
  session.events.append('order-2', placed(2))
  const saved = await session.save()

  expect(saved).toMatchObject({
    documents: [{ collection: 'customers', id: 'ada', version: 1 }],
    streams: [
      { stream: 'order-1', version: 2 },
      { stream: 'order-2', version: 1 },
    ],
    position: saved.streams[1]!.position,
    repeated: false,
  })
  await store.events.waitFor(saved.position!)
  expect(await customers.get('ada')).toMatchObject({ data: ada, version: 1 })
  expect((await store.events.readAll().toArray()).map(event => event.type)).toEqual([
    'OrderPlaced',
    'OrderPaid',
    'OrderPlaced',
  ])
  expect(session.staged).toEqual({ documents: 0, events: 0 })
  expect(JSON.parse(JSON.stringify(saved)).position).toBe(saved.position)
})

test('nothing is stored before the save, and nothing twice', async () => {
  const { store } = await openShop()
  const customers = store.documents<Customer>('customers')
  const session = store.session()

  session.documents(customers).put('ada', ada)
  session.events.append('order-1', placed(1))

  expect(await customers.count()).toBe(0)
  expect(session.staged).toEqual({ documents: 1, events: 1 })
  await session.save()
  expect(await session.save()).toMatchObject({ documents: [], streams: [], position: undefined })
  expect(await store.streams.describe('order-1')).toMatchObject({ version: 1 })
})

test('a document is loaded once, several documents by one query', async () => {
  const { database, labels } = await listeningDatabase()
  const { store } = await openShop({ database })
  const customers = store.documents<Customer>('customers')
  await customers.putMany([
    { id: 'ada', data: ada },
    { id: 'bob', data: bob },
  ])
  const session = store.session()
  labels.length = 0

  const first = await session.load(customers, ['bob', 'nobody', 'ada', 'bob'])
  const again = await session.load(customers, 'ada')
  const nobody = await session.documents(customers).load('nobody')

  expect(labels).toEqual(['documents.get_many'])
  expect([...first.keys()]).toEqual(['bob', 'ada'])
  expect(again).toBe(first.get('ada'))
  expect(nobody).toBeUndefined()
})

test('loads see staged changes', async () => {
  const { store } = await openShop()
  const customers = store.documents<Customer>('customers')
  await customers.put('ada', ada)
  const documents = store.session().documents(customers)
  await documents.load('ada')

  documents.put('ada', { ...ada, tier: 'pro' })
  documents.put('bob', bob)

  expect(await documents.load('ada')).toEqual({ id: 'ada', data: { ...ada, tier: 'pro' }, version: 1 })
  expect(await documents.load('bob')).toEqual({ id: 'bob', data: bob, version: 0 })
  documents.delete('ada')
  documents.delete('bob')
  expect(await documents.load(['ada', 'bob'])).toEqual(new Map())
})

test('RB-46: a document that was never loaded is inserted, never overwritten', async () => {
  const { store } = await openShop()
  const customers = store.documents<Customer>('customers')
  await customers.put('ada', ada)
  const session = store.session()
  session.documents(customers).put('ada', { email: 'other@x' })

  await expect(session.save()).rejects.toMatchObject({ code: 'document_exists', id: 'ada', version: 1 })

  expect(await customers.get('ada')).toMatchObject({ data: ada, version: 1 })
  session.discard()
  session.documents(customers).put('ada', { email: 'other@x' }, { upsert: true })
  await session.save()
  expect(await customers.get('ada')).toMatchObject({ data: { email: 'other@x' }, version: 2 })
})

test('RB-46: a loaded document is replaced only at its version', async () => {
  const { store } = await openShop()
  const customers = store.documents<Customer>('customers')
  await customers.put('ada', ada)
  const [one, two] = [store.session(), store.session()]
  for (const session of [one, two]) {
    await session.documents(customers).update('ada', customer => ({ ...customer, visits: 1 }))
    session.events.append('visits', placed(1))
  }

  await one.save()

  await expect(two.save()).rejects.toMatchObject({ code: 'document_conflict', expected: 1, actual: 2 })
  expect(await store.streams.describe('visits')).toMatchObject({ version: 1 })
})

test('a session continues from its last save', async () => {
  const { store } = await openShop()
  const customers = store.documents<Customer>('customers')
  const session = store.session()
  const documents = session.documents(customers)
  documents.insert('ada', ada)
  await session.save()

  documents.put('ada', { ...ada, visits: 2 })
  const order = await session.fetchForWriting(Order, 'order-1')
  order.decide({ type: 'Place', total: 7 })
  await session.save()
  order.decide({ type: 'Pay' })
  await session.save()

  expect(await documents.load('ada')).toMatchObject({ version: 2 })
  expect(order).toMatchObject({ version: 2, events: [], state: { status: 'paid', total: 7 } })
  expect(await store.aggregates(Order).load('order-1')).toMatchObject({ version: 2 })
})

test('RB-45: a failed save drops nothing: saved again, everything is stored', async () => {
  const { store } = await openShop()
  const customers = store.documents<Customer>('customers')
  await store.events.append('order-1', placed(1))
  const session = store.session()
  session.documents(customers).put('ada', ada)
  session.events.append('order-2', placed(2))
  session.events.append('order-1', paid, { expected: 'empty' })

  await expect(session.save()).rejects.toMatchObject({ code: 'version_conflict', actual: 1 })
  expect(session.staged).toEqual({ documents: 1, events: 2 })
  expect(await customers.exists('ada')).toBe(false)
  await store.streams.tombstone('order-1')
  await expect(session.save()).rejects.toMatchObject({ code: 'stream_tombstoned' })

  expect(session.staged).toEqual({ documents: 1, events: 2 })
  expect(await store.streams.describe('order-2')).toBeUndefined()
})

test('a session takes a collection by its definition, as the store does', async () => {
  const { store } = await openShop()
  const definition = defineCollection<Customer>('customers')
  const session = store.session()
  session.documents(definition).insert('ada', ada)
  session.documents(store.documents(definition)).insert('bob', { email: 'bob@x' })

  await session.save()

  expect((await store.session().load(definition, 'ada'))?.data).toEqual(ada)
  expect(await store.documents(definition).count()).toBe(2)
  const elsewhere = (await openShop()).store.documents(definition)
  expect(() => void session.documents(elsewhere)).toThrow(/belongs to another store/)
})

test('a patch in a session changes the loaded document as it changes the stored one', async () => {
  const { store } = await openShop()
  const things = store.documents<Record<string, unknown>>('things')
  const before = { n: 1, list: [1, 2, 3], deep: { a: { b: 'x' } }, old: true }
  const patches: object[] = [
    { n: increment(2), 'deep.a.b': 'y', 'deep.c': { d: 1 } },
    { list: append(4, 5), old: unset() },
    { list: remove(2) },
    { list: insert(1, 9), old: rename('older') },
    { 'list[0]': 7, 'list[2]': unset(), missing: append(1) },
  ]
  const refused: object[] = [{ 'deep.a': increment(1) }, { 'list.name': 1 }]

  for (const [at, patch] of patches.entries()) {
    await things.put('stored', before)
    await things.put('staged', before)
    await things.patch('stored', patch)
    await using session = store.session()
    await session.documents(things).patch('staged', patch)
    await session.save()

    const [stored, staged] = await Promise.all([things.get('stored'), things.get('staged')])
    expect(staged?.data, `patch ${at}`).toEqual(stored?.data)
  }
  await things.put('staged', before)
  for (const patch of refused) {
    await using session = store.session()
    await expect(session.documents(things).patch('staged', patch)).rejects.toMatchObject({ code: 'patch_mismatch' })
    await expect(things.patch('staged', patch)).rejects.toMatchObject({ code: 'patch_mismatch' })
  }
})

test('a put of a document that exists and was not loaded says what to do', async () => {
  const { store } = await openShop()
  const customers = store.documents<Customer>('customers')
  await customers.put('ada', ada)
  await using session = store.session()
  session.documents(customers).put('ada', ada)

  await expect(session.save()).rejects.toThrow('put it with { upsert: true }')
  session.discard()
})
