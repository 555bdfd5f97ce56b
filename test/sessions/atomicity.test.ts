import { expect, test } from 'vitest'
import { isRillflowError } from '../../src/core/errors.ts'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import type { Session } from '../../src/sessions/session.ts'
import { orders } from '../aggregates/orders.ts'
import { ada, bob, type Customer } from '../documents/customers.ts'
import { onServer, openShop, paid, placed, type ShopMap, shopEvents } from '../support/shop.ts'
import { type Failure, failingDatabase } from './failing-database.ts'

const failures: Failure[] = onServer ? ['unsent', 'refused', 'cut', 'unanswered'] : ['unsent', 'refused', 'unanswered']

test.for(failures)('a save of one document and one event is all or nothing, wherever it fails: %s', async failure => {
  const { database, failAt, disarm } = await failingDatabase()
  const { store, query } = await openShop({ database })
  const customers = store.documents<Customer>('customers')
  await customers.ready()

  for (let n = 1, hasFailed = true; hasFailed; n++) {
    const session = store.session()
    session.documents(customers).put(`ada-${n}`, ada)
    session.events.append(`order-${n}`, placed(n))
    failAt(n, failure)
    const error = await session.save().catch((reason: unknown) => reason as Error)
    hasFailed = disarm()

    if (error instanceof Error && !isRillflowError(error, 'outcome_unknown')) {
      expect(session.staged, `statement ${n}`).toEqual({ documents: 1, events: 1 })
      expect(await stored(n), `statement ${n}`).toEqual({ documents: 0, events: 0 })
    }
    await session.save()
    expect(session.staged).toEqual({ documents: 0, events: 0 })
    expect(await stored(n), `statement ${n}`).toEqual({ documents: 1, events: 1 })
    expect(await customers.get(`ada-${n}`)).toMatchObject({ version: 1 })
  }

  async function stored(n: number): Promise<object> {
    const [row] = await query(
      `select
        (select count(*)::integer from ~customers where id = $1) as documents,
        (select count(*)::integer from ~events where stream = $2) as events`,
      [`ada-${n}`, `order-${n}`],
    )
    return row!
  }
})

test.for(failures)('saves that were sent together are stored once each, although one step fails: %s', async failure => {
  const { database, failAt, disarm } = await failingDatabase()
  const { store } = await openShop({ database })
  const customers = store.documents<Customer>('customers')
  await customers.ready()
  const sessions = Array.from({ length: 6 }, (_, n) => {
    const session = store.session()
    session.documents(customers).put(`customer-${n}`, ada)
    session.events.append(`order-${n}`, placed(n))
    return session
  })

  failAt(1, failure)
  await Promise.all(sessions.map(session => session.save()))

  expect(disarm()).toBe(true)
  expect(await store.events.readAll().toArray()).toHaveLength(6)
  for (const { version } of (await customers.getMany(sessions.map((_, n) => `customer-${n}`))).values())
    expect(version).toBe(1)
  expect(await customers.count()).toBe(6)
})

test('a save of documents alone with a lost answer has an unknown outcome, unless it has a key', async () => {
  const { database, failAt, disarm } = await failingDatabase()
  const { store } = await openShop({ database })
  const customers = store.documents<Customer>('customers')
  await customers.ready()
  const session = store.session()
  session.documents(customers).put('ada', ada)

  failAt(1, 'unanswered')
  await expect(session.save()).rejects.toMatchObject({ code: 'outcome_unknown' })
  expect(disarm()).toBe(true)
  expect(session.staged).toEqual({ documents: 1, events: 0 })
  await expect(session.save()).rejects.toMatchObject({ code: 'document_exists', version: 1 })

  session.discard()
  session.documents(customers).put('bob', bob)
  failAt(1, 'unanswered')
  await session.save({ idempotencyKey: 'bob-1' })
  expect(await customers.get('bob')).toMatchObject({ version: 1 })
})

