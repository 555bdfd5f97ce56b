/** Bugs that other event stores had, one test each. The numbers are explained in test/known-bugs.md. */
import { expect, test } from 'vitest'
import { abortWhenSent } from '../support/abort-when-sent.ts'
import { connect, onServer, openShop, outcome, paid, placed, take } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

const id = '0190b2f0-6a1c-7def-8123-456789abcdef'

test('RB-48: writers that expect any all succeed without a gap; of those that expect one version exactly one succeeds', async () => {
  const { store, sibling } = await openShop()
  const stores = [store, await sibling(), await sibling()]
  const at = (n: number) => stores[n % stores.length]!.events

  const any = await Promise.all(Array.from({ length: 30 }, (_, n) => outcome(at(n).append('order-any', placed(n)))))
  const exact = await Promise.all(
    Array.from({ length: 30 }, (_, n) => outcome(at(n).append('order-exact', placed(n), { expected: 0 }))),
  )

  expect(any.map(each => each.value?.version).sort((a, b) => a! - b!)).toEqual(any.map((_, n) => n + 1))
  expect(exact.filter(each => each.value !== undefined)).toHaveLength(1)
  for (const { error } of exact.filter(each => each.error !== undefined)) {
    expect(error).toMatchObject({ code: 'version_conflict', expected: 0, actual: 1 })
  }
})

test('RB-49: a key covers a batch of events, a repeat gets the first outcome, and another schema is independent', async () => {
  const { store } = await openShop()
  const { store: other } = await openShop()
  const append = (to: typeof store) => to.events.append('order-1', [placed(), paid], { idempotencyKey: 'checkout-1' })

  const first = await append(store)
  const again = await append(store)
  const elsewhere = await append(other)

  expect(first).toMatchObject({ version: 2, repeated: false })
  expect(again).toEqual({ ...first, repeated: true })
  expect(elsewhere).toMatchObject({ version: 2, repeated: false })
})

test('RB-51: numbering and existence survive archiving', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', [placed(), paid])
  await store.streams.archive('order-1')

  const empty = outcome(store.events.append('order-1', placed(), { expected: 'empty', allowArchived: true }))
  const reported = await store.events.append('order-1', placed(), { expected: 'exists', allowArchived: true })
  await store.streams.restore('order-1')

  expect((await empty).error).toMatchObject({ code: 'version_conflict', actual: 2 })
  expect(reported.version).toBe(3)
  expect(await store.events.append('order-1', placed(), { expected: 3 })).toMatchObject({ version: 4 })
})

test('RB-52: archiving during appends loses nothing, and a read including archived streams sees everything', async () => {
  const { store, sibling } = await openShop()
  const other = await sibling()
  const tailing = take(store.events.tail({ from: 'start' }), 101)
  await store.events.append('order-1', placed(0))

  const appending = Array.from({ length: 100 }, (_, n) =>
    store.events.append('order-1', placed(n + 1), { allowArchived: true }),
  )
  for (let n = 0; n < 10; n++) {
    await other.streams.archive('order-1')
    await other.streams.restore('order-1')
  }
  await Promise.all(appending)
  await other.streams.archive('order-1')

  const rebuilt = await store.events.readAll({ includeArchived: true }).toArray()
  expect(rebuilt.map(event => event.version)).toEqual(rebuilt.map((_, n) => n + 1))
  expect(rebuilt).toHaveLength(101)
  expect((await tailing).map(event => event.id)).toEqual(rebuilt.map(event => event.id))
})

test('RB-53: an id, and a key, are unique whatever the time of the events', async () => {
  const { store, query } = await openShop()
  const at = (year: number) => ({ stream: 'order-1', ...placed(1, { id }), createdAt: new Date(Date.UTC(year, 0)) })
  await store.events.import([at(2019)])
  const copy = `
    insert into ~events (position, version, created_at, event_id, schema_version, stream, type, correlation_id, data)
    select 999, version, ~later(created_at, 365 * 86400000.0), '00000000-0000-7000-8000-000000000053'::uuid, 1, stream, type, 'c', data from ~events`

  await expect(store.events.import([at(2020)])).rejects.toMatchObject({ code: 'duplicate_event_id', eventIds: [id] })
  await expect(query(copy)).rejects.toMatchObject({ code: '23505' })
  await store.events.append('order-2', placed(), { idempotencyKey: 'k' })
  await query(`update ~idempotency_keys set created_at = ~later(created_at, -365 * 86400000.0)`)
  expect(await store.events.append('order-2', placed(), { idempotencyKey: 'k' })).toMatchObject({ repeated: true })
})

