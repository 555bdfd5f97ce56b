import { expect, test } from 'vitest'
import type { Transaction } from '../../src/database/database.ts'
import { engine } from '../support/engines.ts'
import { connect, onServer, openShop, outcome, paid, placed, shipped, take } from '../support/shop.ts'

/** With counters nothing is announced. */
const counts = engine === 'counter' || engine === 'citus'

test('events and SQL of the user commit together', async () => {
  const { store, query, named } = await openShop()
  await query('create table ~invoices (id text primary key)')

  const result = await store.transaction(async tx => {
    await tx.query(named(`insert into ~invoices values ('invoice-1')`))
    return store.events.append('order-42', [placed(), paid], { tx, expected: 'empty' })
  })

  expect(result).toMatchObject({ version: 2 })
  expect(await store.events.read('order-42').toArray()).toHaveLength(2)
  expect(await query('select id from ~invoices')).toEqual([{ id: 'invoice-1' }])
})

test('events and SQL of the user are undone together', async () => {
  const { store, query, named } = await openShop()
  await query('create table ~invoices (id text primary key)')

  const failing = store.transaction(async tx => {
    await tx.query(named(`insert into ~invoices values ('invoice-1')`))
    await store.events.append('order-42', placed(), { tx })
    await store.streams.resolve('orders:42', { tx })
    throw new Error('card declined')
  })

  await expect(failing).rejects.toThrow('card declined')
  expect(await store.events.readAll().toArray()).toEqual([])
  expect((await store.streams.list()).items).toEqual([])
  expect(await query('select id from ~invoices')).toEqual([])
  expect(await query('select alias from ~stream_aliases')).toEqual([])
})

test('a transaction sees its own events, and others do not before it commits', async () => {
  const { store, sibling } = await openShop()
  const other = await sibling()
  let inside: number[] = []
  let outside: unknown

  await store.transaction(async tx => {
    await store.events.append('order-42', [placed(), paid], { tx })
    inside = (await store.events.read('order-42', { tx }).toArray()).map(event => event.version)
    if (onServer) outside = await other.events.read('order-42').toArray()
  })

  expect(inside).toEqual([1, 2])
  if (onServer) expect(outside).toEqual([])
})

test('a savepoint that fails undoes its events, and the transaction continues without a gap', async () => {
  const { store } = await openShop()

  await store.transaction(async tx => {
    await store.events.append('order-42', placed(), { tx })
    const undone = tx.savepoint(async () => {
      await store.events.append('order-42', paid, { tx })
      await store.events.append('order-43', placed(), { tx })
      throw new Error('declined')
    })
    await expect(undone).rejects.toThrow('declined')
    await store.events.append('order-42', shipped(), { tx })
  })

  const events = await store.events.readAll().toArray()
  expect(events.map(event => `${event.stream}/${event.version} ${event.type}`)).toEqual([
    'order-42/1 OrderPlaced',
    'order-42/2 OrderShipped',
  ])
  expect(await store.streams.describe('order-43')).toBeUndefined()
})

test.skipIf(counts)('an announcement undone with its savepoint is made again by the next append', async () => {
  const { store } = await openShop()

  await store.transaction(async tx => {
    const undone = tx.savepoint(async () => {
      await store.events.append('order-1', placed(), { tx })
      throw new Error('declined')
    })
    await expect(undone).rejects.toThrow('declined')
    const before = await announcements(tx)
    await store.events.append('order-2', placed(), { tx })

    expect([before, await announcements(tx)]).toEqual([0, 1])
  })

  expect(await store.events.settled()).toMatchObject({ heldBackBy: [] })
})

test.skipIf(counts)('many appends in one transaction announce once', async () => {
  const { store } = await openShop()

  await store.transaction(async tx => {
    for (let n = 0; n < 5; n++) await store.events.append(`order-${n}`, placed(n), { tx })

    expect(await announcements(tx)).toBe(1)
  })
})

test('a refusal inside a transaction does not abort it', async () => {
  const { store } = await openShop()

  const result = await store.transaction(async tx => {
    await store.events.append('order-42', placed(), { tx })
    await expect(store.events.append('order-42', paid, { tx, expected: 5 })).rejects.toMatchObject({
      code: 'version_conflict',
      actual: 1,
    })
    return store.events.append('order-42', paid, { tx, expected: 1 })
  })

  expect(result.version).toBe(2)
})

test('a handle is refused after its transaction', async () => {
  const { store } = await openShop()
  let handle: Transaction | undefined
  await store.transaction(async tx => {
    handle = tx
  })

  const appending = store.events.append('order-42', placed(), { tx: handle })

  await expect(appending).rejects.toMatchObject({ code: 'transaction_closed' })
  await expect(store.events.read('order-42', { tx: handle }).toArray()).rejects.toMatchObject({
    code: 'transaction_closed',
  })
  expect(await store.events.head()).toBe(0)
})

