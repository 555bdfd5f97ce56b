import { expect, test } from 'vitest'
import { deferred, onAbort } from '../../src/core/abort.ts'
import type { RecordedEvent } from '../../src/events/definition.ts'
import { activateInline, listInline } from '../../src/events/inline/barrier.ts'
import { defineUpcaster } from '../../src/events/read/upcast.ts'
import { outcome, paid, placed, shipped } from '../support/shop.ts'
import { openInlineShop } from './inline-shop.ts'

test('writes of an inline projection are visible when the append returns', async () => {
  const { events, activate, totals, rows } = await openInlineShop()
  await activate(totals())

  const result = await events.append('order-1', [placed(10), paid, placed(5)])

  expect(result).toMatchObject({ stream: 'order-1', version: 3, repeated: false })
  expect(await rows()).toEqual([{ stream: 'order-1', total: 15, events: 2 }])
  expect((await events.read('order-1').toArray()).map(event => event.version)).toEqual([1, 2, 3])
  expect((await events.read('order-1').toArray()).at(-1)!.position).toBe(result.position)
})

test('an inline projection sees its events as they will be read, except for the position', async () => {
  const { events, activate, totals } = await openInlineShop()
  const seen: RecordedEvent[] = []
  await activate(totals({ types: undefined, apply: async applied => void seen.push(...applied) }))
  await events.append('order-1', placed(1))

  await events.appendMany([
    { stream: 'order-2', events: [placed(2, { headers: { by: 'ann' }, userId: 'ann', causationId: 'cart-1' }), paid] },
    { stream: 'order-1', events: shipped() },
  ])

  const stored = await events.readAll().toArray()
  expect(seen.map(event => ({ ...event }))).toEqual(stored.map(event => ({ ...event, position: 0 })))
  expect(stored.map(({ stream, version }) => [stream, version])).toEqual([
    ['order-1', 1],
    ['order-2', 1],
    ['order-2', 2],
    ['order-1', 2],
  ])
})

test('an inline projection runs before positions are drawn, with its streams locked', async () => {
  const { events, activate, totals, named } = await openInlineShop()
  const drawn: unknown[] = []
  const look = totals({
    apply: async (_, tx) => {
      drawn.push(...(await tx.query(named('select is_called from ~events_position'))))
      drawn.push(...(await tx.query(named('select version::integer from ~streams'))))
    },
  })
  await activate(look)

  await events.append('order-1', placed())

  expect(drawn).toEqual([{ is_called: false }, { version: 1 }])
})

test('an append whose inline projection fails leaves nothing, and names the projection and its error', async () => {
  const { events, activate, totals, rows } = await openInlineShop()
  const broken = new Error('no such customer')
  const { apply } = totals()
  const failing = totals({
    apply: async (applied, tx, signal) => {
      await apply(applied, tx, signal)
      throw broken
    },
  })
  await activate(failing)

  const { error } = await outcome(events.append('order-1', placed(), { idempotencyKey: 'checkout-1' }))

  expect(error).toMatchObject({ code: 'inline_projection_failed', projection: 'totals', cause: broken })
  expect((error as Error).message).toContain('no such customer')
  expect(await rows()).toEqual([])
  expect(await events.readAll().toArray()).toEqual([])
  expect(await events.append('order-1', paid, { expected: 'empty', idempotencyKey: 'checkout-1' })).toMatchObject({
    version: 1,
    repeated: false,
  })
})

test('a failing statement of an inline projection is its error, whatever its SQLSTATE means elsewhere', async () => {
  const { events, activate, totals } = await openInlineShop()
  let calls = 0
  const failing = totals({
    apply: async (_, tx) => {
      calls++
      await tx.query(`do $$ begin raise exception 'taken' using errcode = '23505'; end $$`)
    },
  })
  await activate(failing)

  const { error } = await outcome(events.append('order-1', placed()))

  expect(error).toMatchObject({ code: 'inline_projection_failed', cause: { code: '23505' } })
  expect(calls).toBe(1)
})

test('a failing inline projection rejects only its own append, whatever else is in the group', async () => {
  const { events, activate, totals, rows } = await openInlineShop()
  const { apply } = totals()
  const picky = totals({
    apply: async (applied, tx, signal) => {
      if (applied.some(event => (event.data as { total: number }).total === 13)) throw new Error('unlucky')
      await apply(applied, tx, signal)
    },
  })
  await activate(picky)

  const outcomes = await Promise.all(
    Array.from({ length: 24 }, (_, n) => outcome(events.append(`order-${n}`, n % 2 === 0 ? paid : placed(n)))),
  )

  expect(outcomes.flatMap(({ error }, n) => (error === undefined ? [] : [n]))).toEqual([13])
  expect(outcomes[13]!.error).toMatchObject({ code: 'inline_projection_failed' })
  expect((await rows()).map(row => row.total).sort((a, b) => a - b)).toEqual([1, 3, 5, 7, 9, 11, 15, 17, 19, 21, 23])
})

