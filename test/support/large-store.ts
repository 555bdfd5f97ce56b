/**
 * A store that has been in use for long, made by a few statements: a log of any length, its streams, workflows, attempts,
 * open executions, dead letters, documents, deliveries and audit, in the proportions of a shop; and a request to every
 * route that reads it.
 *
 *     const store = await openStore({ ...largeShop(library), database, migrate: true })
 *     await prepare(store)
 *     await fillStore(query, 200_000)
 *     for (const { key, path } of requests(200_000)) …
 */
import { createHash } from 'node:crypto'
import type * as Rillflow from '../../src/index.ts'
import { drawTo } from './numbers.ts'

type Library = Pick<
  typeof Rillflow,
  | 'defineEvents'
  | 'defineAggregate'
  | 'defineCollection'
  | 'defineDocumentProjection'
  | 'defineHandler'
  | 'defineSchedule'
> &
  Pick<typeof Rillflow, 'defineSubscription' | 'defineTableProjection'>

type ShopEvent =
  | { type: 'OrderPlaced' | 'OrderCharged'; data: { customer: string; cents: number } }
  | { type: 'ItemPacked' | 'OrderShipped' | 'OrderRefunded'; data: { customer: string; cents: number } }

/** One definition of each kind, as the sources or the built package define it. */
export function largeShop(library: Library) {
  const { defineEvents, defineAggregate, defineCollection, defineDocumentProjection } = library
  const { defineHandler, defineSchedule, defineSubscription, defineTableProjection } = library
  const events = defineEvents<ShopEvent>()
  const orders = defineDocumentProjection('orders', {
    events,
    initial: () => ({ cents: 0 }),
    evolve: { OrderPlaced: (order, { data }) => ({ ...order, cents: data.cents }) },
  })
  const sales = defineTableProjection('sales', {
    events,
    columns: { customer: 'text', orders: 'integer' },
    primaryKey: ['customer'],
    on: { OrderPlaced: ({ data }, row) => row({ customer: data.customer }, { increment: { orders: 1 } }) },
  })
  const order = defineAggregate('order', {
    events,
    initial: () => ({ cents: 0 }),
    evolve: { OrderPlaced: (state, { data }) => ({ ...state, cents: data.cents }) },
  })
  return {
    ...{ events, aggregates: [order], projections: [orders, sales] },
    collections: [defineCollection<{ name: string; city: string }>('customers', { history: true })],
    handlers: [defineHandler('charge', { events, on: 'OrderPlaced', run: () => undefined })],
    subscriptions: [defineSubscription('mailer', { events, types: ['OrderShipped'], run: () => undefined })],
    schedules: [defineSchedule('nightly', { events, cron: '0 3 * * *', run: () => undefined })],
    logger: false as const,
  }
}

/** The rows of consumers and routes, and the table of the collection. */
export async function prepare(store: Pick<Rillflow.Store, 'consumers' | 'documents' | 'schema' | 'subscriptions'>) {
  await store.documents('customers').put('customer-0', { name: 'Ada', city: 'London' })
  await store.schema.sync()
  for (const name of ['orders', 'sales']) await store.consumers.resume(name)
  await store.subscriptions.create('mailer')
}

const uuid = (text: string): string => {
  const hex = createHash('md5').update(text).digest('hex')
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5')
}

export interface LargeRequest {
  /** The route. */
  readonly key: string
  /** What is special about it. */
  readonly note?: string | undefined
  readonly path: string
  /** Of a POST that reads. */
  readonly body?: object | undefined
}

