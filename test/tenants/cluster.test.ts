/** Tenants on a Citus cluster. Runs where `CITUS_URL` is. */
import pg from 'pg'
import { expect, onTestFinished, test } from 'vitest'
import { defineEvents } from '../../src/events/definition.ts'
import { openStore } from '../../src/store.ts'
import { freshSchema, postgresUrl } from '../support/engines.ts'
import { waitUntil } from '../support/wait.ts'

const events = defineEvents<{ type: 'OrderPlaced'; data: { total: number } }>()
const placed = { type: 'OrderPlaced', data: { total: 3 } } as const

test('tenants are spread over the nodes, listed with them, and new ones are left to the cluster', async () => {
  const store = await openShops()
  for (const tenant of ['acme', 'globex', 'initech', 'umbrella']) await store.tenants.ensure(tenant)

  const { items } = await store.tenants.list()
  const nodes = (await store.tenants.servers()).items

  expect(items.map(({ tenant }) => tenant)).toEqual(['acme', 'globex', 'initech', 'umbrella'])
  expect(new Set(items.map(({ server }) => server)).size).toBeGreaterThan(1)
  expect(nodes).toEqual(expect.arrayContaining(items.map(({ server }) => server)))
  await expect(store.tenants.ensure('hooli', { server: nodes[0]! })).rejects.toMatchObject({ code: 'invalid_option' })
})

test('a tenant is moved while it is written and read: no error, nothing lost, doubled or out of order', async () => {
  const store = await openShops()
  const { tenant } = await store.tenants.ensure('acme')
  const acme = store.tenant(tenant)
  const [from] = (await store.tenants.list()).items
  const to = (await store.tenants.servers()).items.find(node => node !== from!.server)!

  const over = new AbortController()
  const seen: number[] = []
  const reading = (async () => {
    for await (const { position } of acme.events.tail({ from: 'start', signal: over.signal })) seen.push(position)
  })()
  let isWriting = true
  const written: number[] = []
  const writers = Array.from({ length: 4 }, async (_, writer) => {
    for (let n = 0; isWriting; n++) written.push((await acme.events.append(`order-${writer}-${n}`, placed)).position)
  })
  await waitUntil(() => written.length > 20)
  const progress: number[] = []
  const onProgress = ({ copiedBytes = 0 }: { copiedBytes?: number | undefined }): void =>
    void progress.push(copiedBytes)
  const moved = await store.tenants.move('acme', { server: to }, { onProgress })
  const writtenThen = written.length
  await waitUntil(() => written.length > writtenThen + 20)
  isWriting = false
  await Promise.all(writers)
  await waitUntil(() => seen.length >= written.length)
  over.abort()
  await reading

  expect(moved.server).toBe(to)
  expect(progress.length).toBeGreaterThan(0)
  expect(seen).toEqual([...written].sort((a, b) => a - b))
  expect(await store.tenants.status('acme')).toMatchObject({ server: to, drift: [] })
})

test('connections between the nodes are cut while appends run: no event is lost or doubled', async () => {
  const store = await openShops()
  await store.tenants.ensure('acme')
  const acme = store.tenant('acme')
  const [{ server }] = (await store.tenants.list()).items as unknown as [{ server: string }]
  const url = new URL(postgresUrl())
  url.host = server
  const node = new pg.Client({ connectionString: url.href })
  await node.connect()
  onTestFinished(() => node.end())

  let isWriting = true
  const written: string[] = []
  const writers = Array.from({ length: 4 }, async (_, writer) => {
    for (let n = 0; isWriting; n++) {
      const stream = `order-${writer}-${n}`
      await acme.events.append(stream, placed)
      written.push(stream)
    }
  })
  for (let cuts = 0; cuts < 10; cuts++) {
    const before = written.length
    await node.query(`
      select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'citus_internal%'`)
    await waitUntil(() => written.length > before + 5)
  }
  isWriting = false
  await Promise.all(writers)

  const stored = await acme.events.readAll().toArray()
  expect(stored.map(({ stream }) => stream).sort()).toEqual([...written].sort())
})

test('the cluster is rebalanced on request, and a store without a cluster has no such call', async () => {
  const store = await openShops()
  await store.tenants.ensure('acme')

  expect((await store.tenants.rebalance()).moved).toBeGreaterThanOrEqual(0)
})

async function openShops() {
  const tenantPrefix = `${freshSchema()}_`
  const store = await openStore({ url: postgresUrl(), events, tenancy: 'schema', tenantPrefix, migrate: true })
  onTestFinished(async () => {
    for (const { tenant } of (await store.tenants.list()).items) await store.tenants.drop(tenant, { force: true })
    await store.close()
  })
  return store
}
