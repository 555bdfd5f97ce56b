/**
 * The HTTP server of a store, for monitoring: a load balancer, an orchestrator, Prometheus.
 *
 *     GET /health/live      200 while the process answers
 *     GET /health/ready     200, or 503 with the reasons in words: database_unreachable, schema_drift, consumer_lag,
 *                           checkpoint_beyond_head
 *     GET /metrics          the text format of Prometheus                       needs the token beyond loopback
 *
 *     listening ── close(), or the store closes ──► draining: no new connections ── at most 1 s ──► closed
 *
 *     server.ts    options, and starting             http.ts             requests and answers
 *     access.ts    which requests may pass           health.ts           whether the store is ready
 *                                                    stored-metrics.ts   metrics from the database
 *
 * Guarantees:
 * - It listens on 127.0.0.1 unless another host is given, and refuses to start beyond loopback without a token.
 * - However often it is asked, the database is asked once per `cacheMs`, by one caller at a time, in a few bounded
 *   statements. One request waits at most 5 s for all databases together. A database that did not answer before is asked
 *   last, so it does not keep the metrics of others from being shown.
 * - Requests are small and quick: no bodies, 8 KiB of headers, 10 s, 100 connections. Only GET and HEAD are answered.
 *   A new connection takes the place of the oldest idle one, so patient clients do not keep probes out.
 *
 * Of a store with tenants, those that this process has used and found are watched, the first 100: metrics have the label `tenant`,
 * and the store is ready if all of them are.
 *
 * What can fail: a port that is in use (`InvalidOption`). Without a database `/metrics` has the metrics of this
 * process.
 */
import type { HealthOptions, HealthSource } from './health.ts'

export interface ServerOptions extends HealthOptions {
  /** 0 takes a free port. */
  port: number
  /** Default 127.0.0.1: only this machine. Beyond loopback a `token` is needed. */
  host?: string | undefined
  /** Required by all paths but `/health/*`, as `Authorization: Bearer …`. */
  token?: string | undefined
  /** How long an answer of the database is used again. Default 2000. */
  cacheMs?: number | undefined
}

export interface StoreServer extends AsyncDisposable {
  /** `http://127.0.0.1:9464`. */
  readonly url: string
  readonly port: number
  /** Answers the requests it has, then frees the port. May be called again. */
  close(): Promise<void>
}

/** The target of monitoring: a store, or one tenant of it. */
export interface ServerSource extends HealthSource {
  readonly tenant?: string | undefined
}

/** The servers of one store. */
export interface StoreServers {
  start(options: ServerOptions): Promise<StoreServer>
  close(): Promise<void>
}

/** The code that listens is loaded when the first server is started: most stores never start one. */
export function openServers(sources: () => readonly ServerSource[]): StoreServers {
  const servers = new Set<StoreServer>()
  return {
    async start(options) {
      const { startHttpServer } = await import('./http.ts')
      const server = await startHttpServer(sources, options)
      servers.add(server)
      return server
    },
    async close() {
      await Promise.all([...servers].map(server => server.close()))
    },
  }
}