test('AB-12: state and events written together agree, whether the transaction commits, fails or is cut off', async () => {
  const { store, query, named } = await openShop()
  await query('create table ~totals (stream text primary key, total integer)')
  const write = (stream: string, end: 'commit' | 'fail' | 'time out' | 'be cut off') =>
    store.transaction(
      async tx => {
        await tx.query(named(`insert into ~totals values ($1, 1)`), [stream])
        await store.events.append(stream, placed(1), { tx })
        if (end === 'fail') throw new Error('declined')
        if (end === 'time out') await new Promise(resolve => setTimeout(resolve, 10_000).unref())
        if (end === 'be cut off') await tx.query('select pg_terminate_backend(pg_backend_pid())')
      },
      end === 'time out' ? { timeoutMs: 20 } : {},
    )

  await write('order-1', 'commit')
  await outcome(write('order-2', 'fail'))
  await outcome(write('order-3', 'time out'))
  if (onServer) await outcome(write('order-4', 'be cut off'))

  expect(await query('select stream from ~totals')).toEqual([{ stream: 'order-1' }])
  expect((await store.events.readAll().toArray()).map(event => event.stream)).toEqual(['order-1'])
  // The server releases the locks of a broken connection once it has noticed.
  await waitUntil(async () => (await store.events.settled()).heldBackBy.length === 0)
})

test('AB-13: a read seeks: it fetches the requested rows, not the rows before them', async () => {
  const { store, database, query, named } = await openShop()
  await store.events.import(Array.from({ length: 12_000 }, (_, n) => ({ stream: 'order-1', ...placed(n) })))
  await query('analyze ~events')
  const fetched = `select pg_stat_get_xact_tuples_fetched('~events_stream_version'::regclass)
    + pg_stat_get_xact_tuples_fetched('~events'::regclass) + pg_stat_get_xact_tuples_returned('~events'::regclass) as n`

  const [before, after] = await database.transaction(async tx => {
    const [first] = await tx.query<{ n: number }>(named(fetched))
    await store.events.read('order-1', { from: 11_990, tx }).toArray()
    await store.events.read('order-1', { direction: 'backwards', limit: 5, tx }).toArray()
    const [last] = await tx.query<{ n: number }>(named(fetched))
    return [first!.n, last!.n]
  })

  expect(after! - before!).toBeLessThan(200)
})

test('AB-23: running appends block neither timers nor each other', async () => {
  const { store } = await openShop()
  let ticks = 0
  const timer = setInterval(() => ticks++, 1)

  // If appends blocked the thread, no number of them would let a timer fire.
  let rounds = 0
  while (ticks < 5 && rounds < 200) {
    const name = `order-${rounds++}`
    await Promise.all(Array.from({ length: 50 }, (_, n) => store.events.append(`${name}-${n}`, placed(n))))
  }
  clearInterval(timer)

  expect(ticks).toBeGreaterThanOrEqual(5)
})

test('AB-24: type, stream and data are separate, whatever characters they contain and whatever type the data has', async () => {
  const { store: typed } = await openShop()
  const store = typed as unknown as import('../../src/store.ts').Store
  const cases: [type: string, data: unknown][] = [
    ['bus:order:placed', 'type:payload'],
    ['bus', ':order:placed'],
    ['', ''],
    [':', null],
    ['\t\n\\', [1, 'a:b', { 'k:': false }]],
    ['Ünïcode:🎁', 0],
  ].filter(([type]) => type !== '') as [string, unknown][]

  for (const [type, data] of cases) await store.events.append(`a:b-${type}`, { type, data })

  for (const options of [{}, { pageSize: 2 }]) {
    const events = await store.events.readAll(options).toArray()
    expect(events.map(event => [event.type, event.data])).toEqual(cases)
    expect(events.map(event => event.stream)).toEqual(cases.map(([type]) => `a:b-${type}`))
  }
  expect(await store.events.readAll({ types: ['bus'] }).toArray()).toHaveLength(1)
})

test('Eventuous#553 and #582: of 20 concurrent appends each that reports success is stored', async () => {
  const { store, sibling } = await openShop()
  const other = await sibling()

  const outcomes = await Promise.all(
    Array.from({ length: 20 }, (_, n) =>
      outcome((n % 2 === 0 ? store : other).events.append('order-1', placed(n), { expected: n % 4 === 0 ? 'any' : n })),
    ),
  )

  const ids = outcomes.flatMap(each => each.value?.eventIds ?? [])
  const stored = (await store.events.read('order-1').toArray()).map(event => event.id)
  expect(ids.length).toBeGreaterThanOrEqual(5)
  expect(stored.sort()).toEqual(ids.sort())
})

