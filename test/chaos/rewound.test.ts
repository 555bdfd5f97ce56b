/**
 * A server reset to an earlier copy of its data, like a restored backup, or a promoted standby without the last writes:
 * the log that was read no longer exists, and its followers must get `LogRewound`.
 */
import { cp, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { openStore, type Store } from '../../src/store.ts'
import { deliveryProblems } from '../../src/verify/check-appends.ts'
import { readLog } from '../../src/verify/record-appends.ts'
import { freshSchema } from '../support/engines.ts'
import { giveTo, serverAccount } from '../support/postgres-binaries.ts'
import { type PostgresServer, startServer } from '../support/postgres-server.ts'
import { waitUntil } from '../support/wait.ts'
import { connect, major } from './chaos.ts'
import { followLog, type LogFollower } from './log-follower.ts'
import { times } from './seeded-random.ts'

const one = { type: 'OrderPlaced', data: { total: 1 } }
let server: PostgresServer
let store: Store
let copy: string

beforeAll(async () => {
  server = await startServer({ major })
  copy = `${server.dataDir}-before`
})

afterAll(() => server[Symbol.asyncDispose]())

beforeEach(async () => {
  store = await openStore({ url: server.url, schema: freshSchema(), migrate: true, pollMs: 100 })
})

afterEach(async () => {
  await store.close()
  await rm(copy, { recursive: true, force: true })
})

/** Ten events that stay, and ten that will be undone; a follower has seen all of them. */
async function appendCopyAppend() {
  const tail = followLog(store)
  const kept = await appendTen('kept')
  await tail.reached(kept)
  await server.stop()
  await cp(server.dataDir, copy, { recursive: true })
  await server.restart()
  const lost = await appendTen('lost')
  await tail.reached(lost)
  return { tail, kept, lost }
}

async function appendTen(stream: string): Promise<number> {
  return (
    await store.events.append(
      stream,
      times(10, () => one),
    )
  ).position
}

async function putBack(prepare: () => Promise<void> = async () => {}): Promise<void> {
  await server.stop()
  await rm(server.dataDir, { recursive: true })
  await cp(copy, server.dataDir, { recursive: true })
  await prepare()
  giveTo(serverAccount(), server.dataDir)
  await server.restart()
}

test('tails and waits on a log that was replaced by an earlier copy get LogRewound, and new ones do not', async () => {
  const { tail, kept, lost } = await appendCopyAppend()
  // One that polls only when it is notified.
  await using quiet = await openStore({ ...options(), pollMs: 600_000, listen: false })
  const quietTail = followLog(quiet)
  await quietTail.reached(lost)
  // One that waits for a position that is drawn and not settled: a prepared transaction holds it, beyond the end of its session.
  const holder = await connect(server.url)
  await holder.query('begin')
  await holder.query(`select "${store.schema.name}".announce()`)
  await holder.query(`select nextval('"${store.schema.name}".events_position')`)
  await holder.query(`prepare transaction 'held'`)
  await holder.end()
  const drawn = await store.events.head()
  const looks = store.metrics().settles_total
  const waiting = store.events.waitFor(drawn)
  waiting.catch(() => {})
  await waitUntil(() => store.metrics().settles_total > looks + 1, { what: 'waiting' })
  await putBack()

  await expect(tail.failed).rejects.toMatchObject({ code: 'log_rewound', cursor: lost })
  await expect(waiting).rejects.toMatchObject({ code: 'log_rewound', cursor: drawn })
  // A position beyond this log is refused immediately, or the events up to it would be skipped.
  await expect(followLog(store, lost).failed).rejects.toMatchObject({ code: 'log_rewound', cursor: lost })
  const again = followLog(store)
  await again.reached(kept)
  const next = await appendTen('kept')
  await expectAll(again, next)
  await again.stop()

  // When the new log is as long as the old one, its head no longer shows the difference; the events do.
  for (let position = next; position <= drawn; ) position = await appendTen('kept')
  await quiet.events.append('kept', one)
  await expect(quietTail.failed).rejects.toMatchObject({ code: 'log_rewound' })
}, 180_000)

test('a promoted standby without the last writes is detected by its timeline', async () => {
  const { tail } = await appendCopyAppend()
  // A standby without a primary: it recovers its data, and waits until it is promoted.
  await putBack(() => writeFile(join(server.dataDir, 'standby.signal'), ''))
  const admin = await connect(server.url)
  const { rows } = await admin.query('select pg_is_in_recovery() as recovering')
  expect(rows).toEqual([{ recovering: true }])
  // In recovery the settled position is unknown.
  await expect(store.events.settled()).rejects.toMatchObject({ code: 'server_in_recovery', retryable: true })
  await admin.query('select pg_promote()')
  await admin.end()

  await expect(tail.failed).rejects.toMatchObject({ code: 'log_rewound', message: expect.stringContaining('timeline') })
  const again = followLog(store)
  await expectAll(again, await appendTen('kept'))
  await again.stop()
}, 180_000)

/** The follower gets all events of the log that there is now: the ten that were kept, and ten more. */
async function expectAll(follower: LogFollower, cursor: number): Promise<void> {
  await follower.reached(cursor)
  const log = await readLog(store)
  const { positions } = follower
  expect(deliveryProblems({ name: 'the new follower', from: 0, cursor, positions }, log)).toEqual([])
  expect(log).toHaveLength(20)
}

function options(): { url: string; schema: string } {
  return { url: server.url, schema: store.schema.name }
}
