import { expect, test } from 'vitest'
import { abortWhenSent } from '../support/abort-when-sent.ts'
import { connect, onServer, openShop, outcome, paid, placed, waitersFor } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

test('concurrent appends to one stream are stored in the order of the calls', async () => {
  const { store } = await openShop()

  const results = await Promise.all(
    Array.from({ length: 200 }, (_, n) => store.events.append(n % 3 === 0 ? 'order-a' : 'order-b', placed(n))),
  )

  for (const stream of ['order-a', 'order-b']) {
    const versions = results.filter(result => result.stream === stream).map(result => result.version)
    const totals = (await store.events.read(stream).toArray()).map(event => (event.data as { total: number }).total)
    expect(versions).toEqual(versions.map((_, n) => n + 1))
    expect(totals).toEqual([...totals].sort((a, b) => a - b))
  }
})

test('calls keep their order on every stream, also when some append to several streams, in any order', async () => {
  const { store } = await openShop()
  const blocker = store.events.append('order-x', placed())

  const calls = Array.from({ length: 60 }, (_, n) => {
    const streams = n % 3 === 0 ? ['order-c', 'order-a'] : n % 3 === 1 ? ['order-a'] : ['order-b', 'order-a', 'order-c']
    return store.events.appendMany(streams.map(stream => ({ stream, events: placed(n) })))
  })
  await Promise.all([blocker, ...calls])

  for (const stream of ['order-a', 'order-b', 'order-c']) {
    const totals = (await store.events.read(stream).toArray()).map(event => (event.data as { total: number }).total)
    expect(totals, stream).toEqual([...totals].sort((a, b) => a - b))
  }
})

test('concurrent appends are sent together, each with its own outcome', async () => {
  const { store } = await openShop()

  const outcomes = await Promise.all(
    Array.from({ length: 100 }, (_, n) =>
      outcome(store.events.append(`order-${n}`, placed(n), { expected: n % 10 === 0 ? 'exists' : 'empty' })),
    ),
  )

  const { event_append_groups_total: groups, event_conflicts_total: conflicts } = store.metrics()
  expect(groups).toBeLessThan(20)
  expect(conflicts).toBe(10)
  expect(outcomes.filter(each => each.value?.version === 1)).toHaveLength(90)
  outcomes.forEach(({ error }, n) => {
    if (n % 10 === 0) expect(error).toMatchObject({ code: 'version_conflict', stream: `order-${n}`, actual: 0 })
  })
})

test('consecutive appends to one stream each see the version left by the one before', async () => {
  const { store } = await openShop()

  const outcomes = await Promise.all([
    outcome(store.events.append('order-1', placed(), { expected: 'empty' })),
    outcome(store.events.append('order-1', paid, { expected: 1 })),
    outcome(store.events.append('order-1', paid, { expected: 1 })),
    outcome(store.events.append('order-1', paid, { expected: 2 })),
    outcome(store.events.append('order-1', paid, { expected: 'exists' })),
  ])

  expect(outcomes.map(each => each.value?.version ?? each.error)).toEqual([
    1,
    2,
    expect.objectContaining({ code: 'version_conflict', actual: 2 }),
    3,
    4,
  ])
})

test('appends beyond the limit of waiting appends are refused with Overloaded, and the others are stored', async () => {
  const { store } = await openShop({ maxQueuedAppends: 10 })

  const outcomes = await Promise.all(
    Array.from({ length: 50 }, (_, n) => outcome(store.events.append('order-1', placed(n)))),
  )

  const refused = outcomes.filter(each => each.error !== undefined)
  expect(refused.length).toBeGreaterThan(0)
  for (const { error } of refused)
    expect(error).toMatchObject({ code: 'overloaded', queue: 'append', limit: 10, retryable: true })
  expect(await store.events.read('order-1').toArray()).toHaveLength(50 - refused.length)
  await expect(store.events.append('order-1', placed())).resolves.toBeDefined()
})

