/**
 * The hot statements use their indexes and never scan a table that grows, neither planned for the given values nor, as a
 * prepared statement is after a while, for any values. The statements of the store are recorded and explained as sent;
 * those inside the functions are run, and the server reports the tables and indexes it scanned.
 */
import { expect, test } from 'vitest'
import type { Transaction } from '../../src/database/database.ts'
import type { Statement } from '../../src/database/sql.ts'
import { type Append, sendBatch, sendOne } from '../../src/events/append/send.ts'
import { type Log, logNames } from '../../src/events/log.ts'
import { openDatabase } from '../support/engines.ts'
import { explain, recording } from '../support/query-plans.ts'
import { openShop, paid, placed, type Shop } from '../support/shop.ts'

const id = '0190b2f0-6a1c-7def-8123-456789abcdef'

/** A shop of 1000 streams and 20 000 events, some archived, and all statements that its store sends from now on. */
async function largeShop(): Promise<Shop & { sent: Map<string, Statement> }> {
  const sent = new Map<string, Statement>()
  const database = recording(await openDatabase(), statement => sent.set(statement.label, statement))
  const shop = await openShop({ database })
  await shop.store.events.import(
    Array.from({ length: 20_000 }, (_, n) => ({
      stream: `order-${n % 1000}`,
      ...placed(n, { correlationId: `checkout-${n % 500}` }),
    })),
  )
  for (let n = 0; n < 20; n++) await shop.store.streams.archive(`order-${n * 50 + 1}`)
  await shop.query('analyze ~events')
  await shop.query('analyze ~streams')
  sent.clear()
  return { ...shop, sent }
}

const indexesOf: Record<string, string[]> = {
  'events.read': ['events_stream_version'],
  'events.read_backwards': ['events_stream_version'],
  'events.read_log': ['events_pkey'],
  'events.read_correlation': ['events_correlation'],
  'events.get': ['events_event_id'],
  'events.has': ['events_event_id'],
  'events.last': ['events_stream_version'],
  'events.outcome_of_ids': ['events_event_id'],
  'streams.list': ['streams_pkey', 'events_stream_version'],
  'streams.describe': ['streams_pkey', 'events_stream_version'],
  copy: ['events_pkey'],
}

test('each reading statement uses its index, whatever values it was planned for', async () => {
  const { store, sent, database } = await largeShop()
  const own = { ...placed(1, { id }) }
  await store.events.append('order-new', own)
  await store.events.append('order-new', own)
  await store.events.append('order-1', [])
  await store.events.read('order-7', { after: 3 }).toArray()
  await store.events.read('order-7', { direction: 'backwards', limit: 1 }).toArray()
  await store.events.readAll({ types: ['OrderPaid'], from: 100 }).toArray()
  await store.events.readAll({ correlationId: 'checkout-7' }).toArray()
  await store.events.readAll({ from: 5000 }).first()
  await store.events.get(id)
  await store.events.has(id)
  await store.streams.list({ after: (await store.streams.list({ limit: 1 })).next })
  await store.streams.describe('order-7')

  for (const [label, indexes] of Object.entries(indexesOf)) {
    const statement = sent.get(label)
    expect(statement, label).toBeDefined()
    for (const mode of ['force_custom_plan', 'force_generic_plan']) {
      const plan = await database.transaction(tx => explain(tx, statement!, mode))

      expect(plan, `${label}, ${mode}`).not.toMatch(/Seq Scan on (events|streams)/)
      for (const index of indexes) expect(plan, `${label}, ${mode}`).toContain(index)
    }
  }
})

test('listing a category reads only its own range of the index', async () => {
  const { store, sent, database } = await largeShop()
  await store.events.append('zebra-1', paid)

  expect((await store.streams.list({ category: 'zebra' })).items).toHaveLength(1)

  const plan = await database.transaction(tx => explain(tx, sent.get('streams.list_category')!, 'force_generic_plan'))
  expect(plan).toMatch(/streams_pkey[^\n]*\n\s*Index Cond: [^\n]*stream >= [^\n]*stream < /)
  expect(plan).not.toMatch(/Seq Scan on (events|streams)/)
})

