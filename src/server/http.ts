/**
 * The store over HTTP, for whoever watches it: a load balancer, an orchestrator, Prometheus.
 *
 *     GET /health/live      200 while the process answers
 *     GET /health/ready     200, or 503 with the reasons in words: database_unreachable, schema_drift, consumer_lag
 *     GET /metrics          the text format of Prometheus                                       token beyond loopback
 *
 *     listening ── close(), or the store closes ──► draining: no new connections ── 1 s at most ──► closed
 *
 * Guarantees:
 * - It listens on 127.0.0.1 unless told otherwise, and beyond loopback refuses to start without a token (`access.ts`).
 * - However often somebody asks, the database is asked once per `cacheMs`, by one caller at a time, in a few bounded
 *   statements (`figures.ts`). A database that is away is waited for 5 s, by all that one request asks about together: those
 *   that were silent before are asked last, so they keep nobody's figures from being shown.
 * - Requests are small and quick: no bodies, 8 KiB of headers, 10 s, 100 connections. Nothing but GET and HEAD.
 *
 * Of a store with tenants those are watched that this process has used, the first 100: metrics have the label `tenant`, and
 * the store is ready if all of them are.
 *
 * What can fail: a port that is taken (`InvalidOption`). Without a database `/metrics` shows what this process knows.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { InvalidOption } from '../core/errors.ts'
import { abortable, once, settledWithin } from '../core/lifecycle.ts'
import { checkWhole } from '../core/whole.ts'
import type { Log } from '../events/log.ts'
import type { Family } from '../telemetry/metrics.ts'
import { contentType, type MetricSource, renderMetrics } from '../telemetry/prometheus.ts'
import { openAccess } from './access.ts'
import { cached } from './cached.ts'
import { answerDeadline, type HealthOptions, type HealthSource, healthCheck, type Reason } from './health.ts'
import { gauge, readFigures, type StoredFigures } from './stored-metrics.ts'

export interface ServerOptions extends HealthOptions {
  /** 0 takes a free one. */
  port: number
  /** Default 127.0.0.1: only this machine. Beyond loopback a `token` is needed. */
  host?: string | undefined
  /** Asked for by all but `/health/*`, as `Authorization: Bearer …`. */
  token?: string | undefined
  /** How long an answer of the database is given again. Default 2000. */
  cacheMs?: number | undefined
}

export interface StoreServer extends AsyncDisposable {
  /** `http://127.0.0.1:9464`. */
  readonly url: string
  readonly port: number
  /** Answers what was asked, then frees the port. May be called again. */
  close(): Promise<void>
}

/** What is watched: a store, or one tenant of it. */
export interface ServerSource extends HealthSource {
  readonly tenant?: string | undefined
}

/** More tenants are not asked about: each costs a few statements. */
const mostTenants = 100
/** How many of them at once: they share connections with whoever works with them. */
const tenantsAtOnce = 8
const drainMs = 1_000
const limits = {
  ...{ maxHeaderSize: 8 * 1024, headersTimeout: 5_000, requestTimeout: 10_000, keepAliveTimeout: 5_000 },
  // Node looks only every 30 s unless told: a hundred slow clients would keep the probes out for as long.
  connectionsCheckingInterval: 1_000,
}
const maxConnections = 100