test('appends keep their order on each stream, with and without an inline projection', async () => {
  const { events, activate, totals, rows } = await openInlineShop()
  await activate(totals())

  const results = await Promise.all(
    Array.from({ length: 60 }, (_, n) =>
      n % 5 === 0
        ? events.appendMany([
            { stream: 'order-b', events: placed(n) },
            { stream: 'order-a', events: shipped(`${n}`) },
          ])
        : events.append(n % 2 === 0 ? 'order-a' : 'order-b', n % 3 === 0 ? placed(n) : shipped(`${n}`)),
    ),
  )

  expect(results).toHaveLength(60)
  for (const stream of ['order-a', 'order-b']) {
    const stored = await events.read(stream).toArray()
    const numbers = stored.map(({ data }) => Number('total' in data ? data.total : 'parcel' in data && data.parcel))
    expect(numbers).toEqual([...numbers].sort((a, b) => a - b))
    const positions = stored.map(event => Number(event.position))
    expect(positions).toEqual([...positions].sort((a, b) => a - b))
  }
  expect((await rows()).reduce((sum, row) => sum + row.events, 0)).toBe(
    (await events.readAll({ types: ['OrderPlaced'] }).toArray()).length,
  )
})

test('expected versions, archived streams and event ids are checked as for any append', async () => {
  const { store, events, activate, totals, rows } = await openInlineShop()
  await activate(totals())
  const id = '0190b2f0-6a1c-7def-8123-456789abcdef'
  await events.append('order-1', placed(1, { id }), { expected: 'empty' })
  await store.events.append('order-old', paid)
  await store.streams.archive('order-old')

  expect(await outcome(events.append('order-1', placed(), { expected: 'empty' }))).toMatchObject({
    error: { code: 'version_conflict', stream: 'order-1', actual: 1 },
  })
  expect(await outcome(events.append('order-9', placed(), { expected: 'exists' }))).toMatchObject({
    error: { code: 'version_conflict', stream: 'order-9', actual: 0 },
  })
  const two = [
    { stream: 'order-2', events: placed() },
    { stream: 'order-1', events: placed(), expected: 7 },
  ]
  expect(await outcome(events.appendMany(two))).toMatchObject({
    error: { code: 'version_conflict', stream: 'order-1' },
  })
  expect(await outcome(events.append('order-old', placed()))).toMatchObject({ error: { code: 'stream_archived' } })
  expect(await events.append('order-old', placed(7), { allowArchived: true })).toMatchObject({ version: 2 })
  expect(await events.append('order-1', placed(1, { id }))).toMatchObject({ version: 1, repeated: true })
  expect(await outcome(events.append('order-1', placed(2, { id })))).toMatchObject({
    error: { code: 'duplicate_event_id' },
  })
  expect(await events.append('order-1', placed(5), { expected: 1, advisoryLock: true })).toMatchObject({ version: 2 })
  expect(await rows()).toEqual([
    { stream: 'order-1', total: 6, events: 2 },
    { stream: 'order-old', total: 7, events: 1 },
  ])
  expect(await store.streams.describe('order-2')).toBeUndefined()
})

test('an idempotency key covers the effect of inline projections', async () => {
  const { events, activate, totals, rows } = await openInlineShop()
  await activate(totals())

  const all = await Promise.all(
    Array.from({ length: 5 }, () => events.append('order-1', placed(3), { idempotencyKey: 'checkout-1' })),
  )

  expect(all.filter(result => !result.repeated)).toHaveLength(1)
  expect(new Set(all.map(result => result.position)).size).toBe(1)
  expect(await rows()).toEqual([{ stream: 'order-1', total: 3, events: 1 }])
  expect(await outcome(events.append('order-1', placed(4), { idempotencyKey: 'checkout-1' }))).toMatchObject({
    error: { code: 'idempotency_mismatch' },
  })
  expect(
    await outcome(events.append('order-1', placed(3), { idempotencyKey: 'checkout-1', onRepeat: 'error' })),
  ).toMatchObject({ error: { code: 'idempotency_conflict' } })
})

test('an append of a type that an unknown inline projection wants is refused, other appends are not', async () => {
  const { events, log, database, rows } = await openInlineShop()
  await database.transaction(tx => activateInline(log, tx, { name: 'totals', version: 2, types: ['OrderPlaced'] }))

  const { error } = await outcome(events.append('order-1', [paid, placed()]))

  expect(error).toMatchObject({ code: 'inline_projection_unknown', projection: 'totals', version: 2 })
  expect(await events.append('order-1', paid, { expected: 'empty' })).toMatchObject({ version: 1 })
  expect(await rows()).toEqual([])
})