/** One run of each way to append, on streams that exist and on new ones. */
const ways: Record<string, (tx: Transaction, log: Log) => Promise<unknown>> = {
  'append_one to a stream': (tx, log) => sendOne(tx, log, appendTo('order-7')),
  'append_one to a new stream': (tx, log) => sendOne(tx, log, appendTo('order-new-1')),
  'append_one that is refused': (tx, log) => sendOne(tx, log, appendTo('order-7', { expected: 3 })),
  'append_batch that waits': (tx, log) => sendBatch(tx, log, [appendTo('order-7'), appendTo('order-new-2')], true),
  'append_batch of many': (tx, log) =>
    sendBatch(
      tx,
      log,
      [...Array.from({ length: 50 }, (_, n) => appendTo(`order-${n + 2}`)), appendTo('order-new-3')],
      false,
    ),
  'append_batch to one stream again and again': (tx, log) =>
    sendBatch(
      tx,
      log,
      Array.from({ length: 20 }, () => appendTo('order-7')),
      false,
    ),
  'append_batch with ids and keys': (tx, log) =>
    sendBatch(
      tx,
      log,
      [appendTo('order-7', { checkIds: true, key: 'k' }), appendTo('order-8', { checkIds: true })],
      true,
    ),
  'append_batch that is refused': (tx, log) =>
    sendBatch(tx, log, [appendTo('order-7', { expected: 3, key: 'k' }), appendTo('order-1')], true),
}

test('no append scans events or streams', async () => {
  const { database, schema, named } = await largeShop()
  const log = { names: logNames(schema), schema } as Log

  for (const [way, run] of Object.entries(ways)) {
    const [before, after] = await database.transaction(async tx => {
      const counted = await scansOf(tx, named)
      await run(tx, log)
      return [counted, await scansOf(tx, named)]
    })

    expect(after!.sequential, way).toBe(before!.sequential)
    expect(after!.index, way).toBeGreaterThan(before!.index)
  }
})

test('settling reads the sequence and the locks, not a table of events', async () => {
  const { database, named } = await largeShop()

  const [before, after] = await database.transaction(async tx => {
    const counted = await scansOf(tx, named)
    await tx.query(named('select * from ~settle()'))
    return [counted, await scansOf(tx, named)]
  })

  expect(after).toEqual(before)
})

/** The scans of both tables by this connection that it has not reported yet: only rises within a transaction. */
async function scansOf(tx: Transaction, named: Shop['named']): Promise<{ sequential: number; index: number }> {
  const [row] = await tx.query<{ sequential: string; index: string }>(
    named(`
      select sum(seq_scan)::text as sequential, sum(coalesce(idx_scan, 0))::text as index
      from pg_stat_xact_user_tables
      where relid in ('~events'::regclass, '~streams'::regclass)`),
  )
  return { sequential: Number(row!.sequential), index: Number(row!.index) }
}

let made = 0

function appendTo(
  stream: string,
  { expected = 'any', ...more }: Partial<Append> & { expected?: 'any' | number } = {},
): Append {
  const event = {
    id: `0190b2f0-6a1c-7def-8123-${String(++made).padStart(12, '0')}`,
    type: 'OrderPlaced',
    schemaVersion: 1,
    data: '{"total":1}',
    headers: undefined,
    correlationId: 'checkout-1',
    causationId: undefined,
    userId: undefined,
    bytes: 0,
  }
  return {
    parts: [{ stream, expected, events: [event] }],
    key: undefined,
    digest: more.key === undefined ? undefined : 'digest',
    onRepeat: 'return',
    allowArchived: false,
    advisoryLock: false,
    checkIds: false,
    eventCount: 1,
    bytes: 0,
    ...more,
  }
}
