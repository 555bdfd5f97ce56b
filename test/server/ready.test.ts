import { expect, onTestFinished, test } from 'vitest'
import type { Database } from '../../src/database/database.ts'
import { lendDatabase } from '../../src/database/handle.ts'
import { defineProjection } from '../../src/projections/projection.ts'
import { openStore } from '../../src/store.ts'
import { fakeClock } from '../../src/testing/fakes.ts'
import { engine, freshSchema, openDatabase } from '../support/engines.ts'
import { startServer } from '../support/postgres-server.ts'
import { onServer, openShop, placed, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

/** It stands still: with it no answer of the database is late, on however busy a machine. */
const clock = fakeClock()

async function ready(url: string): Promise<[number, { status: string; reasons?: string[] }]> {
  const response = await fetch(`${url}/health/ready`)
  return [response.status, (await response.json()) as { status: string; reasons?: string[] }]
}

/** A database that can be made unavailable. */
async function losable(): Promise<{ database?: Database; url?: string; lose(): Promise<void> }> {
  if (!onServer) {
    const database = lendDatabase(await openDatabase())
    return { database, lose: () => database.close(0) }
  }
  const server = await startServer({ major: engine === 'postgres-15' ? 15 : 18 })
  onTestFinished(() => server[Symbol.asyncDispose]())
  return { url: server.url, lose: () => server.stop() }
}

test('it is not ready while the database is unreachable', async () => {
  const { lose, ...place } = await losable()
  const store = await openStore({ ...place, events: shopEvents, schema: freshSchema(), migrate: true, clock })
  onTestFinished(() => store.close())
  const { url } = await store.server({ port: 0, cacheMs: 0 })
  const before = await ready(url)

  await lose()

  expect(before).toEqual([200, { status: 'ready' }])
  await waitUntil(async () => (await ready(url))[0] === 503)
  expect(await ready(url)).toEqual([503, { status: 'not ready', reasons: ['database_unreachable'] }])
  const live = await fetch(`${url}/health/live`)
  expect(live.status).toBe(200)
  expect(await (await fetch(`${url}/metrics`)).text()).toContain('rillflow_database_reachable 0\n')
})

test('it is not ready when the schema drifts, logs that, and is ready again when the schema is fixed', async () => {
  const warnings: [object, string][] = []
  const warn = (fields: object, message: string): void => void warnings.push([fields, message])
  const { store, query, schema } = await openShop({ clock, logger: { debug() {}, info() {}, warn, error() {} } })
  const { url } = await store.server({ port: 0, cacheMs: 0 })
  await query('drop index ~events_correlation')

  const drifted = await ready(url)
  await query('create index events_correlation on ~events (correlation_id, position)')
  const fixed = await ready(url)

  expect(drifted).toEqual([503, { status: 'not ready', reasons: ['schema_drift'] }])
  expect(fixed[0]).toBe(200)
  const problems = [expect.objectContaining({ kind: 'index_missing' })]
  expect(warnings).toEqual([[{ schema, reasons: ['schema_drift'], problems }, 'The store is not ready.']])
})

test('it is not ready while a consumer is further behind than its limit, unless the consumer is paused', async () => {
  const { store } = await openShop({ clock })
  const totals = defineProjection('totals', { events: shopEvents, on: { OrderPlaced: async () => {} } })
  await store.projections.register(totals)
  await store.consumers.runUntilIdle()
  const { url } = await store.server({ port: 0, cacheMs: 0, maxLagEvents: 2 })
  const patient = await store.server({
    port: 0,
    cacheMs: 0,
    maxLagEvents: 2,
    lagLimits: { totals: { maxLagEvents: 5 } },
  })
  const hasty = await store.server({ port: 0, cacheMs: 0, maxLagMs: 0 })

  const before = await ready(url)
  await store.events.append('order-1', [placed(), placed(), placed()])
  const behind = await Promise.all([url, patient.url, hasty.url].map(ready))
  await store.consumers.pause('totals')
  const paused = await ready(url)
  await store.consumers.resume('totals')
  await store.consumers.runUntilIdle()
  const after = await Promise.all([url, hasty.url].map(ready))

  expect(before[0]).toBe(200)
  expect(behind.map(([status, { reasons }]) => [status, reasons])).toEqual([
    [503, ['consumer_lag']],
    [200, undefined],
    [503, ['consumer_lag']],
  ])
  expect(paused[0]).toBe(200)
  expect(after.map(([status]) => status)).toEqual([200, 200])
})
