import { expect, test } from 'vitest'
import type { ImportedEvent, ImportProgress } from '../../src/events/import/import.ts'
import type { Store } from '../../src/store.ts'
import { judgeAppends, recordAppends } from '../../src/verify/record-appends.ts'
import { openShop, outcome, paid, placed, shipped, take } from '../support/shop.ts'

const order = (stream: string, total: number, more: object = {}): ImportedEvent => ({
  stream,
  ...placed(total),
  ...more,
})
const orders = (count: number, streams = 10): ImportedEvent[] =>
  Array.from({ length: count }, (_, n) => order(`order-${n % streams}`, n))

test('many streams are imported, each numbered without a gap, in the order of the source', async () => {
  const { store } = await openShop()
  await store.events.append('order-3', [placed(), paid])

  const done = await store.events.import(orders(1000), { chunkSize: 150 })

  const events = await store.events.readAll({ from: 2 }).toArray()
  expect(done).toMatchObject({ events: 1000, resumed: 0, position: events.at(-1)!.position })
  expect(events.map(event => (event.data as { total: number }).total)).toEqual(events.map((_, n) => n))
  for (let n = 0; n < 10; n++) {
    const versions = (await store.events.read(`order-${n}`).toArray()).map(event => event.version)
    expect(versions).toEqual(versions.map((_, at) => at + 1))
  }
  expect(await store.streams.describe('order-3')).toMatchObject({ version: 102 })
  expect(await store.events.append('order-3', shipped(), { expected: 102 })).toMatchObject({ version: 103 })
})

test('an asynchronous source is read as it comes, and progress is reported chunk by chunk', async () => {
  const { store } = await openShop()
  const reported: ImportProgress[] = []
  async function* source(): AsyncGenerator<ImportedEvent> {
    for (const event of orders(25)) yield event
  }

  const done = await store.events.import(source(), { chunkSize: 10, onProgress: progress => reported.push(progress) })

  expect(reported.map(progress => progress.events)).toEqual([10, 20, 25])
  expect(reported.at(-1)).toMatchObject({ position: done.position, resumed: 0 })
  expect(JSON.parse(JSON.stringify(done)).position).toBe(done.position)
  expect(store.metrics().events_imported_total).toBe(25)
})

test('the tables that an import has filled have statistics when it ends, and a small import changes none', async () => {
  const { store, query } = await openShop()
  const sizes = async (): Promise<Record<string, number>> => {
    const rows = await query<{ name: string; rows: number }>(
      `select oid::regclass::text as name, reltuples::float8 as rows
      from pg_class where oid in ('~events'::regclass, '~streams'::regclass)`,
    )
    return Object.fromEntries(rows.map(({ name, rows }) => [name.split('.').at(-1)!.replaceAll('"', ''), rows]))
  }
  await store.events.import(orders(10))
  const before = await sizes()

  await store.events.import(orders(3_000, 300))

  expect(Math.max(...Object.values(before))).toBeLessThan(3_000)
  expect(await sizes()).toEqual({ events: 3_010, streams: 300 })
})

test('an empty import is not an error', async () => {
  const { store } = await openShop()

  expect(await store.events.import([])).toMatchObject({ events: 0, resumed: 0, position: 0 })
})

test('an imported event keeps its id, time, headers, ids and schema version', async () => {
  const { store } = await openShop()
  const event = {
    ...order('order-1', 1),
    id: '0190b2f0-6a1c-7def-8123-456789abcdef',
    schemaVersion: 3,
    headers: { channel: 'web' },
    correlationId: 'checkout-1',
    causationId: 'cause-1',
    userId: 'ada',
    createdAt: new Date('2019-06-30T23:59:59.123Z'),
  }

  await store.events.import([event, order('order-1', 2)])

  const [first, second] = await store.events.read('order-1').toArray()
  expect({ ...first }).toMatchObject(event)
  expect(second).toMatchObject({ correlationId: second!.id, headers: {}, schemaVersion: 1, causationId: undefined })
  expect(second!.createdAt.getTime()).toBeGreaterThan(Date.UTC(2026, 0))
})

