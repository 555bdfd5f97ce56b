import { expect, test } from 'vitest'
import { z } from 'zod'
import { everyItem } from '../../src/core/page.ts'
import { defineEvents } from '../../src/events/definition.ts'
import { openStore } from '../../src/store.ts'
import { fakeClock } from '../../src/testing/fakes.ts'
import { openDatabase } from '../support/engines.ts'
import { drawTo } from '../support/numbers.ts'
import { explain, recording } from '../support/query-plans.ts'
import { openShop, outcome } from '../support/shop.ts'

test('the newest orders come first, and pages neither skip nor repeat while orders are placed', async () => {
  const { store } = await openShop()
  const place = (number: number) =>
    store.events.append(`order-${number}`, { type: 'OrderPlaced', data: { total: number } })
  for (let number = 1; number <= 10; number++) await place(number)

  const first = await store.events.list({ limit: 4 })
  await place(11)
  const second = await store.events.list({ limit: 4, after: first.next })
  const third = await store.events.list({ limit: 4, after: second.next })

  const totals = [first, second, third].map(page => page.items.map(event => (event.data as { total: number }).total))
  expect(totals).toEqual([
    [10, 9, 8, 7],
    [6, 5, 4, 3],
    [2, 1],
  ])
  expect(third.next).toBeUndefined()
})

test('events are filtered by type, stream, category, workflow, user and header, in both orders', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', [
    { type: 'OrderPlaced', data: { total: 1 }, correlationId: 'w-1', userId: 'ada', headers: { shop: 'north' } },
    { type: 'OrderPaid', data: { method: 'card' }, correlationId: 'w-1' },
  ])
  await store.events.append('return-1', { type: 'OrderPlaced', data: { total: 2 }, headers: { shop: 'south' } })
  const found = async (options: object): Promise<string[]> =>
    (await store.events.list(options)).items.map(({ stream, version }) => `${stream}@${version}`)

  expect(await found({ types: ['OrderPlaced'] })).toEqual(['return-1@1', 'order-1@1'])
  expect(await found({ streams: ['order-1'] })).toEqual(['order-1@2', 'order-1@1'])
  expect(await found({ streams: ['order-1', 'return-1'], order: 'oldest' })).toEqual([
    'order-1@1',
    'order-1@2',
    'return-1@1',
  ])
  expect(await found({ categories: ['return'] })).toEqual(['return-1@1'])
  expect(await found({ correlationId: 'w-1', order: 'oldest' })).toEqual(['order-1@1', 'order-1@2'])
  expect(await found({ userId: 'ada' })).toEqual(['order-1@1'])
  expect(await found({ headers: { shop: 'south' } })).toEqual(['return-1@1'])
})

test('the position at a time is the last one before it, and lists can begin and end at a time', async () => {
  const clock = fakeClock(new Date('2026-01-01T00:00:00Z'))
  const { store, query } = await openShop({ clock })
  for (let hour = 0; hour < 5; hour++)
    await store.events.append('order-1', { type: 'OrderPlaced', data: { total: hour } })
  await query(`update ~events set created_at = ~later('2026-01-01T00:00:00Z', (version - 1) * 3600000.0)`)
  const at = (hour: number): Date => new Date(Date.UTC(2026, 0, 1, hour))
  const positions = (await store.events.readAll().toArray()).map(event => event.position)

  const found = await Promise.all([-1, 0, 1, 4, 9].map(hour => store.events.positionAt(at(hour))))
  const between = await store.events.list({ since: at(1), until: at(3) })

  expect(found).toEqual([0, 0, positions[0], positions[3], positions[4]])
  expect(between.items.map(event => event.version)).toEqual([3, 2])
})

test('a search for a rare type stops after 100 000 positions, says how far it looked, and continues', async () => {
  const { store, query } = await openShop()
  await store.events.append('order-1', { type: 'OrderShipped', data: { parcel: 'p-1' } })
  await drawTo(query, 'events_position', 250000)
  await store.events.append('order-2', { type: 'OrderPlaced', data: { total: 1 } })

  const first = await store.events.list({ types: ['OrderShipped'] })
  const all = await everyItem(page => store.events.list({ ...page, types: ['OrderShipped'] }))

  expect(first.items).toEqual([])
  expect(first.reached).toBeGreaterThan(100_000)
  expect(first.next).toBeDefined()
  expect(all.map(event => event.stream)).toEqual(['order-1'])
})

test('an unknown order, a foreign cursor and a misspelt option are refused', async () => {
  const { store } = await openShop()

  const order = await outcome(store.events.list({ order: 'latest' as 'newest' }))
  const after = await outcome(store.events.list({ after: 'page-2' }))
  const option = await outcome(store.events.list({ type: 'OrderPlaced' } as object))

  expect([order.error, after.error, option.error]).toMatchObject([
    { code: 'invalid_option', option: 'order' },
    { code: 'invalid_option', option: 'after' },
    { code: 'invalid_option', option: 'type' },
  ])
})

test('an event is shown as it is stored, with numbers that JavaScript would round', async () => {
  const { store, query } = await openShop()
  const { eventIds } = await store.events.append('order-1', { type: 'OrderPlaced', data: { total: 1 } })
  await query(`update ~events set data = '{"total": 9223372036854775807}'`)

  const stored = await store.events.stored(eventIds[0]!)

  expect(stored).toMatchObject({ type: 'OrderPlaced', schemaVersion: 1, data: '{"total": 9223372036854775807}' })
  expect(stored!.shapes).toEqual([{ type: 'OrderPlaced', schemaVersion: 1 }])
  expect(await store.events.stored('not-an-id')).toBeUndefined()
})

test('the types of events are those that are defined and those that were appended', async () => {
  const events = defineEvents({ OrderPlaced: z.object({ total: z.number() }), OrderLost: z.object({}) })
  await using store = await openStore({ memory: true, events })
  await store.events.append('order-1', { type: 'OrderPlaced', data: { total: 1 } })

  const types = await store.events.types()

  expect(types.map(({ type, hasSchema, recent }) => [type, hasSchema, recent])).toEqual([
    ['OrderLost', true, 0],
    ['OrderPlaced', true, 1],
  ])
  expect(types[1]!.jsonSchema).toMatchObject({ type: 'object', required: ['total'] })
})

test('lists of events use an index on a long log, whatever is asked for', async () => {
  const statements: Parameters<Parameters<typeof recording>[1]>[0][] = []
  const { store, query, database } = await openShop({
    database: recording(await openDatabase(), statement => statements.push(statement)),
  })
  await query(`insert into ~events (position, version, created_at, event_id, schema_version, stream, type, correlation_id, data)
    select n, 1, now(), gen_random_uuid(), 1, 'order-' || n, 'OrderPlaced', 'w-' || n % 1000, '{}' from generate_series(1, 50000) as n`)
  await drawTo(query, 'events_position', 50000)
  await query('analyze ~events')
  statements.length = 0

  await store.events.list({ limit: 10 })
  await store.events.list({ types: ['OrderPaid'] })
  await store.events.list({ correlationId: 'w-1' })
  await store.events.list({ streams: ['order-1'] })
  await store.events.positionAt(new Date())

  const looked = statements.filter(({ label }) => label === 'events.list' || label === 'events.position_at')
  for (const statement of looked) {
    const plan = await database.transaction(tx => explain(tx, statement, 'force_custom_plan'))
    expect(plan, statement.text).not.toMatch(/Seq Scan on events/)
  }
  expect(looked.length).toBeGreaterThan(4)
})
