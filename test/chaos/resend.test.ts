/**
 * One outcome, stored once: appends through a proxy that breaks the connection before they arrive, after they were
 * stored, or while the server works on them; and that may deliver the original after the store has sent it again.
 */
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Transaction } from '../../src/database/database.ts'
import type { AppendOptions } from '../../src/events/append/append.ts'
import type { AppendResult } from '../../src/events/append/send.ts'
import { openStore, type Store, type StoreOptions } from '../../src/store.ts'
import { type AppendRecorder, judgeAppends, recordAppends } from '../../src/verify/record-appends.ts'
import { freshSchema, postgresUrl } from '../support/engines.ts'
import { waitUntil } from '../support/wait.ts'
import { connect } from './chaos.ts'
import { times } from './seeded-random.ts'
import { type Link, startProxy, type TroubleProxy } from './tcp-proxy.ts'

const schema = freshSchema()
let server: pg.Client
let holder: pg.Client
/** Without a proxy. */
let direct: Store

beforeAll(async () => {
  server = await connect(postgresUrl())
  holder = await connect(postgresUrl())
  direct = await openStore({ url: postgresUrl(), schema, migrate: true, listen: false })
})

afterAll(async () => {
  await server.end()
  await holder.end()
  await direct.close()
})

/** A store behind a proxy, with connections that are open and idle, and the streams `old-…` in place. */
async function openBehindProxy(options: StoreOptions = {}) {
  const proxy = await startProxy(postgresUrl())
  const store = await openStore({ url: proxy.url, schema, listen: false, maxConnections: 4, ...options })
  const name = `s${++counter}`
  const orders = recordAppends(store, name)
  await orders.append(`${name}-old`, one)
  await orders.append(`${name}-old`, one)
  return {
    proxy,
    store,
    orders,
    name,
    async [Symbol.asyncDispose]() {
      await store.close()
      await proxy[Symbol.asyncDispose]()
    },
  }
}
let counter = 0
type Behind = Awaited<ReturnType<typeof openBehindProxy>>

const one = { type: 'OrderPlaced', data: { total: 1 } }
const two = [one, { type: 'OrderShipped', data: { carrier: 'snail' } }]

interface Case {
  readonly title: string
  send(orders: AppendRecorder, name: string): Promise<AppendResult[]>
  readonly streams: (name: string) => Record<string, number>
  /** Whether it takes more than one statement. */
  readonly inTransaction?: boolean
}

const single = (title: string, suffix: string, version: number, options: AppendOptions): Case => ({
  title,
  send: async (orders, name) => [
    await orders.append(`${name}-${suffix}`, two, {
      ...options,
      ...(options.idempotencyKey === undefined ? {} : { idempotencyKey: `${name}-${options.idempotencyKey}` }),
    }),
  ],
  streams: name => ({ [`${name}-${suffix}`]: version }),
  inTransaction: options.advisoryLock === true,
})

const cases: Case[] = [
  single('one append at any version', 'old', 4, {}),
  single('one append at an exact version', 'old', 4, { expected: 2 }),
  single('one append to an empty stream', 'new', 2, { expected: 'empty' }),
  single('one append with an idempotency key', 'old', 4, { idempotencyKey: 'key', expected: 2 }),
  single('one append under an advisory lock', 'old', 4, { advisoryLock: true, expected: 'exists' }),
  {
    title: 'one append to several streams',
    send: (orders, name) =>
      orders.appendMany([
        { stream: `${name}-new`, events: two, expected: 'empty' },
        { stream: `${name}-old`, events: one, expected: 2 },
      ]),
    streams: name => ({ [`${name}-new`]: 2, [`${name}-old`]: 3 }),
  },
  {
    title: 'a group of 50 appends',
    send: (orders, name) =>
      Promise.all(
        times(50, at =>
          at % 5 === 0
            ? orders.append(`${name}-old`, one, { expected: 2 + at / 5 })
            : orders.append(`${name}-new-${at % 7}`, one, at % 3 ? {} : { idempotencyKey: `${name}-${at}` }),
        ),
      ),
    streams: name => ({
      [`${name}-old`]: 12,
      ...Object.fromEntries(
        times(7, stream => [
          `${name}-new-${stream}`,
          times(50, at => at).filter(at => at % 5 && at % 7 === stream).length,
        ]),
      ),
    }),
  },
]

