/**
 * The log. `events` is append-only and never updated; `streams` holds one row per stream, whose lock decides who may
 * give the next version; positions come from one standalone sequence, drawn one by one (cache 1), never reused.
 *
 * Columns stand widest first, so that no row carries padding. Names compare by bytes (collation C): it is the order
 * the code sorts in, faster, and the same on every server.
 */
import type { Migration } from '../migration.ts'

export const events: Migration = {
  id: 1,
  name: 'events',
  breaking: true,
  statements: ({ name }) => [
    `create sequence ${name('events_position')}
  as bigint
  increment by 1
  minvalue 1
  start with 1
  cache 1
  no cycle`,
    `create table ${name('streams')} (
  version bigint not null,
  created_at timestamptz not null default now(),
  archived_at timestamptz,
  tombstoned_at timestamptz,
  stream text collate "C" primary key,
  reason text
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05)`,
    `create index streams_archived on ${name('streams')} (stream) where archived_at is not null`,
    `create table ${name('events')} (
  position bigint primary key,
  version bigint not null,
  created_at timestamptz not null,
  event_id uuid not null,
  schema_version integer not null,
  stream text collate "C" not null,
  type text collate "C" not null,
  correlation_id text collate "C" not null,
  causation_id text collate "C",
  user_id text collate "C",
  data jsonb not null,
  headers jsonb
) with (autovacuum_vacuum_insert_scale_factor = 0.1)`,
    `create unique index events_stream_version on ${name('events')} (stream, version)`,
    `create unique index events_event_id on ${name('events')} (event_id)`,
    `create index events_correlation on ${name('events')} (correlation_id, position)`,
    `create index events_created_at on ${name('events')} using brin (created_at)`,
    `create table ${name('idempotency_keys')} (
  created_at timestamptz not null default now(),
  key text collate "C" primary key,
  digest text not null,
  event_ids uuid[] not null
)`,
    `create table ${name('stream_aliases')} (
  created_at timestamptz not null default now(),
  alias text collate "C" primary key,
  stream text collate "C" not null
)`,
    `create table ${name('imports')} (
  events bigint not null,
  updated_at timestamptz not null default now(),
  name text collate "C" primary key,
  digest text not null
)`,
  ],
}
