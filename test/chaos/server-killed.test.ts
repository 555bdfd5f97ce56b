/**
 * A server that is killed under load, loses its connections, or falls silent: no acknowledged append is lost, none is
 * stored twice, followers continue where they were, and the store recovers by itself.
 */
import pg from 'pg'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { isRillflowError } from '../../src/core/errors.ts'
import { openStore, type Store, type StoreOptions } from '../../src/store.ts'
import { judgeAppends, readLog, recordAppends } from '../../src/verify/record-appends.ts'
import { freshSchema } from '../support/engines.ts'
import { type PostgresServer, startServer } from '../support/postgres-server.ts'
import { waitUntil } from '../support/wait.ts'
import { connect, long, major, show } from './chaos.ts'
import { followLog, type LogFollower } from './log-follower.ts'
import { times } from './seeded-random.ts'

const one = { type: 'OrderPlaced', data: { total: 1 } }
let server: PostgresServer
let schema: string

beforeAll(async () => {
  // A commit waits for the disk; everything else stays in memory as long as possible.
  server = await startServer({ major, durable: true, settings: { wal_writer_delay: '10s', autovacuum: 'off' } })
})

beforeEach(() => {
  schema = freshSchema()
})

afterAll(() => server[Symbol.asyncDispose]())

test('a server killed under load loses no acknowledged append, and followers neither miss nor repeat', async () => {
  await using shop = await openShop()
  const { load, tails } = shop
  for (let round = 0; round < (long ? 20 : 2); round++) {
    const before = load.acknowledged()
    await waitUntil(() => load.acknowledged() > before + 200)
    await server.kill()
    await server.restart()
    const back = load.acknowledged()
    await waitUntil(() => load.acknowledged() > back + 100, { what: 'appends after the restart' })
  }
  await load.stop()

  await expectOneHistory(shop.stores[0]!, load, tails)
}, 120_000)

test('backends terminated under load lose no acknowledged append, and followers neither miss nor repeat', async () => {
  await using shop = await openShop()
  const { load, tails } = shop
  const admin = await connect(server.url)
  for (let round = 0; round < (long ? 500 : 30); round++) {
    const before = load.acknowledged()
    await waitUntil(() => load.acknowledged() > before + 20)
    await admin.query(`
      select pg_terminate_backend(pid) from pg_stat_activity
      where backend_type = 'client backend' and pid <> pg_backend_pid() order by random() limit 3`)
  }
  await admin.end()
  await load.stop()

  await expectOneHistory(shop.stores[0]!, load, tails)
}, 120_000)

test('an event at a position that a crash has released is not skipped', async () => {
  await using store = await open({ pollMs: 600_000, listen: false })
  const tail = followLog(store)
  const first = await store.events.append('order-1', one)
  await tail.reached(first.position)
  const other = await connect(server.url)
  let isCut = false
  other.once('end', () => {
    isCut = true
  })
  // Stopped: it might write to the disk what must not be there.
  const walwriter = Number((await asked(`select pid from pg_stat_activity where backend_type = 'walwriter'`)).pid)
  process.kill(walwriter, 'SIGSTOP')
  // Drawn by a transaction that rolls back, and not on disk: sequences are logged 32 values in advance.
  await other.query('begin')
  await other.query(`select "${schema}".announce()`)
  const drawn = await other.query(
    `select nextval('"${schema}".events_position') as position from generate_series(1, 40)`,
  )
  await other.query('rollback')
  const highest = Number(drawn.rows.at(-1).position)
  // It queries while a caller waits: for the new caller, and for both.
  const looks = store.metrics().settles_total
  const passing = store.events.waitFor(highest + 1)
  await waitUntil(() => store.metrics().settles_total >= looks + 2, { what: 'the follower to have passed them' })

  // One of its processes dies, and the postmaster restarts all others. Its own start time stays.
  const startedAt = 'select pg_postmaster_start_time() as started'
  const { rows } = await other.query(startedAt)
  process.kill(walwriter, 'SIGKILL')
  await waitUntil(() => isCut, { what: 'the end of all sessions' })
  await waitUntil(async () => String((await asked(startedAt)).started) === String(rows[0].started))
  await other.end().catch(() => {})
  // By another store, without notifications, until the head is where it was; then by this one.
  const positions: number[] = []
  {
    await using later = await open({ listen: false })
    while ((positions.at(-1) ?? 0) <= highest) positions.push((await later.events.append('order-2', one)).position)
  }
  expect(positions[0]).toBeLessThan(highest)
  positions.push((await store.events.append('order-3', one)).position)

  await passing
  for (const position of positions) await tail.reached(position)
  expect(tail.positions).toEqual([first.position, ...positions])
  await tail.stop()
}, 120_000)

