/**
 * Every metric there is: its name, what it says, and the label it is told apart by. `docs/reference/metrics.md` is made of
 * this table. On the wire each name begins with `rillflow_`; every metric may also have the label `tenant`.
 *
 * Counters, levels and histograms are of this process; gauges and totals are read from the database when somebody asks, and
 * so are the same whichever process answers.
 */

/** What has happened in this process since the store was opened. With a `label`, it is also counted per value of it. */
export const counters = {
  events_appended_total: { help: 'Events that were appended.' },
  event_appends_total: { help: 'Calls of append that succeeded.' },
  event_append_groups_total: { help: 'Groups of appends that were sent together.' },
  event_conflicts_total: { help: 'Appends that were refused because the stream had another version.' },
  event_repeats_total: { help: 'Appends that had been stored before, under the same key or ids.' },
  event_resends_total: { help: 'Appends that were sent again after their connection broke.' },
  events_read_total: { help: 'Events that were read.' },
  events_imported_total: { help: 'Events that were imported.' },
  settles_total: { help: 'Questions of how far the log, or the activity of workflows, is settled.' },
  documents_read_total: { help: 'Documents that were read.', label: 'collection' },
  documents_written_total: { help: 'Documents that were written or deleted.', label: 'collection' },
  document_conflicts_total: { help: 'Writes that were refused because a document had another version.' },
  consumer_events_total: { help: 'Events that a consumer is done with.', label: 'consumer' },
  consumer_batches_total: { help: 'Batches that a consumer has committed.', label: 'consumer' },
  consumer_failures_total: { help: 'Events that a consumer could not apply, each attempt counted.', label: 'consumer' },
  consumer_rounds_total: { help: 'Looks of daemons at leases and neighbours.' },
  leases_taken_total: { help: 'Leases that were taken.' },
  leases_lost_total: { help: 'Leases that were lost.' },
  dead_letters_total: { help: 'Events that were set aside.' },
  dead_letters_replayed_total: { help: 'Dead letters that were applied after all.' },
  deliveries_total: { help: 'Events that were given to the code of a subscription.', label: 'subscription' },
  attempts_total: { help: 'Attempts of a handler that have ended.', label: 'handler' },
  attempt_failures_total: { help: 'Attempts of a handler that have failed.', label: 'handler' },
  session_saves_total: { help: 'Saves of sessions that succeeded.' },
  session_save_groups_total: { help: 'Groups of saves that were sent together.' },
  session_unsaved_total: { help: 'Sessions that were over with work never saved.' },
  snapshots_written_total: { help: 'Snapshots that were written.' },
  snapshots_refused_total: { help: 'Snapshots that were due and could not be made.' },
  slow_statements_total: { help: 'Statements that took longer than `slowStatementMs`.', label: 'statement' },
} as const

/** What is under way in this process. */
export const levels = {
  deliveries_in_flight: {
    help: 'Events that the code of a subscription has and has not settled.',
    label: 'subscription',
  },
} as const

/** The limits that what is observed is sorted by. */
export const buckets: Readonly<Record<'seconds' | 'sizes', readonly number[]>> = {
  seconds: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300],
  sizes: [1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000],
}

/** How what happened in this process is spread. */
export const histograms = {
  event_append_seconds: { help: 'How long calls of append took.', buckets: 'seconds' },
  event_append_group_appends: { help: 'How many appends were sent together.', buckets: 'sizes' },
  consumer_batch_events: { help: 'How many events a batch had.', buckets: 'sizes', label: 'consumer' },
  consumer_batch_seconds: { help: 'How long a batch took.', buckets: 'seconds', label: 'consumer' },
  execution_queue_seconds: {
    help: 'How long an execution was ready before it was run.',
    buckets: 'seconds',
    label: 'handler',
  },
  execution_run_seconds: { help: 'How long an attempt of a handler took.', buckets: 'seconds', label: 'handler' },
} as const

/** How things stand, read when somebody asks. `labels` in the order they are given. */
export const gauges = {
  database_reachable: { help: '1 if the database has answered; what is read from it is missing if not.', labels: [] },
  log_position: { help: 'The last settled position of the log.', labels: [] },
  consumer_lag_events: {
    help: 'Positions between the checkpoint of a consumer and the head of the log.',
    labels: ['consumer', 'kind'],
  },
  consumer_lag_seconds: {
    help: 'How long the first event after the checkpoint of a consumer has been waiting.',
    labels: ['consumer', 'kind'],
  },
  consumer_paused: { help: '1 if a consumer is paused.', labels: ['consumer', 'kind'] },
  consumer_leased: { help: '1 if a daemon holds the lease of a consumer.', labels: ['consumer', 'kind'] },
  dead_letters: {
    help: 'Dead letters of a consumer that are open or being retried. 10 000 stand for that many or more.',
    labels: ['consumer'],
  },
  subscription_deliveries: {
    help: 'Events of a subscription beyond its checkpoint, acknowledged or given back. 10 000 stand for that many or more.',
    labels: ['consumer', 'state'],
  },
  executions: {
    help: 'Open executions of a handler by their state. 10 000 stand for that many or more.',
    labels: ['handler', 'state'],
  },
  execution_oldest_ready_seconds: {
    help: 'How long the execution of a handler that is next in line has been ready.',
    labels: ['handler'],
  },
  workflows_active: { help: 'Workflows of which something is open.', labels: [] },
  workers: { help: 'Workers that are alive, in all processes.', labels: [] },
  daemons: { help: 'Daemons that are alive, in all processes, by their role.', labels: ['role'] },
  connections: {
    help: 'Connections of this process to the database: `busy`, `idle`, and calls that are `waiting` for one.',
    labels: ['state'],
  },
  series_dropped: { help: 'Series of a metric that were left out because it has too many.', labels: ['metric'] },
} as const

/** What all processes have counted together, read when somebody asks. */
export const totals = {
  workflows_total: { help: 'Workflows that were started.' },
  workflow_events_total: { help: 'Events of workflows that were dispatched.' },
  executions_dispatched_total: { help: 'Executions that were dispatched.' },
  executions_completed_total: { help: 'Executions that have completed.' },
  executions_failed_total: { help: 'Executions that have failed for good.' },
  executions_cancelled_total: { help: 'Executions that were cancelled.' },
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
