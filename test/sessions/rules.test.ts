import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { expect, onTestFinished, test } from 'vitest'
import { channels } from '../../src/telemetry/telemetry.ts'
import { Order } from '../aggregates/orders.ts'
import { ada, bob, type Customer } from '../documents/customers.ts'
import { connect, onServer, openShop, paid, placed } from '../support/shop.ts'

test("metadata of all writes is merged key by key: the store's, then the session's, then the save's", async () => {
  const { store } = await openShop({ sessionDefaults: { headers: { app: 'shop', region: 'eu' }, userId: 'system' } })
  const customers = store.documents<Customer>('customers')
  const session = store.session({ headers: { region: 'us', session: 1 }, correlationId: 'checkout-1', userId: 'ada' })
  session.documents(customers).put('ada', ada)
  session.events.append('order-1', [placed(1), placed(2, { headers: { region: 'asia' }, userId: 'bob' })])

  await session.save({ headers: { save: true }, causationId: 'click-1', correlationId: undefined })

  const [one, two] = await store.events.read('order-1').toArray()
  const shared = { app: 'shop', session: 1, save: true }
  const said = { correlationId: 'checkout-1', causationId: 'click-1' }
  expect(one).toMatchObject({ headers: { ...shared, region: 'us' }, userId: 'ada', ...said })
  expect(two).toMatchObject({ headers: { ...shared, region: 'asia' }, userId: 'bob', ...said })
  expect(await customers.get('ada')).toMatchObject({ createdBy: 'ada', updatedBy: 'ada' })
})

test('a session that ends with unsaved work reports it', async () => {
  const { store, schema } = await openShop()
  const customers = store.documents<Customer>('customers')
  const received: unknown[] = []
  const listen = (message: unknown): void => {
    if ((message as { schema: string }).schema === schema) received.push(message)
  }
  subscribe(channels.unsaved, listen)
  onTestFinished(() => void unsubscribe(channels.unsaved, listen))

  {
    await using saved = store.session()
    saved.events.append('order-1', placed(1))
    await saved.save()
    await using discarded = store.session()
    discarded.events.append('order-1', placed(1))
    discarded.discard()
  }
  expect(received).toEqual([])
  {
    await using dropped = store.session()
    dropped.documents(customers).put('ada', ada)
    dropped.events.append('order-2', [placed(1), paid])
  }

  expect(received).toEqual([{ schema, documents: 1, events: 2 }])
  expect(store.metrics().session_unsaved_total).toBe(1)
})

test('a session is used by one caller at a time, and not after its end', async () => {
  const { store } = await openShop()
  const customers = store.documents<Customer>('customers')
  const session = store.session()
  const order = await session.fetchForWriting(Order, 'order-1')
  order.decide({ type: 'Place', total: 1 })
  const documents = session.documents(customers)

  const saving = session.save()

  const busy = { code: 'session_saving' }
  expect(() => documents.put('ada', ada)).toThrow(expect.objectContaining(busy))
  expect(() => order.decide({ type: 'Pay' })).toThrow(expect.objectContaining(busy))
  expect(() => session.events.append('order-2', placed(1))).toThrow(expect.objectContaining(busy))
  await expect(session.save()).rejects.toMatchObject(busy)
  await saving
  order.decide({ type: 'Pay' })
  await session.save()
  await session[Symbol.asyncDispose]()
  const over = { code: 'session_closed' }
  expect(() => order.append(paid)).toThrow(expect.objectContaining(over))
  await expect(session.load(customers, 'ada')).rejects.toMatchObject(over)
  await expect(session.save()).rejects.toMatchObject(over)
})

test('invalid changes, and changes that exclude each other, are refused when they are staged', async () => {
  const { store } = await openShop()
  const customers = store.documents<Customer>('customers')
  const session = store.session({ maxStaged: 3 })
  const documents = session.documents(customers)

  expect(() => documents.put('', ada)).toThrow(expect.objectContaining({ code: 'invalid_name' }))
  expect(() => documents.put('ada', [] as never)).toThrow(expect.objectContaining({ code: 'invalid_document' }))
  expect(() => documents.put('ada', ada, { expected: -1 })).toThrow(expect.objectContaining({ code: 'invalid_option' }))
  expect(() => session.events.append('', placed(1))).toThrow(expect.objectContaining({ code: 'invalid_name' }))
  documents.softDelete('ada')
  expect(() => documents.put('ada', ada)).toThrow(expect.objectContaining({ code: 'invalid_option' }))
  session.events.append('order-1', placed(1), { expected: 'empty' })
  session.events.append('order-1', paid, { expected: 1 })
  expect(() => session.events.append('order-1', paid, { expected: 7 })).toThrow(
    expect.objectContaining({ code: 'overloaded' }),
  )
  session.discard()
  session.events.append('order-1', placed(1), { expected: 'empty' })
  expect(() => session.events.append('order-1', paid, { expected: 7 })).toThrow(
    expect.objectContaining({ code: 'invalid_option' }),
  )
  await expect(session.fetchForWriting(Order, 'order-1')).rejects.toMatchObject({ code: 'invalid_option' })
  await expect(session.fetchForWriting(Order, 'parcel-1')).rejects.toMatchObject({ code: 'invalid_name' })
})

