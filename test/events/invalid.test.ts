import { type } from 'arktype'
import * as v from 'valibot'
import { expect, test } from 'vitest'
import { z } from 'zod'
import { defineEvents } from '../../src/events/definition.ts'
import { openStore } from '../../src/store.ts'
import { openShop, outcome, placed } from '../support/shop.ts'

const cyclic: Record<string, unknown> = { total: 1 }
cyclic.self = cyclic
const holed = [1]
holed[2] = 3

const wrongData: Record<string, [data: unknown, path: string]> = {
  'no data': [undefined, 'data'],
  'undefined in an array': [{ items: [1, undefined] }, 'data.items[1]'],
  'a hole in an array': [{ items: holed }, 'data.items[1]'],
  'a function': [{ onPaid: () => {} }, 'data.onPaid'],
  'a function as data': [() => {}, 'data'],
  'a symbol': [{ kind: Symbol('kind') }, 'data.kind'],
  NaN: [{ lines: [{ price: Number.NaN }] }, 'data.lines[0].price'],
  Infinity: [{ price: Number.POSITIVE_INFINITY }, 'data.price'],
  'a BigInt': [{ total: 1n }, 'data.total'],
  'a cycle': [cyclic, 'data.self'],
  'a Map': [{ lines: new Map([['a', 1]]) }, 'data.lines'],
  'an invalid Date': [{ at: new Date(Number.NaN) }, 'data.at'],
  'a NUL character': [{ note: 'a\0b' }, 'data.note'],
  'a NUL character in a key': [{ 'a\0b': 1 }, 'data["a\\u0000b"]'],
  'half a character': [{ note: '\ud83d' }, 'data.note'],
}

test('data that JSON cannot represent is refused with its path before anything is sent', async () => {
  const { store } = await openShop()

  for (const [what, [data, path]] of Object.entries(wrongData)) {
    const appending = store.events.append('order-42', [placed(), { type: 'OrderPlaced', data: data as never }])

    await expect(appending, what).rejects.toMatchObject({ code: 'invalid_event', type: 'OrderPlaced', path })
  }
  expect(await store.events.head()).toBe(0)
})

test('undefined values are dropped and a Date becomes ISO text, as in JSON', async () => {
  const { store } = await openShop()
  const data = { total: 1, note: undefined, at: new Date('2026-03-01T09:00:00Z'), nested: { gone: undefined } }

  await store.events.append('order-42', { type: 'OrderPlaced', data: data as never })

  expect((await store.events.read('order-42').first())!.data).toEqual({
    total: 1,
    at: '2026-03-01T09:00:00.000Z',
    nested: {},
  })
})

const wrongEvents: Record<string, [event: unknown, code: string, fields: object]> = {
  nothing: [undefined, 'invalid_event', { path: 'event' }],
  null: [null, 'invalid_event', { path: 'event' }],
  'a type that is not a text': [{ type: 7, data: {} }, 'invalid_event', { path: 'type' }],
  'an empty type': [{ type: '', data: {} }, 'invalid_event', { path: 'type' }],
  'a type over 255 bytes': [{ type: 'é'.repeat(128), data: {} }, 'invalid_event', { path: 'type' }],
  'a type with a NUL': [{ type: 'a\0', data: {} }, 'invalid_event', { path: 'type' }],
  'headers that are a list': [placed(1, { headers: [] }), 'invalid_event', { path: 'headers' }],
  'headers with a BigInt': [placed(1, { headers: { n: 1n } }), 'invalid_event', { path: 'headers.n' }],
  'schema version 0': [placed(1, { schemaVersion: 0 }), 'invalid_event', { path: 'schemaVersion' }],
  'schema version 1.5': [placed(1, { schemaVersion: 1.5 }), 'invalid_event', { path: 'schemaVersion' }],
  'an empty correlation id': [placed(1, { correlationId: '' }), 'invalid_name', { what: 'Correlation id' }],
  'a causation id that is too long': [
    placed(1, { causationId: 'x'.repeat(256) }),
    'invalid_name',
    { what: 'Causation id' },
  ],
  'a user id that is not a text': [placed(1, { userId: 42 }), 'invalid_name', { what: 'User id' }],
}

