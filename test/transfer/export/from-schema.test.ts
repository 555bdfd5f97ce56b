import { expect, test } from 'vitest'
import type { Database } from '../../../src/database/database.ts'
import { openStore } from '../../../src/store.ts'
import {
  importSelection,
  type SelectionOptions,
  type SelectionProgress,
} from '../../../src/transfer/export/selection.ts'
import { openShop, outcome, paid, placed, type Shop } from '../../support/shop.ts'
import { type Customer, customerOptions, freshPlace, rowsOf, totals, useOtherEngine } from './full-shop.ts'

const otherEngine = useOtherEngine()

/** The data of the tenant acme, by the names of its streams and the ids of its documents. */
const acmes: SelectionOptions['select'] = {
  stream: ({ id }) => id.startsWith('acme-'),
  collections: ['customers'],
  document: (_, { id }) => id.startsWith('acme-'),
}

async function openSharedShop(): Promise<Shop> {
  const shop = await openShop()
  const { store } = shop
  const customers = store.documents<Customer>('customers', customerOptions)
  for (const tenant of ['acme', 'bolt']) {
    await store.events.append(`${tenant}-1`, [placed(1), paid], { idempotencyKey: `${tenant}-first` })
    await store.events.append(`${tenant}-2`, placed(2, { headers: { tenant } }))
    await customers.put(`${tenant}-ada`, { name: `Ada of ${tenant}`, score: 1 })
    await customers.put(`${tenant}-ada`, { name: `Ada of ${tenant}`, score: 2 })
    await customers.put(`${tenant}-bob`, { name: `Bob of ${tenant}` })
  }
  await customers.softDelete('acme-bob')
  await store.events.append('acme-1', placed(3))
  await store.streams.archive('acme-2')
  return shop
}

test('selected streams and documents become a store of their own, unchanged', async () => {
  const shop = await openSharedShop()
  const place = await freshPlace(otherEngine())

  const outcome = await importSelection(shop, place, { select: acmes })

  const [before, after] = [await rowsOf(shop), await rowsOf(place)]
  const ofAcme = (lines: readonly string[] = []): string[] => lines.filter(line => line.includes('"acme-'))
  for (const table of ['events', 'streams', 'idempotency_keys', 'customers', 'customers__history'])
    expect(after[table]).toEqual(ofAcme(before[table]))
  expect(outcome).toMatchObject({ streams: 2, events: 4, documents: 2, position: 7 })
  expect(after.events).toHaveLength(4)
  expect(after.customers__history).toHaveLength(4)
})

test('events and documents that are far larger than the others are copied with them', async () => {
  const shop = await openShop()
  const { store } = shop
  const notes = 'a'.repeat(900_000)
  const customers = store.documents<Customer>('customers', customerOptions)
  for (let n = 0; n < 12; n++) {
    await store.events.append(`acme-${n}`, placed(n, { headers: { notes } }))
    await store.events.append('acme-0', [placed(n, { headers: { notes } }), paid])
    await customers.put(`acme-${n}`, { name: `Ada ${n}`, score: n, notes })
  }
  const place = await freshPlace(otherEngine())

  await importSelection(shop, place, { select: acmes })

  const [before, after] = [await rowsOf(shop), await rowsOf(place)]
  expect(after.events?.length).toBe(36)
  for (const table of ['events', 'customers'] as const)
    expect(after[table]?.toSorted().join('\n') === before[table]?.toSorted().join('\n'), table).toBe(true)
})

test('the new store continues above the old positions, and its read models are built from its events', async () => {
  const shop = await openSharedShop()
  const place = await freshPlace(otherEngine())
  await importSelection(shop, place, { select: acmes })

  await using store = await openStore(place)
  await store.projections.register(totals)
  const { position } = await store.events.append('acme-1', placed(4), { expected: 3 })
  await store.consumers.runUntilIdle()
  const repeated = await store.events.append('acme-1', [placed(1), paid], { idempotencyKey: 'acme-first' })

  expect(position).toBe(8)
  expect(repeated).toMatchObject({ version: 2, position: 2 })
  expect(await store.schema.check()).toMatchObject({ isHealthy: true })
  expect((await rowsOf(place)).customer_totals).toHaveLength(2)
})

