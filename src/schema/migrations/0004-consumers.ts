/**
 * Consumers of the log. One row holds all that decides about a consumer: who may work for it (lease), under which number
 * (fence) and how far it has come (checkpoint). Taking the lease draws a new fence; whatever is written on behalf of a
 * holder matches it, so one who has lost the lease without knowing changes nothing.
 *
 * No index on what changes with every batch, and room on each page: the updates stay on their page and leave no trace in
 * an index. A dead letter names its event; the event itself stays in the log, where it cannot change.
 */
import type { Migration } from '../migration.ts'

export const consumers: Migration = {
  id: 4,
  name: 'consumers',
  breaking: false,
  statements: ({ name }) => [
    `create sequence ${name('consumers_fence')}
  as bigint
  increment by 1
  minvalue 1
  start with 1
  cache 1
  no cycle`,
    `create table ${name('consumers')} (
  checkpoint bigint not null,
  fence bigint not null default 0,
  lease_until timestamptz,
  retry_at timestamptz,
  paused_at timestamptz,
  created_at timestamptz not null default now(),
  progressed_at timestamptz not null default now(),
  attempts integer not null default 0,
  name text collate "C" primary key,
  kind text not null,
  state text not null default 'active',
  owner text,
  definition jsonb not null default '{}',
  last_error jsonb
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05)`,
    `create table ${name('daemons')} (
  heartbeat_at timestamptz not null,
  started_at timestamptz not null default now(),
  lease_ms integer not null,
  owner text collate "C" primary key,
  role text not null,
  node text collate "C",
  consumers text[] not null
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05)`,
    `create unique index daemons_node on ${name('daemons')} (node) where node is not null`,
    `create table ${name('dead_letters')} (
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
  primary key (consumer, event_id)
)`,
    `create index dead_letters_position on ${name('dead_letters')} (consumer, position)`,
    `create index dead_letters_requested on ${name('dead_letters')} (consumer, retry_at) where retry_at is not null`,
  ],
}