test('SQLStreamStore#478: expecting any version never conflicts, however many write', async () => {
  const { store, sibling } = await openShop()
  const other = await sibling()

  const results = await Promise.all(
    Array.from({ length: 60 }, (_, n) =>
      n % 3 === 0
        ? store.transaction(tx => store.events.append('order-hot', placed(n), { expected: 'any', tx }))
        : (n % 3 === 1 ? store : other).events.append('order-hot', placed(n), { expected: 'any' }),
    ),
  )

  expect(results.map(result => result.version).sort((a, b) => a - b)).toEqual(results.map((_, n) => n + 1))
})

test('commanded/eventstore#201: of two appends that expect the same version one is stored', async () => {
  const { store, sibling } = await openShop()
  const other = await sibling()

  for (let version = 0; version < 10; version++) {
    const outcomes = await Promise.all([
      outcome(store.events.append('order-1', placed(), { expected: version })),
      outcome(other.events.append('order-1', placed(), { expected: version })),
    ])

    expect(outcomes.filter(each => each.value?.version === version + 1)).toHaveLength(1)
    expect(outcomes.find(each => each.error !== undefined)!.error).toMatchObject({
      code: 'version_conflict',
      actual: version + 1,
    })
  }
})

test('Marten#5262: an append with an unknown outcome that the caller repeats with its key is stored once', async () => {
  const abort = new AbortController()
  const { store } = await openShop({ database: await abortWhenSent(abort) })
  const append = (signal?: AbortSignal) =>
    store.events.append('order-1', [placed(), paid], { idempotencyKey: 'checkout-1', signal })

  const { error } = await outcome(append(abort.signal))
  const again = await append()

  expect(error).toMatchObject({ code: 'outcome_unknown' })
  expect(again.eventIds).toEqual((error as { eventIds: string[] }).eventIds)
  expect(again).toMatchObject({ version: 2, repeated: true })
  expect(await store.events.readAll().toArray()).toHaveLength(2)
})

test("Marten#5234: two stores have the same positions and streams, and neither touches the other's data", async () => {
  const { store: one } = await openShop()
  const { store: two } = await openShop()
  for (const store of [one, two]) await store.events.append('order-1', [placed(1), paid])
  for (const store of [one, two]) await store.events.append('order-2', placed(2))

  await one.streams.tombstone('order-1')
  await one.streams.archive('order-2')

  expect((await two.events.readAll().toArray()).map(event => event.position)).toEqual([1, 2, 3])
  expect((await two.streams.list()).items).toMatchObject([{ state: 'open' }, { state: 'open' }])
  expect(await two.events.append('order-1', placed(), { expected: 2 })).toMatchObject({ version: 3, position: 4 })
  expect(await one.events.head()).toBe(4)
})

test('Emmett: a conflict has the actual version, 0 for none, never an invented number', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', [placed(), paid])
  const actual = async (stream: string, expected: number | 'exists'): Promise<unknown> =>
    ((await outcome(store.events.append(stream, placed(), { expected }))).error as { actual: number }).actual

  expect(await Promise.all([actual('order-1', 1), actual('order-1', 7), actual('order-2', 1)])).toEqual([2, 2, 0])
  expect(await actual('order-2', 'exists')).toBe(0)
  const first = await store.events.append('order-2', placed())
  const second = await store.events.append('order-2', placed())
  expect([first.version, second.version]).toEqual([1, 2])
})

if (onServer) {
  test('AB-12: events that commit later than their neighbours with higher positions are not skipped', async () => {
    const { store } = await openShop({ pollMs: 20 })
    const client = await connect()
    const seen: string[] = []
    await client.query('begin')
    await store.events.append('order-slow', placed(), { tx: client })
    await store.events.append('order-quick', placed())

    const tailing = (async () => {
      for await (const event of store.events.tail({ from: 'start' })) {
        seen.push(event.stream)
        if (seen.length === 2) break
      }
    })()
    await waitUntil(() => store.metrics().settles_total > 3)
    const early = [...seen]
    await client.query('commit')
    await tailing

    expect(early).toEqual([])
    expect(seen).toEqual(['order-slow', 'order-quick'])
  })
}
