/**
 * What every combination has to do: append, read by COPY, documents, an inline projection, a handler in a runner, a
 * schedule's cron, close. Prints `works`.
 */
import { defineDocumentProjection, defineEvents, defineHandler, defineSchedule, openStore } from 'rillflow'

const { DATABASE_URL: url, SHOP_SCHEMA: schema = 'shop', SHOP_OPTIONS = '{}' } = process.env
const events = defineEvents()
const totals = defineDocumentProjection('totals', {
  events,
  lifecycle: 'inline',
  initial: () => ({ orders: 0 }),
  evolve: { OrderPlaced: state => ({ orders: state.orders + 1 }) },
})
const ship = defineHandler('ship', { events, on: 'OrderPaid', run: (_, { emit }) => emit('OrderShipped', {}) })
const nightly = defineSchedule('nightly', { cron: '0 3 * * *', run() {} })

const place = url ? { url, migrate: true, schema } : { memory: true }
const definitions = { events, projections: [totals], handlers: [ship], schedules: [nightly] }
const store = await openStore({ ...place, ...definitions, logger: false, pollMs: 50, ...JSON.parse(SHOP_OPTIONS) })
const placed = Array.from({ length: 500 }, (_, n) => ({ type: 'OrderPlaced', data: { total: n, note: 'é🧾' } }))
for (let n = 0; n < 5; n++) await store.events.append(`order-${n}`, placed)
await store.documents('customers').put('c-1', { name: 'Ada' })
const read = await store.events.readAll().toArray()
const total = await store.documents(totals).get('order-1')
const runner = await store.start({ only: ['handlers'] })
const workflow = await store.workflows.publish('OrderPaid', {}, { stream: 'order-1' })
await workflow.waitForEvent('OrderShipped', { timeoutMs: 60_000 })
await runner.stop()
await store.close()

const found = { read: read.length, orders: total?.data.orders, isDate: read[0]?.createdAt instanceof Date }
const expected = { read: 2500, orders: 500, isDate: true }
if (JSON.stringify(found) !== JSON.stringify(expected)) throw new Error(`found ${JSON.stringify(found)}`)
console.log('works')