test('tabs, new lines, backslashes, quotes and unicode are stored and read unchanged', async () => {
  const { store } = await openShop()
  const odd = ['\t', '\n', '\r\n', '\\', '\\N', '\\.', '\\t', '"', "'", '\u0001', '\u2028', 'é', '漢', '🎁', '{}', ',']
  const all = odd.join('|')
  const source = [...odd, all].map((note, n) => ({
    ...order(`order-${n}-${note}`, n),
    data: { total: n, note, [note]: [note] },
    headers: { [note]: note },
    correlationId: note,
    causationId: note,
    userId: note,
  }))

  await store.events.import(source)

  const copied = await store.events.readAll().toArray()
  const paged = await store.events.readAll({ pageSize: 5 }).toArray()
  expect(copied).toMatchObject(source)
  expect(paged).toEqual(copied)
  expect((await store.streams.list()).items.map(each => each.stream).sort()).toEqual(
    source.map(each => each.stream).sort(),
  )
})

test('an invalid event is named, and the chunks before it stay', async () => {
  const { store } = await openShop()
  const bad = { ...order('order-1', 7), data: { total: Number.NaN } }

  const importing = store.events.import([...orders(25), bad, order('order-1', 8)], { chunkSize: 10 })

  await expect(importing).rejects.toMatchObject({ code: 'invalid_event', type: 'OrderPlaced', path: 'data.total' })
  expect(await store.events.readAll().toArray()).toHaveLength(20)
})

test('every kind of invalid event is found before it is sent', async () => {
  const { store } = await openShop()
  const wrong: [code: string, event: unknown][] = [
    ['invalid_name', { ...placed() }],
    ['invalid_name', order('', 1)],
    ['invalid_event', undefined],
    ['invalid_event', order('order-1', 1, { type: '' })],
    ['invalid_event', order('order-1', 1, { id: 'x' })],
    ['invalid_event', order('order-1', 1, { createdAt: new Date(Number.NaN) })],
    ['invalid_event', order('order-1', 1, { createdAt: '2026-01-01' })],
  ]

  for (const [code, event] of wrong) {
    await expect(store.events.import([event as ImportedEvent]), code).rejects.toMatchObject({ code })
  }
  expect(await store.events.head()).toBe(0)
  await expect(store.events.import([], { chunkSize: 10_001 })).rejects.toMatchObject({ code: 'invalid_option' })
  await expect(store.events.import([], { name: '' })).rejects.toMatchObject({ code: 'invalid_name' })
})

test('an archived or tombstoned stream refuses an import by name, and its chunk leaves nothing', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', placed())
  await store.events.append('order-2', placed())
  await store.streams.archive('order-1')
  await store.streams.tombstone('order-2')

  const archived = outcome(store.events.import([order('order-9', 1), order('order-1', 1)]))
  const tombstoned = outcome(store.events.import([order('order-9', 1), order('order-2', 1)]))

  expect((await archived).error).toMatchObject({ code: 'stream_archived', stream: 'order-1' })
  expect((await tombstoned).error).toMatchObject({ code: 'stream_tombstoned', stream: 'order-2' })
  expect(await store.streams.describe('order-9')).toBeUndefined()
})

test('an id that exists, in the log or in the same chunk, is named', async () => {
  const { store } = await openShop()
  const id = '0190b2f0-6a1c-7def-8123-456789abcdef'
  const twice = '0190b2f0-6a1c-7def-8123-000000000002'
  await store.events.append('order-1', placed(1, { id }))

  const taken = outcome(store.events.import([order('order-2', 1), order('order-2', 2, { id })]))
  const within = outcome(
    store.events.import([order('order-3', 1, { id: twice }), order('order-3', 2, { id: twice.toUpperCase() })]),
  )

  expect((await taken).error).toMatchObject({ code: 'duplicate_event_id', eventIds: [id] })
  expect((await within).error).toMatchObject({ code: 'duplicate_event_id', eventIds: [twice] })
  expect(await store.events.readAll().toArray()).toHaveLength(1)
})

