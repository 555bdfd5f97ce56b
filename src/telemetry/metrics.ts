/**
 * Every metric: its name, its meaning, and its labels. `docs/reference/metrics.md` is generated from these tables. In
 * the output each name begins with `rillflow_`, and every metric may also have the label `tenant`.
 *
 * Counters, levels and histograms belong to this process. Gauges and totals are read from the database when they are
 * asked for, so they are the same whichever process answers.
 */

/** Counts of this process since the store was opened. With a `label` they are also kept per value of it. */
export const counters = {
  events_appended_total: { help: 'Number of events appended.' },
  event_appends_total: { help: 'Number of append calls that succeeded.' },
  event_append_groups_total: { help: 'Number of groups of appends that were sent together.' },
  event_conflicts_total: { help: 'Number of appends refused because the stream had another version.' },
  event_repeats_total: { help: 'Number of appends that were stored before, under the same key or with the same ids.' },
  event_resends_total: { help: 'Number of appends sent again after their connection was lost.' },
  events_read_total: { help: 'Number of events read.' },
  events_imported_total: { help: 'Number of events imported.' },
  settles_total: { help: 'Number of times the settled position was read.' },
  documents_read_total: { help: 'Number of documents read.', label: 'collection' },
  documents_written_total: { help: 'Number of documents written or deleted.', label: 'collection' },
  document_conflicts_total: { help: 'Number of writes refused because a document had another version.' },
  consumer_events_total: { help: 'Number of events that a consumer has completed.', label: 'consumer' },
  consumer_batches_total: { help: 'Number of batches that a consumer has committed.', label: 'consumer' },
  consumer_failures_total: { help: 'Number of failed attempts of a consumer to apply an event.', label: 'consumer' },
  consumer_rounds_total: { help: 'Number of times a runner has looked at leases and at other runners.' },
  leases_taken_total: { help: 'Number of leases taken.' },
  leases_lost_total: { help: 'Number of leases lost.' },
  dead_letters_total: { help: 'Number of events dead-lettered.' },
  dead_letters_replayed_total: { help: 'Number of dead letters that were retried and succeeded.' },
  deliveries_total: { help: 'Number of events delivered to the code of a subscription.', label: 'subscription' },
  attempts_total: { help: 'Number of attempts of a handler that have ended.', label: 'handler' },
  attempt_failures_total: { help: 'Number of attempts of a handler that have failed.', label: 'handler' },
  session_saves_total: { help: 'Number of session saves that succeeded.' },
  session_save_groups_total: { help: 'Number of groups of saves that were sent together.' },
  session_unsaved_total: { help: 'Number of sessions that ended with unsaved changes.' },
  snapshots_written_total: { help: 'Number of snapshots written.' },
  snapshots_refused_total: { help: 'Number of snapshots that were due and could not be made.' },
  slow_statements_total: { help: 'Number of statements that took longer than `slowStatementMs`.', label: 'statement' },
} as const

/** Work in progress in this process. */
export const levels = {
  deliveries_in_flight: {
    help: 'Number of events that the code of a subscription has received and not yet acknowledged or given back.',
    label: 'subscription',
  },
} as const

/** The upper limits of the buckets of a histogram. */
export const buckets: Readonly<Record<'seconds' | 'sizes', readonly number[]>> = {
  seconds: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300],
  sizes: [1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000],
}

/** How durations and sizes in this process are distributed. */
export const histograms = {
  event_append_seconds: { help: 'Duration of append calls.', buckets: 'seconds' },
  event_append_group_appends: { help: 'Number of appends that were sent together.', buckets: 'sizes' },
  consumer_batch_events: { help: 'Number of events in a batch.', buckets: 'sizes', label: 'consumer' },
  consumer_batch_seconds: { help: 'Duration of a batch.', buckets: 'seconds', label: 'consumer' },
  execution_queue_seconds: {
    help: 'Time from when an execution was ready until it was run.',
    buckets: 'seconds',
    label: 'handler',
  },
  execution_run_seconds: { help: 'Duration of an attempt of a handler.', buckets: 'seconds', label: 'handler' },
} as const

/** The present state, read when it is asked for. `labels` are in the order in which they are given. */
export const gauges = {
  database_reachable: {
    help: '1 if the database has answered. If it has not, the metrics that are read from it are missing.',
    labels: [],
  },
  log_position: { help: 'The last settled position of the log.', labels: [] },
  consumer_checkpoint: {
    help: 'The position up to which a consumer has applied the log; its head is rillflow_log_position.',
    labels: ['consumer', 'kind'],
  },
  consumer_lag_events: {
    help: 'Number of positions between the checkpoint of a consumer and the head of the log.',
    labels: ['consumer', 'kind'],
  },
  consumer_lag_seconds: {
    help: 'How long the first event after the checkpoint of a consumer has been waiting.',
    labels: ['consumer', 'kind'],
  },
  consumer_paused: { help: '1 if the consumer is paused.', labels: ['consumer', 'kind'] },
  consumer_leased: { help: '1 if a runner holds the lease of the consumer.', labels: ['consumer', 'kind'] },
  dead_letters: {
    help: 'Number of dead letters of a consumer, or of a handler, that are open or being retried. 10 000 means that many or more.',
    labels: ['consumer', 'handler'],
  },
  subscription_deliveries: {
    help: 'Number of events after the checkpoint of a subscription that were acknowledged or given back. 10 000 means that many or more.',
    labels: ['consumer', 'state'],
  },
  executions: {
    help: 'Number of open executions of a handler by state. 10 000 means that many or more.',
    labels: ['handler', 'state'],
  },
  execution_oldest_ready_seconds: {
    help: 'How long the next execution of a handler has been ready.',
    labels: ['handler'],
  },
  workflows_active: { help: 'Number of workflows with open executions.', labels: [] },
  workers: { help: 'Number of workers with a heartbeat, in all processes.', labels: [] },
  runners: { help: 'Number of runners with a heartbeat, in all processes, by role.', labels: ['role'] },
  connections: {
    help: 'Number of connections of this process to the database that are `busy` or `idle`, and of calls that are `waiting` for one.',
    labels: ['state'],
  },
  series_dropped: {
    help: 'Number of series of a metric that are not shown because it has too many.',
    labels: ['metric'],
  },
} as const

/** The counts of all processes together, read when they are asked for. */
export const totals = {
  workflows_total: { help: 'Number of workflows started.' },
  workflow_events_total: { help: 'Number of events of workflows that were dispatched.' },
  executions_dispatched_total: { help: 'Number of executions dispatched.' },
  executions_completed_total: { help: 'Number of executions completed.' },
  executions_failed_total: { help: 'Number of executions that have failed after all retries.' },
  executions_cancelled_total: { help: 'Number of executions cancelled.' },
} as const

export type Counter = keyof typeof counters
export type Level = keyof typeof levels
export type HistogramName = keyof typeof histograms
export type Gauge = keyof typeof gauges
export type Total = keyof typeof totals

/** One metric with its series, as it is shown. */
export interface Family {
  /** Without `rillflow_`. */
  readonly name: string
  readonly type: 'counter' | 'gauge' | 'histogram'
  readonly help: string
  readonly samples: readonly Sample[]
}

export interface Sample {
  /** `_bucket`, `_sum` or `_count` of a histogram. */
  readonly suffix?: string | undefined
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}