/** Every route that reads, with parameters that are the most expensive for it. */
export function requests(events: number): LargeRequest[] {
  const id = uuid('event-1234')
  const letter = uuid('event-2468')
  const [stream, workflow] = ['/streams/order-77', '/workflows/checkout-2000']
  const rare = 'types=OrderRefunded'
  return [
    { key: 'GET /', path: '/' },
    ...['overview', 'history?range=24h', 'log', 'process', 'search?q=order-7', `search?q=${id}`].map(path => ({
      ...{ key: `GET /${path.split('?')[0]}`, path: `/${path}` },
    })),
    { key: 'GET /events', path: '/events' },
    { key: 'GET /events', note: 'a rare type', path: `/events?${rare}` },
    { key: 'GET /events', note: 'a user, from the middle', path: '/events?userId=user-7&until=2000-01-01T00:00:00Z' },
    { key: 'GET /events', note: 'a stream', path: '/events?stream=order-77' },
    { key: 'GET /events', note: 'a workflow', path: '/events?correlationId=checkout-2000' },
    { key: 'GET /events', note: 'a category', path: '/events?category=order' },
    { key: 'GET /events/types', path: '/events/types' },
    { key: 'GET /events/at/:position', path: `/events/at/${Math.floor(events / 2)}` },
    { key: 'GET /events/:id', path: `/events/${id}?raw=1` },
    { key: 'GET /events/:id/effects', path: `/events/${id}/effects` },
    { key: 'GET /events/:id/why', path: `/events/${id}/why` },
    { key: 'GET /states', path: '/states' },
    { key: 'GET /streams/:stream/states', path: `${stream}/states?of=order` },
    { key: 'GET /streams/:stream/states/steps', path: `${stream}/states/steps?of=order&from=1&to=5` },
    { key: 'GET /streams/:stream/states/blame', path: `${stream}/states/blame?of=order` },
    { key: 'GET /streams', path: '/streams' },
    { key: 'GET /streams', note: 'a prefix', path: '/streams?prefix=order-5' },
    { key: 'GET /streams/categories', path: '/streams/categories' },
    { key: 'GET /streams/:stream', path: stream },
    { key: 'GET /streams/:stream/events', path: `${stream}/events?direction=backwards` },
    { key: 'GET /streams/:stream/snapshots', path: `${stream}/snapshots` },
    { key: 'GET /consumers', path: '/consumers' },
    { key: 'GET /consumers/:name', path: '/consumers/orders' },
    { key: 'GET /consumers/:name/wait', path: '/consumers/orders/wait?position=0' },
    { key: 'GET /projections/:name/rows', path: '/projections/sales/rows' },
    { key: 'GET /subscriptions/:name', path: '/subscriptions/mailer' },
    { key: 'GET /workflows', path: '/workflows' },
    { key: 'GET /workflows', note: 'failed, and none is', path: '/workflows?state=failed' },
    { key: 'GET /workflows', note: 'with dead letters', path: '/workflows?hasDeadLetters=1' },
    { key: 'GET /workflows', note: 'children', path: '/workflows?parent=checkout-100' },
    { key: 'GET /workflows/stats', path: '/workflows/stats' },
    { key: 'GET /workflows/:id', path: workflow },
    ...['tree', 'activity', 'attempts', 'steps', 'waits', 'joins', 'undos', 'why', 'mermaid'].map(part => ({
      ...{ key: `GET /workflows/:id/${part}`, path: `${workflow}/${part}` },
    })),
    { key: 'GET /executions', path: '/executions' },
    { key: 'GET /executions', note: 'of a handler and a state', path: '/executions?handler=charge&state=parked' },
    { key: 'GET /attempts', path: '/attempts?outcome=failed' },
    { key: 'GET /attempts', note: 'of a handler', path: '/attempts?handler=charge' },
    { key: 'GET /handlers', path: '/handlers' },
    { key: 'GET /lanes', path: '/lanes' },
    { key: 'GET /schedules', path: '/schedules' },
    { key: 'GET /schedules/:name/history', path: '/schedules/nightly/history' },
    { key: 'GET /schedules/:name/next', path: '/schedules/nightly/next' },
    { key: 'GET /dead-letters', path: '/dead-letters' },
    { key: 'GET /dead-letters', note: 'resolved, and few are', path: '/dead-letters?state=resolved' },
    { key: 'GET /dead-letters', note: 'of a handler', path: '/dead-letters?of=charge&state=open' },
    { key: 'GET /dead-letters/groups', path: '/dead-letters/groups' },
    { key: 'GET /dead-letters/stats', path: '/dead-letters/stats' },
    { key: 'GET /dead-letters/:owner/:event', path: `/dead-letters/orders/${letter}` },
    { key: 'GET /collections', path: '/collections' },
    { key: 'POST /collections/:name/query', path: '/collections/customers/query', body: {} },
    { key: 'POST /collections/:name/explain', path: '/collections/customers/explain', body: {} },
    { key: 'GET /collections/:name/:id', path: '/collections/customers/customer-7' },
    { key: 'GET /collections/:name/:id/history', path: '/collections/customers/customer-0/history' },
    { key: 'GET /runners', path: '/runners' },
    { key: 'GET /workers', path: '/workers' },
    { key: 'GET /schema', path: '/schema' },
    { key: 'GET /schema/plan', path: '/schema/plan' },
    { key: 'GET /health/doctor', path: '/health/doctor' },
    { key: 'GET /operations', path: '/operations' },
    { key: 'GET /audit', path: '/audit' },
    { key: 'GET /audit', note: 'a rare action', path: '/audit?action=schema.sync' },
  ]
}

/** Runs a statement outside of the store; `~events` is the store's own table of that name. */
export type Query = (text: string) => Promise<unknown>

/** Of this many events one is of the type `OrderRefunded`, which nothing has seen since the beginning. */
export const rareEvents = 5

const tables = [
  ...['events', 'streams', 'workflows', 'workflow_activity', 'workflow_executions', 'dead_letters', 'audit'],
  ...[
    'deliveries',
    'workflow_steps',
    'workflow_undos',
    'snapshots',
    'workflow_schedule_runs',
    'consumers',
    'customers',
  ],
]