describe.each(cases)('$title', ({ send, streams, inTransaction }) => {
  test('is stored once when the answer is lost', async () => {
    await using behind = await openBehindProxy()
    const { proxy, orders, name } = behind
    proxy.loseAnswerTo(inTransaction ? /commit(?!ted)/ : /events\.append/)
    const sent = send(orders, name)
    sent.catch(() => {})
    await waitUntil(async () => (await storedIn(streams(name))) > 0, { what: 'the append on the server' })
    for (const link of proxy.cutClients()) link.drop()

    await expectStoredOnce(behind, await sent)
  })

  test('is stored when the connection was cut before it arrived', async () => {
    await using behind = await openBehindProxy()
    const { proxy, orders, name } = behind
    const { sent, links } = await sendIntoHold(proxy, () => send(orders, name))
    for (const link of links) link.drop()

    await expectStoredOnce(behind, await sent)
  })

  test('is stored once when the original arrives after it was sent again', async () => {
    await using behind = await openBehindProxy()
    const { proxy, orders, name } = behind
    const { sent, links } = await sendIntoHold(proxy, () => send(orders, name))
    const results = await sent
    for (const link of links) await link.deliver()

    await expectStoredOnce(behind, results)
  })

  test('is stored once when the original waits for a lock while it is sent again', async () => {
    await using behind = await openBehindProxy()
    const { proxy, store, orders, name } = behind
    const held = Object.keys(streams(name)).at(-1)!
    await holder.query('begin')
    await holder.query(
      `insert into "${schema}".streams (stream, version) values ($1, 0)
       on conflict (stream) do update set version = streams.version`,
      [held],
    )
    const sent = send(orders, name)
    sent.catch(() => {})
    await waitUntil(async () => (await waiting()) > 0, { what: 'the original waiting' })
    const links = proxy.cutClients()
    // Its commit will never come, and only its end releases the advisory lock.
    if (inTransaction) for (const link of links) link.drop()
    const before = store.metrics().event_resends_total
    await waitUntil(() => store.metrics().event_resends_total > before, { what: 'sending again' })
    await holder.query('rollback')
    const results = await sent
    for (const link of links) await link.deliver()

    await expectStoredOnce(behind, results)
  })

  async function expectStoredOnce({ orders, name }: Behind, results: readonly AppendResult[]): Promise<void> {
    expect(await judgeAppends(direct, [orders], { prefix: `${name}-` })).toEqual([])

    expect(results.some(({ repeated }) => repeated)).toBe(false)
    const last: Record<string, number> = {}
    for (const { stream, version } of results) last[stream] = Math.max(version, last[stream] ?? 0)
    expect(last).toEqual(streams(name))
  }
})

test('an idempotency key is stored with an append that was sent again', async () => {
  await using behind = await openBehindProxy()
  const { proxy, orders, name } = behind
  const send = () => orders.append(`${name}-old`, one, { idempotencyKey: name })
  proxy.hold('down')
  const sent = send()
  await waitUntil(async () => (await storedIn({ [`${name}-old`]: 3 })) > 0)
  for (const link of proxy.cutClients()) link.drop()
  const first = await sent

  expect(await send()).toMatchObject({ repeated: true, eventIds: first.eventIds, version: 3 })
  expect(await send()).toMatchObject({ repeated: true, eventIds: first.eventIds, version: 3 })
  expect(await judgeAppends(direct, [orders], { prefix: `${name}-` })).toEqual([])
})

test('a conflict is still a conflict after a resend, and the broken connection is logged', async () => {
  const warnings: string[] = []
  const warn = (_fields: object, message: string): void => void warnings.push(message)
  await using behind = await openBehindProxy({ logger: { debug() {}, info() {}, warn, error() {} } })
  const { proxy, orders, name } = behind
  const { sent, links } = await sendIntoHold(proxy, () => orders.append(`${name}-old`, one, { expected: 1 }))
  for (const link of links) link.drop()

  await expect(sent).rejects.toMatchObject({ code: 'version_conflict', actual: 2 })
  expect(warnings).toContainEqual(expect.stringContaining('sent again'))
  expect(await judgeAppends(direct, [orders], { prefix: `${name}-` })).toEqual([])
})

test('a refusal that the late original might not get is not an outcome', async () => {
  await using behind = await openBehindProxy()
  const { proxy, orders, name } = behind
  const { sent, links } = await sendIntoHold(proxy, () => orders.append(`${name}-old`, one, { expected: 7 }))
  for (const link of links) link.drop()

  const error = await sent.catch(error => error)

  expect(error).toMatchObject({ code: 'outcome_unknown', eventIds: [expect.any(String)] })
  expect(error.cause).toMatchObject({ code: 'version_conflict', actual: 2, expected: 7 })
  expect(await judgeAppends(direct, [orders], { prefix: `${name}-` })).toEqual([])
})

test('an append without an answer for resendMs ends in OutcomeUnknown with its ids', async () => {
  await using behind = await openBehindProxy({ resendMs: 300 })
  const { proxy, store, orders, name } = behind
  proxy.hold('down')
  const sent = orders.append(`${name}-old`, two)
  sent.catch(() => {})
  await waitUntil(async () => (await storedIn({ [`${name}-old`]: 4 })) > 0)
  proxy.accepting = false
  for (const link of proxy.cutClients()) link.drop()

  const error = await sent.catch(error => error)
  expect(error).toMatchObject({ code: 'outcome_unknown', eventIds: [expect.any(String), expect.any(String)] })
  proxy.accepting = true
  expect(await store.events.has(error.eventIds[0])).toBe(true)
  expect(await judgeAppends(direct, [orders], { prefix: `${name}-` })).toEqual([])
})

