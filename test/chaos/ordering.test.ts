/**
 * No event is skipped, repeated or out of order, whatever the writers do. The torture is trusted only because it detects
 * each variant of the protocol that loses events.
 */
import { expect, test } from 'vitest'
import { openStore } from '../../src/store.ts'
import { judgeAppends, readLog, recordAppends } from '../../src/verify/record-appends.ts'
import { engine, freshSchema, openDatabase, postgresUrl } from '../support/engines.ts'
import { waitUntil } from '../support/wait.ts'
import { connect, long } from './chaos.ts'
import {
  locksBeforeHead,
  naive,
  oneStatement,
  openedCursor,
  readingAll,
  repeatableRead,
  settleThenRead,
  stableFunction,
  tailing,
  type Verdict,
} from './log-readers.ts'
import {
  afterDrawing,
  exceptionBlock,
  grouped,
  inSameStatement,
  insideStoresTransaction,
  insideUsersTransaction,
  inTransactionOfItsOwn,
  oncePerConnection,
  prepared,
  rememberedInClient,
  saved,
  savepointRolledBack,
  slowSteps,
  type Work,
  type Writer,
} from './log-writers.ts'
import { type TortureParts, torture } from './ordering-torture.ts'
import { seeded, times } from './seeded-random.ts'

const everything: Work[] = [
  slowSteps,
  slowSteps,
  grouped,
  saved,
  grouped,
  insideUsersTransaction,
  savepointRolledBack,
  exceptionBlock,
  insideStoresTransaction,
]
/** Longer than any broken variant has ever survived, also on a machine that stalls. */
const patienceMs = long ? 600_000 : 90_000
const limitMs = long ? 3_600_000 : 180_000

function patience(): () => boolean {
  const until = performance.now() + patienceMs
  return () => performance.now() > until
}

/** The judge of readers has found out that this one skips events. */
function expectMissed({ name, problems }: Verdict): void {
  expect(problems.join()).toContain(`${name} never got position`)
}

