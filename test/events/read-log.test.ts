import { expect, test } from 'vitest'
import type { NewEvent } from '../../src/events/definition.ts'
import type { ReadLogOptions } from '../../src/events/read/log.ts'
import { openShop, outcome, paid, placed, type Shop, type ShopMap, shipped, take } from '../support/shop.ts'

const bare = '0190b2f0-6a1c-7def-8123-456789abcdef'

/** Seven events in six streams, named by their index. */
async function stockedShop(): Promise<
  Shop & { positions: number[]; places(options?: ReadLogOptions): Promise<number[]> }
> {
  const shop = await openShop()
  const { store } = shop
  const positions: number[] = []
  const append = async (stream: string, event: NewEvent<ShopMap>): Promise<void> => {
    positions.push((await store.events.append(stream, event)).position)
  }
  await append('order-1', placed(1, { correlationId: 'checkout-1', headers: { channel: 'web', till: 1 } }))
  await append('order-2', placed(2, { correlationId: 'checkout-2', headers: { channel: 'shop' } }))
  await append('order-1', { ...paid, correlationId: 'checkout-1', headers: { channel: 'web', till: 2 } } as typeof paid)
  await append('ordering-1', shipped())
  await append('order', shipped())
  await append(bare, placed(6))
  await append(`-${bare}`, placed(7))
  const places = async (options: ReadLogOptions = {}): Promise<number[]> => {
    const events = await store.events.readAll(options as ReadLogOptions<'OrderPlaced'>).toArray()
    return events.map(event => positions.indexOf(event.position) + 1)
  }
  return { ...shop, positions, places }
}

const filters: [filter: ReadLogOptions, expected: number[]][] = [
  [{}, [1, 2, 3, 4, 5, 6, 7]],
  [{ types: ['OrderPlaced'] }, [1, 2, 6, 7]],
  [{ types: ['OrderPaid', 'OrderShipped'] }, [3, 4, 5]],
  [{ types: ['OrderLost'] }, []],
  [{ types: [] }, []],
  [{ streams: ['order-1'] }, [1, 3]],
  [{ streams: ['order-2', bare] }, [2, 6]],
  [{ categories: ['order'] }, [1, 2, 3, 5]],
  [{ categories: ['ordering'] }, [4]],
  [{ categories: [bare.slice(0, 8)] }, []],
  [{ categories: ['order', 'ordering'], types: ['OrderShipped'] }, [4, 5]],
  [{ correlationId: 'checkout-1' }, [1, 3]],
  [{ correlationId: 'checkout-1', types: ['OrderPaid'] }, [3]],
  [{ correlationId: 'checkout-1', streams: ['order-2'] }, []],
  [{ correlationId: 'checkout-1', categories: ['order'], headers: { till: 2 } }, [3]],
  [{ headers: { channel: 'web' } }, [1, 3]],
  [{ headers: { channel: 'web', till: 1 } }, [1]],
  [{ headers: { channel: 'fax' } }, []],
  [{ streams: ['order-1'], types: ['OrderPlaced'], categories: ['order'], headers: { channel: 'web' } }, [1]],
]

test('the log is read in order with each filter and with several, all of which must match, at any page size', async () => {
  const { places } = await stockedShop()

  for (const [filter, expected] of filters) {
    for (const pageSize of [undefined, 1, 2, 100]) {
      expect(await places({ ...filter, pageSize }), JSON.stringify({ ...filter, pageSize })).toEqual(expected)
    }
  }
})

test('the log is read after and up to a position, up to a limit, with and without a filter', async () => {
  const { places, positions } = await stockedShop()
  const [, second, third, , fifth] = positions

  expect(await places({ from: second })).toEqual([3, 4, 5, 6, 7])
  expect(await places({ to: third })).toEqual([1, 2, 3])
  expect(await places({ from: second, to: fifth, limit: 2 })).toEqual([3, 4])
  expect(await places({ from: positions.at(-1) })).toEqual([])
  await expect(places({ from: 1_000_000 })).rejects.toMatchObject({ code: 'log_rewound', cursor: 1_000_000 })
  expect(await places({ from: 1_000_000, to: 1_000_001 })).toEqual([])
  expect(await places({ limit: 0 })).toEqual([])
  expect(await places({ types: ['OrderPlaced'], from: second, limit: 1 })).toEqual([6])
  expect(await places({ categories: ['order'], to: third })).toEqual([1, 2, 3])
})

