/** One contract for the transactions of every library: each for real, on a real server. */
import pg from 'pg'
import { describe, expect, onTestFinished, test } from 'vitest'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import { defineTableProjection } from '../../src/projections/table-projection.ts'
import { orders } from '../aggregates/orders.ts'
import { ada, type Customer } from '../documents/customers.ts'
import { postgresUrl } from '../support/engines.ts'
import { libraries, type OpenLibrary } from '../support/libraries.ts'
import { openShop, outcome, placed, type Shop, shipped, shopEvents, take } from '../support/shop.ts'

/** With snapshots, and no states in memory. */
const Order = orders({ every: 1 })

const awkward = `o'k \\ "q" ü {1,2} NULL`

const totals = defineDocumentProjection('totals', {
  events: shopEvents,
  lifecycle: 'inline',
  initial: () => ({ total: 0, orders: 0 }),
  evolve: {
    OrderPlaced: (state, { data }) => {
      if (data.total === 13) throw new Error('thirteen')
      return { total: state.total + data.total, orders: state.orders + 1 }
    },
  },
})

const byNote = defineTableProjection('by_note', {
  events: shopEvents,
  lifecycle: 'inline',
  columns: { note: 'text', orders: 'integer', total: 'bigint' },
  primaryKey: ['note'],
  on: {
    OrderPlaced: ({ data }, row) => row({ note: data.note ?? 'none' }, { increment: { orders: 1, total: data.total } }),
  },
})

async function openBoth(open: (url: string) => Promise<OpenLibrary>, options: Parameters<typeof openShop>[0] = {}) {
  const shop = await openShop(options)
  await shop.query('create table ~mine (id integer primary key)')
  // Tables are not made inside a transaction.
  await shop.store.documents<Customer>('customers').ready()
  const library = await open(postgresUrl())
  onTestFinished(() => library[Symbol.asyncDispose]())
  const insert = shop.named('insert into ~mine (id) values (1)')
  const counted = async () => {
    const [row] = await shop.query<{ rows: number; events: number }>(
      'select (select count(*)::integer from ~mine) as rows, (select count(*)::integer from ~events) as events',
    )
    return row
  }
  return { ...shop, library, insert, counted }
}

/** Everything that writes with `{ tx }`. Gives the number of events. */
async function everyWrite({ store }: Shop, tx: Parameters<Shop['store']['events']['append']>[2]) {
  const at = tx as { tx: never }
  const customers = store.documents<Customer>('customers')
  const one = await store.events.append('order-1', placed(1, { data: { total: 1, note: awkward } }), {
    ...at,
    expected: 'empty',
    headers: { note: awkward },
  })
  const many = await store.events.appendMany(
    [
      { stream: 'order-3', events: placed(3) },
      { stream: 'order-2', events: [placed(2), shipped()] },
    ],
    { ...at, idempotencyKey: 'many' },
  )
  const repeated = await store.events.appendMany(
    [
      { stream: 'order-3', events: placed(3) },
      { stream: 'order-2', events: [placed(2), shipped()] },
    ],
    { ...at, idempotencyKey: 'many' },
  )
  await customers.put('c-1', { ...ada, email: awkward }, at)
  const session = store.session()
  session.events.append('order-4', placed(4))
  session.documents(customers).put('c-2', ada)
  await session.save(at)
  await store.handle(Order, 'order-5', { type: 'Place', total: 5 }, at)
  await store.handle(Order, 'order-5', { type: 'Pay' }, at)
  await store.handle(Order, 'order-5', { type: 'Ship', parcels: ['p'] }, at)
  const workflow = await store.workflows.publish('OrderPlaced', { total: 6 }, { ...at, stream: 'order-6' })
  return { one, many, repeated, workflow }
}

