/**
 * Two shops in one database that know nothing of each other.
 *
 *     npx tsx examples/multi-tenant/multi-tenant.ts
 *
 * Each is a tenant: a schema of its own. Requests say whose turn it is, one daemon works for all, and a shop that leaves
 * takes its data along. Everything is in memory here, and gone at the end.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { defineDocumentProjection, defineEvents, isRillflowError, openStore } from 'rillflow'

const events = defineEvents<{ type: 'OrderPlaced'; data: { product: string; cents: number } }>()

/** What each product has earned. */
const earnings = defineDocumentProjection('earnings', {
  events,
  identity: event => event.data.product,
  initial: () => ({ orders: 0, cents: 0 }),
  evolve: { OrderPlaced: (sum, { data }) => ({ orders: sum.orders + 1, cents: sum.cents + data.cents }) },
})

const requests = new AsyncLocalStorage<{ tenant: string }>()
await using store = await openStore({
  memory: true,
  events,
  tenancy: 'schema',
  tenant: () => requests.getStore()?.tenant,
  register: shop => shop.projections.register(earnings),
})
for (const name of ['tea-house', 'book-shop']) await store.tenants.ensure(name)

/** As a web server would call it: it knows the shop from the request, the code below it does not have to. */
function request(tenant: string, product: string, cents: number): Promise<void> {
  return requests.run({ tenant }, () => placeOrder(product, cents))
}

async function placeOrder(product: string, cents: number): Promise<void> {
  const { version } = await store.events.append('orders-today', { type: 'OrderPlaced', data: { product, cents } })
  console.log(`${requests.getStore()!.tenant.padEnd(9)}  order ${version} of the day: ${product}`)
}

// The same stream, the same positions, the same read model: and yet nothing is mixed up.
await request('tea-house', 'teapot', 2900)
await request('book-shop', 'teapot', 990) // a book of that title
await request('tea-house', 'teapot', 2900)

// Whoever forgets to say whose turn it is gets nobody's data.
await placeOrder('teapot', 1).catch(error => {
  if (!isRillflowError(error, 'tenant_required')) throw error
  console.log(`(nobody)   ${error.code}`)
})

// One daemon for all tenants, also those that come later.
await using _runner = await store.start({ tenants: 'all' })
for (const name of ['tea-house', 'book-shop']) {
  const shop = store.tenant(name)
  await shop.consumers.waitFor('earnings', await shop.events.head())
  const { orders, cents } = (await shop.documents(earnings).get('teapot'))!.data
  console.log(`${name}: ${orders} × teapot, ${(cents / 100).toFixed(2)} €`)
}

// The book shop leaves, with all it has, as text; the tea house does not notice.
const place = await mkdtemp(join(tmpdir(), 'shops-'))
const output = join(place, 'book-shop')
const { position } = await store.tenants.export('book-shop', { output })
await store.tenants.drop('book-shop', { force: true })
console.log(`The book shop has left with its log up to ${position}.`)
console.log('Left:', (await store.tenants.list()).map(({ tenant }) => tenant).join(', '))

// And comes back, under another name.
await store.tenants.import({ input: output, tenant: 'book-cellar' })
const [order] = await store.tenant('book-cellar').events.readAll().toArray()
console.log(`The book cellar still knows: ${order?.data.product} for ${order?.data.cents} cents.`)
await rm(place, { recursive: true })