test('an inline projection that is active in another version is refused, and both versions are named', async () => {
  const { events, log, database, totals } = await openInlineShop()
  log.inline.register(totals({ version: 1 }))
  await database.transaction(tx => activateInline(log, tx, { name: 'totals', version: 2, types: ['OrderPlaced'] }))

  const { error } = await outcome(events.append('order-1', placed()))

  expect(error).toMatchObject({ code: 'inline_projection_unknown', projection: 'totals', version: 2, known: 1 })
})

test('RB-81: an inline projection is registered with one store, runs once, and can be removed', async () => {
  const first = await openInlineShop()
  const second = await openInlineShop()
  const unregister = await first.activate(first.totals())

  await first.events.append('order-1', placed(1))
  await second.events.append('order-1', placed(2))

  expect(await first.rows()).toEqual([{ stream: 'order-1', total: 1, events: 1 }])
  expect(await second.rows()).toEqual([])
  expect(() => first.log.inline.register(first.totals())).toThrow(/registered/)
  unregister()
  expect(first.log.inline.list()).toEqual([])
  expect(await outcome(first.events.append('order-1', placed()))).toMatchObject({
    error: { code: 'inline_projection_unknown' },
  })
})

test('several inline projections run in the order they were registered', async () => {
  const { events, activate, totals } = await openInlineShop()
  const ran: string[] = []
  for (const name of ['zebra', 'ant', 'mole'])
    await activate(
      totals({ name, types: name === 'mole' ? ['OrderPaid'] : undefined, apply: async () => void ran.push(name) }),
    )

  await events.append('order-1', placed())

  expect(ran).toEqual(['zebra', 'ant'])
})

test('an inline projection gets an event by the type that readers see', async () => {
  const renamed = defineUpcaster('OrderCreated', { from: '*', to: 1, toType: 'OrderPlaced', run: data => data })
  const { events, activate, totals, rows, log } = await openInlineShop({ upcasters: [renamed] })
  await activate(totals())

  await events.append('order-1', { type: 'OrderCreated', data: { total: 4 } } as never)

  expect(await rows()).toEqual([{ stream: 'order-1', total: 4, events: 1 }])
  expect(await listInline(log)).toMatchObject([{ name: 'totals', types: expect.arrayContaining(['OrderCreated']) }])
})

test('a retired inline projection no longer runs', async () => {
  const { events, activate, retire, totals, rows, log } = await openInlineShop()
  await activate(totals())
  await events.append('order-1', placed(1))

  expect(await retire('totals')).toBe(true)
  expect(await retire('totals')).toBe(false)
  const results = [await events.append('order-1', placed(2)), await events.append('order-1', placed(3))]

  expect(results.map(result => result.version)).toEqual([2, 3])
  expect(await rows()).toEqual([{ stream: 'order-1', total: 1, events: 1 }])
  expect(await listInline(log)).toEqual([])
})

test('an inline projection that does not return is rolled back, and its handle revoked', async () => {
  const { events, activate, totals, rows, named } = await openInlineShop()
  const late = deferred<unknown>()
  const slow = totals({
    timeoutMs: 100,
    apply: async (applied, tx, signal) => {
      await tx.query(named(`insert into ~totals values ('${applied[0]!.stream}', 1, 1)`)).catch(() => {})
      await new Promise<void>(resolve => onAbort(signal, resolve))
      late.resolve(await outcome(tx.query('select 1')))
    },
  })
  await activate(slow)

  const { error } = await outcome(events.append('order-1', placed()))

  expect(error).toMatchObject({ code: 'inline_projection_failed', cause: { code: 'consumer_timeout', timeoutMs: 100 } })
  expect(await late.promise).toMatchObject({ error: { code: 'transaction_closed' } })
  expect(await rows()).toEqual([])
  expect(await events.append('order-1', paid)).toMatchObject({ version: 1 })
})

test('an import is refused while an inline projection wants one of its events', async () => {
  const { events, activate, totals } = await openInlineShop()
  await activate(totals())

  const refused = await outcome(
    events.import([
      { stream: 'order-1', ...paid },
      { stream: 'order-1', ...placed() },
    ]),
  )
  const taken = await events.import([{ stream: 'order-1', ...paid }])

  expect(refused).toMatchObject({ error: { code: 'import_bypasses_inline', projection: 'totals' } })
  expect(taken).toMatchObject({ events: 1 })
})
