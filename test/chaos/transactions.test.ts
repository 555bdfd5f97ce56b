/**
 * Transactions over several streams and documents, by many callers of two stores, with connections that break: the order
 * of what they have read and written has no circle. The judge is trusted because it finds the skews that a weaker level of
 * isolation allows.
 */
import { expect, test } from 'vitest'
import type { Documents } from '../../src/documents/documents.ts'
import { openStore, type Store } from '../../src/store.ts'
import {
  type Counted,
  judgeTransactions,
  type RecordedWork,
  recordTransactions,
  type TransactionRecorder,
} from '../../src/verify/record-transactions.ts'
import { engine, freshSchema, openDatabase, postgresUrl } from '../support/engines.ts'
import { connect, long, show } from './chaos.ts'
import { pick, type Random, seeded, times } from './seeded-random.ts'

const streams = ['order-1', 'order-2', 'order-3']
const items = ['pen', 'ink', 'cup']

interface Shop extends AsyncDisposable {
  readonly stores: readonly Store[]
  readonly stock: Documents<Counted>
  readonly records: readonly TransactionRecorder[]
}

async function openShop(url?: string): Promise<Shop> {
  const schema = freshSchema()
  const place = url === undefined ? { database: await openDatabase() } : { url, listen: false, maxConnections: 6 }
  const stores = [
    await openStore({ ...place, schema, migrate: true }),
    await openStore({ ...place, schema, migrate: false }),
  ]
  const stocks = stores.map(store => store.documents('stock', { history: true, gin: false }) as Documents<Counted>)
  await stores[0]!.schema.sync()
  const records = stores.map((store, at) => recordTransactions(store, stocks[at]!, `store ${at + 1}`))
  // Every document and every stream has a first version.
  await records[0]!.session(async work => {
    for (const item of items) await work.put(item)
    for (const stream of streams) await work.append(stream, 1)
  })
  return {
    stores,
    stock: stocks[0]!,
    records,
    async [Symbol.asyncDispose]() {
      for (const store of stores) await store.close()
    },
  }
}

/** Each reads something, and writes something that depends on it. */
const kinds: ((random: Random) => (work: RecordedWork) => Promise<void>)[] = [
  random => async work => {
    const [stream, item] = [pick(random, streams), pick(random, items)]
    const [version, stored] = [await work.readStream(stream), await work.readDocument(item)]
    await work.append(stream, 1 + Math.floor(random() * 2), version)
    await work.put(item, stored)
  },
  random => async work => {
    const [first, second] = [pick(random, streams), pick(random, streams)]
    await work.readStream(first)
    await work.append(second, 2)
  },
  random => async work => {
    for (const item of items) await work.readDocument(item)
    for (const stream of streams) await work.readStream(stream)
    if (random() < 0.3) await work.append(pick(random, streams), 1)
  },
]

/** Reads two things and writes one of them: without serializable isolation, this is a write skew. */
const skewed = (random: Random) => async (work: RecordedWork) => {
  const [stream, item] = [pick(random, streams), pick(random, items)]
  await work.readStream(stream)
  await work.readDocument(item)
  if (random() < 0.5) await work.append(stream, 1)
  else await work.put(item)
}

async function run(
  { records }: Shop,
  callers: number,
  each: (record: TransactionRecorder, random: Random) => Promise<void>,
) {
  const count = (long ? 2_000 : 25) / (engine === 'pglite' ? 5 : 1)
  await Promise.all(
    times(callers, async caller => {
      const random = seeded(caller)
      for (let at = 0; at < count; at++) await each(records[caller % records.length]!, random)
    }),
  )
}

function outcomes({ records }: Shop): Record<string, number> {
  const counted: Record<string, number> = {}
  for (const { outcome } of records.flatMap(record => record.transactions))
    counted[outcome] = (counted[outcome] ?? 0) + 1
  show(counted)
  return counted
}

const url = engine === 'pglite' ? undefined : postgresUrl()

test('sessions and transactions over several streams and documents fit one order', async () => {
  await using shop = await openShop(url)
  await run(shop, 8, (record, random) => {
    const work = pick(random, kinds)(random)
    return random() < 0.5 ? record.session(work) : record.transaction('read committed', work)
  })

  expect(await judgeTransactions(shop.stores[0]!, shop.stock, shop.records)).toEqual([])
  expect(outcomes(shop).committed).toBeGreaterThan(20)
})

test('serializable transactions fit one order, with all that they have read', async () => {
  await using shop = await openShop(url)
  await run(shop, 6, (record, random) => record.transaction('serializable', skewed(random)))

  expect(await judgeTransactions(shop.stores[0]!, shop.stock, shop.records, 'serializable')).toEqual([])
  expect(outcomes(shop).committed).toBeGreaterThan(20)
})

if (url !== undefined) {
  test('a write skew between two transactions in read committed is found', async () => {
    await using shop = await openShop(url)
    const [first, second] = shop.records
    const both = meeting(2)
    const read = async (work: RecordedWork): Promise<void> => {
      await work.readStream('order-1')
      await work.readDocument('pen')
      await both()
    }

    await Promise.all([
      first!.transaction('read committed', async work => {
        await read(work)
        await work.append('order-1', 1)
      }),
      second!.transaction('read committed', async work => {
        await read(work)
        await work.put('pen')
      }),
    ])

    expect(await judgeTransactions(shop.stores[0]!, shop.stock, shop.records)).toEqual([])
    const [problem] = await judgeTransactions(shop.stores[0]!, shop.stock, shop.records, 'serializable')
    expect(problem).toContain('a write skew\n')
  })

  test('an update without an expected version that overwrites another one is found', async () => {
    await using shop = await openShop(url)
    const both = meeting(2)
    await Promise.all(
      shop.records.map(record =>
        record.transaction('read committed', async work => {
          await work.readDocument('pen')
          await both()
          await work.put('pen')
        }),
      ),
    )

    const [problem] = await judgeTransactions(shop.stores[0]!, shop.stock, shop.records, 'serializable')
    expect(problem).toContain('a lost update\n')
  })

  test('transactions whose connections are terminated are whole or not there, and fit one order', async () => {
    await using database = await ownDatabase()
    await using shop = await openShop(database.url)
    const terminate = `
      select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and pid <> pg_backend_pid() order by random() limit 2`
    let done = 0
    await run(shop, 8, async (record, random) => {
      const work = pick(random, kinds)(random)
      await (random() < 0.5 ? record.session(work) : record.transaction('read committed', work))
      // Whatever the others are doing now. Not by time: on a busy machine nothing would ever be completed.
      if (++done % 5 === 0) await database.query(terminate)
    })

    expect(await judgeTransactions(shop.stores[0]!, shop.stock, shop.records)).toEqual([])
    expect(outcomes(shop).committed).toBeGreaterThan(20)
  })
}

/** Resolves when this many callers are waiting for it. */
function meeting(callers: number): () => Promise<void> {
  let [waiting, open] = [0, () => {}]
  const met = new Promise<void>(resolve => {
    open = resolve
  })
  return () => {
    if (++waiting === callers) open()
    return met
  }
}

async function ownDatabase(): Promise<{ url: string; query(text: string): Promise<unknown> } & AsyncDisposable> {
  const admin = await connect(postgresUrl())
  const name = freshSchema()
  await admin.query(`create database ${name}`)
  const own = new URL(postgresUrl())
  own.pathname = `/${name}`
  const client = await connect(own.href)
  return {
    url: own.href,
    query: text => client.query(text),
    async [Symbol.asyncDispose]() {
      await client.end()
      await admin.query(`drop database ${name} with (force)`)
      await admin.end()
    },
  }
}
