/**
 * Telemetry: the store's reports about itself, through channels, spans, metrics and a logger. Without a listener it is
 * silent and costs nothing.
 *
 *     parts ─► publish ─► channels ─────────────► any subscriber
 *         ─► runSpan ──► one channel ───────────► breadcrumbs.ts ─► mermaid.ts · rillflow/otel ─► OpenTelemetry
 *         ─► count, observe ─► registry.ts ─────► store.metrics() · prometheus.ts ─► /metrics
 *         ─► statements ─► slow-statements.ts ──► logger, channel
 *
 * - **Channels** are `node:diagnostics_channel`s named `rillflow:<part>.<what happened>`, listed in `channels` and
 *   public. A message is built only if there is a subscriber.
 * - **Spans** (`span.ts`) have a beginning and an end, and carry the trace context from event to event.
 * - **Metrics** (`metrics.ts`) belong to one store.
 * - **The logger** has four functions that take fields and a sentence, as pino has. By default there is none.
 *
 * What can fail: nothing here fails a call. A subscriber that throws is Node's to report.
 */

import { type Channel, channel } from 'node:diagnostics_channel'
import { openFailureLog } from './failure-log.ts'
import { type MetricsRegistry, openRegistry } from './registry.ts'
import { runSpan, type Span, type SpanStart, spanChannel } from './span.ts'

export interface Telemetry extends MetricsRegistry {
  readonly log: Logger
  /** A runner runs, until the function returned is called: without a logger its failures are written to stderr. */
  reportFailures(): () => void
  /** Publishes to a channel. `message` is called only if there is a subscriber. */
  publish(to: ChannelName, message: () => Record<string, unknown>): void
  /** Whether spans have a subscriber. Ask first, because the fields of a span are put together for it alone. */
  readonly isTraced: boolean
  span<T>(start: SpanStart, work: (span: Span) => Promise<T>): Promise<T>
}

/**
 * A logger of yours, such as that of pino.
 *
 * @example
 * ```ts
 * const quiet: Logger = { debug() {}, info() {}, warn: console.warn, error: console.error }
 * ```
 */
export interface Logger {
  debug(fields: object, message: string): void
  info(fields: object, message: string): void
  warn(fields: object, message: string): void
  error(fields: object, message: string): void
}

/**
 * Every channel, with the fields of its messages.
 *
 * @example
 * ```ts
 * import { subscribe } from 'node:diagnostics_channel'
 * subscribe(channels.append, message => console.log(message))
 * ```
 */
export const channels = {
  /** An append call ended: `{ schema, streams, events, durationMs, error? }`. */
  append: 'rillflow:events.append',
  /** A group of appends was sent in one call: `{ schema, appends, events, durationMs }`. */
  group: 'rillflow:events.group',
  /** The server was unreachable or a connection was lost, so an append is sent again: `{ schema, attempt, error }`. */
  resend: 'rillflow:events.resend',
  /** The log is not the one that was read before: `{ schema, error }`. */
  rewound: 'rillflow:events.rewound',
  /** A consumer committed a batch: `{ schema, consumer, events, checkpoint, durationMs }`. */
  batch: 'rillflow:consumers.batch',
  /** A consumer failed to apply an event: `{ schema, consumer, eventId, position, attempt, error, decision }`. */
  failure: 'rillflow:consumers.failure',
  /** A lease was taken, released or lost: `{ schema, consumer, owner, happened }`. */
  lease: 'rillflow:consumers.lease',
  /** A session ended with unsaved changes: `{ schema, documents, events }`. */
  unsaved: 'rillflow:sessions.unsaved',
  /** A sync made one step, of a migration or of a declared table: `{ schema, object, reason }`. */
  migrate: 'rillflow:schema.migrate',
  /** Documents were read or written: `{ schema, collection, happened, statement, documents }`. */
  documents: 'rillflow:documents.touch',
  /** A statement took longer than `slowStatementMs`: `{ schema, statement, text, durationMs, plan? }`. */
  slow: 'rillflow:database.slow',
  /** An action was requested over HTTP: `{ route, tenant?, name, role, parameters, outcome }`. */
  action: 'rillflow:server.action',
  /** A span began: a `Span`, which can be entered and which reports its end. */
  span: 'rillflow:telemetry.span',
} as const

export type ChannelName = (typeof channels)[keyof typeof channels]

/** The counters of a tenant are also added to those of the `whole` store. */
export function openTelemetry(given?: Logger | false, whole?: Telemetry): Telemetry {
  const failures = given === undefined ? openFailureLog() : undefined
  const logger = failures ?? (given === false || given === undefined ? silent : given)
  const registry = openRegistry()
  return {
    ...registry,
    count(counter, by, label) {
      registry.count(counter, by, label)
      whole?.count(counter, by)
    },
    log: guarded(logger),
    reportFailures: () => failures?.begin() ?? (() => {}),
    publish(to, message) {
      const target = openChannels[to]
      if (target.hasSubscribers) target.publish(message())
    },
    get isTraced() {
      return spanChannel.hasSubscribers
    },
    span: runSpan,
  }
}

/** A logger that fails, at once or later, does not affect the work that it reports on. */
function guarded(logger: Logger): Logger {
  if (logger === silent) return silent
  const call =
    (level: keyof Logger) =>
    (fields: object, message: string): void => {
      try {
        const answer: unknown = logger[level](fields, message)
        if (answer instanceof Promise) answer.catch(() => {})
      } catch {
        // There is no other place to report it.
      }
    }
  return { debug: call('debug'), info: call('info'), warn: call('warn'), error: call('error') }
}

const silent: Logger = { debug() {}, info() {}, warn() {}, error() {} }

const openChannels = Object.fromEntries(Object.values(channels).map(name => [name, channel(name)])) as Record<
  ChannelName,
  Channel
>
