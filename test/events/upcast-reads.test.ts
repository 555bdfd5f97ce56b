import { expect, test } from 'vitest'
import { z } from 'zod'
import { defineEvents, type RecordedEvent } from '../../src/events/definition.ts'
import type { ReadLogOptions } from '../../src/events/read/log.ts'
import { defineUpcaster } from '../../src/events/read/upcast.ts'
import { openStore, type Store } from '../../src/store.ts'
import { openShop, outcome, take } from '../support/shop.ts'

const id = '0190b2f0-6a1c-7def-8123-456789abcdef'

/** OrderCreated v1 (sum) ─► OrderPlaced v1 (total) ─► v2 (with a currency). */
const renamed = defineUpcaster('OrderCreated', {
  from: 1,
  to: 1,
  toType: 'OrderPlaced',
  run: (data: { sum: number }) => ({
    total: data.sum,
  }),
})
const priced = defineUpcaster('OrderPlaced', {
  from: 1,
  to: 2,
  run: (data: { total: number }) => ({ ...data, currency: 'EUR' }),
})
const pricedLater = defineUpcaster('OrderPlaced', {
  from: 1,
  to: 2,
  run: async (data: { total: number }) => ({
    ...data,
    currency: 'EUR',
  }),
})

async function oldShop(steps = [renamed, priced]): Promise<Store> {
  const { store: writer, database, schema } = await openShop()
  const old = writer as unknown as Store
  await old.events.append('order-1', { type: 'OrderCreated', data: { sum: 1 }, id, correlationId: 'checkout-1' })
  await old.events.append('order-1', { type: 'OrderPlaced', data: { total: 2 } })
  const store = await openStore({ database, schema, upcasters: steps })
  await store.events.append('order-1', { type: 'OrderPlaced', data: { total: 3, currency: 'CHF' } })
  return store
}

const shape = (event: RecordedEvent | undefined): unknown => [event?.type, event?.schemaVersion, event?.data]
const shapes = [
  ['OrderPlaced', 2, { total: 1, currency: 'EUR' }],
  ['OrderPlaced', 2, { total: 2, currency: 'EUR' }],
  ['OrderPlaced', 2, { total: 3, currency: 'CHF' }],
]

for (const [how, steps] of Object.entries({ synchronous: [renamed, priced], asynchronous: [renamed, pricedLater] })) {
  test(`RB-60: every read path returns the same new shape, with ${how} steps`, async () => {
    await using store = await oldShop(steps)
    const all = async (options: ReadLogOptions = {}) => (await store.events.readAll(options).toArray()).map(shape)

    expect((await store.events.read('order-1').toArray()).map(shape)).toEqual(shapes)
    expect((await store.events.read('order-1', { direction: 'backwards' }).toArray()).map(shape).reverse()).toEqual(
      shapes,
    )
    expect(await all()).toEqual(shapes)
    expect(await all({ pageSize: 2 })).toEqual(shapes)
    expect(await all({ streams: ['order-1'] })).toEqual(shapes)
    expect(await all({ correlationId: 'checkout-1' })).toEqual(shapes.slice(0, 1))
    expect((await take(store.events.tail({ from: 'start' }), 3)).map(shape)).toEqual(shapes)
    expect(shape(await store.events.get(id))).toEqual(shapes[0])
    const inside = await store.transaction(tx => store.events.read('order-1', { tx }).toArray())
    expect(inside.map(shape)).toEqual(shapes)
  })
}

test('a filter by type finds events that were stored under an old name, and no longer by that name', async () => {
  await using store = await oldShop()

  const placed = await store.events.readAll({ types: ['OrderPlaced'] }).toArray()
  const created = await store.events.readAll({ types: ['OrderCreated'] }).toArray()
  const tailed = await take(store.events.tail({ from: 'start', types: ['OrderPlaced'] }), 3)

  expect(placed.map(shape)).toEqual(shapes)
  expect(created).toEqual([])
  expect(tailed.map(shape)).toEqual(shapes)
})

test('a writer states the version the steps lead to, unless it gives another', async () => {
  await using store = await oldShop()
  await store.events.append('order-2', { type: 'OrderPlaced', data: { total: 4 }, schemaVersion: 1 })
  await store.events.append('order-2', { type: 'OrderPaid', data: {} })

  const versions = await store.transaction(tx =>
    tx.query(`select type, schema_version from "${store.schema.name}".events order by position`),
  )

  expect(versions).toEqual([
    { type: 'OrderCreated', schema_version: 1 },
    { type: 'OrderPlaced', schema_version: 1 },
    { type: 'OrderPlaced', schema_version: 2 },
    { type: 'OrderPlaced', schema_version: 1 },
    { type: 'OrderPaid', schema_version: 1 },
  ])
})

test('RB-60: a step that fails fails the read, on every path, and names the event', async () => {
  const broken = defineUpcaster('OrderPlaced', {
    from: 1,
    to: 2,
    run: () => {
      throw new Error('no currency known')
    },
  })
  await using store = await oldShop([renamed, broken])

  const reads: (() => Promise<unknown>)[] = [
    () => store.events.read('order-1').toArray(),
    () => store.events.readAll().toArray(),
    () => store.events.readAll({ pageSize: 1 }).toArray(),
    () => take(store.events.tail({ from: 'start' }), 1),
    () => store.events.get(id),
  ]

  for (const read of reads) {
    const { error } = await outcome(read())
    expect(error).toMatchObject({ code: 'upcaster_failed', type: 'OrderPlaced', schemaVersion: 1, eventId: id })
    expect((error as Error).cause).toMatchObject({ message: 'no currency known' })
  }
  expect(await store.events.has(id)).toBe(true)
})

test('steps that form a cycle are refused when the store is opened', async () => {
  const { database, schema } = await openShop()
  const back = defineUpcaster('OrderPlaced', { from: 2, to: 1, run: data => data })

  const opening = openStore({ database, schema, upcasters: [priced, back] })

  await expect(opening).rejects.toMatchObject({ code: 'upcaster_cycle' })
})

test('old versions are appended and imported into a store with schemas, checked as their readers will see them', async () => {
  const { database, schema } = await openShop()
  const events = defineEvents({ OrderPlaced: z.object({ total: z.number(), currency: z.string() }) })
  await using store = await openStore({ database, schema, events, upcasters: [renamed, pricedLater] })
  const append = (event: object) => store.events.append('order-1', event as never)
  const old = { type: 'OrderCreated', data: { sum: 1 }, schemaVersion: 1 }

  await append(old)
  await append({ type: 'OrderPlaced', data: { total: 2 }, schemaVersion: 1 })
  await store.events.import([{ stream: 'order-2', ...old }] as never)
  const wrong = append({ type: 'OrderCreated', data: { sum: 'much' }, schemaVersion: 1 })

  await expect(wrong).rejects.toMatchObject({ code: 'invalid_event', type: 'OrderCreated', path: 'data.total' })
  await expect(append({ type: 'OrderPlaced', data: { total: 2 } })).rejects.toMatchObject({ path: 'data.currency' })
  expect((await store.events.readAll().toArray()).map(shape)).toEqual([shapes[0], shapes[1], shapes[0]])
})