test('waitFor survives a restart of the server', async () => {
  await using store = await open({ pollMs: 100 })
  const { position } = await store.events.append('order-1', one)
  // A crash may release up to 32 unused positions; a clean restart releases none.
  const waiting = store.events.waitFor(position + 1, { timeoutMs: 60_000 })
  await server.stop()
  await server.restart()
  const next = await store.events.append('order-1', one)

  expect(next.position).toBeGreaterThan(position)
  await waiting
}, 120_000)

async function open(options: StoreOptions): Promise<Store> {
  return openStore({ url: server.url, schema, migrate: true, ...options })
}

/** Two stores, followers on both, and callers that append to both continuously. */
async function openShop() {
  const stores = [await open({ pollMs: 200 }), await open({ pollMs: 200, maxConnections: 3 })]
  const tails = stores.map(store => followLog(store))
  const load = appendAllTheTime(stores)
  let reading = true
  const readers = stores.map(async store => {
    while (reading) await store.events.readAll().toArray().catch(expectConnectionLost)
  })
  return {
    stores,
    tails,
    load,
    async [Symbol.asyncDispose]() {
      reading = false
      await Promise.all([load.stop(), ...readers])
      for (const tail of tails) await tail.stop()
      for (const store of stores) await store.close()
    },
  }
}

/** A read fails after some seconds; the caller has to repeat it. */
function expectConnectionLost(error: unknown): void {
  if (!isRillflowError(error, 'connection_lost')) throw error
}

function appendAllTheTime(stores: readonly Store[]) {
  const records = stores.map((store, at) => recordAppends(store, `store ${at + 1}`))
  let acknowledged = 0
  let going = true
  const callers = times(16, async caller => {
    for (let at = 0; going; at++) {
      const orders = records[caller % records.length]!
      // Two callers, of both stores, for each of these streams; and an expectation that some of them meet.
      const stream = `order-${caller >> 1}-${at % 5}`
      const options = at % 4 ? {} : { idempotencyKey: `${caller}-${at}` }
      const expected = at % 8 === 1 ? (await orders.read(stream).catch(expectConnectionLost))?.length : undefined
      await orders.append(stream, at % 3 ? one : [one, one], { ...options, expected }).then(
        () => acknowledged++,
        () => {},
      )
    }
  })
  return {
    records,
    acknowledged: () => acknowledged,
    async stop() {
      going = false
      await Promise.all(callers)
    },
  }
}

async function expectOneHistory(
  store: Store,
  { records }: ReturnType<typeof appendAllTheTime>,
  tails: readonly LogFollower[],
): Promise<void> {
  const end = (await readLog(store)).at(-1)!.position
  for (const tail of tails) await tail.reached(end)
  const deliveries = tails.map(({ positions }, at) => ({ name: `follower ${at + 1}`, from: 0, cursor: end, positions }))
  expect(await judgeAppends(store, records, { deliveries })).toEqual([])

  // Besides conflicts, every call was answered, and none of them was refused.
  const answers = records.flatMap(({ calls }) => calls.map(({ answer }) => answer?.kind))
  expect(answers.filter(kind => kind !== 'stored' && kind !== 'conflict')).toEqual([])
  show({ calls: answers.length, followed: tails.map(tail => tail.positions.length) })
}

async function asked(text: string): Promise<Record<string, unknown>> {
  const client = new pg.Client(server.url)
  client.on('error', () => {})
  try {
    await client.connect()
    return (await client.query(text)).rows[0]
  } finally {
    await client.end().catch(() => {})
  }
}
