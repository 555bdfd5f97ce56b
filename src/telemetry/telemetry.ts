/**
 * What the store tells about itself: channels, spans, numbers and a logger. Silent, and free when nobody listens.
 *
 *     parts ─► publish ─► channels ──────────► whoever subscribes
 *         ─► runSpan ──► one channel ────────► breadcrumbs.ts ─► Mermaid · rillflow/otel ─► OpenTelemetry
 *         ─► count, observe ─► figures.ts ───► store.metrics() · prometheus.ts ─► /metrics
 *         ─► statements ─► slow-statements.ts ─► logger, channel
 *
 * - **Channels** are `node:diagnostics_channel`s named `rillflow:<part>.<happening>`, listed in `channels` and public.
 *   A message is built only if somebody subscribed.
 * - **Spans** (`span.ts`) have a beginning and an end, and carry the trace context from event to event.
 * - **Numbers** (`metrics.ts`) are of one store; adding to one costs an addition.
 * - **Logger**: four functions taking fields and a sentence; pino and console fit. By default there is none.
 */
import { type Channel, channel } from 'node:diagnostics_channel'
import { type Figures, openFigures } from './registry.ts'
import { runSpan, type Span, type SpanStart, spanChannel } from './span.ts'

export interface Telemetry extends Figures {
  readonly log: Logger
  /** Publishes to a channel; `message` is only called if somebody listens. */
  publish(to: ChannelName, message: () => Record<string, unknown>): void
  /** Whether somebody listens to spans. Ask first: what a span tells is put together for nobody else. */
  readonly isTraced: boolean
  span<T>(start: SpanStart, work: (span: Span) => Promise<T>): Promise<T>
}

export interface Logger {
  debug(fields: object, message: string): void
  info(fields: object, message: string): void
  warn(fields: object, message: string): void
  error(fields: object, message: string): void
}

/** Every channel, with what its messages carry. */
export const channels = {
  /** An append call ended: `{ schema, streams, events, durationMs, error? }`. */
  append: 'rillflow:events.append',
  /** A group of appends was sent in one call: `{ schema, appends, events, durationMs }`. */
  group: 'rillflow:events.group',
  /** The server was unreachable or a connection broke while appending; the append is sent again: `{ schema, attempt, error }`. */
  resend: 'rillflow:events.resend',
  /** The log is not the one that was read before: `{ schema, error }`. */
  rewound: 'rillflow:events.rewound',
  /** A batch was committed by a consumer: `{ schema, consumer, events, checkpoint, durationMs }`. */
  batch: 'rillflow:consumers.batch',
  /** A handler failed: `{ schema, consumer, eventId, position, attempt, error, decision }`. */
  failure: 'rillflow:consumers.failure',
  /** A lease was taken, given back or lost: `{ schema, consumer, owner, happened }`. */
  lease: 'rillflow:consumers.lease',
  /** A session was over with work that was never saved: `{ schema, documents, events }`. */
  unsaved: 'rillflow:sessions.unsaved',
  /** A step of a sync was run, a migration's or a declared table's: `{ schema, object, reason }`. */
  migrate: 'rillflow:schema.migrate',
  /** Documents were read or written: `{ schema, collection, happened, statement, documents }`. */
  documents: 'rillflow:documents.touch',
  /** A statement took longer than `slowStatementMs`: `{ schema, statement, text, durationMs, plan? }`. */
  slow: 'rillflow:database.slow',
  /** A span begins: a `Span`, which can be entered and tells of its end. */
  span: 'rillflow:telemetry.span',
} as const

export type ChannelName = (typeof channels)[keyof typeof channels]

/** What is counted of a tenant is counted of the `whole`, too. */
export function openTelemetry(logger: Logger = silent, whole?: Telemetry): Telemetry {
  const figures = openFigures()
  return {
    ...figures,
    count(counter, by, of) {
      figures.count(counter, by, of)
      whole?.count(counter, by)
    },
    log: logger,
    publish(to, message) {
      const target = open[to]
      if (target.hasSubscribers) target.publish(message())
    },
    get isTraced() {
      return spanChannel.hasSubscribers
    },
    span: runSpan,
  }
}

const silent: Logger = { debug() {}, info() {}, warn() {}, error() {} }

const open = Object.fromEntries(Object.values(channels).map(name => [name, channel(name)])) as Record<
  ChannelName,
  Channel
>