test('an interrupted run is not a store, and the next run continues it without duplicates', async () => {
  const shop = await openSharedShop()
  const [whole, cut] = [await freshPlace(), await freshPlace()]
  await importSelection(shop, whole, { select: acmes })
  const asked: string[] = []
  const select = { ...acmes, stream: ({ id }: { id: string }) => asked.push(id) > 0 && id.startsWith('acme-') }
  const run = (isEnd: (step: number, progress: SelectionProgress) => boolean): Promise<{ error?: unknown }> => {
    let steps = 0
    const onProgress = (progress: SelectionProgress): void => {
      if (isEnd(++steps, progress)) throw new Error('cut off')
    }
    return outcome(importSelection(shop, cut, { select, onProgress }))
  }

  await run(step => step === 1)
  // Appended after the first run began: not copied by later runs.
  await shop.store.events.append('acme-1', placed(5))
  let runs = 1
  for (let isOver = false; !isOver; runs++) {
    const { error } = await run((step, { phase }) => {
      isOver = phase === 'comparing'
      return step === 2 || isOver
    })
    expect(error).toMatchObject({ message: 'cut off' })
  }
  const opened = await outcome(openStore({ ...cut, migrate: false }))
  const last = await importSelection(shop, cut, { select })

  expect(runs).toBeGreaterThan(6)
  expect(opened.error).toMatchObject({ code: 'schema_missing' })
  expect(last).toMatchObject({ streams: 2, events: 4, documents: 2, position: 7 })
  expect(await rowsOf(cut)).toEqual(await rowsOf(whole))
  expect(asked.filter(id => id === 'acme-1').length).toBeLessThan(4)
})

test('streams can be selected by their first event', async () => {
  const shop = await openSharedShop()
  const place = await freshPlace()

  const copied = await importSelection(shop, place, {
    select: { stream: ({ first }) => (first.headers as { tenant?: string } | null)?.tenant === 'bolt' },
  })

  expect(copied).toMatchObject({ streams: 1, events: 1, documents: 0 })
  expect((await rowsOf(place)).streams).toEqual([expect.stringContaining('bolt-2')])
})

test('a document that changes while it is copied is reported, and the target stays incomplete', async () => {
  const shop = await openSharedShop()
  const place = await freshPlace()
  let changed: Promise<unknown> | undefined
  const onProgress = ({ phase }: SelectionProgress): void => {
    if (phase === 'copying') return
    changed ??= shop.store.documents<Customer>('customers', customerOptions).put('acme-ada', { name: 'Ada the Second' })
  }

  // Nothing more of it is read before it has changed.
  const { database } = shop
  const source: Database = {
    ...database,
    run: async statement => {
      await changed
      return database.run<never>(statement)
    },
    runArrays: async statement => {
      await changed
      return database.runArrays(statement)
    },
    transaction: async (work, options) => {
      await changed
      return database.transaction(work, options)
    },
  }

  const copied = await outcome(importSelection({ ...shop, database: source }, place, { select: acmes, onProgress }))

  // Whether the document or its history is compared first after the change depends on the race.
  expect(copied.error).toMatchObject({
    code: 'import_differs',
    table: expect.stringMatching(/^customers(__history)?$/),
    near: expect.stringMatching(/^acme-/),
  })
  expect((await outcome(openStore({ ...place, migrate: false }))).error).toMatchObject({ code: 'schema_missing' })
})

test('an invalid selection, and a target with other contents, are refused', async () => {
  const shop = await openSharedShop()
  const other = await openShop()
  await other.store.events.append('order-1', placed())
  const cut = await freshPlace()
  const cutOff = (): void => {
    throw new Error('cut off')
  }
  await outcome(importSelection(shop, cut, { select: acmes, onProgress: cutOff }))

  const results = await Promise.all([
    outcome(importSelection(shop, await freshPlace(), { select: { collections: ['events'] } })),
    outcome(importSelection(shop, await freshPlace(), { select: { document: () => true } })),
    outcome(importSelection(shop, other, { select: acmes })),
    outcome(importSelection(shop, shop, { select: acmes })),
    outcome(importSelection(other, cut, { select: {} })),
    outcome(importSelection(await freshPlace(), cut, { select: acmes })),
  ])

  expect(results.map(({ error }) => (error as { code: string }).code)).toEqual([
    ...[
      'invalid_option',
      'invalid_option',
      'schema_not_empty',
      'schema_not_empty',
      'schema_not_empty',
      'schema_missing',
    ],
  ])
})
