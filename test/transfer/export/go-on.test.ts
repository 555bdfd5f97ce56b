import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { deferred } from '../../../src/core/abort.ts'
import type { Database, Transaction } from '../../../src/database/database.ts'
import { openStore, type Store } from '../../../src/store.ts'
import { exportStore } from '../../../src/transfer/export/export.ts'
import { importStore } from '../../../src/transfer/export/import.ts'
import type { StoreLocation } from '../../../src/transfer/transfer.ts'
import { defineHandler } from '../../../src/workflows/handler.ts'
import { drawTo } from '../../support/numbers.ts'
import { workerOf } from '../../support/run-worker.ts'
import { onServer, openShop, paid, placed, type ShopMap, shopEvents, take } from '../../support/shop.ts'
import { waitUntil } from '../../support/wait.ts'
import { freshPath, freshPlace, openFullShop, rowsOf, totals, useOtherEngine } from './full-shop.ts'

const otherEngine = useOtherEngine()

async function bring(from: StoreLocation, to: StoreLocation): Promise<Store<ShopMap>> {
  const output = await freshPath()
  await exportStore(from, { output })
  await importStore(to, { input: output })
  return openStore<ShopMap>({ ...to, events: shopEvents, migrate: false })
}

test('appends continue above the old positions, and repeats of earlier ones are recognized', async () => {
  const shop = await openFullShop()
  await drawTo(shop.query, 'events_position', 9007199254740989)
  await drawTo(shop.query, 'consumers_fence', 500)
  await using store = await bring(shop, await freshPlace(otherEngine()))

  const appended = await store.events.append('order-1', placed(9), { expected: 2 })
  const repeated = await store.events.append('order-1', [placed(0.1), paid], { idempotencyKey: 'first' })

  expect(appended).toMatchObject({ version: 3, position: 9007199254740990 })
  expect(repeated).toMatchObject({ version: 2 })
  expect((await store.events.read('order-1').toArray()).map(event => event.version)).toEqual([1, 2, 3])
})

test('projections and subscriptions continue after their last event, without repeats or gaps', async () => {
  const shop = await openFullShop()
  const place = await freshPlace(otherEngine())
  await using store = await bring(shop, place)
  const before = (await rowsOf(place)).customer_totals
  await store.projections.register(totals)

  await store.events.append('order-7', placed(7))
  await store.consumers.runUntilIdle()
  const delivered = await take(store.subscribe('mailer'), 6)

  expect(delivered.map(event => event.position)).toEqual([2, 3, 4, 5, 6, 7])
  const rows = (await rowsOf(place)).customer_totals!
  expect(rows).toEqual(expect.arrayContaining(before!))
  expect(rows.filter(row => row.includes('order-7'))).toEqual([expect.stringContaining('"orders":1')])
})

test('a checkpoint above every event is not overtaken by the next position', async () => {
  const shop = await openShop()
  await shop.store.events.append('order-1', placed())
  await shop.query(`insert into ~consumers (name, kind, checkpoint) values ('ahead', 'projection', 40)`)
  await using store = await bring(shop, await freshPlace(otherEngine()))

  const { position } = await store.events.append('order-1', placed())

  expect(position).toBe(41)
})

test('running executions are taken over by another worker elsewhere, at the same attempt, and leases are free', async () => {
  const shop = await openShop()
  const held = deferred<void>()
  shop.store.workflows.register(defineHandler('pay', { on: 'OrderPlaced', ordered: true, run: () => held.promise }))
  await using worker = workerOf(shop.store)
  await worker.start()
  for (const total of [1, 2, 3]) await shop.store.workflows.publish('OrderPlaced', { total }, { correlationId: 'flow' })
  await waitUntil(
    async () => (await shop.query(`select from ~workflow_executions where state = 'running'`)).length === 1,
  )
  await waitUntil(async () => (await shop.query('select from ~workflow_executions')).length === 3)
  const place = await freshPlace(otherEngine())
  const seen: [number, number][] = []

  await using store = await bring(shop, place)
  const brought = await rowsOf(place)
  store.workflows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      ordered: true,
      run: (event, ctx) => {
        seen.push([event.data.total, ctx.attempt])
      },
    }),
  )
  await using other = workerOf(store)
  await other.start()
  await store.workflows.get('flow').waitUntilSettled({ timeoutMs: 60_000 })
  held.resolve()

  expect(brought.runners).toEqual([])
  expect(brought.consumers!.filter(row => !row.includes('"owner":null'))).toEqual([])
  expect(seen.map(([total]) => total)).toEqual([1, 2, 3])
  expect(seen[0]).toEqual([1, 1])
})

