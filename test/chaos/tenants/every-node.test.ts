/**
 * A tenant of a Citus cluster, written and followed through every node at once, while connections between the nodes and of
 * clients are cut and the tenant is moved to and fro. Runs where `CITUS_URL` is.
 */
import pg from 'pg'
import { expect, onTestFinished, test } from 'vitest'
import { defineEvents } from '../../../src/events/definition.ts'
import { openStore, type TenantedStore } from '../../../src/store.ts'
import { freshSchema, postgresUrl } from '../../support/engines.ts'
import { waitUntil } from '../../support/wait.ts'

type Orders = { type: 'OrderPlaced'; data: { total: number } }
const events = defineEvents<Orders>()

const disturbances = {
  'connections between the nodes are cut': cutBetweenNodes,
  'connections of clients are cut': cutClients,
  'the tenant is moved': moveTenant,
}

test.each(Object.entries(disturbances))(
  'while %s, no event is lost, doubled or out of order, and no call fails',
  async (_, disturb) => {
    const cluster = await openCluster()
    const load = startLoad(cluster.stores)

    for (let n = 0; n < rounds; n++) {
      const before = load.written.length
      await disturb(cluster)
      await waitUntil(() => load.written.length >= before + 30 || load.failures.length > 0)
    }
    await load.stop()

    const stored = await cluster.stores[0]!.tenant('acme').events.readAll().toArray()
    expect(load.failures).toEqual([])
    expect(stored.map(({ stream }) => stream).sort()).toEqual([...load.written].sort())
    for (const seen of load.seen) expect(seen).toEqual(stored.map(({ position }) => position))
  },
)

const rounds = Number(process.env.RILLFLOW_CHAOS_ROUNDS ?? 4)
/** What the connections of this file are called, so that those of other tests stay. */
const clientName = 'every-node'

interface ClusterUnderTest {
  readonly stores: readonly TenantedStore<{ OrderPlaced: Orders['data'] }>[]
  readonly nodes: readonly pg.Client[]
}

/** A store by the address of each node, which sends everything to that node; and one that finds the tenant's own. */
async function openCluster(): Promise<ClusterUnderTest> {
  const tenantPrefix = `${freshSchema()}_`
  const options = { events, tenancy: 'schema', tenantPrefix } as const
  const first = await openStore({ ...options, url: postgresUrl(), applicationName: clientName, migrate: true })
  await first.tenants.ensure('acme')
  const addresses = [new URL(postgresUrl()).host, ...(await first.tenants.servers()).items]
  const urls = addresses.map(host => Object.assign(new URL(postgresUrl()), { host }).href)
  const pools = urls.map(connectionString => new pg.Pool({ connectionString, max: 5, application_name: clientName }))
  for (const pool of pools) pool.on('error', () => {})
  const pinned = await Promise.all(pools.map(pool => openStore({ ...options, pool })))
  const nodes = urls.map(connectionString => new pg.Client({ connectionString }))
  await Promise.all(nodes.map(node => node.connect()))
  onTestFinished(async () => {
    await first.tenants.drop('acme', { force: true })
    await Promise.all([first, ...pinned].map(store => store.close()))
    await Promise.all([...pools, ...nodes].map(each => each.end()))
  })
  return { stores: [first, ...pinned], nodes }
}

interface Load {
  /** The stream of each event that a caller was told to be stored. */
  readonly written: readonly string[]
  /** By reader, the positions in the order they came. */
  readonly seen: readonly number[][]
  readonly failures: readonly unknown[]
  /** Resolves when all readers have seen all that was written. */
  stop(): Promise<void>
}

function startLoad(stores: ClusterUnderTest['stores']): Load {
  const written: string[] = []
  const failures: unknown[] = []
  const over = new AbortController()
  let isWriting = true
  const writing = stores.flatMap((store, at) =>
    Array.from({ length: 3 }, async (_, writer) => {
      for (let n = 0; isWriting; n++) {
        const stream = `order-${at}-${writer}-${n}`
        try {
          await store.tenant('acme').events.append(stream, { type: 'OrderPlaced', data: { total: n } })
          written.push(stream)
        } catch (error) {
          failures.push(error)
          return
        }
      }
    }),
  )
  const seen = stores.map(() => [] as number[])
  const reading = stores.map(async (store, at) => {
    for await (const { position } of store.tenant('acme').events.tail({ from: 'start', signal: over.signal }))
      seen[at]!.push(position)
  })
  return {
    written,
    seen,
    failures,
    async stop() {
      isWriting = false
      await Promise.all(writing)
      await waitUntil(() => seen.every(each => each.length >= written.length))
      over.abort()
      await Promise.all(reading)
    },
  }
}

async function cutBetweenNodes({ nodes }: ClusterUnderTest): Promise<void> {
  for (const node of nodes)
    await node.query(`
      select pg_terminate_backend(pid, 0) from pg_stat_activity where application_name like 'citus_internal%'`)
}

async function cutClients({ nodes }: ClusterUnderTest): Promise<void> {
  for (const node of nodes)
    await node.query(
      'select pg_terminate_backend(pid, 0) from pg_stat_activity where application_name = $1 and pid <> pg_backend_pid()',
      [clientName],
    )
}

async function moveTenant({ stores }: ClusterUnderTest): Promise<void> {
  const { tenants } = stores[0]!
  const { server } = await tenants.status('acme')
  const { items } = await tenants.servers()
  await tenants.move('acme', { server: items.find(node => node !== server)! })
}
