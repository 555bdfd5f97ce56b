/** Pages have a limit in bytes: large events are read in flat memory, by readers and by consumers. */
import { execFile } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, onTestFinished, test } from 'vitest'
import { openStore, type Store } from '../../src/store.ts'
import { postgresUrl } from '../support/engines.ts'
import { builtFileOf } from '../support/program.ts'
import { onServer, openShop, placed, take } from '../support/shop.ts'

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
  const { stdout } = await promisify(execFile)(process.execPath, args, { timeout: 120_000 })

  expect(JSON.parse(stdout)).toEqual({ all: total, ofStream: total, processed: total, delivered: total })
}, 180_000)

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