test('a call aborted before it was sent has no effect, and says so', async () => {
  const { store } = await openShop()
  const abort = new AbortController()

  const first = store.events.append('order-1', placed(1))
  const queued = outcome(store.events.append('order-2', placed(2), { signal: abort.signal }))
  abort.abort('changed my mind')
  const late = outcome(store.events.append('order-3', placed(3), { signal: abort.signal }))

  await first
  expect((await queued).error).toMatchObject({ code: 'aborted', cause: 'changed my mind' })
  expect((await late).error).toMatchObject({ code: 'aborted' })
  expect(await store.events.readAll().toArray()).toHaveLength(1)
})

test('a call aborted after it was sent has an unknown outcome, with the ids to look up', async () => {
  const abort = new AbortController()
  const { store } = await openShop({ database: await abortWhenSent(abort) })

  const { error } = await outcome(store.events.append('order-1', placed(1), { signal: abort.signal }))

  expect(error).toMatchObject({ code: 'outcome_unknown', eventIds: [expect.any(String)] })
  const [id] = (error as { eventIds: string[] }).eventIds
  await waitUntil(() => store.events.has(id!), { what: 'the event that was sent' })
})

test('an abort after the answer changes nothing', async () => {
  const { store } = await openShop()
  const abort = new AbortController()
  const result = await store.events.append('order-1', placed(1), { signal: abort.signal })

  abort.abort()

  expect(result.version).toBe(1)
  expect(await store.events.append('order-1', paid)).toMatchObject({ version: 2 })
})

test('appends with an advisory lock are stored like others, alone and in groups, also in a transaction', async () => {
  const { store } = await openShop()

  const results = await Promise.all(
    Array.from({ length: 12 }, (_, n) => store.events.append('order-1', placed(n), { advisoryLock: n % 2 === 0 })),
  )
  const inside = await store.transaction(tx => store.events.append('order-1', paid, { advisoryLock: true, tx }))

  expect(results.map(result => result.version)).toEqual(results.map((_, n) => n + 1))
  expect(inside.version).toBe(13)
})

if (onServer) {
  test("an advisory lock is on the hash of schema and stream, so that a user's SQL can take the same lock", async () => {
    const { store, schema } = await openShop()
    const client = await connect()
    const key = `hashtextextended('${schema}/order-1', 0)`
    await client.query('begin')
    await client.query(`select pg_advisory_xact_lock(${key})`)

    let stored = false
    const grouped = store.events.append('order-1', placed(), { advisoryLock: true }).then(() => {
      stored = true
    })
    const inside = store.transaction(tx => store.events.append('order-1', paid, { advisoryLock: true, tx }))
    await waitUntil(async () => (await waitersFor(client)) === 2)
    await store.events.append('order-2', placed())
    expect(stored).toBe(false)
    await client.query('commit')

    await Promise.all([grouped, inside])
    expect(await store.events.read('order-1').toArray()).toHaveLength(2)
  })

  test('a stream held by an open transaction delays only its own appends, and they keep their order', async () => {
    const { store, named } = await openShop()
    await store.events.appendMany([
      { stream: 'order-held', events: placed(0) },
      { stream: 'order-next', events: placed(0) },
    ])
    const client = await connect()
    await client.query('begin')
    await client.query(named(`select 1 from ~streams where stream = 'order-held' for update`))

    const waiting = [
      store.events.append('order-held', placed(1)),
      store.events.appendMany([
        { stream: 'order-held', events: placed(2) },
        { stream: 'order-next', events: placed(1) },
      ]),
      store.events.append('order-next', placed(2)),
      store.events.append('order-held', placed(3)),
    ]
    const others = await Promise.all(Array.from({ length: 50 }, (_, n) => store.events.append(`order-${n}`, placed(n))))
    await client.query('commit')
    await Promise.all(waiting)

    expect(others.map(result => result.version)).toEqual(Array(50).fill(1))
    for (const [stream, totals] of [
      ['order-held', [0, 1, 2, 3]],
      ['order-next', [0, 1, 2]],
    ] as const) {
      const events = await store.events.read(stream).toArray()
      expect(events.map(event => (event.data as { total: number }).total)).toEqual(totals)
    }
  })
}
