/** Calls for a tenant of a Citus cluster, and the node that has it. Runs where `CITUS_URL` is. */
import pg from 'pg'
import { expect, onTestFinished, test } from 'vitest'
import { openPostgres } from '../../src/database/postgres/postgres.ts'
import { openStore } from '../../src/store.ts'
import { openNodes } from '../../src/tenants/nodes.ts'
import { freshSchema, openDatabase, postgresUrl } from '../support/engines.ts'
import { placed, shopEvents } from '../support/shop.ts'

test('a tenant is read and written on its node, and a projection is rebuilt through the address given', async () => {
  const tenantPrefix = `${freshSchema()}_`
  const options = { url: postgresUrl(), events: shopEvents, tenancy: 'schema', tenantPrefix, migrate: true } as const
  const store = await openStore({ ...options, applicationName: tenantPrefix })
  onTestFinished(async () => {
    await store.tenants.drop('acme', { force: true })
    await store.close()
  })
  const { server } = await store.tenants.ensure('acme').then(() => store.tenants.status('acme'))
  const acme = store.tenant('acme')
  const labels = async (host: string): Promise<string[]> => {
    const client = new pg.Client({ connectionString: Object.assign(new URL(postgresUrl()), { host }).href })
    await client.connect()
    const text = 'select query from pg_stat_activity where application_name = $1'
    const { rows } = await client.query<{ query: string }>(text, [tenantPrefix])
    await client.end()
    return rows.map(({ query }) => query)
  }

  await acme.events.append('order-1', placed())
  const orders = acme.documents<{ total: number }>('orders')
  await acme.schema.sync()
  await orders.put('order-1', { total: 3 })
  await acme.events.append('order-1', placed())

  expect((await labels(server)).some(query => query.includes('events.append'))).toBe(true)
  expect((await labels(new URL(postgresUrl()).host)).some(query => query.includes('events.append'))).toBe(false)
  expect(await orders.get('order-1')).toMatchObject({ data: { total: 3 } })
})

test('a node that cannot be reached, or whose address leads elsewhere, is replaced by the address given', async () => {
  const home = await openDatabase()
  const [row] = await home.runArrays({
    label: 'test.node',
    text: `/* test.node */ select nodename || ':' || nodeport from pg_dist_node where shouldhaveshards limit 1`,
    values: [],
  })
  const node = row![0] as string
  const closed = openNodes(home, () => Promise.reject(new Error('no route to host')))
  const other = openNodes(home, () => openPostgres({ url: postgresUrl(), maxConnections: 1 }))
  const right = openNodes(home, host =>
    openPostgres({ url: Object.assign(new URL(postgresUrl()), { host }).href, maxConnections: 1 }),
  )
  onTestFinished(() => Promise.all([closed, other, right].map(nodes => nodes.close(1000))).then(() => {}))

  expect(await closed.reach(node)).toBe(home)
  expect(await other.reach(node)).toBe(home)
  const reached = await right.reach(node)
  expect(reached).not.toBe(home)
  right.doubt(node)
  expect(await right.reach(node)).toBe(reached)
})