test('an invalid event, or one with a part that cannot be stored, is refused before anything is sent', async () => {
  const { store } = await openShop()

  for (const [what, [event, code, fields]] of Object.entries(wrongEvents)) {
    const appending = store.events.append('order-42', event as never)

    await expect(appending, what).rejects.toMatchObject({ code, ...fields })
  }
  expect(await store.events.head()).toBe(0)
})

test('a stream name of 255 bytes is accepted, and one that is longer, empty or not a text is refused', async () => {
  const { store } = await openShop()
  const longest = `${'é'.repeat(127)}x`

  await store.events.append(longest, placed())

  expect(await store.events.read(longest).toArray()).toHaveLength(1)
  for (const stream of [`${longest}x`, '', 'a\0b', '\udc00']) {
    await expect(store.events.append(stream, placed())).rejects.toMatchObject({ code: 'invalid_name', what: 'Stream' })
    await expect(store.events.read(stream).toArray()).rejects.toMatchObject({ code: 'invalid_name' })
    await expect(store.streams.describe(stream)).rejects.toMatchObject({ code: 'invalid_name' })
  }
})

test('data of 1 MiB is accepted and a byte more is refused, unless the store allows more', async () => {
  const { store, sibling } = await openShop()
  const generous = await sibling({ maxEventBytes: 2 * 1024 * 1024 })
  const ofBytes = (bytes: number) => ({ type: 'OrderShipped', data: { parcel: 'x'.repeat(bytes - 13) } }) as const

  await store.events.append('order-1', ofBytes(1024 * 1024))
  const refused = store.events.append('order-2', ofBytes(1024 * 1024 + 1))

  await expect(refused).rejects.toMatchObject({ code: 'invalid_event', path: 'data' })
  await generous.events.append('order-2', ofBytes(1024 * 1024 + 1))
  expect((await store.events.read('order-2').first())!.data).toEqual(ofBytes(1024 * 1024 + 1).data)
})

const schemas = {
  zod: { OrderPlaced: z.object({ total: z.number(), lines: z.array(z.object({ sku: z.string() })).optional() }) },
  valibot: { OrderPlaced: v.object({ total: v.number(), lines: v.optional(v.array(v.object({ sku: v.string() }))) }) },
  arktype: { OrderPlaced: type({ total: 'number', 'lines?': type({ sku: 'string' }).array() }) },
}

for (const [library, definition] of Object.entries(schemas)) {
  test(`a schema of ${library} is checked at append, and optionally at read; the error names type, field and reason`, async () => {
    const { store: writer, schema, database } = await openShop()
    const events = defineEvents(definition)
    await using store = await openStore({ events, schema, database, validateOnRead: true })
    await using lenient = await openStore({ events, schema, database })
    await writer.events.append('order-old', { type: 'OrderPlaced', data: { total: '99' } as never })

    await store.events.append('order-new', { type: 'OrderPlaced', data: { total: 99, lines: [{ sku: 'tea' }] } })
    const wrong = store.events.append('order-new', {
      type: 'OrderPlaced',
      data: { total: 1, lines: [{ sku: 7 }] } as never,
    })
    const reading = outcome(store.events.read('order-old').toArray())

    await expect(wrong).rejects.toMatchObject({
      code: 'invalid_event',
      type: 'OrderPlaced',
      path: 'data.lines[0].sku',
      reason: expect.stringContaining('does not fit its schema'),
    })
    const old = await writer.events.read('order-old').first()
    expect((await reading).error).toMatchObject({
      code: 'invalid_event',
      type: 'OrderPlaced',
      path: 'data.total',
      eventId: old!.id,
    })
    expect(await store.events.read('order-new').toArray()).toHaveLength(1)
    expect(await lenient.events.read('order-old').toArray()).toHaveLength(1)
    await expect(store.events.readAll().toArray()).rejects.toMatchObject({ code: 'invalid_event' })
  })
}

test('a schema only checks: defaults, coercions and stripped keys do not change the stored data', async () => {
  const { schema, database } = await openShop()
  const events = defineEvents({
    OrderPlaced: z.object({ total: z.coerce.number(), currency: z.string().default('EUR') }),
  })
  await using store = await openStore({ events, schema, database })

  await store.events.append('order-1', { type: 'OrderPlaced', data: { total: '7', more: true } as never })

  expect((await store.events.read('order-1').first())!.data).toEqual({ total: '7', more: true })
})

