/**
 * Workflows in the database: the work that follows from an event, and its outcome.
 *
 * An execution is one handler for one event: a narrow row without payload, which is deleted when it is done. Its
 * changes are recorded in `workflow_activity`, append-only and in an order of its own that readers can follow as they
 * follow the log. Locks are always taken in this order: workflows, lanes, executions; each sorted.
 *
 *     ready ──► running ──► (deleted)      unkeyed ──► ready · blocked     its lane is not known yet
 *     delayed, suspended ──► ready         held ──► running · blocked      claimed together with the head of its lane
 *     blocked ──► ready                    parked                          waits for an operator
 *     stopping ──► (deleted)               its workflow compensates: waits for its attempt to be over
 */
import { type NamesOf, namesOf, type Part, sequence } from '../schema/part.ts'
import { cancel, holdLanes, make, remove, stopped } from './cancel/cancel.sql.ts'
import { admit, dispatchPage } from './dispatch/dispatch.sql.ts'
import { assign, enqueue, rank, wake, widen } from './dispatch/enqueue.sql.ts'
import {
  announceActivity,
  count,
  drawActivity,
  drawRoute,
  drawUndo,
  queuedMs,
  settleActivity,
} from './insight/activity.sql.ts'
import { publishFromSql } from './publish.sql.ts'
import { claim } from './work/claim.sql.ts'
import { advance, complete, hold, settledBy } from './work/complete.sql.ts'

const objects = [
  'workflows',
  'workflow_routes',
  'workflow_routes_id',
  'workflow_executions',
  'workflow_lanes',
  'workflow_activity',
  'workflow_activity_position',
  'workflow_steps',
  'workflow_waits',
  'workflow_signals',
  'workflow_undos',
  'workflow_undos_id',
  'workflow_joins',
  'workflow_join_entries',
  'workflow_branches',
  'workflow_schedules',
  'workflow_schedule_runs',
  'workflow_counters',
  'workflow_announce',
  'workflow_draw',
  'workflow_draw_route',
  'workflow_draw_undo',
  'workflow_settle',
  'workflow_queued_ms',
  'workflow_count',
  'workflow_rank',
  'workflow_admit',
  'workflow_widen',
  'workflow_assign',
  'workflow_enqueue',
  'workflow_wake',
  'workflow_claim',
  'workflow_dispatch_page',
  'workflow_hold',
  'workflow_complete',
  'workflow_settled',
  'workflow_advance',
  'workflow_cancel',
  'workflow_stopped',
  'workflow_make',
  'workflow_hold_lanes',
  'workflow_remove',
  'publish',
] as const
export const workflowNames: NamesOf<(typeof objects)[number]> = namesOf(objects)

