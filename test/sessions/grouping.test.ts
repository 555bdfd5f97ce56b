import { expect, test } from 'vitest'
import { ada, bob, type Customer } from '../documents/customers.ts'
import { connect, onServer, openShop, outcome, placed, type Shop } from '../support/shop.ts'

async function openCustomers() {
  const shop = await openShop()
  const customers = shop.store.documents<Customer>('customers', {})
  await customers.ready()
  return { ...shop, customers }
}

test('concurrent saves are sent together, each with its own outcome', async () => {
  const { store, customers } = await openCustomers()
  await customers.put('taken', bob)
  await store.events.append('order-3', placed(1))
  const ids = Array.from({ length: 40 }, (_, n) => (n === 7 ? 'taken' : `customer-${n}`))

  const outcomes = await Promise.all(
    ids.map((id, n) => {
      const session = store.session()
      session.documents(customers).put(id, { ...ada, visits: n })
      session.events.append(`order-${n}`, placed(n), { expected: 'empty' })
      return outcome(session.save())
    }),
  )

  for (const [n, { value, error }] of outcomes.entries()) {
    if (n === 3) expect(error).toMatchObject({ code: 'version_conflict', stream: 'order-3', actual: 1 })
    else if (n === 7) expect(error).toMatchObject({ code: 'document_exists', id: 'taken', version: 1 })
    else {
      const stream = { stream: `order-${n}`, version: 1 }
      expect(value).toMatchObject({ documents: [{ id: ids[n], version: 1 }], streams: [stream] })
    }
  }
  const { session_saves_total: saves, session_save_groups_total: groups } = store.metrics()
  expect(saves).toBe(38)
  expect(groups).toBeLessThan(saves / 4)
  expect(await customers.count()).toBe(39)
  expect(await customers.exists('customer-3')).toBe(false)
  expect(await store.streams.describe('order-7')).toBeUndefined()
  const stored = await store.events.readAll().toArray()
  expect(stored).toHaveLength(39)
  const own = outcomes.flatMap(({ value }) => value?.position ?? [])
  expect(new Set(own)).toEqual(new Set(stored.slice(1).map(event => event.position)))
})

test('saves to one document or one stream follow each other', async () => {
  const { store, customers } = await openCustomers()
  const saves = Array.from({ length: 12 }, (_, n) => {
    const session = store.session()
    session.documents(customers).put('ada', { ...ada, visits: n }, { upsert: true })
    session.events.append('visits', placed(n))
    return session.save()
  })

  const saved = await Promise.all(saves)

  expect(saved.map(({ documents }) => documents[0]!.version)).toEqual(saves.map((_, n) => n + 1))
  expect(saved.map(({ streams }) => streams[0]!.version)).toEqual(saves.map((_, n) => n + 1))
  expect(await customers.get('ada')).toMatchObject({ data: { visits: 11 }, version: 12 })
})

test('saves of different kinds run in parallel', async () => {
  const { store, customers } = await openCustomers()
  const notes = store.documents<{ text: string }>('notes')
  await customers.putMany([1, 2, 3].map(n => ({ id: `loaded-${n}`, data: ada })))

  const saved = await Promise.all(
    [1, 2, 3].flatMap(n => {
      const [inserts, replaces, both, deletes] = [store.session(), store.session(), store.session(), store.session()]
      inserts.documents(customers).insert(`new-${n}`, ada)
      inserts.events.append(`order-${n}`, placed(n))
      replaces.documents(customers).put(`loaded-${n}`, bob, { expected: 1 })
      both.documents(notes).put(`note-${n}`, { text: 'put' }, { upsert: true })
      both.documents(customers).put(`too-${n}`, bob)
      both.events.append(`parcel-${n}`, placed(n))
      both.events.append(`letter-${n}`, placed(n))
      deletes.documents(customers).delete(`nobody-${n}`)
      return [inserts.save(), replaces.save(), both.save(), deletes.save()]
    }),
  )

  expect(saved.map(({ documents }) => documents.map(({ version }) => version))).toEqual(
    [1, 2, 3].flatMap(() => [[1], [2], [1, 1], []]),
  )
  expect(await customers.count()).toBe(9)
  expect(await notes.count()).toBe(3)
  expect(await store.events.readAll().toArray()).toHaveLength(9)
})

test('a value that violates a unique index fails only its own save, and is named', async () => {
  const { store } = await openShop()
  const customers = store.documents<Customer>('customers', { indexes: [{ path: 'email', unique: true }] })
  await customers.put('ada', ada)

  const outcomes = await Promise.all(
    ['one@x', 'two@x', ada.email, 'three@x'].map((email, n) => {
      const session = store.session()
      session.documents(customers).put(`customer-${n}`, { email })
      session.events.append(`order-${n}`, placed(n))
      return outcome(session.save())
    }),
  )

  expect(outcomes.map(({ error }) => (error as { code?: string } | undefined)?.code)).toEqual([
    undefined,
    undefined,
    'unique_violation',
    undefined,
  ])
  expect(outcomes[2]!.error).toMatchObject({ fields: ['email'], value: ada.email })
  expect(await store.events.readAll().toArray()).toHaveLength(3)
})

test.runIf(onServer)('a document or a stream held elsewhere delays only its own save', async () => {
  const shop = await openCustomers()
  const { store, customers } = shop
  await customers.put('held', ada)
  await store.events.append('order-held', placed(1))
  for (const [what, statement] of [
    ['document', `select from ~customers where id = 'held' for update`],
    ['stream', `select from ~streams where stream = 'order-held' for update`],
  ] as const) {
    const other = await connect()
    await other.query('begin')
    await other.query(shop.named(statement))

    let isDone = false
    const held = save(shop, customers, 'held', `${what}-held`).finally(() => {
      isDone = true
    })
    const others = ['a', 'b', 'c'].map(id => save(shop, customers, `${what}-${id}`, `${what}-${id}`))
    await Promise.all(others)

    expect(isDone).toBe(false)
    await other.query('rollback')
    await held
  }
  expect(await customers.get('held')).toMatchObject({ version: 3 })

  function save({ store: at }: Shop, collection: typeof customers, id: string, name: string): Promise<unknown> {
    const session = at.session()
    session.documents(collection).put(id, { ...ada, profile: { name } }, { upsert: true })
    session.events.append(id === 'held' ? 'order-held' : `order-${name}`, placed(1))
    return session.save()
  }
})

test('a store that closes waits for its saves', async () => {
  const { store, query } = await openShop({ closeMs: 30_000 })
  const customers = store.documents<Customer>('customers')
  await customers.ready()
  const sessions = Array.from({ length: 5 }, (_, n) => {
    const session = store.session()
    session.documents(customers).put(`customer-${n}`, ada)
    session.events.append(`order-${n}`, placed(n))
    return session
  })

  const saves = sessions.map(session => outcome(session.save()))
  await store.close()

  const ended = await Promise.all(saves)
  const stored = ended.filter(({ value }) => value !== undefined)
  for (const { error } of ended) if (error !== undefined) expect(error).toMatchObject({ code: 'store_closed' })
  const [{ count }] = (await query('select count(*)::integer as count from ~customers')) as [{ count: number }]
  expect(count).toBe(stored.length)
})
