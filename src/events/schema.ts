/**
 * The log in the database. `events` is append-only and never updated; `streams` holds one row per stream, whose lock
 * decides which append gives the next version; positions come from one sequence, drawn one by one, never reused.
 *
 * `inline_projections` says which inline projections are active, in which version, and for which types as they are
 * stored (null: all). Reading it takes a lock (ACCESS SHARE) that lasts until the transaction ends, and that is the
 * barrier: a change of the table locks it exclusively, and so waits for all appends that have looked, while the next
 * ones wait to look. A transaction stricter than read committed sees its old snapshot; so it also locks the one row of
 * `inline_changes`, which every change updates, and fails with 40001 if there was one since it began.
 *
 * `bytes` is how much an event takes when it is read, so that a page can end before it takes too much memory: neither the
 * number of its events nor their size on disk, where they are compressed, says how much that is.
 *
 * Columns stand widest first, so that no row carries padding. Names compare by bytes (collation C): it is the order
 * the code sorts in, faster, and the same on every server.
 */
import { type Part, sequence } from '../schema/part.ts'
import { appendBatch } from './append/append-batch.sql.ts'
import { appendOne } from './append/append-one.sql.ts'
import { appendCheck, appendCheckOne, appendStore } from './append/append-phases.sql.ts'
import { appendedAt } from './append/fragments.sql.ts'
import { announce, draw, settle, signed32 } from './order/order.sql.ts'

export const eventsPart: Part = {
  name: 'events',
  referred: ['events', 'streams', 'inline_projections'],
  tables: [
    sequence('events_position'),
    `create table ~streams (
  version bigint not null,
  created_at timestamptz not null default now(),
  archived_at timestamptz,
  tombstoned_at timestamptz,
  stream text collate "C" primary key,
  reason text
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05)`,
    `create index streams_archived on ~streams (stream) where archived_at is not null`,
    `create table ~events (
  position bigint primary key,
  version bigint not null,
  created_at timestamptz not null,
  event_id uuid not null,
  schema_version integer not null,
  bytes integer generated always as (
    octet_length(data::text) + coalesce(octet_length(headers::text), 0) + 200) stored,
  stream text collate "C" not null,
  type text collate "C" not null,
  correlation_id text collate "C" not null,
  causation_id text collate "C",
  user_id text collate "C",
  data jsonb not null,
  headers jsonb
) with (autovacuum_vacuum_insert_scale_factor = 0.1)`,
    `create unique index events_stream_version on ~events (stream, version)`,
    `create unique index events_event_id on ~events (event_id)`,
    `create index events_correlation on ~events (correlation_id, position)`,
    `create index events_created_at on ~events using brin (created_at)`,
    // The documents that a save under the key wrote: [collection, id, version] of each.
    `create table ~idempotency_keys (
  created_at timestamptz not null default now(),
  key text collate "C" primary key,
  digest text not null,
  event_ids uuid[] not null,
  documents jsonb
)`,
    `create table ~stream_aliases (
  created_at timestamptz not null default now(),
  alias text collate "C" primary key,
  stream text collate "C" not null
)`,
    `create table ~imports (
  events bigint not null,
  updated_at timestamptz not null default now(),
  name text collate "C" primary key,
  digest text not null
)`,
    `create table ~inline_projections (
  activated_at timestamptz not null default now(),
  version integer not null,
  name text collate "C" primary key,
  types text[]
)`,
    `create table ~inline_changes (
  changes bigint not null,
  id integer primary key
)`,
    `insert into ~inline_changes (id, changes) values (1, 0)`,
  ],
  drawn: [{ sequence: 'events_position', table: 'events', column: 'position' }],
  functions: [
    signed32,
    announce,
    draw,
    settle,
    appendOne,
    appendBatch,
    appendCheck,
    appendCheckOne,
    appendStore,
    appendedAt,
  ],
}