export const workflowsPart: Part = {
  name: 'workflows',
  referred: ['workflows', 'workflow_routes', 'workflow_executions', 'workflow_lanes', 'workflow_joins'],
  tables: [
    sequence('workflow_routes_id'),
    sequence('workflow_activity_position'),
    sequence('workflow_undos_id'),
    `create table ~workflow_routes (
  start_position bigint not null,
  backfill_position bigint,
  rate_at timestamptz,
  paused_at timestamptz,
  retired_at timestamptz,
  created_at timestamptz not null default now(),
  rate_tokens double precision,
  id integer primary key,
  version integer not null,
  priority integer not null,
  delay_ms bigint not null,
  deadline_ms bigint,
  timeout_ms integer not null,
  concurrency integer,
  rate_limit integer,
  rate_per_ms integer,
  handler text collate "C" not null,
  kind text not null,
  types text[],
  digest text not null,
  definition jsonb not null
)`,
    `create unique index workflow_routes_handler on ~workflow_routes (handler, version)`,
    // Most are changed once, when they settle: with room for a second version of every row in its page, no index has to
    // be changed (with a fillfactor of 70 half of them did not fit, and a backlog took a tenth longer).
    `create table ~workflows (
  first_position bigint not null,
  last_position bigint not null,
  started_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  open integer not null default 0,
  is_spreading boolean not null default false,
  correlation_id text collate "C" primary key,
  state text not null default 'active',
  last_type text collate "C" not null,
  parent text collate "C",
  reason text,
  attributes jsonb
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05)`,
    `create index workflows_first_position on ~workflows (first_position)`,
    `create index workflows_parent on ~workflows (parent, first_position) where parent is not null`,
    // Only those that have some are in it, and it is not changed when they settle.
    `create index workflows_attributes on ~workflows using gin (attributes jsonb_path_ops) where attributes is not null`,
    // Cancelled, but not all of its children may know.
    `create index workflows_spreading on ~workflows (correlation_id) where is_spreading`,
    `create table ~workflow_executions (
  position bigint not null,
  rank bigint not null,
  fence bigint not null default 0,
  undo_id bigint,
  queued_at timestamptz not null default clock_timestamp(),
  started_at timestamptz,
  run_at timestamptz,
  deadline_at timestamptz,
  expires_at timestamptz,
  id uuid primary key,
  join_id uuid,
  route integer not null,
  attempt integer not null default 0,
  crashes integer not null default 0,
  ran_ms integer not null default 0,
  is_retry boolean not null default false,
  is_rejected boolean not null default false,
  state text collate "C" not null,
  correlation_id text collate "C" not null,
  lane text collate "C",
  worker text collate "C"
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02)`,
    `create index workflow_executions_ready on ~workflow_executions (route, rank, id) where state = 'ready'`,
    `create index workflow_executions_due on ~workflow_executions (run_at) where run_at is not null`,
    `create index workflow_executions_worker on ~workflow_executions (route, worker)
  where worker is not null`,
    `create index workflow_executions_unkeyed on ~workflow_executions (route, position)
  where state = 'unkeyed'`,
    // Together with those above: how many there are in each state can be counted without a look at the others.
    `create index workflow_executions_idle on ~workflow_executions (route, state)
  where state in ('delayed', 'suspended', 'blocked', 'parked', 'stopping')`,
    `create index workflow_executions_correlation on ~workflow_executions (correlation_id)`,
    `create index workflow_executions_lane on ~workflow_executions (lane, position) where lane is not null`,
    // Those that a worker has of a lane, however many queue in it.
    `create index workflow_executions_taken on ~workflow_executions (lane, state)
  where lane is not null and state in ('running', 'held')`,
    `create table ~workflow_lanes (
  open integer not null,
  active integer not null,
  width integer not null,
  granted integer not null,
  ordered boolean not null,
  parked boolean not null default false,
  parked_by uuid,
  lane text collate "C" primary key
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05)`,
    `create index workflow_lanes_parked on ~workflow_lanes (lane) where parked`,
    `create table ~workflow_activity (
  position bigint primary key,
  event_position bigint not null,
  at timestamptz not null default clock_timestamp(),
  execution uuid not null,
  version integer not null,
  attempt integer not null,
  queued_ms integer,
  running_ms integer,
  kind text collate "C" not null,
  outcome text,
  handler text collate "C" not null,
  correlation_id text collate "C" not null,
  worker text,
  result jsonb,
  error jsonb
) with (autovacuum_vacuum_insert_scale_factor = 0.1)`,
    `create index workflow_activity_correlation on ~workflow_activity (correlation_id, position)`,
    `create index workflow_activity_handler on ~workflow_activity (handler, position)
  where kind in ('completed', 'failed', 'parked')`,
    // One row per call a handler has made of its context. Its number in the order of calls and the turn at which it ended
    // are those of the newest track; a row of an older one is known by kind and name alone.
    `create table ~workflow_steps (
  position bigint,
  at timestamptz not null,
  started_at timestamptz,
  due_at timestamptz,
  execution uuid not null,
  track integer not null,
  ordinal integer not null,
  turn integer,
  calls integer,
  kind text collate "C" not null,
  name text collate "C" not null,
  state text not null,
  result jsonb,
  primary key (execution, kind, name)
)`,
    `create table ~workflow_waits (
  position bigint not null,
  since bigint not null,
  execution uuid not null,
  ordinal integer not null,
  kind text collate "C" not null,
  name text collate "C" not null,
  correlation_id text collate "C" not null,
  type text collate "C",
  handler text collate "C",
  child text collate "C",
  match jsonb,
  primary key (execution, kind, name)
)`,
    `create table ~workflow_signals (
  position bigint not null,
  execution uuid not null,
  correlation_id text collate "C" not null,
  handler text collate "C" not null,
  primary key (correlation_id, handler, position)
)`,
    `create index workflow_waits_signal on ~workflow_waits (correlation_id, type) where type is not null`,
    `create index workflow_waits_child on ~workflow_waits (child) where child is not null`,
    `create table ~workflow_undos (
  id bigint primary key,
  position bigint not null,
  at timestamptz not null default clock_timestamp(),
  execution uuid not null,
  is_known boolean not null default false,
  correlation_id text collate "C" not null,
  handler text collate "C" not null,
  kind text collate "C" not null,
  step text collate "C" not null,
  state text not null default 'recorded',
  data jsonb,
  result jsonb
)`,
    `create unique index workflow_undos_step on ~workflow_undos (execution, kind, step)`,
    `create index workflow_undos_correlation on ~workflow_undos (correlation_id, id)`,
    `create table ~workflow_joins (
  position bigint not null,
  deadline_at timestamptz,
  opened_at timestamptz not null default clock_timestamp(),
  closed_at timestamptz,
  id uuid primary key,
  batch_id uuid not null,
  route integer not null,
  size integer not null,
  arrived integer not null default 0,
  failed integer not null default 0,
  empty integer not null default 0,
  state text not null default 'open',
  correlation_id text collate "C" not null,
  outer_batches jsonb not null default '[]'
) with (fillfactor = 70)`,
    `create index workflow_joins_batch on ~workflow_joins (batch_id)`,
    `create index workflow_joins_correlation on ~workflow_joins (correlation_id) where state = 'open'`,
    `create index workflow_joins_deadline on ~workflow_joins (deadline_at) where state = 'open'`,
    `create table ~workflow_join_entries (
  position bigint,
  join_id uuid not null,
  index integer not null,
  outcome text not null,
  primary key (join_id, index)
)`,
    `create table ~workflow_branches (
  position bigint not null,
  batch_id uuid not null,
  index integer not null,
  open integer not null,
  size integer not null,
  outcome text,
  correlation_id text collate "C" not null,
  primary key (batch_id, index, correlation_id)
) with (fillfactor = 70)`,
    `create table ~workflow_schedules (
  next_at timestamptz,
  begun_at timestamptz,
  last_at timestamptz,
  paused_at timestamptz,
  claimed_until timestamptz,
  created_at timestamptz not null default now(),
  fence bigint not null default 0,
  name text collate "C" primary key,
  owner text collate "C",
  last_outcome text,
  digest text not null,
  triggers timestamptz[] not null default '{}',
  definition jsonb not null
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05)`,
    `create table ~workflow_schedule_runs (
  due_at timestamptz not null,
  started_at timestamptz not null,
  ended_at timestamptz not null default clock_timestamp(),
  is_manual boolean not null,
  schedule text collate "C" not null,
  outcome text not null,
  correlation_id text collate "C" not null,
  event_ids uuid[] not null default '{}',
  error jsonb,
  primary key (schedule, due_at, is_manual)
)`,
    `create table ~workflow_counters (
  active bigint not null default 0,
  cancelled bigint not null default 0,
  completed bigint not null default 0,
  dispatched bigint not null default 0,
  events bigint not null default 0,
  failed bigint not null default 0,
  workflows bigint not null default 0,
  owner text collate "C" not null,
  primary key (owner)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05)`,
  ],
  functions: [
    announceActivity,
    drawActivity,
    drawRoute,
    drawUndo,
    settleActivity,
    queuedMs,
    count,
    rank,
    admit,
    widen,
    assign,
    enqueue,
    wake,
    dispatchPage,
    claim,
    hold,
    complete,
    settledBy,
    advance,
    cancel,
    stopped,
    make,
    holdLanes,
    remove,
    publishFromSql,
  ],
}