test.for(failures)('a save of everything is all or nothing, wherever it fails: %s', async failure => {
  const { database, failAt, disarm } = await failingDatabase()
  const { store, query } = await openShop({ database })
  const Order = orders({ every: 2 })
  const customers = store.documents<Customer>('customers')
  const notes = store.documents<{ text: string }>('notes', { history: true })
  await customers.ready()
  await notes.ready()
  const totals = defineDocumentProjection('totals', {
    events: shopEvents,
    initial: () => ({ total: 0 }),
    evolve: { OrderPlaced: (before, event) => ({ total: before.total + event.data.total }) },
  })
  await store.projections.register({ ...totals, lifecycle: 'inline' })
  let saves = 0

  for (let n = 1, hasFailed = true; hasFailed; n++) {
    await customers.put(`bob-${n}`, bob)
    await customers.put(`old-${n}`, bob)
    const session = store.session()
    await stage(session, n)
    const staged = session.staged
    const before = await stored(n)
    failAt(n, failure)
    const error = await session.save({ idempotencyKey: `key-${n}` }).catch((reason: unknown) => reason as Error)
    hasFailed = disarm()

    if (error instanceof Error && !isRillflowError(error, 'outcome_unknown')) {
      expect(session.staged, `statement ${n}`).toEqual(staged)
      expect(await stored(n), `statement ${n}`).toEqual(before)
    }
    if (error instanceof Error) await session.save({ idempotencyKey: `key-${n}` })
    expect(await stored(n), `statement ${n}`).toEqual({
      customers: [`ada-${n} 1`, `bob-${n} 2`],
      notes: [`note-${n} 1`],
      history: 1,
      events: ['OrderPaid', 'OrderPlaced', 'OrderPlaced'],
      snapshots: [2],
      totals: 2,
      keys: 1,
    })
    // Another process repeats it under the same key.
    const again = store.session()
    await again.load(customers, [`old-${n}`])
    await stageBlindly(again, n)
    const repeated = await again.save({ idempotencyKey: `key-${n}` })
    expect(repeated.repeated).toBe(true)
    expect(repeated.documents.map(({ id, version }) => `${id} ${version}`).sort()).toEqual(
      [`ada-${n} 1`, `bob-${n} 2`, `note-${n} 1`, `old-${n} 1`].sort(),
    )
    saves = n
  }
  expect(saves).toBeGreaterThan(7)

  async function stage(session: Session<ShopMap>, n: number): Promise<void> {
    const documents = session.documents(customers)
    await documents.load([`bob-${n}`, `old-${n}`])
    documents.put(`ada-${n}`, ada)
    documents.put(`bob-${n}`, { ...bob, visits: 1 })
    documents.delete(`old-${n}`)
    session.documents(notes).insert(`note-${n}`, { text: 'new' })
    session.events.append(`parcel-${n}`, placed(5))
    const order = await session.fetchForWriting(Order, `order-${n}`)
    order.decide({ type: 'Place', total: n })
    order.append(paid)
  }

  async function stageBlindly(session: Session<ShopMap>, n: number): Promise<void> {
    const documents = session.documents(customers)
    documents.put(`ada-${n}`, ada, { upsert: true })
    documents.put(`bob-${n}`, { ...bob, visits: 1 }, { upsert: true })
    documents.delete(`old-${n}`)
    session.documents(notes).put(`note-${n}`, { text: 'new' }, { upsert: true })
    session.events.append(`parcel-${n}`, placed(5))
    session.events.append(`order-${n}`, [placed(n), paid])
  }

  async function stored(n: number): Promise<object> {
    const [row] = await query(
      `select
        (select json_agg(id || ' ' || version order by id) from ~customers where id like '%-' || $1) as customers,
        (select json_agg(id || ' ' || version) from ~notes where id = 'note-' || $1) as notes,
        (select count(*)::integer from ~notes__history where id = 'note-' || $1) as history,
        (select json_agg(type order by type) from ~events where stream like '%-' || $1) as events,
        (select json_agg(version) from ~snapshots where stream = 'order-' || $1) as snapshots,
        (select count(*)::integer from ~totals where id like '%-' || $1) as totals,
        (select count(*)::integer from ~idempotency_keys where key = 'key-' || $1) as keys`,
      [String(n)],
    )
    return row!
  }
})
