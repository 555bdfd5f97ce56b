/**
 * A stream, or a key, held by an open transaction delays only its own appends. Shown by the order of completion:
 * everything else completes while it is held.
 */
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { openStore, type Store } from '../../src/store.ts'
import { type AppendRecorder, judgeAppends, recordAppends } from '../../src/verify/record-appends.ts'
import { freshSchema, postgresUrl } from '../support/engines.ts'
import { waitUntil } from '../support/wait.ts'
import { connect, long } from './chaos.ts'
import { times } from './seeded-random.ts'

const schema = freshSchema()
const one = { type: 'OrderPlaced', data: { total: 1 } }
const others = long ? 5_000 : 200
let holder: pg.Client
let setup: Store

beforeAll(async () => {
  holder = await connect(postgresUrl())
  setup = await openStore({ url: postgresUrl(), schema, migrate: true, listen: false })
})

afterAll(async () => {
  await setup.close()
  await holder.end()
})

interface Hold {
  readonly title: string
  /** Takes it in the holder's transaction. */
  take(name: string): Promise<unknown>
  /** An append that has to wait for it. */
  append(orders: AppendRecorder, name: string, at: number): Promise<{ version: number; repeated: boolean }>
  /** The version it then gets. */
  readonly version: number
  /** Whether there is something to hold before the transaction begins. */
  readonly exists: boolean
}

const holds: Hold[] = [
  {
    title: 'a stream',
    take: name => setup.events.append(`${name}-held`, one, { tx: holder }),
    append: (orders, name) => orders.append(`${name}-held`, one),
    version: 3,
    exists: true,
  },
  {
    title: 'a stream locked by hand',
    take: name => holder.query(`select from "${schema}".streams where stream = $1 for update`, [`${name}-held`]),
    append: (orders, name, at) => orders.append(`${name}-held`, one, { expected: 1 + at }),
    version: 2,
    exists: true,
  },
  {
    title: 'a stream that is being created',
    take: name => setup.events.append(`${name}-held`, one, { tx: holder }),
    append: (orders, name) => orders.append(`${name}-held`, one),
    version: 2,
    exists: false,
  },
  {
    title: 'one of the streams of an append',
    take: name => setup.events.append(`${name}-held`, one, { tx: holder }),
    append: async (orders, name) =>
      (
        await orders.appendMany([
          { stream: `${name}-before`, events: one },
          { stream: `${name}-held`, events: one },
        ])
      )[1]!,
    version: 3,
    exists: true,
  },
  {
    title: 'an idempotency key',
    take: name => setup.events.append(`${name}-held`, one, { tx: holder, idempotencyKey: name }),
    append: (orders, name) => orders.append(`${name}-held`, one, { idempotencyKey: name }),
    version: 2,
    exists: true,
  },
]

describe.each([1, 2, 3, 10])('with %i connections', maxConnections => {
  test.each(holds)('only appends to $title wait while it is held', async hold => {
    await using store = await openStore({ url: postgresUrl(), schema, maxConnections, listen: false })
    const orders = recordAppends(store, 'shop')
    const name = freshSchema()
    if (hold.exists) await setup.events.append(`${name}-held`, one)
    await holder.query('begin')
    await hold.take(name)

    const finished: string[] = []
    const waiting = times(3, at => hold.append(orders, name, at))
    for (const append of waiting) void append.then(() => finished.push('held'))
    const group = times(others, at => orders.append(`${name}-${at % 50}`, one))
    const oneByOne = (async () => {
      for (let at = 0; at < 20; at++) await orders.append(`${name}-alone`, one)
    })()
    await Promise.all([...group, oneByOne])
    expect(await store.events.read(`${name}-alone`).toArray()).toHaveLength(20)
    expect(finished).toEqual([])
    await holder.query('commit')

    const results = await Promise.all(waiting)
    const isKey = hold.title === 'an idempotency key'
    expect(results.map(({ version }) => version)).toEqual(times(3, at => hold.version + (isKey ? 0 : at)))
    expect(results.every(({ repeated }) => repeated === isKey)).toBe(true)
    expect(await judgeAppends(store, [orders], { prefix: `${name}-`, hasOthers: true })).toEqual([])
  })
})

test('more held streams than connections do not delay other appends', async () => {
  await using store = await openStore({ url: postgresUrl(), schema, maxConnections: 4, listen: false })
  const orders = recordAppends(store, 'shop')
  const name = freshSchema()
  const names = times(30, at => `${name}-held-${at}`)
  await setup.events.appendMany(names.map(stream => ({ stream, events: one })))
  await holder.query('begin')
  await holder.query(`select from "${schema}".streams where stream = any($1) for update`, [names])

  let released = false
  const early: string[] = []
  const waiting = names.map(stream =>
    orders.append(stream, one).then(result => {
      if (!released) early.push(stream)
      return result
    }),
  )
  // One by one, so that each is a separate call.
  for (const stream of names.slice(0, 10)) {
    waiting.push(orders.append(stream, one))
    await orders.append(`${name}-free`, one)
  }
  await Promise.all(times(others, at => orders.append(`${name}-${at % 50}`, one)))
  expect((await store.events.read(`${name}-free`).toArray()).length).toBe(10)
  expect(early).toEqual([])
  released = true
  await holder.query('rollback')

  const results = await Promise.all(waiting)
  expect(results.map(result => result.version)).toEqual([...times(30, () => 2), ...times(10, () => 3)])
  expect(await judgeAppends(store, [orders], { prefix: `${name}-`, hasOthers: true })).toEqual([])
})

