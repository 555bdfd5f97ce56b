import { expect, onTestFinished, test } from 'vitest'
import { defineProjection } from '../../src/projections/projection.ts'
import { fakeClock } from '../../src/testing/fakes.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { quick } from '../support/consumer-parts.ts'
import { openDatabase } from '../support/engines.ts'
import { type Metrics, parseMetrics } from '../support/parse-metrics.ts'
import { pausableDatabase } from '../support/pausable-database.ts'
import { runSubscription } from '../support/run-subscription.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, outcome, paid, placed, type Shop, shopEvents } from '../support/shop.ts'
import { openTenantStore } from '../support/tenant-store.ts'
import { waitUntil } from '../support/wait.ts'

async function scraped({ store }: { store: Pick<Shop['store'], 'server'> }): Promise<() => Promise<Metrics>> {
  const { url } = await store.server({ port: 0, cacheMs: 0 })
  const scrape = async (): Promise<Metrics> => {
    const response = await fetch(`${url}/metrics`)
    expect(response.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8')
    return parseMetrics(await response.text())
  }
  return async () => {
    let metrics = await scrape()
    // A busy machine may take longer to answer than a scrape waits.
    await waitUntil(async () => {
      const answers = metrics.series.filter(({ name }) => name === 'rillflow_database_reachable')
      if (answers.every(({ value }) => value === 1)) return true
      metrics = await scrape()
      return false
    })
    return metrics
  }
}

test('a fresh store has every family, with a description, and zero values', async () => {
  const shop = await openShop()

  const { families, value } = await (await scraped(shop))()

  expect(families.get('rillflow_events_appended_total')).toEqual({
    type: 'counter',
    help: 'Number of events appended.',
  })
  expect(families.get('rillflow_event_append_seconds')?.type).toBe('histogram')
  expect(families.get('rillflow_consumer_lag_seconds')?.type).toBe('gauge')
  expect(value('rillflow_events_appended_total')).toBe(0)
  expect(value('rillflow_database_reachable')).toBe(1)
  expect(value('rillflow_log_position')).toBe(0)
})

test('events, conflicts, the size of groups, documents and connections are counted', async () => {
  const shop = await openShop()
  const { store } = shop
  const scrape = await scraped(shop)
  const customers = store.documents<{ name: string }>('customers')

  await store.events.append('order-1', [placed(), paid])
  await outcome(store.events.append('order-1', placed(), { expected: 7 }))
  await customers.put('ada', { name: 'Ada' })
  await customers.put('bo', { name: 'Bo' })
  await outcome(customers.put('bo', { name: 'Bob' }, { expected: 9 }))
  await customers.get('ada')
  await customers.query().toArray()
  const { value } = await scrape()

  expect(value('rillflow_events_appended_total')).toBe(2)
  expect(value('rillflow_event_appends_total')).toBe(1)
  expect(value('rillflow_event_conflicts_total')).toBe(1)
  expect(value('rillflow_event_append_seconds_count')).toBe(1)
  expect(value('rillflow_event_append_group_appends_count')).toBe(2)
  expect(value('rillflow_documents_written_total', { collection: 'customers' })).toBe(2)
  expect(value('rillflow_documents_read_total', { collection: 'customers' })).toBe(3)
  expect(value('rillflow_document_conflicts_total')).toBe(1)
  expect(value('rillflow_log_position')).toBe(2)
  const connections = ['busy', 'idle', 'waiting'].map(state => value('rillflow_connections', { state }))
  expect(connections.every(count => Number.isInteger(count))).toBe(true)
})

test('a consumer shows its lag in events and seconds, its applied events, its failures and its dead letters', async () => {
  const shop = await openShop()
  const { store } = shop
  const scrape = await scraped(shop)
  const on = {
    OrderPlaced: async ({ data }: { data: { total: number } }) => {
      if (data.total === 13) throw new Error('unlucky')
    },
  }
  await store.projections.register(defineProjection('totals', { events: shopEvents, on, retries: 1, backoff: quick }))
  await store.consumers.runUntilIdle()
  const about = { consumer: 'totals' }

  await store.events.append('order-1', [placed(1), placed(13), placed(2)])
  const before = await scrape()
  await waitUntil(async () => {
    await store.consumers.runUntilIdle()
    return (await store.consumers.status('totals')).lag === 0
  })
  const after = await scrape()
  await store.consumers.pause('totals')
  const paused = await scrape()

  expect(before.value('rillflow_consumer_lag_events', { ...about, kind: 'projection' })).toBe(3)
  expect([before, after].map(each => each.value('rillflow_consumer_checkpoint', about))).toEqual([0, 3])
  expect(after.value('rillflow_log_position')).toBe(3)
  expect(before.value('rillflow_consumer_lag_seconds', about)).toBeGreaterThan(0)
  expect(after.value('rillflow_consumer_lag_events', about)).toBe(0)
  expect(after.value('rillflow_consumer_lag_seconds', about)).toBe(0)
  expect(after.value('rillflow_consumer_events_total', about)).toBe(3)
  expect(after.value('rillflow_consumer_failures_total', about)).toBe(2)
  expect(after.value('rillflow_dead_letters', about)).toBe(1)
  expect(after.value('rillflow_dead_letters_total')).toBe(1)
  expect(after.value('rillflow_consumer_paused', about)).toBe(0)
  expect(paused.value('rillflow_consumer_paused', about)).toBe(1)
})

test('held leases, live runners and events in flight to a subscriber are shown', async () => {
  const shop = await openShop()
  const { store } = shop
  const scrape = await scraped(shop)
  let release = (): void => {}
  const held = new Promise<void>(resolve => {
    release = resolve
  })
  onTestFinished(() => release())
  await store.projections.register(
    defineProjection('totals', { events: shopEvents, on: { OrderPaid: async () => {} } }),
  )
  await using _runner = await store.start()
  const subscription = runSubscription(store, 'mailer', { run: () => held })

  await store.events.append('order-1', placed())

  await waitUntil(async () => (await scrape()).value('rillflow_deliveries_in_flight', { subscription: 'mailer' }) === 1)
  await waitUntil(async () => (await scrape()).value('rillflow_consumer_leased', { consumer: 'totals' }) === 1)
  expect((await scrape()).value('rillflow_runners', { role: 'active' })).toBeGreaterThanOrEqual(1)
  release()
  await waitUntil(async () => (await scrape()).value('rillflow_deliveries_in_flight', { subscription: 'mailer' }) === 0)
  expect((await scrape()).value('rillflow_deliveries_total', { subscription: 'mailer' })).toBe(1)
  await subscription.stop()
})

test('workflows show the queue, its waiting time, the running time, and failures', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const scrape = await scraped(shop)
  let runs = 0
  flows.register(
    defineHandler('charge', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 1,
      backoff: { baseMs: 1 },
      run: async (_, { emit }) => {
        if (++runs === 1) throw new Error('not yet')
        return emit('OrderPaid', { method: 'card' })
      },
    }),
  )
  const worker = workerOf(shop.store)
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await flow.waitUntilSettled({ timeoutMs: 60_000 })
  const done = await scrape()
  await flows.handlers.pause('charge')
  await flows.publish('OrderPlaced', { total: 2 })

  const state = { handler: 'charge', state: 'ready' }
  await waitUntil(async () => (await scrape()).value('rillflow_executions', state) === 1)
  const queued = await scrape()
  await worker.stop()

  const about = { handler: 'charge' }
  expect(done.value('rillflow_attempts_total', about)).toBe(2)
  expect(done.value('rillflow_attempt_failures_total', about)).toBe(1)
  expect(done.value('rillflow_execution_run_seconds_count', about)).toBe(2)
  expect(done.value('rillflow_execution_queue_seconds_count', about)).toBe(2)
  expect(done.value('rillflow_execution_queue_seconds_sum', about)).toBeLessThan(60)
  expect(done.value('rillflow_executions_completed_total')).toBe(1)
  expect(done.value('rillflow_executions', state)).toBe(0)
  expect(done.value('rillflow_workers')).toBe(1)
  const age = queued.value('rillflow_execution_oldest_ready_seconds', about)
  expect(age).toBeGreaterThan(0)
  expect(age).toBeLessThan(60)
  expect(queued.value('rillflow_workflows_active')).toBe(1)
})

