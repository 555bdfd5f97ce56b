/**
 * What the store tells about itself: channels, counters and a logger. Silent, and free when nobody listens.
 *
 * - **Channels** are `node:diagnostics_channel`s named `rillflow:<part>.<happening>`, listed in `channels` and public.
 *   A message is built only if somebody subscribed.
 * - **Counters** are plain numbers per store: adding one costs an addition, reading them a copy (`store.metrics()`).
 * - **Logger**: four functions taking fields and a sentence; pino and console fit. By default there is none.
 */
import { type Channel, channel } from 'node:diagnostics_channel'

export interface Telemetry {
  readonly log: Logger
  /** Adds to a counter, e.g. `events_appended_total`. */
  count(counter: Counter, by?: number): void
  counters(): Record<Counter, number>
  /** Publishes to a channel; `message` is only called if somebody listens. */
  publish(to: ChannelName, message: () => Record<string, unknown>): void
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
} as const

export type ChannelName = (typeof channels)[keyof typeof channels]

const counterNames = [
  'events_appended_total',
  'event_appends_total',
  'event_append_groups_total',
  'event_conflicts_total',
  'event_repeats_total',
  'event_resends_total',
  'events_read_total',
  'events_imported_total',
  'settles_total',
  'consumer_events_total',
  'consumer_batches_total',
  'consumer_failures_total',
  'consumer_rounds_total',
  'leases_taken_total',
  'leases_lost_total',
  'dead_letters_total',
  'dead_letters_replayed_total',
  'session_saves_total',
  'session_save_groups_total',
  'session_unsaved_total',
  'snapshots_written_total',
  'snapshots_refused_total',
] as const

export type Counter = (typeof counterNames)[number]

export function openTelemetry(logger: Logger = silent): Telemetry {
  const counters = Object.fromEntries(counterNames.map(name => [name, 0])) as Record<Counter, number>
  return {
    log: logger,
    count: (counter, by = 1) => {
      counters[counter] += by
    },
    counters: () => ({ ...counters }),
    publish(to, message) {
      const target = open[to]
      if (target.hasSubscribers) target.publish(message())
    },
  }
}

const silent: Logger = { debug() {}, info() {}, warn() {}, error() {} }

const open = Object.fromEntries(Object.values(channels).map(name => [name, channel(name)])) as Record<
  ChannelName,
  Channel
>