test('several changes to one document become one', async () => {
  const { store } = await openShop()
  const customers = store.documents<Customer>('customers')
  await customers.putMany(['a', 'b', 'c', 'd', 'e'].map(id => ({ id, data: ada })))
  const session = store.session()
  const documents = session.documents(customers)
  await documents.load(['a', 'b', 'c', 'd', 'e'])

  documents.put('a', bob)
  documents.put('a', { ...bob, visits: 2 })
  documents.put('b', bob)
  documents.delete('b')
  documents.delete('c')
  documents.put('c', bob)
  documents.softDelete('d')
  documents.insert('f', ada)
  documents.delete('f')
  const made = documents.insert(bob)
  await session.save()

  expect(await customers.getMany(['a', 'b', 'c', 'd', 'f', made])).toMatchObject(
    new Map([
      ['a', { data: { ...bob, visits: 2 }, version: 2 }],
      ['c', { data: bob, version: 2 }],
      [made, { data: bob, version: 1 }],
    ]),
  )
  documents.restore('d')
  await session.save()
  expect(await documents.load('d')).toMatchObject({ version: 3, data: ada })
})

test('changes that conflict with a deleted or missing document are refused with the reason', async () => {
  const { store } = await openShop()
  const customers = store.documents<Customer>('customers')
  await customers.putMany(['gone', 'hidden'].map(id => ({ id, data: ada })))
  const session = store.session()
  await session.load(customers, ['gone', 'hidden'])
  await customers.delete('gone')
  await customers.softDelete('hidden')

  session.documents(customers).put('gone', bob)
  await expect(session.save()).rejects.toMatchObject({ code: 'document_not_found', id: 'gone' })
  session.discard()
  session.documents(customers).put('hidden', bob, { expected: 1 })
  await expect(session.save()).rejects.toMatchObject({ code: 'document_deleted', id: 'hidden', version: 2 })
  await expect(session.documents(customers).update('nobody', data => data)).rejects.toMatchObject({
    code: 'document_not_found',
  })
})

test('a save with a key is stored once, and refused with other content', async () => {
  const { store } = await openShop()
  const customers = store.documents<Customer>('customers')
  const save = (data: Customer, events: number, more = {}) => {
    const session = store.session()
    session.documents(customers).put('ada', data, { upsert: true })
    for (let n = 0; n < events; n++) session.events.append('order-1', placed(n))
    return session.save({ idempotencyKey: `key-${events}`, ...more })
  }

  for (const events of [0, 2]) {
    const first = await save(ada, events)
    await customers.put('ada', bob)
    const again = await save(ada, events)

    expect(again).toMatchObject({ repeated: true, documents: first.documents, position: first.position })
    await expect(save(bob, events)).rejects.toMatchObject({ code: 'idempotency_mismatch' })
    await expect(save(ada, events, { onRepeat: 'error' })).rejects.toMatchObject({ code: 'idempotency_conflict' })
    expect(await customers.get('ada')).toMatchObject({ data: bob })
  }
  expect(await store.streams.describe('order-1')).toMatchObject({ version: 2 })
})

test('a save inside a transaction is part of it', async () => {
  const { store } = await openShop()
  const customers = store.documents<Customer>('customers')
  await customers.put('taken', bob)
  const session = store.session()

  const rolledBack = store.transaction(async tx => {
    session.documents(customers).put('ada', ada)
    session.events.append('order-1', placed(1))
    await session.save({ tx })
    throw new Error('changed my mind')
  })
  await expect(rolledBack).rejects.toThrow('changed my mind')
  expect(await customers.exists('ada')).toBe(false)

  await store.transaction(async tx => {
    const failing = store.session()
    failing.documents(customers).insert('taken', ada)
    failing.documents(customers).insert('not-taken', ada)
    await expect(failing.save({ tx })).rejects.toMatchObject({ code: 'document_exists' })
    failing.events.append('order-1', placed(1))
    await expect(failing.save({ tx })).rejects.toMatchObject({ code: 'document_exists' })
    const saved = store.session()
    saved.documents(customers).insert('ada', ada)
    saved.events.append('order-1', placed(1))
    await saved.save({ tx })
    await expect(saved.save()).resolves.toMatchObject({ documents: [] })
  })
  expect(await customers.exists('not-taken')).toBe(false)
  expect(await customers.exists('ada')).toBe(true)
  expect(await store.streams.describe('order-1')).toMatchObject({ version: 1 })
  const inside = store.transaction(async () => {
    const outside = store.session()
    outside.events.append('order-1', paid)
    await outside.save()
  })
  await expect(inside).rejects.toMatchObject({ code: 'inside_transaction' })
})

test.runIf(onServer)("a save joins a transaction of the user's own client", async () => {
  const { store } = await openShop()
  const customers = store.documents<Customer>('customers')
  await customers.ready()
  const client = await connect()
  await client.query('begin')
  for (const events of [0, 1]) {
    const session = store.session()
    session.documents(customers).put(`ada-${events}`, ada)
    if (events > 0) session.events.append('order-1', placed(1))
    await session.save({ tx: client })
  }

  expect(await customers.count()).toBe(0)
  await client.query('commit')
  expect(await customers.count()).toBe(2)
  expect(await store.streams.describe('order-1')).toMatchObject({ version: 1 })
})

test('a save that is aborted before it is sent stores nothing, and keeps everything staged', async () => {
  const { store } = await openShop()
  const customers = store.documents<Customer>('customers')
  const session = store.session()
  session.documents(customers).put('ada', ada)

  await expect(session.save({ signal: AbortSignal.abort() })).rejects.toMatchObject({ code: 'aborted' })

  expect(session.staged).toEqual({ documents: 1, events: 0 })
  await session.save({ signal: new AbortController().signal })
  expect(await customers.exists('ada')).toBe(true)
})
