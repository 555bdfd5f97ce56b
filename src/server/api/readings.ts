/**
 * Readings of a store that all requests and viewers share, so that a hundred open pages cost as much as one: the figures
 * are read once per two seconds, and expensive reports one at a time, each used for ten seconds.
 */
import type { ConsumerMetrics } from '../../consumers/insight.ts'
import type { Family } from '../../telemetry/metrics.ts'
import { cached } from '../cached.ts'
import { openRing } from '../live/ring.ts'
import type { Monitoring } from '../monitoring.ts'
import type { ServerSource } from '../server.ts'
import type { Figures, History, HistoryRange } from './contract.ts'
import { openHandlerTimes } from './handler-times.ts'
import type { ApiStore } from './source.ts'

export interface StoreReadings {
  figures(): Promise<Figures>
  /** One at a time; its answer is used again for ten seconds, or for as long as is said. */
  expensive<T>(name: string, read: () => Promise<T>, forMs?: number): Promise<T>
  /** Says that a page is open, so that figures over time have fine points. */
  look(): void
  /** Figures over time. */
  history(range: HistoryRange): Promise<History>
}

const expensiveMs = 10_000

export interface ReadingsParts {
  readonly monitoring: Monitoring
  readonly store: ApiStore
  readonly source: ServerSource
  /** Aborts when the server closes. */
  readonly signal: AbortSignal
}

export function openReadings({ monitoring, store, source, signal }: ReadingsParts): StoreReadings {
  const shared = new Map<string, () => Promise<unknown>>()
  const handlerTimes = openHandlerTimes()
  let before: Totals | undefined
  let known: { readonly families: readonly Family[]; readonly figures: Figures } | undefined
  const readings: StoreReadings = {
    async figures() {
      const { families, consumers, head } = await monitoring.metrics(source)
      // The same reading gives the same figures: rates are between two readings.
      if (known?.families === families) return known.figures
      const at = source.log.clock.now()
      const totals = totalsOf(families, at)
      const ofProcess = handlerTimes(source.log.telemetry.families(), at)
      const figures = { ...figuresOf(families, consumers, totals, before), head, handlerTimes: ofProcess }
      before = totals
      known = { families, figures }
      return figures
    },
    expensive<T>(name: string, read: () => Promise<T>, forMs = expensiveMs) {
      const asked = shared.get(name) ?? cached(read, forMs, source.log.clock)
      shared.set(name, asked)
      return asked() as Promise<T>
    },
    look: () => ring().look(),
    history: range => ring().read(range),
  }
  let opened: ReturnType<typeof openRing> | undefined
  const ring = (): ReturnType<typeof openRing> => {
    opened ??= openRing(store, readings, signal)
    return opened
  }
  return readings
}

interface Totals {
  readonly at: Date
  readonly position: number
  readonly completed: number
  readonly failed: number
}

function totalsOf(families: readonly Family[], at: Date): Totals {
  return {
    at,
    position: sum(families, 'log_position'),
    completed: sum(families, 'executions_completed_total'),
    failed: sum(families, 'executions_failed_total'),
  }
}

/** Of a count in a metric, 10 000 stands for that many or more. */
const maxCounted = 10_000

function figuresOf(
  families: readonly Family[],
  consumers: readonly ConsumerMetrics[],
  now: Totals,
  before: Totals | undefined,
): Omit<Figures, 'head' | 'handlerTimes'> {
  const seconds = before === undefined ? 0 : (now.at.getTime() - before.at.getTime()) / 1000
  const rate = (name: 'position' | 'completed' | 'failed'): number | undefined =>
    before === undefined || seconds <= 0 ? undefined : Math.max(0, (now[name] - before[name]) / seconds)
  const deadLetters = samples(families, 'dead_letters')
  return {
    at: now.at,
    position: now.position,
    eventsPerSecond: rate('position'),
    oldestReadySeconds: Math.max(0, ...samples(families, 'execution_oldest_ready_seconds').map(({ value }) => value)),
    workflowsActive: sum(families, 'workflows_active'),
    executions: executionsOf(families),
    executionsPerSecond: rate('completed'),
    failuresPerSecond: rate('failed'),
    deadLetters: {
      count: deadLetters.reduce((total, { value }) => total + value, 0),
      isCapped: deadLetters.some(({ value }) => value >= maxCounted),
      ofHandlers: deadLetters
        .flatMap(({ labels: { handler }, value }) => (handler === undefined ? [] : [{ handler, count: value }]))
        .filter(({ count }) => count > 0)
        .sort((a, b) => b.count - a.count),
    },
    runners: {
      active: sum(families, 'runners', { role: 'active' }),
      standby: sum(families, 'runners', { role: 'standby' }),
      workers: sum(families, 'workers'),
    },
    consumers,
  }
}

const states = ['ready', 'running', 'delayed', 'suspended', 'blocked', 'held', 'unkeyed', 'parked', 'stopping'] as const

function executionsOf(families: readonly Family[]): Figures['executions'] {
  const entries = states.map(state => [state, sum(families, 'executions', { state })])
  return Object.fromEntries(entries) as unknown as Figures['executions']
}

function samples(families: readonly Family[], name: string): Family['samples'] {
  return families.find(family => family.name === name)?.samples ?? []
}

function sum(families: readonly Family[], name: string, labels: Readonly<Record<string, string>> = {}): number {
  const isWanted = (sample: Family['samples'][number]): boolean =>
    Object.entries(labels).every(([label, value]) => sample.labels[label] === value)
  return samples(families, name)
    .filter(isWanted)
    .reduce((total, { value }) => total + value, 0)
}
