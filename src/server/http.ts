/** Requests and answers: each path has a function, each database is asked at most once per `cacheMs`. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { abortable, once, settledWithin } from '../core/abort.ts'
import type { Clock } from '../core/clock.ts'
import { InvalidOption } from '../core/errors.ts'
import { checkWhole } from '../core/options.ts'
import type { Log } from '../events/log.ts'
import type { Family } from '../telemetry/metrics.ts'
import { contentType, type MetricSource, renderMetrics } from '../telemetry/prometheus.ts'
import { openAccess } from './access.ts'
import { limitConnections } from './connections.ts'
import { answerDeadline, openHealthCheck, type Reason } from './health.ts'
import type { ServerOptions, ServerSource, StoreServer } from './server.ts'
import { gauge, readStoredMetrics, type StoredMetrics } from './stored-metrics.ts'

/** Each tenant costs a few statements, so no more are watched. */
const maxTenants = 100
/** They share connections with the code that works on them. */
const tenantsAtOnce = 8
const drainMs = 1_000
const limits = {
  maxHeaderSize: 8 * 1024,
  headersTimeout: 5_000,
  requestTimeout: 10_000,
  keepAliveTimeout: 5_000,
  // Node's default is 30 s.
  connectionsCheckingInterval: 1_000,
}
const maxConnections = 100

export async function startHttpServer(
  sources: () => readonly ServerSource[],
  options: ServerOptions,
): Promise<StoreServer> {
  const { host = '127.0.0.1', port, token, cacheMs = 2_000 } = options
  checkWhole('port', port, 0, 65_535)
  checkWhole('cacheMs', cacheMs, 0)
  const access = openAccess({ host, token })
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

  const answers: Record<string, () => Promise<Answer>> = {
    '/health/live': async () => json(200, { status: 'live' }),
    '/health/ready': async () => {
      const all = sources().slice(0, maxTenants)
      const reasons = new Set((await Promise.all(all.map(source => watch(source).reasons()))).flat())
      return reasons.size === 0
        ? json(200, { status: 'ready' })
        : json(503, { status: 'not ready', reasons: [...reasons] })
    },
    '/metrics': async () => ({ status: 200, type: contentType, body: await readMetrics() }),
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

  const answer = async (request: IncomingMessage): Promise<Answer> => {
    const path = request.url?.split('?', 1)[0] ?? '/'
    if (request.method !== 'GET' && request.method !== 'HEAD')
      return json(405, { error: 'Only GET and HEAD are supported.' })
    if (hasBody(request)) return json(413, { error: 'A request must not have a body.' })
    const refused = path.startsWith('/health/') ? undefined : access(request)
    if (refused === 401) return json(401, { error: 'Send the token in the header "Authorization: Bearer …".' })
    if (refused === 403)
      return json(403, { error: 'Send the request to localhost or to 127.0.0.1, or start the server with a token.' })
    const known = Object.hasOwn(answers, path) ? answers[path] : undefined
    if (known !== undefined) return known()
    return json(404, { error: `There is no such path. The paths are ${Object.keys(answers).join(', ')}.` })
  }

  const server = createServer(limits, (request, response) => {
    void answer(request)
      .catch((error: unknown) => {
        const [first] = sources()
        first?.log.telemetry.log.error({ error }, 'A request to the HTTP server could not be answered.')
        return json(500, { error: 'The request could not be answered. The reason is in the log.' })
      })
      .then(given => send(request, response, given))
  })
  limitConnections(server, maxConnections)
  await listen(server, port, host)
  const bound = (server.address() as AddressInfo).port
  const close = once(() => stop(server))
  const name = host.includes(':') ? `[${host}]` : host
  return { url: `http://${name}:${bound}`, port: bound, close, [Symbol.asyncDispose]: close }
}

interface WatchedSource {
  metrics(): Promise<StoredMetrics>
  reasons(): Promise<readonly Reason[]>
  /** Whether its database did not answer the last time. */
  isSilent: boolean
}

/**
 * Asks once at a time, and uses an answer again for a while. Calls that come meanwhile get the same. A failure is not
 * cached.
 */
function cached<T>(ask: () => Promise<T>, cacheMs: number, clock: Clock): () => Promise<T> {
  let asking: Promise<T> | undefined
  let known: { readonly answer: T; readonly at: number } | undefined
  return async () => {
    if (known !== undefined && clock.now().getTime() - known.at < cacheMs) return known.answer
    asking ??= ask().finally(() => {
      asking = undefined
    })
    const answer = await asking
    known = { answer, at: clock.now().getTime() }
    return answer
  }
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
    // The body of such a request is not read.
    ...(status === 405 || status === 413 ? { connection: 'close' } : {}),
    ...(status === 401 ? { 'www-authenticate': 'Bearer' } : {}),
    ...(status === 405 ? { allow: 'GET, HEAD' } : {}),
  })
  response.end(method === 'HEAD' ? undefined : body)
}

type Explanation = (port: number, host: string) => { option: string; reason: string }

/** Why the server cannot listen there, by the code of the system's error. */
const explanations: Readonly<Record<string, Explanation>> = {
  EADDRINUSE: port => ({
    option: 'port',
    reason: `Port ${port} is used by another program. Give another port, or 0 for a free one.`,
  }),
  EACCES: port => ({
    option: 'port',
    reason: `Port ${port} may not be used by this account. Give a port from 1024 on.`,
  }),
  EADDRNOTAVAIL: (_, host) => ({
    option: 'host',
    reason: `Host ${host} is not an address of this machine. Give one of its addresses.`,
  }),
  ENOTFOUND: (_, host) => ({
    option: 'host',
    reason: `Host ${host} is not a known name. Check the name, or give an address.`,
  }),
}

function listen(server: Server, port: number, host: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      const explain = explanations[error.code ?? '']
      reject(explain === undefined ? error : new InvalidOption(explain(port, host), error))
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