test('an append that could never be sent fails with the connection error', async () => {
  await using behind = await openBehindProxy({ resendMs: 300 })
  const { proxy, orders, name } = behind
  await proxy[Symbol.asyncDispose]()
  await waitUntil(() => proxy.links.length === 0)

  await expect(orders.append(`${name}-old`, one)).rejects.toMatchObject({
    code: expect.stringMatching(/^(connection_lost|outcome_unknown)$/),
  })
  expect(await storedIn({ [`${name}-old`]: 3 })).toBe(0)
  expect(await judgeAppends(direct, [orders], { prefix: `${name}-` })).toEqual([])
})

test('an append aborted after it was sent ends in OutcomeUnknown with its ids', async () => {
  await using behind = await openBehindProxy()
  const { proxy, store, orders, name } = behind
  const stop = new AbortController()
  proxy.hold('up')
  const sent = orders.append(`${name}-old`, one, { signal: stop.signal })
  sent.catch(() => {})
  await waitUntil(() => proxy.links.some(isAppending))
  stop.abort()

  const error = await sent.catch(error => error)
  expect(error).toMatchObject({ code: 'outcome_unknown', eventIds: [expect.any(String)] })
  proxy.release()
  await waitUntil(() => store.events.has(error.eventIds[0]))
  expect(await judgeAppends(direct, [orders], { prefix: `${name}-` })).toEqual([])
})

test('a transaction cut off during its commit ends in OutcomeUnknown with the ids of its events', async () => {
  await using behind = await openBehindProxy()
  const { proxy, store, orders, name } = behind
  const ids: string[] = []
  const work = inTransaction(behind, { [`${name}-old`]: 2, [`${name}-new`]: 1 }, (_tx, eventIds) => {
    ids.push(...eventIds)
    if (ids.length === 3) proxy.hold('down')
  })
  work.catch(() => {})
  await waitUntil(async () => (await storedIn({ [`${name}-new`]: 1 })) > 0, { what: 'the commit' })
  for (const link of proxy.cutClients()) link.drop()

  await expect(work).rejects.toMatchObject({ code: 'outcome_unknown', eventIds: ids })
  expect(await store.events.has(ids[0]!)).toBe(true)
  expect(await judgeAppends(direct, [orders], { prefix: `${name}-` })).toEqual([])
})

test('a transaction cut off before its commit is rolled back and reports the lost connection', async () => {
  await using behind = await openBehindProxy()
  const { proxy, orders, name } = behind
  const work = inTransaction(behind, { [`${name}-old`]: 2 }, async tx => {
    for (const link of proxy.cutClients()) link.drop()
    await tx.query('select 1')
  })

  await expect(work).rejects.toSatisfy((error: { code?: string; message: string }) =>
    /connection_lost|Connection terminated/.test(`${error.code} ${error.message}`),
  )
  expect(await storedIn({ [`${name}-old`]: 4 })).toBe(0)
  expect(await orders.append(`${name}-old`, one)).toMatchObject({ version: 3 })
  expect(await judgeAppends(direct, [orders], { prefix: `${name}-` })).toEqual([])
})

/** A transaction that appends so many events to these streams, as one call of the history. */
function inTransaction(
  { store, orders }: Behind,
  streams: Readonly<Record<string, number>>,
  afterEach: (tx: Transaction, eventIds: readonly string[]) => unknown,
): Promise<AppendResult[]> {
  const parts = Object.entries(streams).map(([stream, events]) => ({ stream, expected: 'any' as const, events }))
  return orders.record(parts, causationId =>
    store.transaction(async tx => {
      const results: AppendResult[] = []
      for (const { stream, events } of parts) {
        const result = await store.events.append(
          stream,
          times(events, () => one),
          { tx, causationId },
        )
        results.push(result)
        await afterEach(tx, result.eventIds)
      }
      return results
    }),
  )
}

/** Sends, and cuts off the client while the statement is in the proxy. */
async function sendIntoHold<T>(
  proxy: TroubleProxy,
  send: () => Promise<T>,
): Promise<{ sent: Promise<T>; links: Link[] }> {
  proxy.hold('up')
  const sent = send()
  sent.catch(() => {})
  await waitUntil(() => proxy.links.some(isAppending), { what: 'the append in the proxy' })
  return { sent, links: proxy.cutClients() }
}

function isAppending(link: Link): boolean {
  return /events\.(append|advisory_lock)|begin/.test(link.heldUp)
}

/** Number of streams that have reached their version. */
async function storedIn(streams: Record<string, number>): Promise<number> {
  const { rows } = await server.query(
    `select count(*)::integer as count from "${schema}".events
     join unnest($1::text[], $2::bigint[]) as s(stream, version) using (stream, version)`,
    [Object.keys(streams), Object.values(streams)],
  )
  return rows[0].count
}

/** Number of sessions that wait for a lock of the holder. */
async function waiting(): Promise<number> {
  const { rows } = await server.query(
    `select count(*)::integer as count from pg_stat_activity
     where application_name = 'rillflow' and $1 = any(pg_blocking_pids(pid))`,
    [(holder as unknown as { processID: number }).processID],
  )
  return rows[0].count
}
