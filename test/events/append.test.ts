import { expect, test } from 'vitest'
import type { Expected } from '../../src/events/append/prepare.ts'
import { openShop, outcome, paid, placed, shipped } from '../support/shop.ts'

test('an append returns the version, the position and the ids of the stored events', async () => {
  const { store } = await openShop()

  const first = await store.events.append('order-42', [placed(), paid])
  const second = await store.events.append('order-42', shipped())

  const events = await store.events.read('order-42').toArray()
  expect(first).toMatchObject({ stream: 'order-42', version: 2, repeated: false })
  expect(second).toMatchObject({ stream: 'order-42', version: 3, repeated: false })
  expect(events.map(event => event.version)).toEqual([1, 2, 3])
  expect(events.map(event => event.id)).toEqual([...first.eventIds, ...second.eventIds])
  expect(events[1]!.position).toBe(first.position)
  expect(events[2]!.position).toBe(second.position)
  expect(second.position).toBeGreaterThan(first.position)
})

test('an event is stored as given, with the time of the database', async () => {
  const { store, query } = await openShop()
  const [before] = await query<{ now: Date }>('select clock_timestamp() as now')

  await store.events.append('order-42', placed(12.5, { data: { total: 12.5, note: 'Grüße 🎁\n\t"\\' } }))

  const event = await store.events.read('order-42').first()
  expect(event).toMatchObject({
    type: 'OrderPlaced',
    data: { total: 12.5, note: 'Grüße 🎁\n\t"\\' },
    stream: 'order-42',
    version: 1,
    schemaVersion: 1,
    headers: {},
    causationId: undefined,
    userId: undefined,
  })
  expect(event!.createdAt.getTime()).toBeGreaterThanOrEqual(before!.now.getTime())
})

const fits: Record<string, { events: number; expected: Expected }> = {
  'any on a missing stream': { events: 0, expected: 'any' },
  'any on a stream': { events: 2, expected: 'any' },
  'empty on a missing stream': { events: 0, expected: 'empty' },
  '0 on a missing stream': { events: 0, expected: 0 },
  'exists on a stream': { events: 2, expected: 'exists' },
  'the exact version': { events: 2, expected: 2 },
}

for (const [what, { events, expected }] of Object.entries(fits)) {
  test(`an append that expects ${what} is stored`, async () => {
    const { store } = await openShop()
    for (let n = 0; n < events; n++) await store.events.append('order-42', placed(n))

    const result = await store.events.append('order-42', paid, { expected })

    expect(result.version).toBe(events + 1)
  })
}

const conflicts: Record<string, { events: number; expected: Exclude<Expected, 'any'> }> = {
  'empty on a stream': { events: 2, expected: 'empty' },
  '0 on a stream': { events: 2, expected: 0 },
  'exists on a missing stream': { events: 0, expected: 'exists' },
  'a version of a missing stream': { events: 0, expected: 3 },
  'a lower version': { events: 2, expected: 1 },
  'a higher version': { events: 2, expected: 3 },
}

for (const [what, { events, expected }] of Object.entries(conflicts)) {
  test(`an append that expects ${what} is refused with the actual version`, async () => {
    const { store, query } = await openShop()
    for (let n = 0; n < events; n++) await store.events.append('order-42', placed(n))

    const appending = store.events.append('order-42', paid, { expected })

    await expect(appending).rejects.toMatchObject({
      code: 'version_conflict',
      stream: 'order-42',
      expected,
      actual: events,
      retryable: false,
    })
    expect(await query('select version::integer from ~streams')).toEqual(events === 0 ? [] : [{ version: events }])
    expect(await store.events.read('order-42').toArray()).toHaveLength(events)
    expect(await store.streams.describe('order-42')).toEqual(
      events === 0 ? undefined : expect.objectContaining({ version: events }),
    )
  })
}

