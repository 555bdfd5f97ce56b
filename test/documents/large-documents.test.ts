/** Pages of documents have a limit in bytes: large documents are read in flat memory. */
import { execFile } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, onTestFinished, test } from 'vitest'
import { openStore, type Store } from '../../src/store.ts'
import { postgresUrl } from '../support/engines.ts'
import { builtFileOf } from '../support/program.ts'
import { onServer, openShop } from '../support/shop.ts'
import { openCustomers } from './customers.ts'

const total = 60
const note = 'a'.repeat(1_000_000)

/** Of a megabyte each as they are read, and next to nothing on disk. */
async function noteCustomers(store: Store, table: (name: string) => string): Promise<void> {
  const customers = store.documents('customers', { history: true })
  await customers.put('c-1', { email: 'ada@x', note, n: 1 })
  for (const [from, key] of [
    ['customers', `'c-' || n, 1`],
    ['customers__history', `'c-1', n`],
  ] as const)
    await store.transaction(tx =>
      tx.query(`
        insert into ${table(from)} (id, version, created_at, updated_at, body)
        select ${key}, created_at, updated_at, body || jsonb_build_object('n', n)
        from ${table(from)}, generate_series(2, ${total}) as n`),
    )
}

test('a collection of 60 documents of a megabyte is read in flat memory, with its history and its pages', async () => {
  const shop = onServer ? await openShop() : undefined
  const folder = await mkdtemp(join(tmpdir(), 'rillflow-large-'))
  onTestFinished(() => rm(folder, { recursive: true }))
  const schema = shop?.schema ?? 'shop'
  if (shop === undefined) {
    await using store = await openStore({ folder, schema })
    await noteCustomers(store, name => `"${schema}"."${name}"`)
  } else await noteCustomers(shop.store as unknown as Store, name => shop.named(`~${name}`))

  // All of them at once, or a page of all, would be 60 MB.
  const program = builtFileOf(new URL('reading-program.ts', import.meta.url))
  const args = ['--max-old-space-size=56', program, onServer ? postgresUrl() : folder, schema]
  const { stdout } = await promisify(execFile)(process.execPath, args, { timeout: 240_000 })

  expect(JSON.parse(stdout)).toEqual({
    iterated: total,
    ordered: total,
    paged: total,
    included: total,
    versions: total,
  })
}, 300_000)

test('pages that end by their bytes lose no document and repeat none, and the last one has no next', async () => {
  const { customers } = await openCustomers()
  const email = 'a'.repeat(900_000)
  await customers.putMany(
    Array.from({ length: 40 }, (_, n) => ({
      id: `c-${String(n).padStart(2, '0')}`,
      data: { email: n % 2 === 0 ? email : 'x', visits: n % 5 },
    })),
  )
  const wanted = Array.from({ length: 40 }, (_, n) => `c-${String(n).padStart(2, '0')}`)

  for (const limit of [3, 39, 40, 100]) {
    const pages: string[][] = []
    let after: string | undefined
    do {
      const page = await customers.query().page({ limit, after })
      pages.push(page.items.map(({ id }) => id))
      after = page.next
    } while (after !== undefined)
    expect(pages.flat()).toEqual(wanted)
    expect(pages.every(page => page.length > 0 && page.length < 21)).toBe(true)
  }
  const iterated = await everyOne(
    customers
      .query()
      .orderBy(c => c.visits, 'desc')
      .iterate(),
  )
  expect(iterated.map(({ data }) => data.visits)).toEqual(wanted.map((_, n) => 4 - Math.floor(n / 8)))
  expect(iterated.map(({ id }) => id).sort()).toEqual(wanted)
  expect(await everyOne(customers.query().limit(25).iterate())).toHaveLength(25)
})

async function everyOne<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = []
  for await (const item of items) all.push(item)
  return all
}
