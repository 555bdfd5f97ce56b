/**
 * What `/metrics` shows and `/health/ready` judges of the database: a few statements, each bounded by the number of consumers
 * and handlers and never by that of events, read at most once per `cacheMs` whoever asks how often.
 */

import { consumerNames } from '../consumers/schema.ts'
import { sql } from '../database/sql.ts'
import type { Log } from '../events/log.ts'
import { settle } from '../events/order/order.ts'
import { subscriptionNames } from '../subscriptions/schema.ts'
import { type Family, type Gauge, gauges, type Sample, type Total, totals } from '../telemetry/metrics.ts'
import { countOpen } from '../workflows/insight/open.ts'
import { readTotals } from '../workflows/insight/stats.ts'
import { workflowNames } from '../workflows/schema.ts'

/** How the consumers, and all else that is stored, are doing. */
export interface StoredFigures {
  readonly consumers: readonly ConsumerFigures[]
  readonly families: readonly Family[]
}

export interface ConsumerFigures {
  readonly name: string
  readonly kind: string
  readonly state: string
  readonly lag: number
  readonly lagSeconds: number
  readonly isPaused: boolean
  readonly isLeased: boolean
  readonly deadLetters: number
  readonly acked: number
  readonly givenBack: number
}

export async function readFigures(log: Log): Promise<StoredFigures> {
  const { settled } = await settle(log)
  const consumers = await readConsumers(log, settled)
  const handlers = await readHandlers(log)
  const open = await openByHandler(log, handlers)
  const counted = await readTotals(log)
  const { daemons, workers } = await readAlive(log)
  const one = (value: number): Sample[] => [{ labels: {}, value }]
  const oldest = new Map<string, number>()
  for (const { handler, ready_seconds: age } of handlers)
    oldest.set(handler, Math.max(oldest.get(handler) ?? 0, age ?? 0))
  const letters = new Map(handlers.map(each => [`handler:${each.handler}`, Number(each.dead_letters)]))
  const ofConsumers = (value: (of: ConsumerFigures) => number): Sample[] =>
    consumers.map(each => ({ labels: { consumer: each.name, kind: each.kind }, value: value(each) }))
  return {
    consumers,
    families: [
      gauge('log_position', one(Number(settled))),
      gauge(
        'consumer_lag_events',
        ofConsumers(each => each.lag),
      ),
      gauge(
        'consumer_lag_seconds',
        ofConsumers(each => each.lagSeconds),
      ),
      gauge(
        'consumer_paused',
        ofConsumers(each => Number(each.isPaused)),
      ),
      gauge(
        'consumer_leased',
        ofConsumers(each => Number(each.isLeased)),
      ),
      gauge('dead_letters', [
        ...consumers.map(each => ({ labels: { consumer: each.name }, value: each.deadLetters })),
        ...[...letters].map(([consumer, value]) => ({ labels: { consumer }, value })),
      ]),
      gauge(
        'subscription_deliveries',
        consumers
          .filter(({ kind }) => kind === 'subscription')
          .flatMap(({ name: consumer, acked, givenBack }) => [
            { labels: { consumer, state: 'acked' }, value: acked },
            { labels: { consumer, state: 'given_back' }, value: givenBack },
          ]),
      ),
      gauge('executions', open),
      gauge(
        'execution_oldest_ready_seconds',
        [...oldest].map(([handler, value]) => ({ labels: { handler }, value })),
      ),
      gauge('workflows_active', one(counted.get('active') ?? 0)),
      gauge('workers', one(workers)),
      gauge('daemons', daemons),
      ...Object.entries(counterOf).map(
        ([name, counter]): Family => ({
          ...{ name, type: 'counter', help: totals[name as Total].help },
          samples: one(counted.get(counter) ?? 0),
        }),
      ),
    ],
  }
}

/** The counters of workflows, as the database names them. */
const counterOf: Readonly<Record<Total, string>> = {
  workflows_total: 'workflows',
  workflow_events_total: 'events',
  executions_dispatched_total: 'dispatched',
  executions_completed_total: 'completed',
  executions_failed_total: 'failed',
  executions_cancelled_total: 'cancelled',
}

export function gauge(name: Gauge, samples: readonly Sample[]): Family {
  return { name, type: 'gauge', help: gauges[name].help, samples }
}

interface ConsumerRow {
  name: string
  kind: string
  state: string
  checkpoint: number
  paused: boolean
  leased: boolean
  lag_seconds: number | null
  dead_letters: number
  acked: number
  given_back: number
}