test('a refused append leaves no stream row behind, also in a group and with a key', async () => {
  const { store, query } = await openShop()

  const refused = await Promise.all([
    outcome(store.events.append('order-1', paid, { expected: 7 })),
    outcome(store.events.append('order-2', paid, { expected: 'exists' })),
    outcome(store.events.append('order-3', paid, { expected: 7, idempotencyKey: 'pay-3' })),
    outcome(
      store.events.appendMany([
        { stream: 'order-4', events: placed() },
        { stream: 'order-5', events: paid, expected: 'exists' },
      ]),
    ),
  ])

  expect(refused.map(each => (each.error as { code: string }).code)).toEqual(Array(4).fill('version_conflict'))
  expect(await query('select stream from ~streams')).toEqual([])
  expect(await query('select key from ~idempotency_keys')).toEqual([])
  await expect(store.events.append('order-4', placed(), { expected: 'empty' })).resolves.toMatchObject({ version: 1 })
})

test('one call appends to several streams, with a result for each', async () => {
  const { store } = await openShop()
  await store.events.append('stock-7', shipped())

  const results = await store.events.appendMany([
    { stream: 'order-42', events: [placed(), paid], expected: 'empty' },
    { stream: 'stock-7', events: shipped('parcel-2'), expected: 1 },
  ])

  expect(results).toMatchObject([
    { stream: 'order-42', version: 2 },
    { stream: 'stock-7', version: 2 },
  ])
  const all = await store.events.readAll().toArray()
  expect(all.map(event => `${event.stream}/${event.version}`)).toEqual([
    'stock-7/1',
    'order-42/1',
    'order-42/2',
    'stock-7/2',
  ])
  expect(all[2]!.position).toBe(results[0]!.position)
  expect(all[3]!.position).toBe(results[1]!.position)
})

test('if one of several streams is refused nothing is stored, and the error names that stream', async () => {
  const { store } = await openShop()
  await store.events.append('stock-7', shipped())

  const appending = store.events.appendMany([
    { stream: 'order-42', events: placed() },
    { stream: 'stock-7', events: shipped(), expected: 'empty' },
    { stream: 'order-43', events: placed() },
  ])

  await expect(appending).rejects.toMatchObject({ code: 'version_conflict', stream: 'stock-7', actual: 1 })
  expect(await store.events.readAll().toArray()).toHaveLength(1)
  expect((await store.streams.list()).items).toHaveLength(1)
})

test('a stream named twice in one append is refused, and so is one without events among others', async () => {
  const { store } = await openShop()

  const twice = store.events.appendMany([
    { stream: 'order-1', events: placed() },
    { stream: 'order-1', events: paid },
  ])
  const without = store.events.appendMany([
    { stream: 'order-1', events: placed() },
    { stream: 'order-2', events: [] },
  ])

  await expect(twice).rejects.toMatchObject({ code: 'invalid_option', option: 'streams' })
  await expect(without).rejects.toMatchObject({ code: 'invalid_option', option: 'streams' })
  expect(await store.events.appendMany([])).toEqual([])
})

test('the builder collects an append step by step, and a partial one can be reused', async () => {
  const { store } = await openShop()
  const base = store.events
    .builder('order-42')
    .headers({ channel: 'web', shop: 'north' })
    .headers({ shop: 'south' })
    .causation('cause-1')
    .correlation('checkout-1')
    .user('ada')

  const first = await base.expected('empty').idempotencyKey('place-42').push(placed()).extend([paid, shipped()]).send()
  const second = await base.push(paid).send()

  expect(first).toMatchObject({ version: 3, repeated: false })
  expect(second).toMatchObject({ version: 4, repeated: false })
  const [event] = await store.events.read('order-42').toArray()
  expect(event).toMatchObject({
    headers: { channel: 'web', shop: 'south' },
    causationId: 'cause-1',
    correlationId: 'checkout-1',
    userId: 'ada',
  })
  await expect(
    base.idempotencyKey('place-42', 'error').push(placed()).extend([paid, shipped()]).send(),
  ).rejects.toMatchObject({ code: 'idempotency_conflict' })
})