test('calls on the store inside its open transaction fail immediately and name themselves', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', placed())

  const errors = await store.transaction(async () => {
    const calls: Record<string, () => Promise<unknown>> = {
      append: () => store.events.append('order-42', placed()),
      'append of nothing': () => store.events.append('order-42', []),
      read: () => store.events.read('order-1').toArray(),
      readAll: () => store.events.readAll().toArray(),
      tail: () => take(store.events.tail({ from: 'start' }), 1),
      get: () => store.events.get('0190b2f0-6a1c-7def-8123-456789abcdef'),
      has: () => store.events.has('0190b2f0-6a1c-7def-8123-456789abcdef'),
      head: () => store.events.head(),
      settled: () => store.events.settled(),
      waitFor: () => store.events.waitFor(1),
      import: () => store.events.import([{ stream: 'order-42', ...placed() }]),
      list: () => store.streams.list(),
      describe: () => store.streams.describe('order-1'),
      resolve: () => store.streams.resolve('orders:1'),
      archive: () => store.streams.archive('order-1'),
      tombstone: () => store.streams.tombstone('order-1'),
      transaction: () => store.transaction(async () => {}),
    }
    const found: Record<string, unknown> = {}
    for (const [name, call] of Object.entries(calls)) found[name] = (await outcome(call())).error
    return found
  })

  for (const [call, error] of Object.entries(errors)) {
    expect(error, call).toMatchObject({ code: 'inside_transaction', call: expect.any(String) })
  }
  expect(await store.events.readAll().toArray()).toHaveLength(1)
})

test('streams are archived, restored, tombstoned and named inside a transaction', async () => {
  const { store } = await openShop()
  await store.events.appendMany([
    { stream: 'order-1', events: placed() },
    { stream: 'order-2', events: placed() },
  ])

  const stream = await store.transaction(async tx => {
    await store.streams.archive('order-1', { tx, reason: 'old' })
    await store.streams.tombstone('order-2', { tx, reason: 'gone' })
    return store.streams.resolve('orders:3', { tx, category: 'order' })
  })

  expect((await store.streams.list({ state: 'archived' })).items).toMatchObject([
    { stream: 'order-1', state: 'archived', reason: 'old' },
    { stream: 'order-2', state: 'tombstoned', reason: 'gone', version: 2 },
  ])
  expect(await store.streams.resolve('orders:3')).toBe(stream)
})

if (onServer) {
  test('events appended with a client of the user are committed with its transaction', async () => {
    const { store } = await openShop()
    const client = await connect()
    await client.query('begin')

    const result = await store.events.append('order-42', [placed(), paid], { tx: client, idempotencyKey: 'k' })
    const again = await store.events.append('order-42', [placed(), paid], { tx: client, idempotencyKey: 'k' })
    const inside = await store.events.read('order-42', { tx: client }).toArray()
    const before = await store.events.read('order-42').toArray()
    await client.query('commit')

    expect(result).toMatchObject({ version: 2, position: expect.any(Number), repeated: false })
    expect(again).toEqual({ ...result, repeated: true })
    expect(inside.map(event => [event.position, event.createdAt])).toEqual([
      [expect.any(Number), expect.any(Date)],
      [expect.any(Number), expect.any(Date)],
    ])
    expect(before).toEqual([])
    expect(await store.events.read('order-42').toArray()).toHaveLength(2)
  })

  test('events appended with a client of the user are rolled back with its transaction', async () => {
    const { store } = await openShop()
    const client = await connect()
    await client.query('begin')

    await store.events.append('order-42', placed(), { tx: client })
    await client.query('rollback')

    expect(await store.events.read('order-42').toArray()).toEqual([])
    expect(await store.streams.describe('order-42')).toBeUndefined()
    expect(await store.events.settled()).toMatchObject({ heldBackBy: [] })
    expect(await store.events.append('order-42', placed(), { expected: 'empty' })).toMatchObject({ version: 1 })
  })

  test('a conflict between two transactions stricter than read committed is reported as retryable', async () => {
    const { store } = await openShop()
    await store.events.append('order-42', placed())

    const failing = store.transaction(
      async tx => {
        await tx.query('select 1')
        await store.events.read('order-42', { tx }).toArray()
        await outsideOf(() => store.events.append('order-42', paid))
        return store.events.append('order-42', paid, { tx })
      },
      { isolation: 'repeatable read' },
    )

    await expect(failing).rejects.toMatchObject({ code: 'serialization_failed', retryable: true })
    expect(await store.events.read('order-42').toArray()).toHaveLength(2)
  })

  /** Other code of the program at that moment. */
  async function outsideOf<T>(work: () => Promise<T>): Promise<T> {
    const { runOutside } = await import('../../src/database/transaction.ts')
    return runOutside(work)
  }
}

async function announcements(tx: Transaction): Promise<number> {
  const [row] = await tx.query<{ count: number }>(`
    select count(*)::integer as count
    from pg_locks
    where locktype = 'advisory' and mode = 'ShareLock' and objsubid = 2 and pid = pg_backend_pid()`)
  return row!.count
}
