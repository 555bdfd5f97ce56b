/**
 * Consumers of the log in the database. One row holds all that decides about a consumer: which process may work for it
 * (lease), under which number (fence) and how far it has come (checkpoint). Taking the lease draws a new fence; every
 * write on behalf of a holder matches it, so a process that has lost the lease without knowing changes nothing.
 *
 * No index on columns that change with every batch, and room on each page: the updates stay on their page and leave no
 * trace in an index. A dead letter names its event; the event itself stays in the log, where it cannot change. The
 * columns from `execution` on are for dead letters of handlers. `batch_limit` is the number of events of a batch that the
 * handler is known to apply in time, for the next holder. `seen_at` is when a process last had the code of the consumer.
 */

import { type NamesOf, namesOf, type Part, sequence } from '../schema/part.ts'
import { drawFences } from './consumers.sql.ts'

const objects = ['consumers', 'consumers_fence', 'consumers_draw', 'runners', 'dead_letters'] as const
export const consumerNames: NamesOf<(typeof objects)[number]> = namesOf(objects)

export const consumersPart: Part = {
  name: 'consumers',
  referred: ['consumers'],
  tables: [
    sequence('consumers_fence'),
    `create table ~consumers (
  checkpoint bigint not null,
  fence bigint not null default 0,
  lease_until timestamptz,
  retry_at timestamptz,
  paused_at timestamptz,
  created_at timestamptz not null default now(),
  progressed_at timestamptz not null default now(),
  seen_at timestamptz not null default now(),
  attempts integer not null default 0,
  batch_limit integer,
  name text collate "C" primary key,
  kind text not null,
  state text not null default 'active',
  owner text,
  definition jsonb not null default '{}',
  last_error jsonb
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05)`,
    `create table ~runners (
  fence bigint not null,
  heartbeat_at timestamptz not null,
  started_at timestamptz not null,
  lease_ms integer not null,
  concurrency integer,
  id text collate "C" primary key,
  role text not null,
  name text collate "C",
  consumers text[] not null,
  routes integer[] not null,
  process jsonb
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05)`,
    `create unique index runners_name on ~runners (name) where name is not null`,
    `create table ~dead_letters (
  position bigint not null,
  version bigint not null,
  fence bigint not null default 0,
  first_failed_at timestamptz not null default now(),
  last_failed_at timestamptz not null default now(),
  retry_at timestamptz,
  event_id uuid not null,
  attempts integer not null,
  consumer text collate "C" not null,
  state text not null default 'open',
  stream text collate "C" not null,
  type text collate "C" not null,
  note text,
  errors jsonb not null,
  history jsonb not null default '[]',
  execution uuid,
  correlation_id text collate "C",
  reason text,
  fingerprint text collate "C",
  edited jsonb,
  failures integer not null default 1,
  primary key (consumer, event_id)
)`,
    `create index dead_letters_position on ~dead_letters (consumer, position)`,
    `create index dead_letters_requested on ~dead_letters (consumer, retry_at) where retry_at is not null`,
    // The head of a parked stream, and the one after it.
    `create index dead_letters_parked on ~dead_letters (consumer, stream, position)
  where reason = 'park' and state in ('open', 'retrying', 'parked')`,
    `create index dead_letters_execution on ~dead_letters (execution) where execution is not null`,
    `create index dead_letters_correlation on ~dead_letters (correlation_id)
  where correlation_id is not null and state in ('open', 'retrying')`,
    // Lists and counts of one state, by owner; and the latest failures of one state.
    `create index dead_letters_owner on ~dead_letters (state, consumer, position)`,
    `create index dead_letters_latest on ~dead_letters (state, last_failed_at, position)`,
    `create index dead_letters_state on ~dead_letters (state) where correlation_id is not null`,
  ],
  functions: [drawFences],
}
