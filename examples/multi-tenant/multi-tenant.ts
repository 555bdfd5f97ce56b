/**
 * Two shops in one database that cannot see each other.
 *
 *     npx tsx examples/multi-tenant/multi-tenant.ts
 *
 * Each shop is a tenant with a schema of its own. The request decides which tenant is current, one runner works for all of
 * them, and a shop that leaves takes its data along. Everything is in memory, or on an empty server with DATABASE_URL.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { defineDocumentProjection, defineEvents, isRillflowError, openStore } from 'rillflow'

const events = defineEvents<{ type: 'OrderPlaced'; data: { product: string; cents: number } }>()

/** The earnings of each product. */
const earnings = defineDocumentProjection('earnings', {
  events,
  identity: event => event.data.product,
  initial: () => ({ orders: 0, cents: 0 }),
  evolve: { OrderPlaced: (sum, { data }) => ({ orders: sum.orders + 1, cents: sum.cents + data.cents }) },
})

const requests = new AsyncLocalStorage<{ tenant: string }>()
const { DATABASE_URL: url } = process.env
await using store = await openStore({
  ...(url === undefined ? { memory: true } : { url, migrate: true }),
  events,
  projections: [earnings],
  tenancy: 'schema',
  tenant: () => requests.getStore()?.tenant,
})
for (const name of ['tea-house', 'book-shop']) await store.tenants.ensure(name)

/** A web server calls it like this: it knows the shop from the request, and the code below does not have to. */
function request(tenant: string, product: string, cents: number): Promise<void> {
  return requests.run({ tenant }, () => placeOrder(product, cents))
}

async function placeOrder(product: string, cents: number): Promise<void> {
  const { version } = await store.events.append('orders-today', { type: 'OrderPlaced', data: { product, cents } })
  console.log(`${requests.getStore()!.tenant.padEnd(9)}  order ${version} of the day: ${product}`)
}

// The same stream, the same positions, the same read model, and nothing is mixed up.
await request('tea-house', 'teapot', 2900)
await request('book-shop', 'teapot', 990) // a book of that title
await request('tea-house', 'teapot', 2900)

// A call without a tenant is refused. It never reaches the data of another one.
await placeOrder('teapot', 1).catch(error => {
  if (!isRillflowError(error, 'tenant_required')) throw error
  console.log(`(none)     ${error.code}`)
})

// One runner for all tenants, also for tenants that are added later.
await using _runner = await store.start({ tenants: 'all' })
for (const name of ['tea-house', 'book-shop']) {
  const shop = store.tenant(name)
  await shop.consumers.waitFor(earnings, await shop.events.head())
  const { orders, cents } = (await shop.documents(earnings).get('teapot'))!.data
  console.log(`${name}: ${orders} × teapot, ${(cents / 100).toFixed(2)} €`)
}

// The book shop leaves with its data, as text. The tea house is not affected.
const place = await mkdtemp(join(tmpdir(), 'shops-'))
const folder = join(place, 'book-shop')
const { position } = await store.tenants.export('book-shop', { output: folder })
await store.tenants.drop('book-shop', { force: true })
console.log(`The book shop has left with its log up to ${position}.`)
console.log('Left:', (await store.tenants.list()).items.map(({ tenant }) => tenant).join(', '))

// It comes back under another name.
await store.tenants.import({ input: folder, tenant: 'book-cellar' })
const [order] = await store.tenant('book-cellar').events.readAll().toArray()
console.log(`The book cellar still has its order: ${order?.data.product} for ${order?.data.cents} cents.`)
await rm(place, { recursive: true })