describe.each(libraries)('a transaction of $name', ({ open, use, parsesItself }) => {
  test('commits what the store writes with what the user writes', async () => {
    const shop = await openBoth(open, { aggregates: [Order] })

    let results: Awaited<ReturnType<typeof everyWrite>>
    let read: unknown
    let note: unknown
    await shop.library.transaction(async ({ tx, run }) => {
      await run(shop.insert)
      results = await everyWrite(shop, { tx })
      const [event] = await shop.store.events.read('order-1', { tx }).toArray()
      read = [
        typeof event!.position,
        event!.version,
        event!.createdAt instanceof Date,
        event!.data,
        event!.headers.note,
      ]
      note = (await shop.store.documents<Customer>('customers').get('c-1', { tx }))?.data.email
    })

    expect(await shop.counted()).toEqual({ rows: 1, events: 9 })
    expect(read).toEqual(['number', 1, true, { total: 1, note: awkward }, awkward])
    expect(note).toBe(awkward)
    expect(results!.one).toMatchObject({ version: 1, repeated: false, position: expect.any(Number) })
    expect(results!.many.map(({ version }) => version)).toEqual([1, 2])
    expect(results!.repeated).toMatchObject([{ repeated: true }, { repeated: true }])
    expect((await shop.store.documents<Customer>('customers').get('c-2'))?.data).toEqual(ada)
    const all = await shop.store.events.readAll().toArray()
    expect(all.map(event => event.stream).sort()).toEqual([
      'order-1',
      'order-2',
      'order-2',
      'order-3',
      'order-4',
      'order-5',
      'order-5',
      'order-5',
      'order-6',
    ])
  })

  test('takes back what the store has written when it is rolled back', async () => {
    const shop = await openBoth(open, { aggregates: [Order] })

    const { error } = await outcome(
      shop.library.transaction(async ({ tx, run }) => {
        await run(shop.insert)
        await everyWrite(shop, { tx })
        throw new Error('out of stock')
      }),
    )

    expect(error).toMatchObject({ message: 'out of stock' })
    expect(await shop.counted()).toEqual({ rows: 0, events: 0 })
    expect(await shop.store.documents<Customer>('customers').get('c-1')).toBeUndefined()
  })

  test('can continue after a conflict, which leaves nothing', async () => {
    const shop = await openBoth(open)
    await shop.store.events.append('order-1', placed())

    let conflict: unknown
    await shop.library.transaction(async ({ tx, run }) => {
      conflict = (await outcome(shop.store.events.append('order-1', placed(), { tx, expected: 'empty' }))).error
      await run(shop.insert)
      await shop.store.events.append('order-1', placed(), { tx, expected: 1 })
    })

    expect(conflict).toMatchObject({ code: 'version_conflict', actual: 1 })
    expect(await shop.counted()).toEqual({ rows: 1, events: 2 })
  })

  test('keeps inline projections, and a failing one undoes its own append alone', async () => {
    const shop = await openBoth(open, { projections: [totals, byNote] })
    await (await shop.store.start()).stop()

    let failed: unknown
    await shop.library.transaction(async ({ tx, run }) => {
      await run(shop.insert)
      await shop.store.events.append('order-1', placed(1), { tx })
      failed = (await outcome(shop.store.events.append('order-2', placed(13), { tx }))).error
      await Promise.all([2, 3, 4].map(total => shop.store.events.append('order-1', placed(total), { tx })))
    })

    expect(failed).toMatchObject({ code: 'inline_projection_failed' })
    expect(await shop.counted()).toEqual({ rows: 1, events: 4 })
    expect((await shop.store.documents(totals).get('order-1'))?.data).toEqual({ total: 10, orders: 4 })
    expect(await shop.store.documents(totals).get('order-2')).toBeUndefined()
    expect(await shop.store.rows(byNote).toArray()).toEqual([{ note: 'none', orders: 4, total: 10 }])
  })

  test('wakes readers of other processes when it commits, and not before', async () => {
    const shop = await openBoth(open)
    // Only a notification can wake it in time.
    const other = await shop.sibling({ pollMs: 600_000 })
    const following = new AbortController()
    onTestFinished(() => following.abort())
    await shop.store.events.append('order-0', placed())
    const seen = take(other.events.tail({ from: 'start', signal: following.signal }), 2)
    let during = -1

    await shop.library.transaction(async ({ tx }) => {
      await shop.store.events.append('order-1', placed(), { tx })
      during = (await other.events.readAll().toArray()).length
    })

    expect(during).toBe(1)
    expect((await seen).map(event => event.stream)).toEqual(['order-0', 'order-1'])
  })

  // Prisma reads its own results by the same parsers: a user who changes them breaks Prisma.
  test.skipIf(parsesItself)('gives our types, whatever parsers the user has set', async () => {
    const shop = await openBoth(open)
    const types = [20, 1184, 114, 3802, 1009]
    const before = types.map(type => pg.types.getTypeParser(type as never))
    onTestFinished(() => types.forEach((type, at) => void pg.types.setTypeParser(type as never, before[at]!)))
    for (const type of types) pg.types.setTypeParser(type as never, (text: string) => `<${text}>`)

    let read: unknown
    await shop.library.transaction(async ({ tx }) => {
      const { position, version } = await shop.store.events.append('order-1', placed(7), { tx })
      const [event] = await shop.store.events.read('order-1', { tx }).toArray()
      read = [position, version, event!.position, event!.createdAt instanceof Date, event!.data]
    })

    expect(read).toEqual([1, 1, 1, true, { total: 7 }])
  })

  test('is named, with the way to give it, when it is given as it is', async () => {
    if (use === undefined) return
    const shop = await openBoth(open)

    let refused: unknown
    await shop.library.transaction(async ({ theirs }) => {
      refused = (await outcome(shop.store.events.append('order-1', placed(), { tx: theirs as never }))).error
    })

    expect(refused).toMatchObject({ code: 'invalid_option', option: 'tx', message: expect.stringContaining(use) })
  })

  test('is refused when it is the whole database', async () => {
    const shop = await openBoth(open)
    if (shop.library.outside === undefined) return

    const { error } = await outcome(shop.store.events.append('order-1', placed(), { tx: shop.library.outside }))

    expect(error).toMatchObject({ code: 'not_in_transaction' })
    expect(await shop.store.events.head()).toBe(0)
  })

  test('takes back a nested one alone', async () => {
    const shop = await openBoth(open)

    await shop.library.transaction(async ({ tx, nested }) => {
      await shop.store.events.append('order-1', placed(), { tx })
      if (nested === undefined) return
      await nested(async inner => {
        await inner.run(shop.insert)
        await shop.store.events.append('order-2', placed(), { tx: inner.tx })
        throw new Error('inner')
      }).catch(() => {})
      await nested(async inner => {
        await shop.store.events.append('order-3', placed(), { tx: inner.tx })
      })
    })

    const streams = (await shop.store.events.readAll().toArray()).map(event => event.stream)
    expect(streams.filter(stream => stream !== 'order-3')).toEqual(['order-1'])
    expect(streams).not.toContain('order-2')
    expect((await shop.counted())?.rows).toBe(0)
  })
})
