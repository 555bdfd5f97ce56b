/**
 * The HTTP server of a store: monitoring for a load balancer, an orchestrator or Prometheus; and, if it is asked for, the
 * API and the console for people.
 *
 *     GET /health/live      200 while the process answers
 *     GET /health/ready     200, or 503 with the reasons in words: database_unreachable, schema_drift, consumer_lag,
 *                           checkpoint_beyond_head
 *     GET /metrics          the text format of Prometheus                       needs the token beyond loopback
 *     /api/v1/…             the API                                             with `console`
 *     /…                    the console                                         with `console`
 *
 *     listening ── close(), or the store closes ──► draining: no new connections ── at most 1 s ──► closed
 *
 *     server.ts    options, and starting             app.ts        one handler for all paths
 *     listen.ts    a port of node:http               monitoring.ts health.ts stored-metrics.ts   for monitoring
 *     access/      which requests may pass           api/ live/ console/                         for people
 *
 * Guarantees:
 * - It listens on 127.0.0.1 unless another host is given, and refuses to start beyond loopback without a token or
 *   `authorize`.
 * - However often it is asked, the database is asked once per `cacheMs`, by one caller at a time, in a few bounded
 *   statements. One request waits at most 5 s for all databases together. A database that did not answer before is asked
 *   last, so it does not keep the metrics of others from being shown.
 * - Requests are small and quick: 8 KiB of headers, 10 s, 100 connections. Outside of the API only GET and HEAD are
 *   answered, and bodies are refused. A new connection takes the place of the oldest idle one, so patient clients do not
 *   keep probes out.
 * - Nothing of it is loaded before the first server starts.
 *
 * Of a store with tenants, those that this process has used and found are watched, the first 100: metrics have the label `tenant`,
 * and the store is ready if all of them are.
 *
 * What can fail: a port that is in use (`InvalidOption`). Without a database `/metrics` has the metrics of this
 * process.
 */

import { InvalidOption } from '../core/errors.ts'
import { checkWhole, optionNames, refuseUnknownOptions } from '../core/options.ts'
import type { AccessOptions } from './access/access.ts'
import { isLoopback } from './access/origin.ts'
import type { RedactOptions } from './access/redact.ts'
import type { Role } from './api/route.ts'
import type { ApiTarget } from './api/source.ts'
import type { HealthOptions, HealthSource } from './health.ts'

export interface HttpOptions extends HealthOptions, AccessOptions {
  /** The path that it is mounted at: `/admin/rillflow`. Default: the root. */
  base?: string | undefined
  /** Serves the pages of the console. Default false. */
  console?: boolean | ConsoleOptions | undefined
  /** How long an answer of the database is used again. Default 2000. */
  cacheMs?: number | undefined
}

export interface ConsoleOptions {
  /**
   * The role of requests with the token, or on loopback without one: 'watch' sees figures, 'read' all data, 'operate' may
   * retry, pause, signal and cancel, 'admin' may also reset, rebuild, delete and write. Default: 'read', or 'operate' if
   * there is a token.
   */
  access?: Role | undefined
  /** Hides private data before anything leaves the server. */
  redact?: RedactOptions | undefined
}

export interface ServerOptions extends HttpOptions {
  /** 0 takes a free port. */
  port: number
  /** Default 127.0.0.1: only this machine. Beyond loopback a `token` or `authorize` is needed. */
  host?: string | undefined
}

export interface StoreServer extends AsyncDisposable {
  /** `http://127.0.0.1:9464`. */
  readonly url: string
  readonly port: number
  /** Answers the requests it has, then frees the port. May be called again. */
  close(): Promise<void>
}

/** The handler of `store.http`: `(request) => response`, as Hono, Next and other frameworks take it. */
export type HttpHandler = (request: Request) => Promise<Response>

/** The target of monitoring: a store, or one tenant of it. */
export interface ServerSource extends HealthSource {
  readonly tenant?: string | undefined
}

/** The servers of one store. */
export interface StoreServers {
  start(options: ServerOptions): Promise<StoreServer>
  http(options: HttpOptions): Promise<HttpHandler>
  close(): Promise<void>
}

const httpOptionNames: readonly string[] = optionNames<HttpOptions>({
  ...{ base: true, console: true, cacheMs: true, token: true, hosts: true, authorize: true, trustProxy: true },
  ...{ maxLagMs: true, maxLagEvents: true, lagLimits: true },
})

/** The code that answers is loaded when the first server is started: most stores never start one. */
export function openServers(sources: () => readonly ServerSource[], target: ApiTarget): StoreServers {
  const closing = new Set<() => unknown>()
  return {
    async start(options) {
      refuseUnknownOptions('store.server', options, [...httpOptionNames, 'port', 'host'])
      const { host = '127.0.0.1', port, token, authorize, cacheMs = 2_000 } = options
      checkWhole('port', port, 0, 65_535)
      checkWhole('cacheMs', cacheMs, 0)
      const isLocal = isLoopback(host)
      if (!isLocal && token === undefined && authorize === undefined)
        throw new InvalidOption({
          option: 'token',
          reason: `The option "token" is needed to listen on ${host}: other machines may read /metrics only with a token.`,
        })
      const { openApp } = await import('./app.ts')
      const { listenOn } = await import('./listen.ts')
      const hasApi = options.console !== undefined && options.console !== false
      const server = await listenOn(openApp(sources, target, { ...options, isLocal, hasApi }), port, host)
      closing.add(server.close)
      return server
    },
    async http(options) {
      refuseUnknownOptions('store.http', options, httpOptionNames)
      if (options.token === undefined && options.authorize === undefined)
        throw new InvalidOption({
          option: 'authorize',
          reason:
            'store.http needs the option "authorize" or "token": it does not know which machines can reach the program that it is part of.',
        })
      const { openApp } = await import('./app.ts')
      const app = openApp(sources, target, { ...options, isLocal: false, hasApi: true })
      closing.add(app.close)
      return request => app.answer(request)
    },
    async close() {
      await Promise.all([...closing].map(close => close()))
    },
  }
}