test('a named import continues where it failed', async () => {
  const { store } = await openShop()
  const source = orders(45)
  const broken = [...source.slice(0, 33), { ...order('order-1', 1), data: undefined }]
  await outcome(store.events.import(broken, { name: 'shop 2019', chunkSize: 10 }))

  const done = await store.events.import(source, { name: 'shop 2019', chunkSize: 7 })
  const again = await store.events.import(source, { name: 'shop 2019' })

  expect(done).toMatchObject({ events: 45, resumed: 30 })
  expect(again).toMatchObject({ events: 45, resumed: 45, position: 0 })
  const totals = (await store.events.readAll().toArray()).map(event => (event.data as { total: number }).total)
  expect(totals).toEqual(source.map((_, n) => n))
  expect(await judgeAppends(store, [], { hasOthers: true })).toEqual([])
})

test('a named import refuses a source other than the one it began with', async () => {
  const { store } = await openShop()
  await store.events.import(orders(20), { name: 'shop 2019', chunkSize: 10 })
  const other = [...orders(5), order('order-5', 500), ...orders(30).slice(6)]

  const differing = store.events.import(other, { name: 'shop 2019' })
  await expect(differing).rejects.toMatchObject({ code: 'import_mismatch', importName: 'shop 2019', imported: 20 })
  const shorter = store.events.import(orders(10), { name: 'shop 2019' })
  await expect(shorter).rejects.toMatchObject({ code: 'import_mismatch' })
  expect(await store.events.readAll().toArray()).toHaveLength(20)
  expect(await store.events.import(orders(22), { name: 'shop 2019' })).toMatchObject({ events: 22, resumed: 20 })
})

test('an import can be aborted, and a named one continues later', async () => {
  const { store } = await openShop()
  const abort = new AbortController()
  const onProgress = (): void => abort.abort('lunch')

  const importing = store.events.import(orders(50), { name: 'i', chunkSize: 10, onProgress, signal: abort.signal })
  await expect(importing).rejects.toMatchObject({ code: 'aborted', cause: 'lunch' })
  const done = await store.events.import(orders(50), { name: 'i' })

  expect(done.resumed).toBeGreaterThanOrEqual(10)
  expect(await store.events.readAll().toArray()).toHaveLength(50)
})

test('a tail sees imported events in order, chunk after chunk, between ordinary appends', async () => {
  const { store } = await openShop({ pollMs: 600_000 })
  const tailing = take(store.events.tail({ from: 'start' }), 520)
  const stock = recordAppends(store as unknown as Store, 'shop')

  const [, ...appended] = await Promise.all([
    store.events.import(orders(500), { chunkSize: 50 }),
    ...Array.from({ length: 20 }, (_, n) => stock.append(`stock-${n}`, shipped())),
  ])

  const events = await tailing
  const totals = events.flatMap(event => (event.type === 'OrderPlaced' ? [event.data.total] : []))
  expect(appended).toHaveLength(20)
  expect(totals).toEqual(totals.map((_, n) => n))
  const positions = events.map(event => event.position)
  const given = { name: 'the tail', from: 0, cursor: positions.at(-1)!, positions }
  expect(await judgeAppends(store, [stock], { deliveries: [given], hasOthers: true })).toEqual([])
})

test('an import keeps every character, wherever the text is cut on its way to the database', async () => {
  const { store } = await openShop()
  const notes = Array.from({ length: 8 }, (_, shift) => 'a'.repeat(shift) + '😀'.repeat(50_000))

  await store.events.import(notes.map((note, n) => ({ stream: `order-${n}`, type: 'OrderNoted', data: { note } })))

  for (const [n, note] of notes.entries()) {
    const [event] = await store.events.read(`order-${n}`).toArray()
    expect((event!.data as { note: string }).note === note).toBe(true)
  }
})
