import { expect, test } from 'vitest'
import { fakeClock } from '../../src/testing/fakes.ts'
import { connect, onServer, openShop, outcome, paid, placed } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

test('the head is the last position drawn, and an idle log is settled up to it', async () => {
  const { store } = await openShop()
  const before = await store.events.settled()

  const { position } = await store.events.append('order-1', [placed(), paid])

  expect(before).toMatchObject({ head: 0, settled: 0, heldBackBy: [] })
  expect(await store.events.head()).toBe(position)
  expect(await store.events.settled()).toMatchObject({ head: position, settled: position, heldBackBy: [] })
})

test('a refused append draws no position', async () => {
  const { store } = await openShop()
  const { position } = await store.events.append('order-1', placed(1, { id: '0190b2f0-6a1c-7def-8123-456789abcdef' }))

  await outcome(store.events.append('order-1', placed(), { expected: 'empty' }))
  await outcome(store.events.append('order-1', placed(2, { id: '0190b2f0-6a1c-7def-8123-456789abcdef' })))
  await outcome(store.events.append('order-2', placed(), { expected: 3, idempotencyKey: 'k' }))

  expect(await store.events.head()).toBe(position)
})

test('waiting for a settled position returns immediately', async () => {
  const { store } = await openShop()
  const { position } = await store.events.append('order-1', placed())

  await store.events.waitFor(position)
  await store.events.waitFor(0, { timeoutMs: 1 })
})

test('waiting for a position far ahead ends when the log gets there', async () => {
  const { store } = await openShop({ pollMs: 600_000 })
  let arrived = false

  const waiting = store.events.waitFor(5).then(() => {
    arrived = true
  })
  await store.events.append('order-1', [placed(), paid])
  await store.events.waitFor(2)
  const early = arrived
  await store.events.append('order-1', [placed(), paid, placed()])
  await waiting

  expect(early).toBe(false)
})

test('waiting too long ends with TimedOut, which says what is missing, and an abort with its reason', async () => {
  const { store } = await openShop({ pollMs: 600_000 })
  const abort = new AbortController()

  const late = outcome(store.events.waitFor(9, { timeoutMs: 20 }))
  const aborted = outcome(store.events.waitFor(9, { signal: abort.signal }))
  abort.abort('closing time')

  expect((await late).error).toMatchObject({ code: 'timed_out', timeoutMs: 20, retryable: true })
  expect((await late).error).toMatchObject({ missing: expect.stringContaining('The log ends at 0') })
  expect((await aborted).error).toBe('closing time')
  await expect(store.events.waitFor(5n as never)).rejects.toMatchObject({ code: 'invalid_option', option: 'position' })
})

test('the time limit of a wait uses the clock of the store', async () => {
  const clock = fakeClock()
  const { store } = await openShop({ clock })
  const before = store.metrics().settles_total
  const waiting = outcome(store.events.waitFor(9, { timeoutMs: 3_600_000 }))
  await waitUntil(() => store.metrics().settles_total >= before + 2)

  clock.advance(3_600_000)

  expect((await waiting).error).toMatchObject({ code: 'timed_out' })
})

if (onServer) {
  test('an open transaction that has appended holds the log back, and is reported', async () => {
    const { store, sibling } = await openShop()
    const client = await connect()
    const other = await sibling()
    const first = await store.events.append('order-1', placed())
    await client.query(`set application_name = 'the till'`)
    await client.query('begin')
    const held = await other.events.append('order-2', placed(), { tx: client })
    await client.query('select 42 as answer')
    const later = await store.events.append('order-3', placed())

    const state = await store.events.settled()

    expect(held.position).toBe(first.position + 1)
    expect(state).toMatchObject({ head: later.position, settled: first.position })
    expect(state.heldBackBy).toEqual([
      {
        pid: (client as unknown as { processID: number }).processID,
        gid: undefined,
        ageMs: expect.any(Number),
        state: 'idle in transaction',
        application: 'the till',
        query: 'select 42 as answer',
      },
    ])
    expect(await store.events.readAll().toArray()).toHaveLength(1)
    await client.query('commit')
    expect(await store.events.settled()).toMatchObject({ settled: later.position, heldBackBy: [] })
    expect(await store.events.readAll().toArray()).toHaveLength(3)
  })

  test('a prepared transaction that has appended holds the log back, and is reported by its gid', async () => {
    const { store, schema } = await openShop()
    const client = await connect()
    const gid = `till ${schema}`
    await store.transaction(async tx => {
      await store.events.append('order-1', placed(), { tx })
      await tx.query(`prepare transaction '${gid}'`)
    })
    const later = await store.events.append('order-2', placed())

    const state = await store.events.settled()
    await client.query(`commit prepared '${gid}'`)

    expect(state.settled).toBe(later.position - 2)
    expect(state.heldBackBy).toMatchObject([{ pid: undefined, gid, state: 'prepared' }])
    expect(await store.events.settled()).toMatchObject({ settled: later.position, heldBackBy: [] })
  })

  test('a transaction that has not appended holds nothing back, however long it is open', async () => {
    const { store, named } = await openShop()
    const client = await connect()
    await client.query('begin isolation level repeatable read')
    await client.query(named('select count(*) from ~events'))

    const { position } = await store.events.append('order-1', placed())

    expect(await store.events.settled()).toMatchObject({ settled: position, heldBackBy: [] })
    await client.query('rollback')
  })

  test('a wait behind a transaction ends with it, also when it is rolled back and sends no notification', async () => {
    const { store } = await openShop({ pollMs: 600_000 })
    const client = await connect()
    await client.query('begin')
    await store.events.append('order-1', placed(), { tx: client })
    const { position } = await store.events.append('order-2', placed())

    const waiting = store.events.waitFor(position)
    const late = await outcome(store.events.waitFor(position, { timeoutMs: 20 }))
    await client.query('rollback')
    await waiting

    expect(late.error).toMatchObject({ code: 'timed_out' })
    expect(await store.events.settled()).toMatchObject({ settled: position })
  })

  test('two stores in one database do not hold each other back', async () => {
    const { store } = await openShop()
    const { store: other } = await openShop()
    const client = await connect()
    await client.query('begin')
    await other.events.append('order-1', placed(), { tx: client })

    const { position } = await store.events.append('order-1', placed())

    expect(await store.events.settled()).toMatchObject({ settled: position, heldBackBy: [] })
    await client.query('rollback')
  })
}