/** More consumers than this are not shown. Of dead letters and deliveries the newest 10 000 are looked at. */
async function readConsumers(log: Log, settled: number): Promise<ConsumerFigures[]> {
  const { consumers, events, dead_letters, deliveries, clock } = {
    ...log.names,
    ...consumerNames(log),
    ...subscriptionNames(log),
  }
  // Embedded, whoever came with another opening of the database is gone.
  const sign = log.database.soleUser ?? null
  const rows = await log.database.run<ConsumerRow>(sql`/* server.consumers */
    select
      c.name, c.kind, c.state, c.checkpoint, c.paused_at is not null as paused,
      coalesce(
        c.lease_until > ${clock}(c.lease_until)
          and (${sign}::text is null or split_part(c.owner, '/', 1) = ${sign}::text), false) as leased,
      (select extract(epoch from ${clock}(e.created_at) - e.created_at)::float8
        from ${events} as e
        where e.position > c.checkpoint
          and e.position <= ${settled}::bigint
        order by e.position
        limit 1) as lag_seconds,
      (select count(*) filter (where l.state in ('open', 'retrying'))
        from (
          select state
          from ${dead_letters}
          where consumer = c.name
          order by position desc
          limit 10000) as l) as dead_letters,
      d.acked, d.given_back
    from ${consumers} as c
    cross join lateral (
      select count(*) filter (where n.acked_at is not null) as acked,
        count(*) filter (where n.acked_at is null) as given_back
      from (
        select acked_at
        from ${deliveries}
        where consumer = c.name
        order by position desc
        limit 10000) as n) as d
    order by c.name
    limit 5000`)
  return rows.map(row => {
    const isInline = row.state === 'inline'
    return {
      ...{ name: row.name, kind: row.kind, state: row.state, isPaused: row.paused, isLeased: row.leased },
      lag: isInline || row.checkpoint >= settled ? 0 : Number(settled - row.checkpoint),
      lagSeconds: isInline ? 0 : Math.max(0, row.lag_seconds ?? 0),
      deadLetters: Number(row.dead_letters),
      acked: Number(row.acked),
      givenBack: Number(row.given_back),
    }
  })
}

interface HandlerRow {
  id: number
  handler: string
  ready_seconds: number | null
  dead_letters: number
}

/** A rank is the time in milliseconds at which an execution became ready, and ten seconds further for each step of priority. */
function readHandlers(log: Log): Promise<HandlerRow[]> {
  const { clock } = log.names
  const { workflow_routes, workflow_executions, dead_letters } = { ...consumerNames(log), ...workflowNames(log) }
  return log.database.run<HandlerRow>(sql`/* server.handlers */
    select
      r.id, r.handler,
      (select greatest(0, extract(epoch from ${clock}(x.queued_at)) * 1000 - x.rank + r.priority * 10000)::float8 / 1000
        from ${workflow_executions} as x
        where x.route = r.id
          and x.state = 'ready'
        order by x.rank, x.id
        limit 1) as ready_seconds,
      (select count(*) filter (where l.state in ('open', 'retrying'))
        from (
          select state
          from ${dead_letters}
          where consumer = 'handler:' || r.handler
          order by position desc
          limit 10000) as l) as dead_letters
    from ${workflow_routes} as r
    order by r.handler, r.version
    limit 5000`)
}

/** All versions of a handler together. */
async function openByHandler(log: Log, handlers: readonly HandlerRow[]): Promise<Sample[]> {
  const counts = handlers.length === 0 ? new Map() : await countOpen(log)
  const sums = new Map<string, Map<string, number>>()
  for (const { id, handler } of handlers) {
    const states = sums.get(handler) ?? new Map<string, number>()
    sums.set(handler, states)
    for (const [state, count] of Object.entries<number>(counts.get(id) ?? {}))
      states.set(state, (states.get(state) ?? 0) + count)
  }
  return [...sums].flatMap(([handler, states]) =>
    [...states].map(([state, value]) => ({ labels: { handler, state }, value })),
  )
}

async function readAlive(log: Log): Promise<{ daemons: Sample[]; workers: number }> {
  const { clock } = log.names
  const { daemons, workflow_workers } = { ...consumerNames(log), ...workflowNames(log) }
  const sign = log.database.soleUser ?? null
  const [row] = await log.database.run<{ hot: number; standby: number; workers: number }>(sql`/* server.alive */
    select
      count(*) filter (where d.role = 'hot') as hot,
      count(*) filter (where d.role = 'standby') as standby,
      (select count(*)
        from ${workflow_workers} as w
        where w.heartbeat_at >= ${clock}(w.heartbeat_at) - make_interval(secs => w.lease_ms / 1000.0)
          and (${sign}::text is null or split_part(w.owner, '/', 1) = ${sign}::text)) as workers
    from ${daemons} as d
    where d.heartbeat_at >= ${clock}(d.heartbeat_at) - make_interval(secs => d.lease_ms / 1000.0)
      and (${sign}::text is null or split_part(d.owner, '/', 1) = ${sign}::text)`)
  const { hot, standby, workers } = row!
  const samples = Object.entries({ hot, standby }).map(([role, count]) => ({ labels: { role }, value: Number(count) }))
  return { daemons: samples, workers: Number(workers) }
}