export async function startServer(
  sources: () => readonly ServerSource[],
  options: ServerOptions,
): Promise<StoreServer> {
  const { host = '127.0.0.1', port, token, cacheMs = 2_000 } = options
  checkWhole('port', port, 0, 65_535)
  checkWhole('cacheMs', cacheMs, 0)
  const access = openAccess({ host, token })
  const watched = new WeakMap<Log, Watched>()
  const watch = (source: ServerSource): Watched => {
    const { log } = source
    const known = watched.get(log)
    if (known !== undefined) return known
    const figures = cached(() => readFigures(log), cacheMs, log.clock)
    const reasons = cached(healthCheck(source, figures, options), Math.min(cacheMs, 1_000), log.clock)
    const made = { figures, reasons, isSilent: false }
    watched.set(log, made)
    return made
  }

  const answers: Record<string, () => Promise<Answer>> = {
    '/health/live': async () => json(200, { status: 'live' }),
    '/health/ready': async () => {
      const all = sources().slice(0, mostTenants)
      const reasons = new Set((await Promise.all(all.map(source => watch(source).reasons()))).flat())
      return reasons.size === 0
        ? json(200, { status: 'ready' })
        : json(503, { status: 'not ready', reasons: [...reasons] })
    },
    '/metrics': async () => ({ status: 200, type: contentType, body: await metrics() }),
  }

  const metrics = async (): Promise<string> => {
    const all = sources().slice(0, mostTenants)
    const shown = new Map<ServerSource, MetricSource>()
    const waiting = all.toSorted((a, b) => Number(watch(a).isSilent) - Number(watch(b).isSilent))
    const { signal, dispose } = answerDeadline(all[0]?.log.clock)
    const lane = async (): Promise<void> => {
      for (let source = waiting.shift(); source !== undefined; source = waiting.shift())
        shown.set(source, { tenant: source.tenant, families: await familiesOf(source, watch(source), signal) })
    }
    await Promise.all(Array.from({ length: tenantsAtOnce }, lane)).finally(dispose)
    return renderMetrics(all.map(source => shown.get(source)!))
  }

  const answer = async (request: IncomingMessage): Promise<Answer> => {
    const path = request.url?.split('?', 1)[0] ?? '/'
    if (request.method !== 'GET' && request.method !== 'HEAD') return json(405, { error: 'only GET and HEAD' })
    if (hasBody(request)) return json(413, { error: 'no body is taken' })
    const refused = path.startsWith('/health/') ? undefined : access(request)
    if (refused === 401) return json(401, { error: 'send the token as "Authorization: Bearer …"' })
    if (refused === 403) return json(403, { error: 'ask under the name of this machine, or set a token' })
    const known = Object.hasOwn(answers, path) ? answers[path] : undefined
    return known === undefined ? json(404, { error: `there is ${Object.keys(answers).join(', ')}` }) : known()
  }

  const server = createServer(limits, (request, response) => {
    void answer(request)
      .catch((error: unknown) => {
        const [first] = sources()
        first?.log.telemetry.log.error({ error }, 'a request could not be answered')
        return json(500, { error: 'it could not be answered; the reason is in the log' })
      })
      .then(given => send(request, response, given))
  })
  server.maxConnections = maxConnections
  await listen(server, port, host)
  const bound = (server.address() as AddressInfo).port
  const close = once(() => stop(server))
  const name = host.includes(':') ? `[${host}]` : host
  return { url: `http://${name}:${bound}`, port: bound, close, [Symbol.asyncDispose]: close }
}

interface Watched {
  figures(): Promise<StoredFigures>
  reasons(): Promise<readonly Reason[]>
  /** Its database has not answered when it was asked last. */
  isSilent: boolean
}

/** Without a database, what this process knows. */
async function familiesOf({ log }: ServerSource, watched: Watched, signal: AbortSignal): Promise<Family[]> {
  const isAsked = !signal.aborted
  const stored = !isAsked
    ? undefined
    : await abortable(watched.figures(), signal).catch((error: unknown) => {
        log.telemetry.log.warn({ schema: log.schema, error }, 'the metrics of the database could not be read')
        return undefined
      })
  if (isAsked) watched.isSilent = stored === undefined
  const isReachable = { labels: {}, value: stored === undefined ? 0 : 1 }
  const connections = Object.entries(log.database.connections())
  return [
    // Of one that there was no time to ask nobody knows.
    gauge('database_reachable', isAsked ? [isReachable] : []),
    gauge(
      'connections',
      connections.map(([state, value]) => ({ labels: { state }, value })),
    ),
    ...log.telemetry.families(),
    ...(stored?.families ?? []),
  ]
}

interface Answer {
  readonly status: number
  readonly type: string
  readonly body: string
}

function json(status: number, body: object): Answer {
  return { status, type: 'application/json', body: `${JSON.stringify(body)}\n` }
}

function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) !== 0
}

function send({ method }: IncomingMessage, response: ServerResponse, { status, type, body }: Answer): void {
  response.writeHead(status, {
    'content-type': type,
    'content-length': Buffer.byteLength(body),
    'cache-control': 'no-store',
    'x-content-type-options': 'nosniff',
    // What comes with it is not read.
    ...(status === 405 || status === 413 ? { connection: 'close' } : {}),
    ...(status === 401 ? { 'www-authenticate': 'Bearer' } : {}),
    ...(status === 405 ? { allow: 'GET, HEAD' } : {}),
  })
  response.end(method === 'HEAD' ? undefined : body)
}

type Unusable = (port: number, host: string) => { option: string; reason: string }

/** Why it cannot listen there, by the code of the system. */
const unusable: Readonly<Record<string, Unusable>> = {
  EADDRINUSE: port => ({ option: 'port', reason: `${port} is taken` }),
  EACCES: port => ({ option: 'port', reason: `${port} may not be used by this account` }),
  EADDRNOTAVAIL: (_, host) => ({ option: 'host', reason: `${host} is no address of this machine` }),
  ENOTFOUND: (_, host) => ({ option: 'host', reason: `${host} is not known here` }),
}

function listen(server: Server, port: number, host: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      const known = unusable[error.code ?? '']
      reject(known === undefined ? error : new InvalidOption(known(port, host), error))
    })
    server.listen(port, host, resolve)
  })
}

async function stop(server: Server): Promise<void> {
  const closed = new Promise<void>(resolve => server.close(() => resolve()))
  server.closeIdleConnections()
  await settledWithin(closed, drainMs)
  server.closeAllConnections()
  await closed
}
