/**
 * The ordering torture: writers that do everything transactions can do, with random pauses, and readers that must
 * deliver every event once, in order. `broken` readers and writers are its self-check.
 */
import { openStore, type Store } from '../../src/store.ts'
import type { LoggedEvent } from '../../src/verify/append-history.ts'
import { judgeAppends, readLog, recordAppends } from '../../src/verify/record-appends.ts'
import { waitUntil } from '../support/wait.ts'
import { connections, show } from './chaos.ts'
import { judge, type LogReader, readerFunctions, type Verdict } from './log-readers.ts'
import { parcelsOf, type Work, type Writer, writerFunctions } from './log-writers.ts'
import { pause, pick, seeded, times } from './seeded-random.ts'

export interface TortureOptions {
  url: string
  schema: string
  /** The work of the writers, each picked as often as it is listed. */
  work: readonly Work[]
  writers?: number
  /** The readers, made after the schema. */
  readers(parts: TortureParts): Promise<LogReader[]>
  /** Runs until this holds, checked after every round of about this length. */
  roundMs: number
  done(verdicts: readonly Verdict[], round: number): boolean
  /** Names of readers that are expected to lose events: the test does not wait for them to catch up. */
  broken?: readonly string[]
  /** The last position drawn before it begins. */
  startAt?: number
  seed?: number
  prepareSchema?: readonly string[]
}

export interface TortureParts {
  readonly stores: readonly Store[]
  readonly from: number
  client(): Promise<import('pg').Client>
}

export async function torture(options: TortureOptions): Promise<Map<string, Verdict>> {
  const { url, schema, startAt = 0, broken = [], seed = Math.floor(Math.random() * 2 ** 32) } = options
  await using stores = await openStores(url, schema)
  await using clients = connections(url)
  const admin = await clients.open()
  if (startAt > 0) await admin.query(`select setval('"${schema}".events_position', ${startAt})`)
  const prepare = [...readerFunctions(schema), ...writerFunctions(schema), ...(options.prepareSchema ?? [])]
  for (const text of prepare) await admin.query(text)

  // A foreign transaction, open all the time, with its own snapshot and id: it must not matter.
  const unrelated = await clients.open()
  await unrelated.query('begin isolation level repeatable read')
  await unrelated.query(`create table "${schema}".unrelated (id integer)`)

  const readers = await options.readers({ stores: stores.all, from: startAt, client: clients.open })
  const reading = readers.map(reader => reader.run())
  const failed = Promise.race(reading.map(run => run.then(() => new Promise<never>(() => {}))))
  failed.catch(() => {})
  let writing = true
  const records = stores.all.map((store, at) => recordAppends(store, `store ${at + 1}`))
  const writers = await Promise.all(
    times(options.writers ?? 16, async (at): Promise<Writer> => {
      const random = seeded(seed + at)
      const store = pick(random, stores.all)
      const orders = records[stores.all.indexOf(store)]!
      return { client: await clients.open(), store, orders, schema, random, name: `w${at}`, count: 0 }
    }),
  )
  const written = Promise.all(writers.map(writer => writeOn(writer, options.work, () => writing)))
  try {
    for (let round = 1; ; round++) {
      await Promise.race([new Promise(resolve => setTimeout(resolve, options.roundMs)), written, failed])
      if (options.done([...(await verdictsNow()).values()], round)) break
    }
    writing = false
    await written
    const log = await readLog(stores.all[0]!)
    const right = readers.filter(reader => !broken.includes(reader.name))
    await Promise.race([
      failed,
      waitUntil(
        () => right.every(reader => reader.cursor >= (log.findLast(event => isFor(reader, event))?.position ?? 0)),
        {
          what: `the end of the log for ${right.map(reader => `${reader.name} at ${reader.cursor}`)}`,
        },
      ),
    ])
  } finally {
    writing = false
    for (const reader of readers) reader.stop()
    await Promise.allSettled([written, ...reading])
  }
  await Promise.all(reading)
  await unrelated.query('rollback')
  const problems = await judgeAppends(stores.all[0]!, records, { hasOthers: true })
  if (problems.length > 0) throw new Error(`The appends of the stores fit no order: ${problems.join('\n\n')}`)
  const verdicts = await verdictsNow()
  show([...verdicts.values()].map(({ problems, ...verdict }) => ({ ...verdict, problem: problems[0] })))
  return verdicts

  async function verdictsNow(): Promise<Map<string, Verdict>> {
    // Frozen first: the log that is read afterwards must contain everything that they have passed.
    const frozen = readers.map(reader => ({ ...reader, cursor: reader.cursor, delivered: [...reader.delivered] }))
    const log = await readLog(stores.all[0]!)
    return new Map(frozen.map(reader => [reader.name, judge(reader, startAt, log)]))
  }
}

function isFor({ types }: LogReader, { type }: LoggedEvent): boolean {
  return types === undefined || types.includes(type ?? '')
}

async function writeOn(writer: Writer, work: readonly Work[], goOn: () => boolean): Promise<void> {
  while (goOn()) {
    try {
      await pick(writer.random, work)(writer)
    } catch (error) {
      // Stricter isolation levels collide by design.
      const state =
        (error as { code?: string; cause?: { code?: string } }).cause?.code ?? (error as { code: string }).code
      if (state !== '40001' && state !== '40P01') throw error
      await writer.client.query('rollback')
    }
    await pause(writer.random, 2)
  }
}

async function openStores(url: string, schema: string): Promise<{ all: Store[] } & AsyncDisposable> {
  const options = { url, schema, channel: schema, maxConnections: 6 }
  const all = [await openStore({ ...options, migrate: true }), await openStore({ ...options, maxConnections: 2 })]
  for (const store of all) parcelsOf(store)
  await all[0]!.schema.sync()
  return {
    all,
    async [Symbol.asyncDispose]() {
      for (const store of all) await store.close()
    },
  }
}
