/** A driver in between that behaves as a cluster does towards its clients: see `support/node-errors.ts`. */
import pg from 'pg'
import { expect, onTestFinished, test } from 'vitest'
import { openStore, type Store } from '../../src/store.ts'
import { postgresUrl } from '../support/engines.ts'
import { answerAsNode, type NodeErrors } from '../support/node-errors.ts'
import { openShop, placed, type ShopMap, shopEvents } from '../support/shop.ts'

const id = '0198c0de-0000-7000-8000-000000000001'

test('a duplicate is recognised without the name of its constraint, and as an internal error', async () => {
  const { store } = await openBehindNode()
  const customers = store.documents<{ email: string }>('customers', { indexes: [{ path: 'email', unique: true }] })
  await store.schema.sync()
  await store.events.append('order-1', { ...placed(), id })
  await customers.put('ada', { email: 'ada@example.org' })

  await expect(store.events.append('order-2', { ...placed(), id })).rejects.toMatchObject({
    code: 'duplicate_event_id',
  })
  await expect(customers.insert('ada', { email: 'other@example.org' })).rejects.toMatchObject({
    code: 'document_exists',
  })
  const taken = { code: 'unique_violation', fields: ['email'], value: 'ada@example.org' }
  await expect(customers.put('eve', { email: 'ada@example.org' })).rejects.toMatchObject(taken)
  expect(await store.events.head()).toBe(1)
})

test('an append whose commit or connection between nodes was lost is stored once, with its own outcome', async () => {
  const { store, errors } = await openBehindNode()
  errors.loseCommit('events.append', 1)
  const first = await store.events.append('order-1', placed(), { expected: 'empty' })
  errors.loseBefore('events.append', 1)
  const second = await store.events.append('order-1', placed(), { expected: 1 })
  errors.loseCommit('events.append_batch', 1)
  const others = await Promise.all([2, 3, 4, 5].map(n => store.events.append(`order-${n}`, placed(n))))

  expect([first.version, second.version, ...others.map(({ version }) => version)]).toEqual([1, 2, 1, 1, 1, 1])
  expect(errors.lost()).toBe(3)
  expect(await store.events.readAll().toArray()).toHaveLength(6)
})

test('events arrive without notifications, and streams that are held are waited for without a limit on locks', async () => {
  const { store } = await openBehindNode()
  const seen: number[] = []
  const over = new AbortController()
  const reading = (async () => {
    for await (const { position } of store.events.tail({ from: 'start', signal: over.signal })) {
      seen.push(position)
      if (seen.length === 20) over.abort()
    }
  })()
  await Promise.all(Array.from({ length: 20 }, (_, n) => store.events.append(`order-${n % 3}`, placed(n))))
  await reading

  expect(seen).toEqual([...seen].sort((a, b) => a - b))
  expect(new Set(seen).size).toBe(20)
})

async function openBehindNode(): Promise<{ store: Store<ShopMap>; errors: NodeErrors }> {
  const shop = await openShop()
  const pool = new pg.Pool({ connectionString: postgresUrl(), max: 4 })
  const errors = answerAsNode(pool)
  const store = await openStore({
    events: shopEvents,
    pool: errors.pool,
    schema: shop.store.schema.name,
    logger: false,
  })
  onTestFinished(async () => {
    await store.close()
    await pool.end()
  })
  return { store, errors }
}