test('names with quotes and backslashes stay one label', async () => {
  const shop = await openShop()
  const name = 'a "quoted" \\ name }'
  await shop.store.projections.register(
    defineProjection(name, { events: shopEvents, on: { OrderPaid: async () => {} } }),
  )
  await shop.store.consumers.runUntilIdle()

  const { value } = await (await scraped(shop))()

  expect(value('rillflow_consumer_lag_events', { consumer: name })).toBe(0)
})

test('frequent scrapes query the database only once per interval', async () => {
  const clock = fakeClock()
  const shop = await openShop({ clock })
  const { url } = await shop.store.server({ port: 0 })
  const before = shop.store.metrics().settles_total

  await Promise.all(Array.from({ length: 20 }, () => fetch(`${url}/metrics`).then(response => response.text())))
  const once = shop.store.metrics().settles_total
  clock.advance(2_001)
  await (await fetch(`${url}/metrics`)).text()
  const twice = shop.store.metrics().settles_total

  expect([once - before, twice - before]).toEqual([1, 2])
})

test('tenants are distinguished, and one that lags makes the whole not ready', async () => {
  const register = (store: Shop['store']): void =>
    void store.projections.register(
      defineProjection('totals', { events: shopEvents, on: { OrderPlaced: async () => {} } }),
    )
  // With a clock that stands still no answer is late.
  const store = await openTenantStore({ register, clock: fakeClock() })
  for (const tenant of ['acme', 'globex']) await store.tenants.ensure(tenant)
  await store.tenant('acme').events.append('order-1', placed())
  await store.tenant('globex').events.append('order-1', [placed(), placed()])
  for (const tenant of ['acme', 'globex']) await store.tenant(tenant).consumers.runUntilIdle()
  const scrape = await scraped({ store })
  const { url } = await store.server({ port: 0, cacheMs: 0, maxLagEvents: 0 })

  const { value } = await scrape()
  const before = await fetch(`${url}/health/ready`)
  await store.tenant('globex').events.append('order-2', placed())
  const after = await fetch(`${url}/health/ready`)

  const tenants = ['acme', 'globex']
  expect(tenants.map(tenant => value('rillflow_events_appended_total', { tenant }))).toEqual([1, 2])
  expect(tenants.map(tenant => value('rillflow_consumer_events_total', { tenant, consumer: 'totals' }))).toEqual([1, 2])
  expect(tenants.map(tenant => value('rillflow_log_position', { tenant }))).toEqual([1, 2])
  expect(store.metrics().events_appended_total).toBe(4)
  expect([before.status, after.status]).toEqual([200, 503])
})