if (engine === 'pglite') {
  test('on one connection no event is missed, repeated or out of order', async () => {
    await using store = await openStore({ database: await openDatabase(), schema: freshSchema() })
    const readers = [tailing(store, 0), tailing(store, 0), readingAll(store, 0, seeded(1))]
    const reading = readers.map(reader => reader.run())
    const work = async (writer: Writer): Promise<void> => {
      for (let at = 0; at < (long ? 2_000 : 20); at++) await (at % 2 ? grouped : insideStoresTransaction)(writer)
    }
    const client = undefined as unknown as Writer['client']
    const orders = recordAppends(store, 'shop')
    await Promise.all(
      times(16, at => work({ client, store, orders, schema: '', random: seeded(at), name: `w${at}`, count: 0 })),
    )
    const end = (await readLog(store)).at(-1)!.position
    await waitUntil(() => readers.every(reader => reader.cursor === end))
    for (const reader of readers) reader.stop()
    await Promise.all(reading)

    const deliveries = readers.map(({ delivered, ...reader }) => ({ ...reader, from: 0, positions: delivered }))
    expect(await judgeAppends(store, [orders], { deliveries })).toEqual([])
    expect(orders.calls.length).toBeGreaterThan(300)
  })
} else {
  const withPrepared = async (): Promise<Work[]> => {
    const client = await connect(postgresUrl())
    const { rows } = await client.query('show max_prepared_transactions')
    await client.end()
    return Number(rows[0].max_prepared_transactions) >= 16 ? [...everything, prepared] : everything
  }

  const rightReaders = async ({ stores, from, client }: TortureParts, schema: string) => [
    tailing(stores[0]!, from),
    tailing(stores[1]!, from, { types: ['Packed'] }),
    readingAll(stores[0]!, from, seeded(1)),
    settleThenRead(await client(), schema, from, seeded(2)),
  ]

  const brokenReaders = [
    'position > last',
    'settle and read in one statement',
    'a STABLE function',
    'a repeatable-read transaction',
    'a cursor opened before',
  ]

  test(
    'no reader misses, repeats or reorders an event, and every broken reader is detected',
    async () => {
      const schema = freshSchema()
      const isOver = patience()
      const verdicts = await torture({
        url: postgresUrl(),
        schema,
        work: await withPrepared(),
        broken: brokenReaders,
        roundMs: long ? 5_000 : 500,
        done: (all, round) =>
          isOver() ||
          (round >= 6 &&
            all.every(
              ({ name, problems, delivered }) =>
                delivered > 100 && (!brokenReaders.includes(name) || problems.length > 0),
            )),
        readers: async parts => [
          ...(await rightReaders(parts, schema)),
          naive(await parts.client(), schema, parts.from, seeded(3)),
          oneStatement(await parts.client(), schema, parts.from, seeded(4)),
          stableFunction(await parts.client(), schema, parts.from, seeded(5)),
          repeatableRead(await parts.client(), await parts.client(), schema, parts.from, seeded(6)),
          openedCursor(await parts.client(), schema, parts.from, seeded(7)),
        ],
      })

      for (const [name, verdict] of verdicts)
        if (brokenReaders.includes(name)) expectMissed(verdict)
        else
          expect(verdict).toMatchObject({ problems: [], delivered: expect.toSatisfy((count: number) => count > 100) })
    },
    limitMs,
  )

  test.each([
    ['2^31', 2 ** 31],
    ['2^32', 2 ** 32],
  ])(
    'no event is missed across position %s',
    async (_, boundary) => {
      const schema = freshSchema()
      const startAt = boundary - 150
      const verdicts = await torture({
        url: postgresUrl(),
        schema,
        work: await withPrepared(),
        startAt,
        roundMs: long ? 10_000 : 400,
        done: all => all.every(({ delivered }) => delivered > 300),
        readers: parts => rightReaders(parts, schema),
      })

      for (const { problems } of verdicts.values()) expect(problems).toEqual([])
    },
    limitMs,
  )

  test(
    'reading the locks before the head is detected',
    async () => {
      const schema = freshSchema()
      const isOver = patience()
      const verdicts = await torture({
        url: postgresUrl(),
        schema,
        // With many writers an older bound is nearly always announced, and hides the fault.
        writers: 2,
        work: [slowSteps],
        broken: ['the locks before the head'],
        roundMs: 100,
        done: all => isOver() || all.some(({ problems }) => problems.length > 0),
        readers: async parts => [
          ...(await rightReaders(parts, schema)),
          locksBeforeHead(await parts.client(), schema, parts.from, seeded(8)),
        ],
      })

      for (const [name, verdict] of verdicts)
        if (name === 'the locks before the head') expectMissed(verdict)
        else expect(verdict.problems).toEqual([])
    },
    limitMs,
  )

  test.each<[string, Work, string[]]>([
    ['in the memory of a client whose savepoint was rolled back', rememberedInClient, []],
    ['once per connection', oncePerConnection, []],
    ['after drawing', afterDrawing, []],
    ['in a transaction of its own', inTransactionOfItsOwn, []],
    ['in the same statement as the insert', inSameStatement, []],
    ['but drawing from a sequence that caches', slowSteps, ['cache 20']],
  ])(
    'announcing %s is detected: a correct reader misses events',
    async (_, broken, sequence) => {
      const schema = freshSchema()
      const isOver = patience()
      const verdicts = await torture({
        url: postgresUrl(),
        schema,
        work: [broken],
        prepareSchema: sequence.map(setting => `alter sequence "${schema}".events_position ${setting}`),
        broken: ['settle, then read'],
        roundMs: 100,
        done: ([reader]) => isOver() || reader!.problems.length > 0,
        readers: async ({ client, from }) => [settleThenRead(await client(), schema, from, seeded(2))],
      })

      expectMissed(verdicts.get('settle, then read')!)
    },
    limitMs,
  )
}
