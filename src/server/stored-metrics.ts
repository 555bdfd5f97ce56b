/**
 * The metrics that are read from the database, for `/metrics` and `/health/ready`: a few statements, each bounded by the
 * number of consumers and handlers and never by the number of events.
 */
import { type ConsumerMetrics, readConsumerMetrics } from '../consumers/insight.ts'
import type { Log } from '../events/log.ts'
import { settle } from '../events/order/order.ts'
import { countDeliveries } from '../subscriptions/status.ts'
import { type Family, type Gauge, gauges, type Sample, type Total, totals } from '../telemetry/metrics.ts'
import { countOpen } from '../workflows/insight/executions.ts'
import { countAlive, type HandlerQueue, readHandlerQueues } from '../workflows/insight/queues.ts'
import { readTotals } from '../workflows/insight/stats.ts'

export interface StoredMetrics {
  readonly consumers: readonly ConsumerMetrics[]
  /** The highest position drawn. */
  readonly head: number
  readonly families: readonly Family[]
}

export async function readStoredMetrics(log: Log): Promise<StoredMetrics> {
  const { settled, head } = await settle(log)
  const consumers = await readConsumerMetrics(log, { settled, head })
  return {
    consumers,
    head,
    families: [
      gauge('log_position', one(settled)),
      ...consumerFamilies(consumers),
      ...(await subscriptionFamilies(log, consumers)),
      ...(await workflowFamilies(log, consumers)),
      ...(await aliveFamilies(log)),
    ],
  }
}

export function gauge(name: Gauge, samples: readonly Sample[]): Family {
  return { name, type: 'gauge', help: gauges[name].help, samples }
}

function one(value: number): Sample[] {
  return [{ labels: {}, value }]
}

function consumerFamilies(consumers: readonly ConsumerMetrics[]): Family[] {
  const family = (name: Gauge, read: (consumer: ConsumerMetrics) => number): Family =>
    gauge(
      name,
      consumers.map(each => ({ labels: { consumer: each.name, kind: each.kind }, value: read(each) })),
    )
  return [
    family('consumer_checkpoint', each => each.checkpoint),
    family('consumer_lag_events', each => each.lag),
    family('consumer_lag_seconds', each => each.lagSeconds),
    family('consumer_paused', each => Number(each.isPaused)),
    family('consumer_leased', each => Number(each.isLeased)),
  ]
}

async function subscriptionFamilies(log: Log, consumers: readonly ConsumerMetrics[]): Promise<Family[]> {
  const names = consumers.filter(({ kind }) => kind === 'subscription').map(({ name }) => name)
  const counts = names.length === 0 ? [] : await countDeliveries(log, names)
  const samples = counts.flatMap(({ consumer, acked, givenBack }) => [
    { labels: { consumer, state: 'acked' }, value: acked },
    { labels: { consumer, state: 'given_back' }, value: givenBack },
  ])
  return [gauge('subscription_deliveries', samples)]
}

async function workflowFamilies(log: Log, consumers: readonly ConsumerMetrics[]): Promise<Family[]> {
  const queues = await readHandlerQueues(log)
  const open = await openByHandler(log, queues)
  const counted = await readTotals(log)
  const readySeconds = new Map<string, number>()
  for (const queue of queues)
    readySeconds.set(queue.handler, Math.max(readySeconds.get(queue.handler) ?? 0, queue.readySeconds))
  const ofHandlers = new Map(queues.map(each => [each.handler, each.deadLetters]))
  return [
    gauge('dead_letters', [
      ...consumers.map(({ name, deadLetters }) => ({ labels: { consumer: name }, value: deadLetters })),
      ...[...ofHandlers].map(([handler, value]) => ({ labels: { handler }, value })),
    ]),
    gauge('executions', open),
    gauge(
      'execution_oldest_ready_seconds',
      [...readySeconds].map(([handler, value]) => ({ labels: { handler }, value })),
    ),
    gauge('workflows_active', one(counted.get('active') ?? 0)),
    ...Object.entries(counterOf).map(
      ([name, counter]): Family => ({
        name,
        type: 'counter',
        help: totals[name as Total].help,
        samples: one(counted.get(counter) ?? 0),
      }),
    ),
  ]
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

/** All versions of a handler together. */
async function openByHandler(log: Log, queues: readonly HandlerQueue[]): Promise<Sample[]> {
  const counts = queues.length === 0 ? new Map() : await countOpen(log)
  const sums = new Map<string, Map<string, number>>()
  for (const { route, handler } of queues) {
    const states = sums.get(handler) ?? new Map<string, number>()
    sums.set(handler, states)
    for (const [state, count] of Object.entries<number>(counts.get(route) ?? {}))
      states.set(state, (states.get(state) ?? 0) + count)
  }
  return [...sums].flatMap(([handler, states]) =>
    [...states].map(([state, value]) => ({ labels: { handler, state }, value })),
  )
}

async function aliveFamilies(log: Log): Promise<Family[]> {
  const { active, standby, workers } = await countAlive(log)
  const runners = Object.entries({ active, standby }).map(([role, value]) => ({ labels: { role }, value }))
  return [gauge('workers', one(workers)), gauge('runners', runners)]
}