test('headers of the append and of the event are merged key by key, and the event wins', async () => {
  const { store } = await openShop()

  await store.events.append('order-42', [placed(1, { headers: { shop: 'south', till: 3 } }), placed(2)], {
    headers: { channel: 'web', shop: 'north' },
  })

  const events = await store.events.read('order-42').toArray()
  expect(events.map(event => event.headers)).toEqual([
    { channel: 'web', shop: 'south', till: 3 },
    { channel: 'web', shop: 'north' },
  ])
})

test('an event without a correlation id gets its own id; given ids are kept, those of the event before those of the append', async () => {
  const { store } = await openShop()

  await store.events.append('order-1', [placed(), paid])
  await store.events.append('order-2', [placed(1, { correlationId: 'own', causationId: 'c2', userId: 'bob' }), paid], {
    correlationId: 'shared',
    causationId: 'c1',
    userId: 'ada',
  })

  const [first, second] = await store.events.read('order-1').toArray()
  expect([first!.correlationId, second!.correlationId]).toEqual([first!.id, second!.id])
  expect(await store.events.read('order-2').toArray()).toMatchObject([
    { correlationId: 'own', causationId: 'c2', userId: 'bob' },
    { correlationId: 'shared', causationId: 'c1', userId: 'ada' },
  ])
})

test('an append without events stores nothing and still checks the expected version', async () => {
  const { store } = await openShop()
  const { position } = await store.events.append('order-42', [placed(), paid])

  const nothing = await store.events.append('order-42', [], { expected: 2 })

  expect(nothing).toMatchObject({ stream: 'order-42', version: 2, position, eventIds: [], repeated: false })
  expect(await store.events.append('order-1', [])).toMatchObject({ version: 0, position: 0 })
  await expect(store.events.append('order-42', [], { expected: 1 })).rejects.toMatchObject({
    code: 'version_conflict',
    actual: 2,
  })
  await expect(store.events.append('order-1', [], { expected: 'exists' })).rejects.toMatchObject({ actual: 0 })
  await expect(store.events.append('order-42', [], { expected: -3 })).rejects.toMatchObject({ code: 'invalid_option' })
  await store.transaction(async tx => {
    await store.events.append('order-9', placed(), { tx })
    await expect(store.events.append('order-9', [], { tx, expected: 1 })).resolves.toMatchObject({ version: 1 })
  })
})

test('an invalid expected version is refused', async () => {
  const { store } = await openShop()

  for (const expected of [-1, 1.5, Number.NaN, 'never', null, 2n]) {
    const appending = store.events.append('order-42', placed(), { expected: expected as Expected })

    await expect(appending, String(expected)).rejects.toMatchObject({ code: 'invalid_option', option: 'expected' })
  }
})

test('results, events and errors survive JSON.stringify', async () => {
  const { store } = await openShop()
  const result = await store.events.append('order-42', placed())
  const nothing = await store.events.append('order-42', [])
  const event = await store.events.read('order-42').first()
  const { error } = await outcome(store.events.append('order-42', placed(), { expected: 'empty' }))
  const state = await store.events.settled()
  const progress = await store.events.import([{ stream: 'order-43', ...placed() }])
  const stream = await store.streams.describe('order-42')

  const [sent, sentNothing, sentEvent, sentError, sentState, sentProgress, sentStream] = JSON.parse(
    JSON.stringify([result, nothing, event, error, state, progress, stream]),
  )

  expect(sent).toEqual({ ...result })
  expect(sentNothing.position).toBe(result.position)
  expect(sentEvent).toMatchObject({ position: result.position, createdAt: event!.createdAt.toISOString() })
  expect(sentError).toEqual({
    name: 'VersionConflict',
    code: 'version_conflict',
    retryable: false,
    message: (error as Error).message,
    stream: 'order-42',
    expected: 'empty',
    actual: 1,
  })
  expect(sentState).toMatchObject({ head: result.position, settled: result.position, heldBackBy: [] })
  expect(sentProgress.position).toBe(progress.position)
  expect(sentStream.lastPosition).toBe(result.position)
})
