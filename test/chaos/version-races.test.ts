/**
 * Races for a version: of all writers that expect the same version exactly one succeeds and the others get the actual
 * one; writers that expect any version never conflict; and no append fails because of another.
 */
import { expect, test } from 'vitest'
import { openStore, type Store, type StoreOptions } from '../../src/store.ts'
import {
  type AppendRecorder,
  judgeAppends,
  type RecordedAppends,
  recordAppends,
} from '../../src/verify/record-appends.ts'
import { engine, freshSchema, openDatabase, postgresUrl } from '../support/engines.ts'
import { type Answer, perform, startAppending } from './appending-process.ts'
import { connect, long, show } from './chaos.ts'
import { times } from './seeded-random.ts'

const rounds = long ? 500 : 10
const one = { type: 'OrderPlaced', data: { total: 1 } }

interface Two extends AsyncDisposable {
  readonly stores: [Store, Store]
  readonly records: AppendRecorder[]
}

async function openTwo(schema = freshSchema()): Promise<Two> {
  const place = engine === 'pglite' ? { database: await openDatabase() } : { url: postgresUrl(), listen: false }
  const stores: [Store, Store] = [
    await openStore({ ...place, schema, migrate: true }),
    await openStore({ ...place, schema, migrate: false }),
  ]
  return {
    stores,
    records: stores.map((store, at) => recordAppends(store, `store ${at + 1}`)),
    async [Symbol.asyncDispose]() {
      for (const store of stores) await store.close()
    },
  }
}

test('of many writers that expect one version exactly one succeeds, and the others get the actual version', async () => {
  await using two = await openTwo()
  for (let version = 0; version < rounds; version++) {
    const race = { kind: 'race', stream: 'order-1', expected: version, callers: 8 } as const
    expectOneWinner(await Promise.all(two.records.map(orders => perform(orders, race))))
  }

  expect(await judgeAppends(two.stores[0], two.records)).toEqual([])
})

test('writers that expect any version all succeed, each with its own version', async () => {
  await using two = await openTwo()
  const count = long ? 5_000 : 300
  await Promise.all(times(count, at => two.records[at % 2]!.append(`order-${at % 5}`, at % 3 ? one : [one, one])))

  expect(await judgeAppends(two.stores[0], two.records)).toEqual([])
})

test('appends of one process to one stream keep the order of their calls, also with other streams among them', async () => {
  await using two = await openTwo()
  const [orders] = two.records as [AppendRecorder]
  const shared = (other: string, expected: number) =>
    orders.appendMany([
      { stream: other, events: one },
      { stream: 'shared', events: one, expected },
    ])
  // The first is sent immediately and alone; those that come meanwhile are one group.
  const first = orders.append('z-first', one)
  const results = await Promise.all([shared('c', 0), shared('b', 1), shared('a', 2), shared('é', 3), shared('b', 4)])
  await first

  expect(results.map(([, result]) => result!.version)).toEqual([1, 2, 3, 4, 5])
  expect(await judgeAppends(two.stores[0], two.records)).toEqual([])
})

test('a conflict within a group does not affect the other appends', async () => {
  await using two = await openTwo()
  const [orders] = two.records as [AppendRecorder]
  const first = orders.append('z-first', one)
  const outcomes = await Promise.allSettled(
    times(100, at => orders.append(`order-${at % 10}`, one, at % 7 === 0 ? { expected: 99 } : {})),
  )
  await first

  expect(outcomes.map(outcome => outcome.status)).toEqual(times(100, at => (at % 7 ? 'fulfilled' : 'rejected')))
  for (const outcome of outcomes)
    if (outcome.status === 'rejected')
      expect(outcome.reason).toMatchObject({ code: 'version_conflict', expected: 99, actual: expect.any(Number) })
  expect(await judgeAppends(two.stores[0], two.records)).toEqual([])
})

if (engine !== 'pglite') {
  test('the same holds between processes', async () => {
    const schema = freshSchema()
    await using two = await openTwo(schema)
    await using other = startAppending({ url: postgresUrl(), schema, listen: false })
    await other.ready
    for (let version = 0; version < rounds; version++) {
      const race = { kind: 'race', stream: 'order-1', expected: version, callers: 8 } as const
      expectOneWinner(await Promise.all([perform(two.records[0]!, race), other.ask(race)]))
    }

    expect(await judgeAppends(two.stores[0], [two.records[0]!, other.record()])).toEqual([])
  })

  test('two processes on hot streams never deadlock, and no unrelated append fails', async () => {
    await using database = await ownDatabase()
    const options = { url: database.url, schema: freshSchema(), listen: false }
    await (await openStore({ ...options, migrate: true })).close()
    const { answers, records } = await stormOfTwo(options)

    expect(answers.flatMap(answer => answer.errors)).toEqual([])
    await using store = await openStore(options)
    expect(await judgeAppends(store, records)).toEqual([])
    const client = await connect(database.url)
    const { rows: counts } = await client.query(
      'select deadlocks::integer from pg_stat_database where datname = current_database()',
    )
    await client.end()
    expect(counts).toEqual([{ deadlocks: 0 }])
    show(answers)
    expect((await store.schema.check()).problems).toEqual([])
  }, 120_000)
}

async function stormOfTwo(options: StoreOptions): Promise<{ answers: Answer[]; records: RecordedAppends[] }> {
  await using first = startAppending(options)
  await using second = startAppending(options)
  const both = [first, second]
  await Promise.all(both.map(each => each.ready))
  const storm = { kind: 'storm', forMs: long ? 60_000 : 2_500, streams: 12, callers: 32 } as const
  const answers = await Promise.all(both.map((each, seed) => each.ask({ ...storm, seed })))
  return { answers, records: both.map(each => each.record()) }
}

function expectOneWinner(answers: readonly Answer[]): void {
  const sum = (which: 'stored' | 'conflicts'): number => answers.reduce((total, answer) => total + answer[which], 0)
  expect(answers.flatMap(answer => answer.errors)).toEqual([])
  expect([sum('stored'), sum('conflicts')]).toEqual([1, 15])
}

/** A database with counters of its own. */
async function ownDatabase(): Promise<{ url: string } & AsyncDisposable> {
  const admin = await connect(postgresUrl())
  const name = freshSchema()
  await admin.query(`create database ${name}`)
  const url = new URL(postgresUrl())
  url.pathname = `/${name}`
  return {
    url: url.href,
    async [Symbol.asyncDispose]() {
      await admin.query(`drop database ${name} with (force)`)
      await admin.end()
    },
  }
}