test.runIf(onServer)('an append during an export is part of it as a whole or not at all', async () => {
  const shop = await openShop()
  await shop.store.events.append('order-0', [placed(), placed()])
  const output = await freshPath()
  let isWriting = true
  const writing = (async () => {
    for (let i = 1; isWriting; i++)
      await shop.store.transaction(async tx => {
        await shop.store.events.append(`order-${i}`, placed(), { tx })
        await shop.store.events.append(`order-${i}`, paid, { tx })
      })
  })()
  await waitUntil(async () => (await shop.store.streams.list()).items.length > 3)

  const manifest = await exportStore(shop, { output })
  const later = await shop.store.events.append('order-0', placed())
  isWriting = false
  await writing
  const file = manifest.tables.find(table => table.name === 'events')!.file!.name
  const lines = (await readFile(join(output, file), 'utf8')).trimEnd().split('\n')
  const place = await freshPlace()
  await importStore(place, { input: output })

  const counts = new Map<string, number>()
  for (const { stream } of lines.map(line => JSON.parse(line))) counts.set(stream, (counts.get(stream) ?? 0) + 1)
  expect(new Set(counts.values())).toEqual(new Set([2]))
  const streams = (await rowsOf(place)).streams!.map(line => JSON.parse(line))
  expect(streams.map(({ stream, version }) => [stream, version])).toEqual([...counts].sort())
  expect(later.position).toBeGreaterThan(manifest.position)
})

test('memory is limited to a few pages, whatever the size of a table, and its indexes exist at the end', async () => {
  const shop = await openShop()
  const note = 'x'.repeat(1000)
  const orders = Array.from({ length: 5000 }, (_, i) => ({
    ...placed(i, { data: { total: i, note } }),
    stream: `order-${i}`,
  }))
  await shop.store.events.import(orders)
  const [output, place] = [await freshPath(), await freshPlace()]
  const longest = { read: 0, sent: 0 }
  const watched = ({ database, schema }: StoreLocation): StoreLocation => ({
    database: watchPages(database, longest),
    schema,
  })

  const manifest = await exportStore(watched(shop), { output })
  await importStore(watched(place), { input: output })

  await using store = await openStore(place)
  expect(manifest.tables.find(table => table.name === 'events')?.file?.rows).toBe(5_000)
  expect(await store.schema.check()).toMatchObject({ isHealthy: true, problems: [] })
  expect(await store.events.read('order-4999').toArray()).toMatchObject([{ position: 5000, data: { note } }])
  expect(longest.read).toBeGreaterThan(100_000)
  expect(longest.read).toBeLessThan(2_000_000)
  expect(longest.sent).toBeGreaterThan(100_000)
  expect(longest.sent).toBeLessThan(2_000_000)
})

/** The database, measuring how much text its transactions send and receive at once. */
function watchPages(database: Database, longest: { read: number; sent: number }): Database {
  const lengthOf = (values: readonly unknown[]): number =>
    values.reduce<number>((sum, value) => sum + (typeof value === 'string' ? value.length : 0), 0)
  const watch = (tx: Transaction): Transaction => ({
    ...tx,
    run: async statement => {
      longest.sent = Math.max(longest.sent, lengthOf(statement.values))
      return tx.run(statement)
    },
    runArrays: async statement => {
      const rows = await tx.runArrays(statement)
      longest.read = Math.max(longest.read, lengthOf(rows.flat()))
      return rows
    },
  })
  return { ...database, transaction: (work, options) => database.transaction(tx => work(watch(tx)), options) }
}