test('an asynchronous schema is awaited, and its rejection is never unhandled', async () => {
  const { schema, database } = await openShop()
  const OrderPlaced = z.object({ total: z.number() }).refine(async ({ total }) => total < 100, { path: ['total'] })
  await using store = await openStore({ events: defineEvents({ OrderPlaced }), schema, database })
  const ordered = (total: number) => ({ type: 'OrderPlaced', data: { total } }) as const

  const good = await store.events.append('order-1', ordered(1))
  const late = store.events.append('order-1', [ordered(1), ordered(100)])
  const both = store.events.append('order-1', [ordered(100), { type: 'OrderPlaced', data: { total: Number.NaN } }])

  expect(good.version).toBe(1)
  await expect(late).rejects.toMatchObject({ code: 'invalid_event', path: 'data.total' })
  await expect(both).rejects.toMatchObject({ code: 'invalid_event', path: 'data.total' })
  expect(await store.events.read('order-1').toArray()).toHaveLength(1)
})

test('the message of a refusal says what is wrong, where, and that nothing was sent', async () => {
  const { store } = await openShop()

  const { error } = await outcome(store.events.append('order-1', { type: 'OrderPlaced', data: { total: Number.NaN } }))

  expect((error as Error).message).toBe(
    'Event OrderPlaced is not valid: data.total is NaN, which JSON cannot hold. Nothing was sent.',
  )
})

test('the type of a tombstone cannot be appended: only store.streams.tombstone ends a stream', async () => {
  const { store } = await openShop()
  const forged = { type: '$tombstone', data: {} } as unknown as ReturnType<typeof placed>
  await store.events.append('order-1', placed())

  const refused = [
    await outcome(store.events.append('order-1', forged)),
    await outcome(store.handle(session => session.events.append('order-1', forged))),
    await outcome(store.workflows.publish('$tombstone' as 'OrderPlaced', { total: 1 })),
  ]
  await store.streams.tombstone('order-1')

  for (const { error } of refused) expect(error).toMatchObject({ code: 'invalid_event', path: 'type' })
  expect(await store.streams.describe('order-1')).toMatchObject({ state: 'tombstoned', version: 2 })
})

test('a misspelt type is refused by a store with schemas, and the nearest one is named', async () => {
  const { schema, database } = await openShop()
  const events = defineEvents<{ OrderPlaced: { total: number }; OrderNoted: unknown }>({
    OrderPlaced: z.object({ total: z.number() }),
    OrderNoted: undefined,
  })
  await using store = await openStore({ events, schema, database })
  const append = (type: string) => store.events.append('order-1', { type, data: { total: 1 } } as never)

  await expect(append('OrderPlacd')).rejects.toMatchObject({ code: 'invalid_event', type: 'OrderPlacd', path: 'type' })
  await expect(append('OrderPlacd')).rejects.toThrow('Did you mean "OrderPlaced"?')
  await expect(append('Weather')).rejects.toThrow('They are OrderPlaced, OrderNoted.')
  await append('OrderNoted')
  await store.streams.tombstone('order-1')
})

test('data and headers that the database would give back far larger than they were sent are refused', async () => {
  const { store } = await openShop()
  const weights = Array.from({ length: 4_000 }, () => 1e308)
  const order = { type: 'OrderPlaced', data: { total: 1 } } as const

  const heavy = store.events.append('order-1', { type: 'OrderPlaced', data: { total: 1, weights } as never })
  await expect(heavy).rejects.toMatchObject({ code: 'invalid_event', path: 'data' })
  const headed = store.events.append('order-1', { ...order, headers: { weights } })
  await expect(headed).rejects.toMatchObject({ code: 'invalid_event', path: 'headers' })
  const imported = store.events.import([{ stream: 'order-1', ...order, headers: { weights } }])
  await expect(imported).rejects.toMatchObject({ code: 'invalid_event', path: 'headers' })
  expect(await store.events.read('order-1').toArray()).toEqual([])
})