/** `most`: the most rows of the tables beside the log. Default: as the log. */
export async function fillStore(query: Query, events: number, most: number = events): Promise<void> {
  const streams = Math.ceil(events / 10)
  const workflows = Math.ceil(events / 5)
  await query(`
    insert into ~events
      (position, version, created_at, event_id, schema_version, stream, type, correlation_id, user_id, data, headers)
    select n, (n - 1) / ${streams} + 1, now() - make_interval(secs => ${events} - n), md5('event-' || n)::uuid, 1,
      'order-' || (n - 1) % ${streams},
      case when n <= ${rareEvents} then 'OrderRefunded'
        else (array['OrderPlaced', 'OrderCharged', 'ItemPacked', 'OrderShipped'])[1 + n % 4] end,
      'checkout-' || (n - 1) / 5, 'user-' || n % 100,
      jsonb_build_object('customer', 'customer-' || n % 1000, 'cents', n % 10000), '{"source": "web"}'
    from generate_series(1, ${events}) as n`)
  await drawTo(query, 'events_position', events)
  await query(`
    insert into ~streams (version, stream)
    select ${events} / ${streams}, 'order-' || n
    from generate_series(0, ${streams - 1}) as n`)
  await query(`
    insert into ~workflows (correlation_id, first_position, last_position, last_type, parent, state, started_at)
    select 'checkout-' || n, n * 5 + 1, n * 5 + 5, 'OrderShipped', case when n % 100 = 1 then 'checkout-' || n - 1 end,
      case when n % 50 = 0 then 'active' else 'settled' end, now() - make_interval(secs => ${events} - n * 5)
    from generate_series(0, ${workflows - 1}) as n`)
  await query(`
    insert into ~workflow_activity
      (position, event_position, at, execution, version, attempt, kind, handler, correlation_id, queued_ms, running_ms)
    select n, n, now() - make_interval(secs => ${events} - n), md5('execution-' || n)::uuid, 1, 1,
      (array['dispatched', 'started', 'completed', 'completed', 'failed'])[1 + n % 5], 'charge',
      'checkout-' || (n - 1) / 5, 3, 12
    from generate_series(${events - most} + 1, ${events}) as n`)
  await drawTo(query, 'workflow_activity_position', events)
  await query(`
    insert into ~workflow_executions
      (id, position, route, correlation_id, rank, state, worker, run_at, lane)
    select md5('execution-' || n)::uuid, n * 2, r.id, 'checkout-' || (n * 2 - 1) / 5, n,
      (array['ready', 'delayed', 'suspended', 'blocked', 'parked'])[1 + n % 5], null,
      case when n % 5 = 1 then now() + interval '1 day' end, case when n % 5 = 3 then 'lane-' || n % 1000 end
    from generate_series(1, ${Math.ceil(most / 2)}) as n
    cross join (select id from ~workflow_routes where handler = 'charge' limit 1) as r`)
  await query(`
    insert into ~dead_letters
      (consumer, event_id, position, stream, version, type, attempts, errors, correlation_id, state, fingerprint,
        execution, first_failed_at, last_failed_at)
    select case when n % 10 = 0 then 'handler:charge' else 'orders' end, md5('event-' || n)::uuid, n,
      'order-' || (n - 1) % ${streams}, 1, 'OrderPlaced', 1,
      '[{"name": "Error", "message": "the card has expired", "at": "2026-01-01T00:00:00Z", "attempt": 1}]',
      case when n % 10 = 0 then 'checkout-' || (n - 1) / 5 end,
      case when n % 1000 = 0 then 'resolved' else 'open' end, 'cause-' || n % 7,
      case when n % 10 = 0 then md5('execution-' || n)::uuid end,
      now() - make_interval(secs => ${events} - n), now() - make_interval(secs => ${events} - n)
    from generate_series(1, ${most}) as n`)
  await query(`
    insert into ~deliveries (position, acked_at, deliveries, consumer)
    select n, now(), 1, 'mailer' from generate_series(1, 500) as n`)
  await query(`
    insert into ~audit (started_at, ended_at, id, actor, action, target, outcome)
    select now() - make_interval(secs => ${events} - n), now(), md5('audit-' || n)::uuid, 'user-' || n % 10,
      case when n = 1 then 'schema.sync' else 'consumers.pause' end, 'orders', 'done'
    from generate_series(1, ${Math.ceil(most / 4)}) as n`)
  await query(`
    insert into ~snapshots (version, event_id, state_version, stream, body)
    select 5, md5('event-' || n)::uuid, 1, 'order-' || n, '{"status": "placed"}'
    from generate_series(0, ${Math.ceil(streams / 10)}) as n`)
  await query(`
    insert into ~customers (id, body, version, created_at, updated_at)
    select 'customer-' || n, jsonb_build_object('name', 'Customer ' || n, 'city', 'City ' || n % 100), 1, now(), now()
    from generate_series(1, ${Math.ceil(most / 10)}) as n`)
  for (const table of tables) await query(`analyze ~${table}`)
}