test('appends that wait for a held stream keep the order of their calls', async () => {
  await using store = await openStore({ url: postgresUrl(), schema, maxConnections: 4, listen: false })
  const orders = recordAppends(store, 'shop')
  const name = freshSchema()
  await setup.events.append(`${name}-held`, one)
  await holder.query('begin')
  await holder.query(`select from "${schema}".streams where stream = $1 for update`, [`${name}-held`])

  const calls: Promise<unknown>[] = []
  for (let at = 0; at < 40; at++) {
    calls.push(
      at % 4 === 0
        ? orders.appendMany([
            { stream: `${name}-held`, events: { type: 'Numbered', data: at } },
            { stream: `${name}-side`, events: { type: 'Numbered', data: at } },
          ])
        : orders.append(`${name}-${at % 4 === 1 ? 'side' : 'held'}`, { type: 'Numbered', data: at }),
    )
    if (at % 10 === 0) await orders.append(`${name}-free`, one)
  }
  await holder.query('rollback')
  await Promise.all(calls)

  for (const stream of ['held', 'side']) {
    const events = await store.events.read(`${name}-${stream}`).toArray()
    const numbers = events.filter(event => event.type === 'Numbered').map(event => event.data as number)
    expect(numbers).toEqual([...numbers].sort((a, b) => a - b))
    expect(numbers.length).toBeGreaterThan(10)
  }
  expect(await judgeAppends(store, [orders], { prefix: `${name}-`, hasOthers: true })).toEqual([])
})

test('a stream created while an append waits for another one is visible, also inside a transaction', async () => {
  const user = await connect(postgresUrl())
  for (const tx of [undefined, user]) {
    const name = freshSchema()
    const orders = recordAppends(setup, name)
    await setup.events.append(`${name}-a`, one)
    await holder.query('begin')
    await holder.query(`select from "${schema}".streams where stream = $1 for update`, [`${name}-a`])
    await user.query('begin')
    const both = orders.appendMany(
      [
        { stream: `${name}-a`, events: one },
        { stream: `${name}-b`, events: one, expected: 1 },
      ],
      { tx },
    )
    both.catch(() => {})
    await waitUntil(async () => (await waitingFor(holder)) > 0, { what: 'the append waiting' })
    await holder.query(`select "${schema}".announce()`)
    await setup.events.append(`${name}-b`, one, { tx: holder })
    await holder.query('commit')

    expect((await both).map(({ version }) => version)).toEqual([2, 2])
    await user.query('commit')
    expect(await judgeAppends(setup, [orders], { prefix: `${name}-`, hasOthers: true })).toEqual([])
  }
  await user.end()
})

test('a store that closes waits at most closeMs for a held stream', async () => {
  let tookMs = Number.POSITIVE_INFINITY
  // A machine that stalls may make one of them slow, but not each.
  for (let round = 0; round < 5 && tookMs > 4_000; round++) tookMs = await closeWhileHeld()
  expect(tookMs).toBeLessThan(4_000)
})

/** The time that took. */
async function closeWhileHeld(): Promise<number> {
  const store = await openStore({ url: postgresUrl(), schema, maxConnections: 4, closeMs: 200 })
  const orders = recordAppends(store, 'shop')
  const name = freshSchema()
  await setup.events.append(`${name}-held`, one)
  await holder.query('begin')
  await holder.query(`select from "${schema}".streams where stream = $1 for update`, [`${name}-held`])
  const lone = orders.append(`${name}-held`, one).catch(error => error)
  const queued = times(5, () => orders.append(`${name}-held`, one).catch(error => error))
  const started = performance.now()
  await store.close()
  const tookMs = performance.now() - started
  const errors = await Promise.all([lone, ...queued])
  expect(errors.map(error => error.code).every(code => /outcome_unknown|store_closed/.test(code))).toBe(true)
  await holder.query('rollback')
  expect(await judgeAppends(setup, [orders], { prefix: `${name}-`, hasOthers: true })).toEqual([])
  return tookMs
}

/** Number of sessions that wait for a lock of this one. */
async function waitingFor(client: pg.Client): Promise<number> {
  const { rows } = await client.query(
    // Not pg_stat_activity: inside a transaction it keeps showing the backends of the first query.
    `select count(distinct pid)::integer as count
      from pg_locks
      where not granted
        and pg_backend_pid() = any(pg_blocking_pids(pid))`,
  )
  return rows[0].count
}
