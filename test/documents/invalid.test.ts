import * as v from 'valibot'
import { expect, test } from 'vitest'
import { openShop } from '../support/shop.ts'
import { ada, bob, type Customer, openCustomers } from './customers.ts'

test('invalid ids are refused by every call', async () => {
  const { customers } = await openCustomers()
  const ids = ['', 'a\0b', '\ud800', 'x'.repeat(256), 7 as never, undefined as never]
  const calls: ((id: string) => Promise<unknown>)[] = [
    id => customers.get(id),
    id => customers.getMany([id]),
    id => customers.exists(id),
    id => customers.insert(id, ada),
    id => customers.put(id, ada),
    id => customers.update(id, data => data),
    id => customers.patch(id, { visits: 1 }),
    id => customers.merge(id, { visits: 1 }),
    id => customers.delete(id),
    id => customers.softDelete(id),
    id => customers.restore(id),
    id => customers.deleteMany([id]),
  ]

  for (const id of ids) for (const call of calls) await expect(call(id)).rejects.toMatchObject({ code: 'invalid_name' })
  await expect(customers.put('ada', ada, { userId: '' })).rejects.toMatchObject({ what: 'User id' })
})

test('invalid expected versions are refused', async () => {
  const { customers } = await openCustomers()

  for (const expected of [0, -1, 1.5, Number.NaN, '1' as never])
    await expect(customers.put('ada', ada, { expected })).rejects.toMatchObject({ option: 'expected' })
})

test('a value that is not a document is refused with its path, and nothing is sent', async () => {
  const { customers } = await openCustomers()
  const cyclic: Record<string, unknown> = {}
  cyclic.self = cyclic
  const bodies: [unknown, string][] = [
    [undefined, 'data'],
    [null, 'data'],
    ['text', 'data'],
    [[ada], 'data'],
    [new Date(), 'data'],
    [new Map([['a', 1]]), 'data'],
    [{ email: undefined, visits: Number.NaN }, 'data.visits'],
    [{ profile: { name: 'a\0b' } }, 'data.profile.name'],
    [{ tags: ['\ud800'] }, 'data.tags[0]'],
    [{ visits: 1n }, 'data.visits'],
    [{ visit: () => {} }, 'data.visit'],
    [cyclic, 'data.self'],
    [JSON.parse('{"a": [{"__proto__": {"isAdmin": true}}]}'), 'data.a[0].__proto__'],
  ]

  for (const [body, path] of bodies) {
    await expect(customers.put('ada', body as Customer)).rejects.toMatchObject({
      code: 'invalid_document',
      id: 'ada',
      path,
    })
    await expect(customers.insert('ada', body as Customer)).rejects.toMatchObject({ code: 'invalid_document', path })
  }
  expect(await customers.put('ada', { email: '__proto__', profile: undefined } as never)).toBe(1)
  expect((await customers.get('ada'))?.data).toEqual({ email: '__proto__' })
})

test('a document larger than the limit is refused', async () => {
  const { store } = await openShop({ maxDocumentBytes: 100 })
  const notes = store.documents<{ text: string }>('notes')

  await expect(notes.put('long', { text: 'x'.repeat(100) })).rejects.toMatchObject({
    code: 'invalid_document',
    reason: expect.stringContaining('more than 100 bytes'),
  })
  expect(await notes.put('short', { text: 'x'.repeat(80) })).toBe(1)
})

test('names that cannot be a table, or are reserved by the store, are refused', async () => {
  const { store } = await openShop()

  for (const name of ['', 'a b', 'a"b', 'a;drop', '1st', 'x'.repeat(41), 7 as never])
    expect(() => store.documents(name)).toThrow(expect.objectContaining({ code: 'invalid_name' }))
  for (const name of ['events', 'streams', 'consumers'])
    expect(() => store.documents(name)).toThrow(expect.objectContaining({ code: 'invalid_option' }))
  store.documents('orders')
  expect(() => store.documents('orders', { gin: false })).toThrow(/with another shape/)
  expect(store.documents('orders').name).toBe('orders')
})

const customerSchema = v.object({ email: v.string(), visits: v.optional(v.pipe(v.number(), v.maxValue(3))) })