test('a silent database is waited for once, however many tenants it has, and is shown again when it answers', async () => {
  const clock = fakeClock()
  const pausable = pausableDatabase(await openDatabase())
  const store = await openTenantStore({ database: pausable.database, clock })
  const tenants = Array.from({ length: 9 }, (_, n) => `shop-${n}`)
  for (const tenant of tenants) await store.tenants.ensure(tenant)
  for (const tenant of tenants) await store.tenant(tenant).events.head()
  const { url } = await store.server({ port: 0, cacheMs: 0 })
  const reachable = async (from: Promise<Response>): Promise<(number | undefined)[]> => {
    const { value } = parseMetrics(await (await from).text())
    return tenants.map(tenant => value('rillflow_database_reachable', { tenant }))
  }

  pausable.pause()
  const [scrape, ready] = [fetch(`${url}/metrics`), fetch(`${url}/health/ready`)]
  // Both have begun to wait: readiness asks for all at once, the metrics for eight.
  await waitUntil(() => pausable.lateOutcomes().waiting >= tenants.length + 8)
  clock.advance(5_000)
  const silent = await reachable(scrape)
  const { status } = await ready
  pausable.resume()

  expect(silent).toEqual(tenants.map((_, n) => (n < 8 ? 0 : undefined)))
  expect(status).toBe(503)
  expect(await reachable(fetch(`${url}/metrics`))).toEqual(tenants.map(() => 1))
})