test('events of archived and tombstoned streams are skipped unless requested', async () => {
  const { store, places, positions } = await stockedShop()
  await store.streams.archive('order-1')
  await store.streams.tombstone('order-2')
  positions.push((await store.events.head()) as number)

  expect(await places()).toEqual([4, 5, 6, 7])
  expect(await places({ pageSize: 2 })).toEqual([4, 5, 6, 7])
  expect(await places({ categories: ['order'] })).toEqual([5])
  expect(await places({ correlationId: 'checkout-1' })).toEqual([])
  expect(await places({ includeArchived: true })).toEqual([1, 2, 3, 4, 5, 6, 7, 8])
  expect(await places({ includeArchived: true, pageSize: 3 })).toEqual([1, 2, 3, 4, 5, 6, 7, 8])
  expect(await places({ correlationId: 'checkout-1', includeArchived: true })).toEqual([1, 3])
})

test('a log longer than a page and than a window is read completely, in order, without repeats, with flat memory', async () => {
  const { store } = await openShop()
  const count = 12_000
  await store.events.import(
    Array.from({ length: count }, (_, n) => ({ stream: `order-${n % 100}`, ...(n % 5_000 === 7 ? paid : placed(n)) })),
  )
  const before = store.metrics().events_read_total
  let given = 0
  let backwards = 0
  let last = 0
  let most = 0

  for await (const event of store.events.readAll()) {
    given++
    if (event.position <= last) backwards++
    last = event.position
    most = Math.max(most, store.metrics().events_read_total - before - given)
  }

  expect([given, backwards]).toEqual([count, 0])
  expect(most).toBeLessThanOrEqual(10_000)
  expect(await store.events.readAll({ types: ['OrderPaid'] }).toArray()).toHaveLength(3)
  expect(await store.events.readAll({ streams: ['order-99'], pageSize: 7 }).toArray()).toHaveLength(count / 100)
})

test('pages of the log begin small and grow, so that the first events come soon', async () => {
  const { store } = await openShop()
  const count = 6_000
  await store.events.import(
    Array.from({ length: count }, (_, n) => ({ stream: `order-${n % 100}`, ...(n % 2 === 0 ? paid : placed(n)) })),
  )
  const readFor = async (work: () => Promise<unknown>): Promise<number> => {
    const before = store.metrics().events_read_total
    await work()
    return store.metrics().events_read_total - before
  }

  const taken = await readFor(() => take(store.events.readAll(), 50))
  const filtered = await readFor(() => take(store.events.readAll({ types: ['OrderPaid'] }), 50))
  const all = await store.events.readAll().toArray()
  const half = await store.events.readAll({ types: ['OrderPaid'] }).toArray()

  expect(taken).toBeLessThanOrEqual(500)
  expect(filtered).toBeLessThanOrEqual(500)
  expect(all.map(event => event.position)).toEqual(all.map((_, at) => all[0]!.position + at))
  expect([all.length, half.length]).toEqual([count, count / 2])
})

test('a read of the log ends where the log was settled when it began', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', [placed(1), placed(2)])
  const seen: number[] = []

  for await (const event of store.events.readAll({ pageSize: 1 })) {
    seen.push(event.position)
    await store.events.append('order-1', placed())
  }

  expect(seen).toHaveLength(2)
  expect(await store.events.readAll().toArray()).toHaveLength(4)
})

test('a read of the log can be left, and begun again', async () => {
  const { store } = await stockedShop()
  const log = store.events.readAll()

  const some = await take(log, 2)

  expect(some).toHaveLength(2)
  expect(await log.first()).toEqual(some[0])
  expect(await log.toArray()).toHaveLength(7)
})

test('invalid options of a log read are refused with their name', async () => {
  const { store } = await openShop()
  const wrong: [string, object][] = [
    ['from', { from: 5n }],
    ['from', { from: -1 }],
    ['to', { to: 5n }],
    ['limit', { limit: -1 }],
    ['limit', { limit: Number.NaN }],
    ['pageSize', { pageSize: 0 }],
  ]

  for (const [option, options] of wrong) {
    const { error } = await outcome(store.events.readAll(options).toArray())

    expect(error, JSON.stringify(option)).toMatchObject({ code: 'invalid_option', option })
  }
})

test('data with tabs, new lines, backslashes and quotes is the same through every read path', async () => {
  const { store } = await openShop()
  const note = 'tab\there\nline\r\nback\\slash \\N \\t "quoted" \'single\' \u0001 \u2028 é 🎁 {}[],'
  await store.events.append(`order-${note.slice(0, 40)}`, placed(1, { data: { total: 1, note }, headers: { note } }), {
    correlationId: note.slice(0, 60),
    userId: note.slice(0, 30),
  })

  const [copied] = await store.events.readAll().toArray()
  const [paged] = await store.events.readAll({ pageSize: 10 }).toArray()

  expect(copied).toEqual(paged)
  expect(copied).toMatchObject({ data: { note }, headers: { note }, userId: note.slice(0, 30) })
})