test('a schema validates documents before they are written', async () => {
  const { customers } = await openCustomers({ schema: customerSchema as never })
  await customers.put('ada', ada)
  const wrong = { email: 7 } as unknown as Customer
  const refused = {
    code: 'invalid_document',
    path: 'data.email',
    reason: expect.stringContaining('does not fit the schema'),
  }

  await expect(customers.put('ada', wrong)).rejects.toMatchObject(refused)
  await expect(customers.insert('bob', wrong)).rejects.toMatchObject(refused)
  await expect(customers.update('ada', () => wrong)).rejects.toMatchObject(refused)
  await expect(customers.putMany([{ id: 'bob', data: wrong }])).rejects.toMatchObject(refused)
  await expect(customers.importMany([{ id: 'bob', data: wrong }])).rejects.toMatchObject(refused)
  expect(await customers.count()).toBe(1)
  expect(await customers.get('ada')).toMatchObject({ data: ada, version: 1 })
})

test('a patch that violates a schema is undone, also inside a transaction', async () => {
  const { customers, store } = await openCustomers({ schema: customerSchema as never })
  await customers.put('ada', ada)

  await expect(customers.patch('ada', { visits: 4 })).rejects.toMatchObject({ path: 'data.visits' })
  await expect(customers.merge('ada', { visits: 4 })).rejects.toMatchObject({ path: 'data.visits' })
  await store.transaction(async tx => {
    await expect(customers.patch('ada', { visits: 4 }, { tx })).rejects.toMatchObject({ path: 'data.visits' })
    expect(await customers.patch('ada', { visits: 3 }, { tx })).toBe(2)
  })

  expect(await customers.get('ada')).toMatchObject({ data: { visits: 3 }, version: 2 })
})

test('a schema may be asynchronous', async () => {
  const slow = v.objectAsync({
    email: v.pipeAsync(
      v.string(),
      v.checkAsync(async text => text.includes('@')),
    ),
  })
  const { customers } = await openCustomers({ schema: slow as never })

  expect(await customers.put('ada', ada)).toBe(1)
  const wrong = { email: 'nowhere' }
  await expect(customers.put('bob', wrong)).rejects.toMatchObject({ code: 'invalid_document' })
  const batch = customers.batch().put('bob', wrong)
  await expect(batch.flush()).rejects.toMatchObject({ code: 'invalid_document', id: 'bob' })
})

test('documents of an old schema version are read in the new shape, and stay unchanged until they are written', async () => {
  const { store, query } = await openShop()
  await store.documents('people').put('ada', { fullName: 'Ada Lovelace' })
  interface Person {
    first: string
    last: string
  }
  const upcast = (stored: unknown): Person => {
    const { fullName, ...rest } = stored as { fullName?: string } & Person
    if (fullName === '') throw new Error('no name')
    const [first = '', last = ''] = fullName?.split(' ') ?? []
    return fullName === undefined ? rest : { first, last }
  }
  const people = store.documents<Person>('people', { upcast })

  expect((await people.get('ada'))?.data).toEqual({ first: 'Ada', last: 'Lovelace' })
  expect((await people.getMany(['ada'])).get('ada')?.data.last).toBe('Lovelace')
  expect(await query('select body from ~people')).toEqual([{ body: { fullName: 'Ada Lovelace' } }])

  await people.update('ada', person => ({ ...person, last: 'King' }))
  expect(await query('select body from ~people')).toEqual([{ body: { first: 'Ada', last: 'King' } }])
  await store.documents('people').put('bob', { fullName: '' })
  await expect(people.get('bob')).rejects.toMatchObject({
    code: 'upcast_failed',
    id: 'bob',
    cause: { message: 'no name' },
  })
})

test('a value that must be unique is refused by every write, with field and value', async () => {
  const { customers } = await openCustomers({ indexes: [{ path: 'email', unique: true }] })
  await customers.put('ada', ada)
  await customers.put('bob', bob)
  const taken = { code: 'unique_violation', collection: 'customers', fields: ['email'], value: 'ada@x' }

  await expect(customers.insert('eve', ada)).rejects.toMatchObject(taken)
  await expect(customers.put('bob', ada)).rejects.toMatchObject(taken)
  await expect(customers.update('bob', () => ada)).rejects.toMatchObject(taken)
  const named = { ...taken, value: expect.anything() }
  await expect(customers.patch('bob', { email: 'ada@x' })).rejects.toMatchObject(named)
  await expect(customers.putMany([{ data: ada }, { data: bob }])).rejects.toMatchObject(named)
  await expect(customers.importMany([{ data: ada }])).rejects.toMatchObject(named)
  expect(await customers.count()).toBe(2)
})
