/** Pages have a limit in bytes: large events are read in flat memory, by readers and by consumers. */
import { execFile } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, onTestFinished, test } from 'vitest'
import { defineProcessor } from '../../src/consumers/processor.ts'
import { everyItem } from '../../src/core/page.ts'
import { openStore, type Store } from '../../src/store.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { postgresUrl } from '../support/engines.ts'
import { builtFileOf } from '../support/program.ts'
import { onServer, openShop, placed, shopEvents, take } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

const total = 200

/** Of a mebibyte each as they are read, and next to nothing on disk. */
async function noteOrders(store: Store, table: (name: string) => string): Promise<void> {
  await store.events.append('order-1', { type: 'OrderNoted', data: { note: 'a'.repeat(1_000_000) } })
  await store.transaction(async tx => {
    await tx.query(`
      insert into ${table('events')}
        (position, version, created_at, event_id, schema_version, stream, type, correlation_id, data)
      select nextval('${table('events_position')}'), n, created_at, gen_random_uuid(), 1, stream, type, 'notes', data
      from ${table('events')}, generate_series(2, ${total}) as n
      where version = 1`)
    await tx.query(`update ${table('streams')} set version = ${total}`)
  })
}

test('a store with 200 events of a mebibyte is read in flat memory, by readers and by consumers', async () => {
  const shop = onServer ? await openShop() : undefined
  const folder = await mkdtemp(join(tmpdir(), 'rillflow-large-'))
  onTestFinished(() => rm(folder, { recursive: true }))
  const schema = shop?.schema ?? 'shop'
  if (shop === undefined) {
    await using store = await openStore({ folder, schema })
    await noteOrders(store, name => `"${schema}"."${name}"`)
  } else await noteOrders(shop.store as unknown as Store, name => shop.named(`~${name}`))

  // All of them at once, or a page of all, would be 200 MB.
  const program = builtFileOf(new URL('reading-program.ts', import.meta.url))
  const args = ['--max-old-space-size=120', program, onServer ? postgresUrl() : folder, schema, String(total)]
  const { stdout } = await promisify(execFile)(process.execPath, args, { timeout: 240_000 })

  const ways = 'all ofStream followed processed projected delivered handled exported'.split(' ')
  expect(JSON.parse(stdout)).toEqual(Object.fromEntries(ways.map(way => [way, total])))
}, 300_000)

test('an event that no process can read comes without its data, and hides no other, in every read', async () => {
  const { store, named } = await openShop()
  const ids: string[] = []
  for (let n = 0; n < 3; n++) ids.push(...(await store.events.append('order-1', placed(n))).eventIds)
  await store.transaction(tx =>
    tx.query(
      named(`update ~events set data = jsonb_build_object('weights',
        (select jsonb_agg(1e308) from generate_series(1, 450000))) where position = 2`),
    ),
  )
  const handled: number[] = []
  const collector = defineProcessor('collector', {
    events: shopEvents,
    retries: 0,
    onFailure: 'deadLetter',
    on: { OrderPlaced: event => void handled.push(event.position) },
  })
  await store.register(collector)

  const reads = {
    all: await store.events.readAll().toArray(),
    typed: await store.events.readAll({ types: ['OrderPlaced'] }).toArray(),
    stream: await store.events.read('order-1').toArray(),
    backwards: (await store.events.read('order-1', { direction: 'backwards' }).toArray()).reverse(),
    list: await everyItem(page => store.events.list({ order: 'oldest', ...page })),
    got: [...(await Promise.all(ids.map(id => store.events.get(id))))].map(event => event!),
    tail: await take(store.events.tail({ from: 'start' }), 3),
  }
  await store.consumers.runUntilIdle(collector)

  for (const [read, events] of Object.entries(reads)) {
    expect(
      events.map(event => [event.position, event.isTooLarge]),
      read,
    ).toEqual([
      [1, undefined],
      [2, true],
      [3, undefined],
    ])
    expect(events[2]!.data).toEqual(placed(2).data)
    expect(() => events[1]!.data).toThrow(/at position 2 of stream order-1 takes more than/)
    expect(JSON.parse(JSON.stringify(events[1]))).toMatchObject({ position: 2, type: 'OrderPlaced', schemaVersion: 1 })
  }
  expect(handled).toEqual([1, 3])
  expect((await store.deadLetters.list()).items).toMatchObject([{ position: 2, consumer: 'collector' }])
  const { findings } = await store.doctor()
  expect(findings.filter(({ check }) => check === 'events.too_large')).toMatchObject([
    { level: 'error', message: expect.stringContaining('The event at position 2 of stream "order-1"') },
  ])
}, 120_000)

test('a handler fails on an event that no process can read, and handles the others', async () => {
  const handled: number[] = []
  const file = defineHandler('file', {
    events: shopEvents,
    on: 'OrderPlaced',
    retries: 0,
    run: ({ data }) => void handled.push(data.total),
  })
  const { store, query } = await openShop({ handlers: [file] })
  await store.workflows.handlers.pause(file)
  await using _runner = await store.start({ only: ['handlers'] })
  for (let n = 0; n < 3; n++) await store.events.append('order-1', placed(n))
  await waitUntil(async () => (await store.workflows.stats()).executions.dispatched === 3)
  await query(`update ~events set data = jsonb_build_object('weights',
    (select jsonb_agg(1e308) from generate_series(1, 450000))) where position = 2`)

  await store.workflows.handlers.resume(file)
  await waitUntil(async () => (await store.deadLetters.list()).items.length === 1 && handled.length === 2)

  expect(handled.toSorted()).toEqual([0, 2])
  expect((await store.deadLetters.list()).items).toMatchObject([
    { position: 2, lastError: { code: 'event_too_large' } },
  ])
}, 120_000)

test('pages that end by their bytes lose no event and repeat none', async () => {
  const { store } = await openShop()
  const note = 'a'.repeat(900_000)
  for (let n = 0; n < 24; n++)
    await store.events.append(`order-${n % 3}`, [
      placed(n),
      ...(n % 2 === 0 ? [{ type: 'OrderNoted', data: { note } } as never] : []),
    ])

  const all = await store.events.readAll().toArray()
  const typed = await store.events.readAll({ types: ['OrderNoted' as never], pageSize: 7 }).toArray()
  const forwards = await store.events.read('order-0').toArray()
  const backwards = await store.events.read('order-0', { direction: 'backwards' }).toArray()
  const followed = await take(store.events.tail({ from: 'start' }), 36)

  expect(followed.map(event => event.position)).toEqual(all.map(event => event.position))
  expect(all.map(event => event.position)).toEqual(Array.from({ length: 36 }, (_, n) => n + 1))
  expect(typed).toHaveLength(12)
  expect(forwards.map(event => event.version)).toEqual(Array.from({ length: 12 }, (_, n) => n + 1))
  expect(backwards.map(event => event.version)).toEqual(forwards.map(event => event.version).reverse())
})
