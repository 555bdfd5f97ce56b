/**
 * The answers for monitoring: health and metrics. Each database is asked at most once per `cacheMs`, and its answer is
 * shared with the console.
 */
import { abortable } from '../core/abort.ts'
import type { Log } from '../events/log.ts'
import type { Family } from '../telemetry/metrics.ts'
import { contentType, type MetricSource, renderMetrics } from '../telemetry/prometheus.ts'
import { cached } from './cached.ts'
import { answerDeadline, type HealthOptions, openHealthCheck, type Reason } from './health.ts'
import type { ServerSource } from './server.ts'
import { gauge, readStoredMetrics, type StoredMetrics } from './stored-metrics.ts'

/** Each tenant costs a few statements, so no more are watched. */
const maxTenants = 100
/** They share connections with the code that works on them. */
const tenantsAtOnce = 8

export interface Monitoring {
  /** The answer for a path; undefined if it is not one of monitoring. */
  answer(path: string): Promise<Response> | undefined
  /** The reading of one store that all viewers share. */
  metrics(source: ServerSource): Promise<StoredMetrics>
  readonly paths: readonly string[]
}

export function openMonitoring(
  sources: () => readonly ServerSource[],
  options: HealthOptions & { readonly cacheMs: number },
): Monitoring {
  const { cacheMs } = options
  const watched = new WeakMap<Log, WatchedSource>()
  const watch = (source: ServerSource): WatchedSource => {
    const { log } = source
    const known = watched.get(log)
    if (known !== undefined) return known
    const metrics = cached(() => readStoredMetrics(log), cacheMs, log.clock)
    const reasons = cached(openHealthCheck(source, metrics, options), Math.min(cacheMs, 1_000), log.clock)
    const added = { metrics, reasons, isSilent: false }
    watched.set(log, added)
    return added
  }

  const answers: Record<string, () => Promise<Response>> = {
    '/health/live': async () => json(200, { status: 'live' }),
    '/health/ready': async () => {
      const all = sources().slice(0, maxTenants)
      const reasons = new Set((await Promise.all(all.map(source => watch(source).reasons()))).flat())
      return reasons.size === 0
        ? json(200, { status: 'ready' })
        : json(503, { status: 'not ready', reasons: [...reasons] })
    },
    '/metrics': async () => text(200, contentType, await readMetrics()),
  }

  const readMetrics = async (): Promise<string> => {
    const all = sources().slice(0, maxTenants)
    const shown = new Map<ServerSource, MetricSource>()
    const waiting = all.toSorted((a, b) => Number(watch(a).isSilent) - Number(watch(b).isSilent))
    const { signal, dispose } = answerDeadline(all[0]?.log.clock)
    const workThrough = async (): Promise<void> => {
      for (let source = waiting.shift(); source !== undefined; source = waiting.shift())
        shown.set(source, { tenant: source.tenant, families: await familiesOf(source, watch(source), signal) })
    }
    await Promise.all(Array.from({ length: tenantsAtOnce }, workThrough)).finally(dispose)
    return renderMetrics(all.map(source => shown.get(source)!))
  }

  return {
    answer: path => (Object.hasOwn(answers, path) ? answers[path]!() : undefined),
    metrics: source => watch(source).metrics(),
    paths: Object.keys(answers),
  }
}

/** For answers outside of the API. */
export function json(status: number, body: object, headers: Readonly<Record<string, string>> = {}): Response {
  return text(status, 'application/json', `${JSON.stringify(body)}\n`, headers)
}

function text(status: number, type: string, body: string, headers: Readonly<Record<string, string>> = {}): Response {
  return new Response(body, {
    status,
    headers: { 'content-type': type, 'cache-control': 'no-store', 'x-content-type-options': 'nosniff', ...headers },
  })
}

interface WatchedSource {
  metrics(): Promise<StoredMetrics>
  reasons(): Promise<readonly Reason[]>
  /** Whether its database did not answer the last time. */
  isSilent: boolean
}

/** Without an answer of the database, these are the metrics of this process. */
async function familiesOf({ log }: ServerSource, watched: WatchedSource, signal: AbortSignal): Promise<Family[]> {
  const isAsked = !signal.aborted
  const stored = isAsked ? await readOrUndefined(log, watched, signal) : undefined
  if (isAsked) watched.isSilent = stored === undefined
  const isReachable = { labels: {}, value: stored === undefined ? 0 : 1 }
  const connections = Object.entries(log.database.connections())
  return [
    // If there was no time to ask, it is not known whether the database can be reached.
    gauge('database_reachable', isAsked ? [isReachable] : []),
    gauge(
      'connections',
      connections.map(([state, value]) => ({ labels: { state }, value })),
    ),
    ...log.telemetry.families(),
    ...(stored?.families ?? []),
  ]
}

async function readOrUndefined(
  log: Log,
  watched: WatchedSource,
  signal: AbortSignal,
): Promise<StoredMetrics | undefined> {
  try {
    return await abortable(watched.metrics(), signal)
  } catch (error) {
    log.telemetry.log.warn({ schema: log.schema, error }, 'Metrics could not be read from the database.')
    return undefined
  }
}
