-- All that a new store in schema "rillflow" is made of; text to paste, generated from the folders of src.

-- schema rillflow

create schema if not exists "rillflow";

-- table migrations

create table "rillflow"."migrations" (
  applied_at timestamptz not null default now(),
  id integer primary key,
  breaking boolean not null,
  name text not null,
  checksum text not null
);

-- migration 1 (baseline)

create sequence "rillflow"."events_position"
  as bigint
  increment by 1
  minvalue 1
  maxvalue 9007199254740991
  start with 1
  cache 1
  no cycle;

create table "rillflow"."streams" (
  version bigint not null,
  created_at timestamptz not null default now(),
  archived_at timestamptz,
  tombstoned_at timestamptz,
  stream text collate "C" primary key,
  reason text
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

create index streams_archived on "rillflow"."streams" (stream) where archived_at is not null;

create table "rillflow"."events" (
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
) with (autovacuum_vacuum_insert_scale_factor = 0.1);

create unique index events_stream_version on "rillflow"."events" (stream, version);

create unique index events_event_id on "rillflow"."events" (event_id);

create index events_correlation on "rillflow"."events" (correlation_id, position);

create index events_created_at on "rillflow"."events" using brin (created_at);

create table "rillflow"."idempotency_keys" (
  created_at timestamptz not null default now(),
  key text collate "C" primary key,
  digest text not null,
  event_ids uuid[] not null,
  documents jsonb
);

create table "rillflow"."stream_aliases" (
  created_at timestamptz not null default now(),
  alias text collate "C" primary key,
  stream text collate "C" not null
);

create table "rillflow"."imports" (
  events bigint not null,
  updated_at timestamptz not null default now(),
  name text collate "C" primary key,
  digest text not null
);

create table "rillflow"."inline_projections" (
  activated_at timestamptz not null default now(),
  version integer not null,
  name text collate "C" primary key,
  types text[]
);

create table "rillflow"."inline_changes" (
  changes bigint not null,
  id integer primary key
);

insert into "rillflow"."inline_changes" (id, changes) values (1, 0);

create sequence "rillflow"."consumers_fence"
  as bigint
  increment by 1
  minvalue 1
  maxvalue 9007199254740991
  start with 1
  cache 1
  no cycle;

create table "rillflow"."consumers" (
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
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

create table "rillflow"."runners" (
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
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

create unique index runners_name on "rillflow"."runners" (name) where name is not null;

create table "rillflow"."dead_letters" (
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
);

create index dead_letters_position on "rillflow"."dead_letters" (consumer, position);

create index dead_letters_requested on "rillflow"."dead_letters" (consumer, retry_at) where retry_at is not null;

create index dead_letters_parked on "rillflow"."dead_letters" (consumer, stream, position)
  where reason = 'park' and state in ('open', 'retrying', 'parked');

create index dead_letters_execution on "rillflow"."dead_letters" (execution) where execution is not null;

create index dead_letters_correlation on "rillflow"."dead_letters" (correlation_id)
  where correlation_id is not null and state in ('open', 'retrying');

create index dead_letters_owner on "rillflow"."dead_letters" (state, consumer, position);

create index dead_letters_latest on "rillflow"."dead_letters" (state, last_failed_at, position);

create index dead_letters_state on "rillflow"."dead_letters" (state) where correlation_id is not null;

create table "rillflow"."snapshots" (
  version bigint not null,
  created_at timestamptz not null default now(),
  event_id uuid not null,
  state_version integer not null,
  stream text collate "C" not null,
  body json not null,
  primary key (stream, state_version)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

create table "rillflow"."deliveries" (
  position bigint not null,
  acked_at timestamptz,
  retry_at timestamptz,
  first_failed_at timestamptz,
  deliveries integer not null,
  consumer text collate "C" not null,
  last_error jsonb,
  primary key (consumer, position)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

create sequence "rillflow"."workflow_routes_id"
  as bigint
  increment by 1
  minvalue 1
  maxvalue 9007199254740991
  start with 1
  cache 1
  no cycle;

create sequence "rillflow"."workflow_activity_position"
  as bigint
  increment by 1
  minvalue 1
  maxvalue 9007199254740991
  start with 1
  cache 1
  no cycle;

create sequence "rillflow"."workflow_undos_id"
  as bigint
  increment by 1
  minvalue 1
  maxvalue 9007199254740991
  start with 1
  cache 1
  no cycle;

create table "rillflow"."workflow_routes" (
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
);

create unique index workflow_routes_handler on "rillflow"."workflow_routes" (handler, version);

create table "rillflow"."workflows" (
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
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

create index workflows_first_position on "rillflow"."workflows" (first_position);

create index workflows_parent on "rillflow"."workflows" (parent, first_position) where parent is not null;

create index workflows_attributes on "rillflow"."workflows" using gin (attributes jsonb_path_ops) where attributes is not null;

create index workflows_spreading on "rillflow"."workflows" (correlation_id) where is_spreading;

create table "rillflow"."workflow_executions" (
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
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

create index workflow_executions_ready on "rillflow"."workflow_executions" (route, rank, id) where state = 'ready';

create index workflow_executions_due on "rillflow"."workflow_executions" (run_at) where run_at is not null;

create index workflow_executions_worker on "rillflow"."workflow_executions" (route, worker)
  where worker is not null;

create index workflow_executions_unkeyed on "rillflow"."workflow_executions" (route, position)
  where state = 'unkeyed';

create index workflow_executions_idle on "rillflow"."workflow_executions" (route, state)
  where state in ('delayed', 'suspended', 'blocked', 'parked', 'stopping');

create index workflow_executions_correlation on "rillflow"."workflow_executions" (correlation_id);

create index workflow_executions_lane on "rillflow"."workflow_executions" (lane, position) where lane is not null;

create index workflow_executions_taken on "rillflow"."workflow_executions" (lane, state)
  where lane is not null and state in ('running', 'held');

create table "rillflow"."workflow_lanes" (
  open integer not null,
  active integer not null,
  width integer not null,
  granted integer not null,
  ordered boolean not null,
  parked boolean not null default false,
  parked_by uuid,
  lane text collate "C" primary key
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

create index workflow_lanes_parked on "rillflow"."workflow_lanes" (lane) where parked;

create table "rillflow"."workflow_activity" (
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
) with (autovacuum_vacuum_insert_scale_factor = 0.1);

create index workflow_activity_correlation on "rillflow"."workflow_activity" (correlation_id, position);

create index workflow_activity_handler on "rillflow"."workflow_activity" (handler, position)
  where kind in ('completed', 'failed', 'parked');

create table "rillflow"."workflow_steps" (
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
);

create table "rillflow"."workflow_waits" (
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
);

create table "rillflow"."workflow_signals" (
  position bigint not null,
  execution uuid not null,
  correlation_id text collate "C" not null,
  handler text collate "C" not null,
  primary key (correlation_id, handler, position)
);

create index workflow_waits_signal on "rillflow"."workflow_waits" (correlation_id, type) where type is not null;

create index workflow_waits_child on "rillflow"."workflow_waits" (child) where child is not null;

create table "rillflow"."workflow_undos" (
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
);

create unique index workflow_undos_step on "rillflow"."workflow_undos" (execution, kind, step);

create index workflow_undos_correlation on "rillflow"."workflow_undos" (correlation_id, id);

create table "rillflow"."workflow_joins" (
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
) with (fillfactor = 70);

create index workflow_joins_batch on "rillflow"."workflow_joins" (batch_id);

create index workflow_joins_correlation on "rillflow"."workflow_joins" (correlation_id) where state = 'open';

create index workflow_joins_deadline on "rillflow"."workflow_joins" (deadline_at) where state = 'open';

create table "rillflow"."workflow_join_entries" (
  position bigint,
  join_id uuid not null,
  index integer not null,
  outcome text not null,
  primary key (join_id, index)
);

create table "rillflow"."workflow_branches" (
  position bigint not null,
  batch_id uuid not null,
  index integer not null,
  open integer not null,
  size integer not null,
  outcome text,
  correlation_id text collate "C" not null,
  primary key (batch_id, index, correlation_id)
) with (fillfactor = 70);

create table "rillflow"."workflow_schedules" (
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
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

create table "rillflow"."workflow_schedule_runs" (
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
);

create table "rillflow"."workflow_counters" (
  active bigint not null default 0,
  cancelled bigint not null default 0,
  completed bigint not null default 0,
  dispatched bigint not null default 0,
  events bigint not null default 0,
  failed bigint not null default 0,
  workflows bigint not null default 0,
  owner text collate "C" not null,
  primary key (owner)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

create table "rillflow"."audit" (
  started_at timestamptz not null,
  ended_at timestamptz,
  id uuid primary key,
  actor text collate "C" not null,
  action text collate "C" not null,
  target text collate "C",
  outcome text not null default 'running',
  parameters jsonb not null default '{}',
  result jsonb,
  error jsonb
);

create index audit_started_at on "rillflow"."audit" (started_at, id);

insert into "rillflow"."migrations" (id, name, checksum, breaking)
values (1, 'baseline', 'c2acd6aab73650025d2ab5ec4cdf85655e514f3bc7a3cc64a82a822af004b74a', true);

-- function clock

create or replace function "rillflow"."clock"(p_column anyelement)
returns timestamptz
language plpgsql immutable parallel safe cost 1
as $body$
-- revision 2
declare
  v_moved text := current_setting('rillflow.clock', true);
begin
  if v_moved is null or v_moved = '' then
    return clock_timestamp();
  end if;
  -- A sign: so many milliseconds ahead of the server's time, or behind it. Else a time that stands still.
  if left(v_moved, 1) in ('+', '-') then
    return clock_timestamp() + make_interval(secs => v_moved::float8 / 1000);
  end if;
  return v_moved::timestamptz;
end
$body$;

-- function later

create or replace function "rillflow"."later"(p_at timestamptz, p_ms double precision)
returns timestamptz
language plpgsql immutable parallel safe cost 1
as $body$
-- revision 1
begin
  return p_at + make_interval(secs => p_ms / 1000);
end
$body$;

-- function to_ms

create or replace function "rillflow"."to_ms"(p_at timestamptz)
returns timestamptz
language plpgsql immutable parallel safe cost 1
as $body$
-- revision 1
begin
  return date_trunc('milliseconds', p_at);
end
$body$;

-- function stamp

create or replace function "rillflow"."stamp"(p_key text, p_at timestamptz)
returns jsonb
language plpgsql immutable parallel safe cost 1
as $body$
-- revision 1
begin
  return jsonb_build_object(p_key, p_at);
end
$body$;

-- function state_entry

create or replace function "rillflow"."state_entry"(p_at timestamptz, p_from text, p_to text, p_note text)
returns jsonb
language plpgsql immutable parallel safe cost 1
as $body$
-- revision 1
begin
  return jsonb_strip_nulls(jsonb_build_object('at', p_at, 'from', p_from, 'to', p_to, 'note', p_note));
end
$body$;

-- function timeline

create or replace function "rillflow"."timeline"(p_column anyelement)
returns text
language plpgsql immutable parallel safe cost 1
as $body$
-- revision 1
begin
  return left(pg_walfile_name(pg_current_wal_lsn()), 8);
end
$body$;

-- function signed32

create or replace function "rillflow"."signed32"(value bigint)
returns integer
language sql immutable parallel safe
as $body$
-- revision 1
select ((value & 4294967295) - case when value & 2147483648 <> 0 then 4294967296 else 0 end)::integer
$body$;

-- function announce

create or replace function "rillflow"."announce"()
returns void
language plpgsql volatile
set jit = off
as $body$
-- revision 2
declare
  sequence_oid constant bigint := '"rillflow"."events_position"'::regclass::oid::bigint;
  announced constant text := 'rillflow.announced_' || sequence_oid;
  bound bigint;
begin
  if coalesce(current_setting(announced, true), '') <> '' then
    return;
  end if;
  select case when is_called then last_value else last_value - 1 end
    into bound
    from "rillflow"."events_position";
  perform pg_advisory_xact_lock_shared(
    "rillflow"."signed32"(sequence_oid),
    "rillflow"."signed32"(bound));
  perform set_config(announced, bound::text, true);
end
$body$;

-- function draw

create or replace function "rillflow"."draw"(p_count integer, out drawn bigint[])
language plpgsql volatile
set jit = off
as $body$
-- revision 1
begin
  perform "rillflow"."announce"();
  if p_count = 1 then
    drawn := array[nextval('"rillflow"."events_position"')];
    return;
  end if;
  drawn := array(select nextval('"rillflow"."events_position"') from generate_series(1, p_count));
end
$body$;

-- function settle

create or replace function "rillflow"."settle"(out head bigint, out settled bigint, out timeline text, out session text)
language plpgsql volatile
set jit = off
as $body$
-- revision 2
declare
  sequence_oid constant bigint := '"rillflow"."events_position"'::regclass::oid::bigint;
  bound bigint;
begin
  if pg_is_in_recovery() then
    raise exception 'settle() needs the primary' using errcode = 'RF001';
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'settle() needs read committed' using errcode = 'RF002';
  end if;
  timeline := left(pg_walfile_name(pg_current_wal_lsn()), 8);
  session := pg_backend_pid() || coalesce(
    (select '@' || extract(epoch from backend_start) from pg_stat_get_activity(pg_backend_pid())), '');
  select case when is_called then last_value else last_value - 1 end
    into head
    from "rillflow"."events_position";
  select min(head + "rillflow"."signed32"(locks.objid::bigint - head))
    into bound
    from pg_locks as locks
    where locks.locktype = 'advisory'
      and locks.database = (select oid from pg_database where datname = current_database())
      and locks.classid::bigint = sequence_oid
      and locks.objsubid = 2
      and locks.mode = 'ShareLock';
  settled := least(head, bound);
end
$body$;

-- function append_one

create or replace function "rillflow"."append_one"(
  p_stream text,
  p_expected text,
  p_version bigint,
  p_allow_archived boolean,
  p_ids uuid[],
  p_types text[],
  p_schema_versions integer[],
  p_data jsonb,
  p_headers jsonb,
  p_correlations text[],
  p_causations text[],
  p_users text[],
  out outcome text,
  out version bigint,
  out last_position bigint)
language plpgsql volatile
set jit = off
as $body$
-- revision 5
declare
  p_count constant integer := cardinality(p_ids);
  moment timestamptz;
  drawn bigint[];
  found_stream "rillflow"."streams";
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    perform
      from "rillflow"."inline_projections"
      limit 0;
    perform
      from "rillflow"."inline_changes"
      where id = 1
      for share;
  end if;
  if exists (
    select
    from "rillflow"."inline_projections" as i
    where i.types is null
      or i.types && p_types) then
    outcome := 'inline';
    return;
  end if;
  loop
    update "rillflow"."streams" as s
      set version = s.version + p_count
      where s.stream = p_stream
        and (case p_expected
          when 'any' then true
          when 'exists' then s.version > 0
          when 'empty' then s.version = 0
          else s.version = p_version
        end)
        and s.tombstoned_at is null
        and (s.archived_at is null or p_allow_archived)
      returning s.version into version;
    exit when found;
    if (p_expected in ('any', 'empty') or p_version = 0) then
      moment := "rillflow"."clock"(p_stream);
      insert into "rillflow"."streams" as s (stream, version, created_at)
        values (p_stream, p_count, moment)
        on conflict do nothing
        returning s.version into version;
      exit when found;
    end if;
    select * into found_stream
      from "rillflow"."streams" as s
      where s.stream = p_stream
      for update;
    version := coalesce(found_stream.version, 0);
    if found_stream.tombstoned_at is not null then
      outcome := 'tombstoned';
      return;
    elsif found_stream.archived_at is not null and not p_allow_archived then
      outcome := 'archived';
      return;
    elsif not (case p_expected
      when 'any' then true
      when 'exists' then version > 0
      when 'empty' then version = 0
      else version = p_version
    end) then
      outcome := 'conflict';
      return;
    end if;
    -- Another transaction changed the stream between these statements, and now it is as expected: try again.
  end loop;
  moment := "rillflow"."clock"(p_stream);
  perform set_config('rillflow.appended_at', moment::text, true);
  perform "rillflow"."announce"();
  with inserted as (
    insert into "rillflow"."events" (
      position, stream, version, event_id, type, schema_version, data, headers,
      correlation_id, causation_id, user_id, created_at)
    select
      nextval('"rillflow"."events_position"'), p_stream, version - p_count + e.number, e.id, e.type,
      coalesce(e.schema_version, 1), e.data, nullif(e.headers, 'null'),
      coalesce(e.correlation_id, e.id::text), e.causation_id, e.user_id, moment
    from rows from (
      unnest(p_ids, p_types, p_schema_versions, p_correlations, p_causations, p_users),
      jsonb_array_elements(p_data),
      jsonb_array_elements(p_headers)) with ordinality
      as e(id, type, schema_version, correlation_id, causation_id, user_id, data, headers, number)
    where version - p_count + e.number is not null
    returning position)
  select max(position) into last_position from inserted;
  outcome := 'appended';
end
$body$;

-- function append_batch

create or replace function "rillflow"."append_batch"(
  p_streams text[],
  p_part_appends integer[],
  p_part_streams integer[],
  p_part_expected text[],
  p_part_versions bigint[],
  p_part_counts integer[],
  p_allow_archived boolean[],
  p_check_ids boolean[],
  p_keys text[],
  p_digests text[],
  p_is_simple boolean,
  p_waits boolean,
  p_event_parts integer[],
  p_event_numbers integer[],
  p_ids uuid[],
  p_types text[],
  p_schema_versions integer[],
  p_data jsonb,
  p_headers jsonb,
  p_correlations text[],
  p_causations text[],
  p_users text[],
  out outcomes text[],
  out failed_parts integer[],
  out versions bigint[],
  out positions bigint[])
language plpgsql volatile
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $body$
-- revision 6
declare
  appends constant integer := cardinality(p_allow_archived);
  parts constant integer := cardinality(p_part_appends);
  moment timestamptz;
  -- By stream: the version it is at (null: another transaction holds it), whether its row was there, what it is marked as.
  current bigint[];
  known boolean[];
  marks text[];
  -- By stream: whether an append to it has to wait for another call, so that later ones must not overtake it.
  passed_over boolean[];
  new_keys text[];
  inline_appends integer[];
  r record;
  first_part integer;
  next_part integer;
  s integer;
  wanted bigint;
  made bigint;
  base bigint[];
  drawn bigint[];
begin
  -- Before the short lock_timeout: a batch waits for a switch of projections as a whole instead of being split.
  if current_setting('transaction_isolation') <> 'read committed' then
    perform
      from "rillflow"."inline_projections"
      limit 0;
    perform
      from "rillflow"."inline_changes"
      where id = 1
      for share;
  end if;
  if exists (
    select
    from "rillflow"."inline_projections" as i
    where i.types is null
      or i.types && p_types) then
    select array_agg(distinct p_part_appends[e.part])
      into inline_appends
      from unnest(p_event_parts, p_types) as e(part, type)
      where exists (
        select
        from "rillflow"."inline_projections" as i
        where i.types is null
          or e.type = any(i.types));
  end if;
  if not p_waits then
    perform set_config('lock_timeout', '50ms', true);
  end if;
  outcomes := array_fill('appended'::text, array[appends]);
  -- Inserting a key waits for the transaction that is just using it; one that is then there was used before.
  if p_keys is not null then
    with inserted as (
      insert into "rillflow"."idempotency_keys" (key, digest, event_ids, created_at)
      select k.key, k.digest, array(
          select e.id
          from unnest(p_event_parts, p_ids) as e(part, id)
          where p_part_appends[e.part] = k.append), "rillflow"."clock"(k.append)
      from unnest(p_keys, p_digests) with ordinality as k(key, digest, append)
      where k.key is not null
      order by k.key collate "C"
      on conflict do nothing
      returning key)
    select array_agg(key) into new_keys from inserted;
    for r in
      select k.append, stored.digest = k.digest as is_same, not exists (
          select
          from unnest(p_event_parts, p_ids) as e(part, id)
          where p_part_appends[e.part] = k.append
            and e.id <> all(stored.event_ids)) as is_own
      from unnest(p_keys, p_digests) with ordinality as k(key, digest, append)
      join "rillflow"."idempotency_keys" as stored on stored.key = k.key
    loop
      -- The same events under the same key: this very append, sent before. Their ids say whether it was stored.
      if not (r.is_own and r.is_same) then
        outcomes[r.append] := case when r.is_same then 'repeated' else 'mismatched' end;
      end if;
    end loop;
  end if;
  if p_waits then
    loop
      insert into "rillflow"."streams" (stream, version, created_at)
        select u.stream, 0, "rillflow"."clock"(u.i)
        from unnest(p_streams) with ordinality as u(stream, i)
        where exists (
          select
          from unnest(p_part_streams, p_part_expected, p_part_versions) as x(i, expected, version)
          where x.i = u.i
            and (x.expected in ('any', 'empty') or x.version = 0))
        order by u.i
        on conflict do nothing;
      select array_agg(t.version), array_agg(t.mark), array_agg(t.version is not null)
        into current, marks, known
        from unnest(p_streams) as u(stream)
        left join lateral (
          select s.version, case
            when s.tombstoned_at is not null then 'tombstoned'
            when s.archived_at is not null then 'archived'
          end as mark
          from "rillflow"."streams" as s
          where s.stream = u.stream
          for update) as t on true;
      exit when not exists (
        select
        from unnest(p_part_streams, p_part_expected, p_part_versions) as x(i, expected, version)
        where not known[x.i]
          and (x.expected in ('any', 'empty') or x.version = 0));
      -- An append that had made the stream was refused and removed it again: try again.
    end loop;
  else
    select array_agg(t.version), array_agg(t.mark), array_agg(t.version is not null)
      into current, marks, known
      from unnest(p_streams) as u(stream)
      left join lateral (
        select s.version, case
          when s.tombstoned_at is not null then 'tombstoned'
          when s.archived_at is not null then 'archived'
        end as mark
        from "rillflow"."streams" as s
        where s.stream = u.stream
        for update skip locked) as t on true;
  end if;
  -- A stream that is still unknown does not exist yet (version 0), or another transaction holds it (stays null).
  if false = any(known) then
    select array_agg(case
        when u.version is null and not exists (
          select
          from "rillflow"."streams" as s
          where s.stream = u.stream) then 0
        else u.version end)
      into current
      from unnest(p_streams, current) as u(stream, version);
  end if;
  if p_check_ids is not null then
    for r in
      select
        p_part_appends[e.part] as append,
        count(stored.event_id) as present,
        count(*) as wanted,
        bool_and(stored.event_id is null or (
          stored.stream = p_streams[p_part_streams[e.part]] and stored.type = e.type and stored.data = e.data)) as is_same
      from rows from (unnest(p_event_parts, p_ids, p_types), jsonb_array_elements(p_data)) as e(part, id, type, data)
      left join "rillflow"."events" as stored on stored.event_id = e.id
      where p_check_ids[p_part_appends[e.part]]
      group by 1
    loop
      if outcomes[r.append] = 'appended' and r.present > 0 then
        outcomes[r.append] := case when r.is_same and r.present = r.wanted then 'stored' else 'taken' end;
      end if;
    end loop;
  end if;
  if inline_appends is not null then
    select array_agg(
        case when u.outcome = 'appended' and u.append = any(inline_appends) then 'inline' else u.outcome end
        order by u.append)
      into outcomes
      from unnest(outcomes) with ordinality as u(outcome, append);
  end if;
  versions := current;
  if p_is_simple and inline_appends is null then
    select array_agg(u.outcome), array_agg(case when u.outcome = 'appended' then u.version end)
      into outcomes, base
      from (
        select x.version, case
          when x.version is null then 'busy'
          when x.mark = 'tombstoned' or (x.mark = 'archived' and not x.allow_archived) then x.mark
          when not (case x.expected
            when 'any' then true
            when 'exists' then x.version > 0
            when 'empty' then x.version = 0
            else x.version = x.exact
          end) then 'conflict'
          else 'appended'
        end as outcome
        from unnest(current, marks, p_part_expected, p_part_versions, p_allow_archived)
          as x(version, mark, expected, exact, allow_archived)) as u;
    select array_agg(coalesce(u.base + u.count, u.version))
      into current
      from unnest(current, base, p_part_counts) as u(version, base, count);
  else
    failed_parts := array_fill(0, array[appends]);
    versions := array_fill(null::bigint, array[parts]);
    base := array_fill(null::bigint, array[parts]);
    passed_over := array_fill(false, array[cardinality(p_streams)]);
    first_part := 1;
    for append in 1 .. appends loop
      next_part := first_part;
      while next_part <= parts and p_part_appends[next_part] = append loop
        s := p_part_streams[next_part];
        versions[next_part] := current[s];
        if outcomes[append] = 'appended' then
          outcomes[append] := case
            when current[s] is null or passed_over[s] then 'busy'
            when marks[s] = 'tombstoned' or (marks[s] = 'archived' and not p_allow_archived[append]) then marks[s]
            when not (case p_part_expected[next_part]
              when 'any' then true
              when 'exists' then current[s] > 0
              when 'empty' then current[s] = 0
              else current[s] = p_part_versions[next_part]
            end) then 'conflict'
            else 'appended'
          end;
          if outcomes[append] <> 'appended' then
            failed_parts[append] := next_part;
          end if;
        end if;
        next_part := next_part + 1;
      end loop;
      if outcomes[append] = 'appended' then
        for part in first_part .. next_part - 1 loop
          s := p_part_streams[part];
          base[part] := current[s];
          versions[part] := current[s];
          current[s] := current[s] + p_part_counts[part];
        end loop;
      elsif outcomes[append] in ('busy', 'inline') then
        for part in first_part .. next_part - 1 loop
          passed_over[p_part_streams[part]] := true;
        end loop;
      end if;
      first_part := next_part;
    end loop;
  end if;
  if 'appended' = any(outcomes) then
    update "rillflow"."streams" as t
      set version = u.version
      from unnest(p_streams, known, current) as u(stream, known, version)
      where t.stream = u.stream
        and u.known
        and t.version < u.version;
    if false = any(known) then
      select count(*) into wanted
        from unnest(known, current) as u(known, version)
        where not u.known
          and u.version > 0;
      insert into "rillflow"."streams" (stream, version, created_at)
        select u.stream, u.version, "rillflow"."clock"(u.i)
        from unnest(p_streams, known, current) with ordinality as u(stream, known, version, i)
        where not u.known
          and u.version > 0
        order by u.i
        on conflict do nothing;
      get diagnostics made = row_count;
      if made < wanted then
        raise exception 'a stream was created by another append' using errcode = '55P03';
      end if;
    end if;
  end if;
  if 'appended' <> any(outcomes) then
    if p_keys is not null then
      delete from "rillflow"."idempotency_keys" as k
        using unnest(p_keys, outcomes) as u(key, outcome)
        where k.key = u.key
          and k.key = any(new_keys)
          and u.outcome not in ('appended', 'repeated', 'mismatched', 'stored');
    end if;
    if p_waits then
      delete from "rillflow"."streams" as t
        using unnest(p_streams) as u(stream)
        where t.stream = u.stream
          and t.version = 0;
    end if;
  end if;
  if 'appended' = any(outcomes) then
    moment := "rillflow"."clock"(p_streams);
    perform set_config('rillflow.appended_at', moment::text, true);
    perform "rillflow"."announce"();
    with inserted as (
      insert into "rillflow"."events" (
        position, stream, version, event_id, type, schema_version, data, headers,
        correlation_id, causation_id, user_id, created_at)
      select
        nextval('"rillflow"."events_position"'), p_streams[p_part_streams[p_event_parts[e.number]]], base[p_event_parts[e.number]] + p_event_numbers[e.number], e.id, e.type,
        coalesce(e.schema_version, 1), e.data, nullif(e.headers, 'null'),
        coalesce(e.correlation_id, e.id::text), e.causation_id, e.user_id, moment
      from rows from (
        unnest(p_ids, p_types, p_schema_versions, p_correlations, p_causations, p_users),
        jsonb_array_elements(p_data),
        jsonb_array_elements(p_headers)) with ordinality
        as e(id, type, schema_version, correlation_id, causation_id, user_id, data, headers, number)
      where base[p_event_parts[e.number]] + p_event_numbers[e.number] is not null
      returning position)
    select array_agg(position) into positions from inserted;
  end if;
end
$body$;

-- function append_check

create or replace function "rillflow"."append_check"(
  p_streams text[],
  p_part_appends integer[],
  p_part_streams integer[],
  p_part_expected text[],
  p_part_versions bigint[],
  p_part_counts integer[],
  p_allow_archived boolean[],
  p_check_ids boolean[],
  p_keys text[],
  p_digests text[],
  p_is_simple boolean,
  p_waits boolean,
  p_event_parts integer[],
  p_runs_inline boolean,
  p_ids uuid[],
  p_types text[],
  p_data jsonb,
  out outcomes text[],
  out failed_parts integer[],
  out versions bigint[],
  out base bigint[],
  out created_at timestamptz,
  out inline_names text[],
  out inline_versions integer[])
language plpgsql volatile
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $body$
-- revision 3
declare
  appends constant integer := cardinality(p_allow_archived);
  parts constant integer := cardinality(p_part_appends);
  moment timestamptz;
  -- By stream: the version it is at (null: another transaction holds it), whether its row was there, what it is marked as.
  current bigint[];
  known boolean[];
  marks text[];
  -- By stream: whether an append to it has to wait for another call, so that later ones must not overtake it.
  passed_over boolean[];
  new_keys text[];
  inline_appends integer[];
  r record;
  first_part integer;
  next_part integer;
  s integer;
  wanted bigint;
  made bigint;
begin
  -- Before the short lock_timeout: a batch waits for a switch of projections as a whole instead of being split.
  if current_setting('transaction_isolation') <> 'read committed' then
    perform
      from "rillflow"."inline_projections"
      limit 0;
    perform
      from "rillflow"."inline_changes"
      where id = 1
      for share;
  end if;
  if p_runs_inline then
    select array_agg(i.name order by i.name), array_agg(i.version order by i.name)
      into inline_names, inline_versions
      from "rillflow"."inline_projections" as i
      where i.types is null
        or i.types && p_types;
  else
    if exists (
      select
      from "rillflow"."inline_projections" as i
      where i.types is null
        or i.types && p_types) then
      select array_agg(distinct p_part_appends[e.part])
        into inline_appends
        from unnest(p_event_parts, p_types) as e(part, type)
        where exists (
          select
          from "rillflow"."inline_projections" as i
          where i.types is null
            or e.type = any(i.types));
    end if;
  end if;
  if not p_waits then
    perform set_config('lock_timeout', '50ms', true);
  end if;
  outcomes := array_fill('appended'::text, array[appends]);
  -- Inserting a key waits for the transaction that is just using it; one that is then there was used before.
  if p_keys is not null then
    with inserted as (
      insert into "rillflow"."idempotency_keys" (key, digest, event_ids, created_at)
      select k.key, k.digest, array(
          select e.id
          from unnest(p_event_parts, p_ids) as e(part, id)
          where p_part_appends[e.part] = k.append), "rillflow"."clock"(k.append)
      from unnest(p_keys, p_digests) with ordinality as k(key, digest, append)
      where k.key is not null
      order by k.key collate "C"
      on conflict do nothing
      returning key)
    select array_agg(key) into new_keys from inserted;
    for r in
      select k.append, stored.digest = k.digest as is_same, not exists (
          select
          from unnest(p_event_parts, p_ids) as e(part, id)
          where p_part_appends[e.part] = k.append
            and e.id <> all(stored.event_ids)) as is_own
      from unnest(p_keys, p_digests) with ordinality as k(key, digest, append)
      join "rillflow"."idempotency_keys" as stored on stored.key = k.key
    loop
      -- The same events under the same key: this very append, sent before. Their ids say whether it was stored.
      if not (r.is_own and r.is_same) then
        outcomes[r.append] := case when r.is_same then 'repeated' else 'mismatched' end;
      end if;
    end loop;
  end if;
  if p_waits then
    loop
      insert into "rillflow"."streams" (stream, version, created_at)
        select u.stream, 0, "rillflow"."clock"(u.i)
        from unnest(p_streams) with ordinality as u(stream, i)
        where exists (
          select
          from unnest(p_part_streams, p_part_expected, p_part_versions) as x(i, expected, version)
          where x.i = u.i
            and (x.expected in ('any', 'empty') or x.version = 0))
        order by u.i
        on conflict do nothing;
      select array_agg(t.version), array_agg(t.mark), array_agg(t.version is not null)
        into current, marks, known
        from unnest(p_streams) as u(stream)
        left join lateral (
          select s.version, case
            when s.tombstoned_at is not null then 'tombstoned'
            when s.archived_at is not null then 'archived'
          end as mark
          from "rillflow"."streams" as s
          where s.stream = u.stream
          for update) as t on true;
      exit when not exists (
        select
        from unnest(p_part_streams, p_part_expected, p_part_versions) as x(i, expected, version)
        where not known[x.i]
          and (x.expected in ('any', 'empty') or x.version = 0));
      -- An append that had made the stream was refused and removed it again: try again.
    end loop;
  else
    select array_agg(t.version), array_agg(t.mark), array_agg(t.version is not null)
      into current, marks, known
      from unnest(p_streams) as u(stream)
      left join lateral (
        select s.version, case
          when s.tombstoned_at is not null then 'tombstoned'
          when s.archived_at is not null then 'archived'
        end as mark
        from "rillflow"."streams" as s
        where s.stream = u.stream
        for update skip locked) as t on true;
  end if;
  -- A stream that is still unknown does not exist yet (version 0), or another transaction holds it (stays null).
  if false = any(known) then
    select array_agg(case
        when u.version is null and not exists (
          select
          from "rillflow"."streams" as s
          where s.stream = u.stream) then 0
        else u.version end)
      into current
      from unnest(p_streams, current) as u(stream, version);
  end if;
  if p_check_ids is not null then
    for r in
      select
        p_part_appends[e.part] as append,
        count(stored.event_id) as present,
        count(*) as wanted,
        bool_and(stored.event_id is null or (
          stored.stream = p_streams[p_part_streams[e.part]] and stored.type = e.type and stored.data = e.data)) as is_same
      from rows from (unnest(p_event_parts, p_ids, p_types), jsonb_array_elements(p_data)) as e(part, id, type, data)
      left join "rillflow"."events" as stored on stored.event_id = e.id
      where p_check_ids[p_part_appends[e.part]]
      group by 1
    loop
      if outcomes[r.append] = 'appended' and r.present > 0 then
        outcomes[r.append] := case when r.is_same and r.present = r.wanted then 'stored' else 'taken' end;
      end if;
    end loop;
  end if;
  if inline_appends is not null then
    select array_agg(
        case when u.outcome = 'appended' and u.append = any(inline_appends) then 'inline' else u.outcome end
        order by u.append)
      into outcomes
      from unnest(outcomes) with ordinality as u(outcome, append);
  end if;
  versions := current;
  if p_is_simple and inline_appends is null then
    select array_agg(u.outcome), array_agg(case when u.outcome = 'appended' then u.version end)
      into outcomes, base
      from (
        select x.version, case
          when x.version is null then 'busy'
          when x.mark = 'tombstoned' or (x.mark = 'archived' and not x.allow_archived) then x.mark
          when not (case x.expected
            when 'any' then true
            when 'exists' then x.version > 0
            when 'empty' then x.version = 0
            else x.version = x.exact
          end) then 'conflict'
          else 'appended'
        end as outcome
        from unnest(current, marks, p_part_expected, p_part_versions, p_allow_archived)
          as x(version, mark, expected, exact, allow_archived)) as u;
    select array_agg(coalesce(u.base + u.count, u.version))
      into current
      from unnest(current, base, p_part_counts) as u(version, base, count);
  else
    failed_parts := array_fill(0, array[appends]);
    versions := array_fill(null::bigint, array[parts]);
    base := array_fill(null::bigint, array[parts]);
    passed_over := array_fill(false, array[cardinality(p_streams)]);
    first_part := 1;
    for append in 1 .. appends loop
      next_part := first_part;
      while next_part <= parts and p_part_appends[next_part] = append loop
        s := p_part_streams[next_part];
        versions[next_part] := current[s];
        if outcomes[append] = 'appended' then
          outcomes[append] := case
            when current[s] is null or passed_over[s] then 'busy'
            when marks[s] = 'tombstoned' or (marks[s] = 'archived' and not p_allow_archived[append]) then marks[s]
            when not (case p_part_expected[next_part]
              when 'any' then true
              when 'exists' then current[s] > 0
              when 'empty' then current[s] = 0
              else current[s] = p_part_versions[next_part]
            end) then 'conflict'
            else 'appended'
          end;
          if outcomes[append] <> 'appended' then
            failed_parts[append] := next_part;
          end if;
        end if;
        next_part := next_part + 1;
      end loop;
      if outcomes[append] = 'appended' then
        for part in first_part .. next_part - 1 loop
          s := p_part_streams[part];
          base[part] := current[s];
          versions[part] := current[s];
          current[s] := current[s] + p_part_counts[part];
        end loop;
      elsif outcomes[append] in ('busy', 'inline') then
        for part in first_part .. next_part - 1 loop
          passed_over[p_part_streams[part]] := true;
        end loop;
      end if;
      first_part := next_part;
    end loop;
  end if;
  if 'appended' = any(outcomes) then
    update "rillflow"."streams" as t
      set version = u.version
      from unnest(p_streams, known, current) as u(stream, known, version)
      where t.stream = u.stream
        and u.known
        and t.version < u.version;
    if false = any(known) then
      select count(*) into wanted
        from unnest(known, current) as u(known, version)
        where not u.known
          and u.version > 0;
      insert into "rillflow"."streams" (stream, version, created_at)
        select u.stream, u.version, "rillflow"."clock"(u.i)
        from unnest(p_streams, known, current) with ordinality as u(stream, known, version, i)
        where not u.known
          and u.version > 0
        order by u.i
        on conflict do nothing;
      get diagnostics made = row_count;
      if made < wanted then
        raise exception 'a stream was created by another append' using errcode = '55P03';
      end if;
    end if;
  end if;
  if 'appended' <> any(outcomes) then
    if p_keys is not null then
      delete from "rillflow"."idempotency_keys" as k
        using unnest(p_keys, outcomes) as u(key, outcome)
        where k.key = u.key
          and k.key = any(new_keys)
          and u.outcome not in ('appended', 'repeated', 'mismatched', 'stored');
    end if;
    if p_waits then
      delete from "rillflow"."streams" as t
        using unnest(p_streams) as u(stream)
        where t.stream = u.stream
          and t.version = 0;
    end if;
  end if;
  -- To the millisecond, so that projections see the very time that is stored.
  created_at := date_trunc('milliseconds', "rillflow"."clock"(p_streams));
end
$body$;

-- function append_check_one

create or replace function "rillflow"."append_check_one"(
  p_stream text,
  p_expected text,
  p_version bigint,
  p_count integer,
  p_types text[],
  out outcome text,
  out version bigint,
  out created_at timestamptz)
language plpgsql volatile
set jit = off
as $body$
-- revision 1
declare
  moment timestamptz;
  found_stream "rillflow"."streams";
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    perform
      from "rillflow"."inline_projections"
      limit 0;
    perform
      from "rillflow"."inline_changes"
      where id = 1
      for share;
  end if;
  if exists (
    select
    from "rillflow"."inline_projections" as i
    where i.types is null
      or i.types && p_types) then
    outcome := 'inline';
    return;
  end if;
  perform set_config('lock_timeout', '50ms', true);
  loop
    update "rillflow"."streams" as s
      set version = s.version + p_count
      where s.stream = p_stream
        and (case p_expected
          when 'any' then true
          when 'exists' then s.version > 0
          when 'empty' then s.version = 0
          else s.version = p_version
        end)
        and s.tombstoned_at is null
        and (s.archived_at is null or false)
      returning s.version into version;
    exit when found;
    if (p_expected in ('any', 'empty') or p_version = 0) then
      moment := "rillflow"."clock"(p_stream);
      insert into "rillflow"."streams" as s (stream, version, created_at)
        values (p_stream, p_count, moment)
        on conflict do nothing
        returning s.version into version;
      exit when found;
    end if;
    select * into found_stream
      from "rillflow"."streams" as s
      where s.stream = p_stream
      for update;
    version := coalesce(found_stream.version, 0);
    if found_stream.tombstoned_at is not null then
      outcome := 'tombstoned';
      return;
    elsif found_stream.archived_at is not null and not false then
      outcome := 'archived';
      return;
    elsif not (case p_expected
      when 'any' then true
      when 'exists' then version > 0
      when 'empty' then version = 0
      else version = p_version
    end) then
      outcome := 'conflict';
      return;
    end if;
    -- Another transaction changed the stream between these statements, and now it is as expected: try again.
  end loop;
  outcome := 'appended';
  created_at := date_trunc('milliseconds', "rillflow"."clock"(p_stream));
end
$body$;

-- function append_store

create or replace function "rillflow"."append_store"(
  p_refused text,
  p_streams text[],
  p_base bigint[],
  p_created_at timestamptz,
  p_event_parts integer[],
  p_event_numbers integer[],
  p_ids uuid[],
  p_types text[],
  p_schema_versions integer[],
  p_data jsonb,
  p_headers jsonb,
  p_correlations text[],
  p_causations text[],
  p_users text[],
  out positions bigint[])
language plpgsql volatile
set jit = off
as $body$
-- revision 3
declare
  moment constant timestamptz := p_created_at;
  drawn bigint[];
begin
  if p_refused is not null then
    raise exception 'documents were refused' using errcode = 'RF003', detail = p_refused;
  end if;
  if num_nonnulls(variadic p_base) > 0 then
    perform "rillflow"."announce"();
    with inserted as (
      insert into "rillflow"."events" (
        position, stream, version, event_id, type, schema_version, data, headers,
        correlation_id, causation_id, user_id, created_at)
      select
        nextval('"rillflow"."events_position"'), p_streams[p_event_parts[e.number]], p_base[p_event_parts[e.number]] + p_event_numbers[e.number], e.id, e.type,
        coalesce(e.schema_version, 1), e.data, nullif(e.headers, 'null'),
        coalesce(e.correlation_id, e.id::text), e.causation_id, e.user_id, moment
      from rows from (
        unnest(p_ids, p_types, p_schema_versions, p_correlations, p_causations, p_users),
        jsonb_array_elements(p_data),
        jsonb_array_elements(p_headers)) with ordinality
        as e(id, type, schema_version, correlation_id, causation_id, user_id, data, headers, number)
      where p_base[p_event_parts[e.number]] + p_event_numbers[e.number] is not null
      returning position)
    select array_agg(position) into positions from inserted;
  end if;
end
$body$;

-- function appended_at

create or replace function "rillflow"."appended_at"(out moment timestamptz)
language plpgsql volatile
set jit = off
as $body$
-- revision 1
begin
  moment := nullif(current_setting('rillflow.appended_at', true), '')::timestamptz;
end
$body$;

-- function consumers_draw

create or replace function "rillflow"."consumers_draw"(p_count integer, out drawn bigint[])
language plpgsql volatile
set jit = off
as $body$
-- revision 1
begin
  -- No reader depends on the order of these numbers.
  if p_count = 1 then
    drawn := array[nextval('"rillflow"."consumers_fence"')];
    return;
  end if;
  drawn := array(select nextval('"rillflow"."consumers_fence"') from generate_series(1, p_count));
end
$body$;

-- function workflow_announce

create or replace function "rillflow"."workflow_announce"()
returns void
language plpgsql volatile
set jit = off
as $body$
-- revision 2
declare
  sequence_oid constant bigint := '"rillflow"."workflow_activity_position"'::regclass::oid::bigint;
  announced constant text := 'rillflow.announced_' || sequence_oid;
  bound bigint;
begin
  if coalesce(current_setting(announced, true), '') <> '' then
    return;
  end if;
  select case when is_called then last_value else last_value - 1 end
    into bound
    from "rillflow"."workflow_activity_position";
  perform pg_advisory_xact_lock_shared(
    "rillflow"."signed32"(sequence_oid),
    "rillflow"."signed32"(bound));
  perform set_config(announced, bound::text, true);
end
$body$;

-- function workflow_draw

create or replace function "rillflow"."workflow_draw"(p_count integer, out drawn bigint[])
language plpgsql volatile
set jit = off
as $body$
-- revision 1
begin
  perform "rillflow"."workflow_announce"();
  if p_count = 1 then
    drawn := array[nextval('"rillflow"."workflow_activity_position"')];
    return;
  end if;
  drawn := array(select nextval('"rillflow"."workflow_activity_position"') from generate_series(1, p_count));
end
$body$;

-- function workflow_draw_route

create or replace function "rillflow"."workflow_draw_route"(p_count integer, out drawn bigint[])
language plpgsql volatile
set jit = off
as $body$
-- revision 1
begin
  -- No reader depends on the order of these numbers.
  if p_count = 1 then
    drawn := array[nextval('"rillflow"."workflow_routes_id"')];
    return;
  end if;
  drawn := array(select nextval('"rillflow"."workflow_routes_id"') from generate_series(1, p_count));
end
$body$;

-- function workflow_draw_undo

create or replace function "rillflow"."workflow_draw_undo"(p_count integer, out drawn bigint[])
language plpgsql volatile
set jit = off
as $body$
-- revision 1
begin
  -- No reader depends on the order of these numbers.
  if p_count = 1 then
    drawn := array[nextval('"rillflow"."workflow_undos_id"')];
    return;
  end if;
  drawn := array(select nextval('"rillflow"."workflow_undos_id"') from generate_series(1, p_count));
end
$body$;

-- function workflow_settle

create or replace function "rillflow"."workflow_settle"(out head bigint, out settled bigint, out timeline text, out session text)
language plpgsql volatile
set jit = off
as $body$
-- revision 2
declare
  sequence_oid constant bigint := '"rillflow"."workflow_activity_position"'::regclass::oid::bigint;
  bound bigint;
begin
  if pg_is_in_recovery() then
    raise exception 'settle() needs the primary' using errcode = 'RF001';
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'settle() needs read committed' using errcode = 'RF002';
  end if;
  timeline := left(pg_walfile_name(pg_current_wal_lsn()), 8);
  session := pg_backend_pid() || coalesce(
    (select '@' || extract(epoch from backend_start) from pg_stat_get_activity(pg_backend_pid())), '');
  select case when is_called then last_value else last_value - 1 end
    into head
    from "rillflow"."workflow_activity_position";
  select min(head + "rillflow"."signed32"(locks.objid::bigint - head))
    into bound
    from pg_locks as locks
    where locks.locktype = 'advisory'
      and locks.database = (select oid from pg_database where datname = current_database())
      and locks.classid::bigint = sequence_oid
      and locks.objsubid = 2
      and locks.mode = 'ShareLock';
  settled := least(head, bound);
end
$body$;

-- function workflow_queued_ms

create or replace function "rillflow"."workflow_queued_ms"(p_at timestamptz, p_rank bigint, p_priority integer)
returns integer
language sql immutable parallel safe
as $body$
-- revision 1
select least(2147483647, greatest(0,
  (extract(epoch from p_at at time zone 'UTC') * 1000)::bigint - p_rank + p_priority * 10000))::integer
$body$;

-- function workflow_count

create or replace function "rillflow"."workflow_count"(p_owner text, p_names text[], p_by bigint[]) returns void
language plpgsql volatile
set jit = off
as $body$
-- revision 2
begin
  insert into "rillflow"."workflow_counters" as c (
      owner, active, cancelled, completed, dispatched, events, failed, workflows)
    select p_owner,
      coalesce(sum(u.by) filter (where u.name = 'active'), 0),
      coalesce(sum(u.by) filter (where u.name = 'cancelled'), 0),
      coalesce(sum(u.by) filter (where u.name = 'completed'), 0),
      coalesce(sum(u.by) filter (where u.name = 'dispatched'), 0),
      coalesce(sum(u.by) filter (where u.name = 'events'), 0),
      coalesce(sum(u.by) filter (where u.name = 'failed'), 0),
      coalesce(sum(u.by) filter (where u.name = 'workflows'), 0)
    from unnest(p_names, p_by) as u(name, by)
    having bool_or(u.by <> 0)
    on conflict (owner) do update
    set active = c.active + excluded.active,
      cancelled = c.cancelled + excluded.cancelled,
      completed = c.completed + excluded.completed,
      dispatched = c.dispatched + excluded.dispatched,
      events = c.events + excluded.events,
      failed = c.failed + excluded.failed,
      workflows = c.workflows + excluded.workflows;
end
$body$;

-- function workflow_rank

create or replace function "rillflow"."workflow_rank"(p_at timestamptz, p_priority integer) returns bigint
language sql immutable parallel safe
as $body$
-- revision 1
select (extract(epoch from p_at at time zone 'UTC') * 1000)::bigint + p_priority * 10000
$body$;

-- function workflow_admit

create or replace function "rillflow"."workflow_admit"(
  p_owner text,
  p_ids text[],
  p_wanted boolean[],
  p_counts integer[],
  p_firsts bigint[],
  p_lasts bigint[],
  p_types text[],
  p_parents text[])
returns table (correlation_id text, state text, is_new boolean)
language plpgsql volatile
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $body$
-- revision 3
declare
  moment timestamptz;
  known text[];
  grown text[];
  made integer := 0;
  counted integer;
begin
  select array_agg(l.id) into known
    from (
      select w.correlation_id as id
      from "rillflow"."workflows" as w
      where w.correlation_id = any(p_ids || p_parents)
      order by w.correlation_id
      for update) as l
    where l.id = any(p_ids);
  moment := "rillflow"."clock"(p_owner);
  if known is not null then
    with touched as (
      update "rillflow"."workflows" as w
      set last_position = u.last_position,
        last_type = u.type,
        updated_at = moment
      from unnest(p_ids, p_lasts, p_types) as u(id, last_position, type)
      where w.correlation_id = u.id
        and u.id = any(known)
        and w.last_position < u.last_position
      returning u.id)
    select array_agg(t.id) into grown from touched as t;
  end if;
  if cardinality(p_ids) > coalesce(cardinality(known), 0) then
    insert into "rillflow"."workflows" (
        correlation_id, first_position, last_position, last_type, parent, started_at, updated_at, state, reason)
      select u.id, u.first_position, u.last_position, u.type, u.parent, moment, moment,
        case when p.state <> 'active' then 'cancelled' else 'active' end, p.reason
      from unnest(p_ids, p_wanted, p_firsts, p_lasts, p_types, p_parents)
        as u(id, is_wanted, first_position, last_position, type, parent)
      left join "rillflow"."workflows" as p on p.correlation_id = u.parent
      where u.is_wanted
        and u.id <> all(coalesce(known, '{}'))
      -- One that was cancelled before it was dispatched has a row by now.
      on conflict do nothing;
    get diagnostics made = row_count;
  end if;
  -- What is dispatched once more, to a handler that came later, has been counted.
  select sum(u.n) into counted
    from unnest(p_ids, p_wanted, p_counts) as u(id, is_wanted, n)
    where u.id = any(grown)
      or (u.is_wanted and u.id <> all(coalesce(known, '{}')));
  if counted > 0 then
    perform "rillflow"."workflow_count"(
      p_owner => p_owner,
      p_names => array['events', 'workflows'],
      p_by => array[counted, made]);
  end if;
  return query
    select w.correlation_id, w.state, w.correlation_id <> all(coalesce(known, '{}'))
    from "rillflow"."workflows" as w
    where w.correlation_id = any(p_ids);
end
$body$;

-- function workflow_widen

create or replace function "rillflow"."workflow_widen"(p_routes integer[], p_lanes text[], p_retries boolean[]) returns void
language plpgsql volatile
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $body$
-- revision 2
begin
  insert into "rillflow"."workflow_lanes" as l (lane, ordered, width, open, active, granted)
    select g.lane, g.ordered, g.width, g.n, least(g.width, g.due), least(g.width, g.due)
    from (
      select u.lane,
        bool_or((r.definition->>'ordered')::boolean) as ordered,
        max(coalesce((r.definition->>'keyConcurrency')::integer, 1)) as width,
        count(*) as n,
        -- Where the order does not matter, one that is for later takes its place when its time has come.
        count(*) filter (where r.delay_ms = 0 or u.is_retry or (r.definition->>'ordered')::boolean) as due
      from unnest(p_routes, p_lanes, p_retries) as u(route, lane, is_retry)
      join "rillflow"."workflow_routes" as r on r.id = u.route
      where u.lane is not null
      group by u.lane) as g
    order by g.lane
    on conflict (lane) do update
    set width = excluded.width,
      open = l.open + excluded.open,
      active = case
        when l.parked then l.active
        else greatest(l.active, least(excluded.width, l.active + excluded.granted)) end,
      granted = case
        when l.parked then 0
        else greatest(0, least(excluded.width - l.active, excluded.granted)) end;
end
$body$;

-- function workflow_assign

create or replace function "rillflow"."workflow_assign"(p_ids uuid[], p_lanes text[], out assigned integer)
language plpgsql volatile
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $body$
-- revision 3
declare
  moment constant timestamptz := "rillflow"."clock"(p_ids);
  routes integer[];
  lanes text[];
  retries boolean[];
begin
  select array_agg(x.route order by u.n), array_agg(case when x.state = 'unkeyed' then u.lane end order by u.n),
      array_agg(x.is_retry order by u.n)
    into routes, lanes, retries
    from unnest(p_ids, p_lanes) with ordinality as u(id, lane, n)
    join "rillflow"."workflow_executions" as x on x.id = u.id;
  perform "rillflow"."workflow_widen"(p_routes => routes, p_lanes => lanes, p_retries => retries);
  update "rillflow"."workflow_executions" as x
    set lane = g.lane,
      rank = "rillflow"."workflow_rank"(p_at => moment, p_priority => g.priority),
      run_at = case when g.delay_ms > 0 and g.is_active
        then "rillflow"."later"(p_at => x.queued_at, p_ms => g.delay_ms) end,
      state = case
        when not g.is_active then 'blocked'
        when g.delay_ms > 0 then 'delayed'
        else 'ready' end
    from (
      select w.id, w.lane, w.priority, w.delay_ms,
        w.lane is null
          or (w.delay_ms > 0 and not w.ordered)
          or row_number() over (partition by w.lane, w.delay_ms > 0 and not w.ordered order by w.position)
            <= w.granted as is_active
      from (
        select k.id, k.position, u.lane, r.priority, l.ordered, l.granted,
          case when k.is_retry then 0 else r.delay_ms end as delay_ms
        from unnest(p_ids, p_lanes) as u(id, lane)
        join "rillflow"."workflow_executions" as k on k.id = u.id
        join "rillflow"."workflow_routes" as r on r.id = k.route
        left join "rillflow"."workflow_lanes" as l on l.lane = u.lane
        where k.state = 'unkeyed') as w) as g
    where x.id = g.id;
  get diagnostics assigned = row_count;
  select array_agg(l.lane)
    into lanes
    from "rillflow"."workflow_lanes" as l
    where l.lane = any(p_lanes)
      and l.parked;
  if lanes is not null then
    perform "rillflow"."workflow_advance"(p_owner => '', p_lanes => lanes, p_next => null, p_grace_ms => 0);
  end if;
end
$body$;

-- function workflow_enqueue

create or replace function "rillflow"."workflow_enqueue"(
  p_owner text,
  p_ids uuid[],
  p_positions bigint[],
  p_routes integer[],
  p_correlations text[],
  p_states text[],
  p_lanes text[],
  p_joins uuid[],
  p_undos bigint[],
  p_retries boolean[],
  out enqueued integer)
language plpgsql volatile
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $body$
-- revision 5
declare
  moment constant timestamptz := "rillflow"."clock"(p_owner);
  woken integer;
  lanes text[];
  drawn bigint[];
begin
  if p_lanes is not null then
    select array_agg(case when x.id is null then u.lane end order by u.n)
      into lanes
      from unnest(p_ids, p_lanes) with ordinality as u(id, lane, n)
      left join "rillflow"."workflow_executions" as x on x.id = u.id;
    perform "rillflow"."workflow_widen"(p_routes => p_routes, p_lanes => lanes, p_retries => p_retries);
  end if;
  perform "rillflow"."workflow_announce"();
  with added as (
    insert into "rillflow"."workflow_executions" as x (
      id, position, route, correlation_id, lane, join_id, undo_id, is_retry, rank, queued_at, run_at, expires_at,
      state)
    select
      g.id, g.position, g.route, g.correlation_id, g.lane, g.join_id, g.undo_id, coalesce(g.is_retry, false),
      "rillflow"."workflow_rank"(p_at => moment, p_priority => g.priority),
      moment,
      case when g.state = 'ready' and g.delay_ms > 0 and (g.lane is null or g.place <= g.granted)
        then "rillflow"."later"(p_at => moment, p_ms => g.delay_ms) end,
      case when g.deadline_ms is not null then "rillflow"."later"(p_at => moment, p_ms => g.deadline_ms) end,
      case
        when g.state <> 'ready' then g.state
        when g.lane is not null and g.place > g.granted then 'blocked'
        when g.delay_ms > 0 then 'delayed'
        else 'ready' end
    from (
      select u.*, r.priority, d.delay_ms, r.deadline_ms,
        case when d.delay_ms > 0 and not l.ordered then 2147483647 else coalesce(l.granted, 0) end as granted,
        row_number() over (partition by u.lane, d.delay_ms > 0 and not l.ordered order by u.position) as place
      from unnest(p_ids, p_positions, p_routes, p_correlations, p_states, p_lanes, p_joins, p_undos, p_retries)
        as u(id, position, route, correlation_id, state, lane, join_id, undo_id, is_retry)
      join "rillflow"."workflow_routes" as r on r.id = u.route
      cross join lateral (
        select case when u.is_retry then 0 else r.delay_ms end as delay_ms) as d
      left join "rillflow"."workflow_lanes" as l on l.lane = u.lane
      where not exists (
        select
        from "rillflow"."workflow_executions" as known
        where known.id = u.id)) as g
    order by g.position
    returning x.id, x.position, x.route, x.correlation_id, x.join_id, x.is_retry),
  recorded as (
    insert into "rillflow"."workflow_activity" (
      position, at, event_position, execution, version, attempt, kind, handler, correlation_id)
    select nextval('"rillflow"."workflow_activity_position"'), moment, a.position, a.id, r.version, 0, 'dispatched',
      r.handler, a.correlation_id
    from added as a
    join "rillflow"."workflow_routes" as r on r.id = a.route
    order by a.position, r.id),
  -- A join that is complete was counted as open before; from now on its execution is.
  counted as (
    select a.correlation_id, count(*) as n
    from added as a
    where a.join_id is null
      or a.is_retry
    group by a.correlation_id),
  moved as (
    update "rillflow"."workflows" as w
    set open = w.open + c.n,
      updated_at = moment
    from counted as c
    where w.correlation_id = c.correlation_id
    returning w.open = c.n as is_woken)
  select (select count(*) from added), (select count(*) from moved where is_woken)
    into enqueued, woken;
  perform "rillflow"."workflow_count"(
    p_owner => p_owner,
    p_names => array['active', 'dispatched'],
    p_by => array[woken, enqueued]);
  if p_retries is not null then
    select array_agg(l.lane)
      into lanes
      from "rillflow"."workflow_lanes" as l
      where l.lane = any(p_lanes)
        and l.parked;
    if lanes is not null then
      perform "rillflow"."workflow_advance"(p_owner => '', p_lanes => lanes, p_next => null, p_grace_ms => 0);
    end if;
  end if;
end
$body$;

-- function workflow_wake

create or replace function "rillflow"."workflow_wake"(p_ids uuid[], p_patient boolean default true, out woken integer)
language plpgsql volatile
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $body$
-- revision 1
declare
  moment timestamptz;
  lanes text[];
begin
  select array_agg(distinct x.lane) into lanes
    from "rillflow"."workflow_executions" as x
    where x.id = any(p_ids)
      and x.lane is not null;
  if p_patient then
    perform
      from "rillflow"."workflow_lanes" as l
      where l.lane = any(lanes)
      order by l.lane
      for update;
  elsif lanes is not null then
    select array_agg(f.lane) into lanes
      from (
        select l.lane
        from "rillflow"."workflow_lanes" as l
        where l.lane = any(lanes)
        order by l.lane
        for update skip locked) as f;
  end if;
  moment := "rillflow"."clock"(p_ids);
  with due as (
    select x.id, x.route, x.lane, coalesce(l.ordered, true) as keeps, l.width - l.active as free,
      row_number() over (partition by x.lane order by x.position) as place
    from "rillflow"."workflow_executions" as x
    left join "rillflow"."workflow_lanes" as l on l.lane = x.lane
    where x.id = any(p_ids)
      and x.state in ('delayed', 'suspended')
      and (x.lane is null or x.lane = any(lanes))),
  locked as (
    select x.id
    from "rillflow"."workflow_executions" as x
    where x.id in (select due.id from due)
      and x.state in ('delayed', 'suspended')
    for update skip locked),
  changed as (
    update "rillflow"."workflow_executions" as x
    set state = case when due.keeps or due.lane is null or due.place <= due.free then 'ready' else 'blocked' end,
      run_at = null,
      rank = "rillflow"."workflow_rank"(p_at => moment, p_priority => r.priority)
    from due
    join locked on locked.id = due.id
    join "rillflow"."workflow_routes" as r on r.id = due.route
    where x.id = due.id
    returning x.id, x.lane, x.state, due.keeps),
  taken as (
    update "rillflow"."workflow_lanes" as l
    set active = l.active + c.n
    from (
      select lane, count(*) as n
      from changed
      where lane is not null
        and not keeps
        and state = 'ready'
      group by lane) as c
    where l.lane = c.lane)
  select count(*) into woken from changed;
end
$body$;

-- function workflow_dispatch_page

create or replace function "rillflow"."workflow_dispatch_page"(
  p_consumer text,
  p_fence bigint,
  p_version integer,
  p_reached bigint,
  p_first bigint,
  p_checkpoint bigint,
  p_workflows text[],
  p_wanted boolean[],
  p_counts integer[],
  p_firsts bigint[],
  p_lasts bigint[],
  p_types text[],
  p_ids uuid[],
  p_positions bigint[],
  p_routes integer[],
  p_correlations text[],
  p_worker text,
  p_worker_fence bigint,
  p_worker_routes integer[],
  p_limit integer,
  p_grace_ms integer,
  p_states text[],
  p_running_ms integer[],
  p_began_at timestamptz,
  p_watched text[],
  out outcome text,
  out is_paused boolean,
  out is_idle boolean,
  out ready integer,
  out begun uuid[],
  out begun_at timestamptz,
  out settled jsonb)
language plpgsql volatile
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set lock_timeout = '10s'
set jit = off
as $body$
-- revision 5
declare
  dispatcher "rillflow"."consumers";
  known text[];
  states text[];
  lives boolean := false;
  takes boolean := false;
  queued integer;
  ended integer;
  made integer;
  counted integer;
  woken integer;
  -- The executions of which the worker has said something, and the most that start with this call.
  done integer;
  most_started integer;
  drawn bigint[];
begin
  select * into dispatcher
    from "rillflow"."consumers" as c
    where c.name = p_consumer
    for update;
  outcome := case
    when dispatcher.fence is distinct from p_fence then 'lost'
    when dispatcher.checkpoint <> p_reached or dispatcher.checkpoint >= p_first then 'moved'
    -- A server that took over without the last events gives their positions to others.
    when not exists (
      select
      from "rillflow"."events" as e
      where (e.position, e.correlation_id) = (
          select u.position, u.id
          from unnest(p_lasts, p_workflows) as u(position, id)
          order by u.position desc
          limit 1)) then 'moved'
    when coalesce((dispatcher.definition->>'routes')::integer, 0) <> p_version then 'outdated' end;
  if outcome is not null then
    return;
  end if;
  select array_agg(l.id), array_agg(distinct l.state)
    into known, states
    from (
      select w.correlation_id as id, w.state
      from "rillflow"."workflows" as w
      where w.correlation_id = any(p_workflows)
      order by w.correlation_id
      for update) as l;
  if states <> array['active'] or exists (
      select
      from "rillflow"."workflow_waits" as w
      where w.correlation_id = any(known)
        and w.type is not null) then
    outcome := 'involved';
    return;
  end if;

  begun_at := "rillflow"."clock"(p_consumer);
  if p_worker is not null then
    -- A worker that takes over from it holds its row, and waits for the workflows held here: it is not waited for.
    perform
      from "rillflow"."runners" as r
      where r.id = p_worker
        and r.routes <> '{}'
      for key share skip locked;
    lives := found;
    takes := lives and p_limit > 0 and not exists (
      select
      from "rillflow"."workflow_executions" as x
      where x.route = any(p_worker_routes)
        and x.state = 'ready');
  end if;
  if p_states is null or not (p_states && array['completed', 'skipped']) then
    perform set_config('synchronous_commit', 'off', true);
  end if;
  done := coalesce(cardinality(array_remove(p_states, null)), 0);
  most_started := done + case when takes then p_limit else 0 end;
  perform "rillflow"."workflow_announce"();
  with given as materialized (
    select g.*,
      g.fits and (g.state is not null
        or row_number() over (partition by g.fits and g.state is null order by g.priority, g.position, g.id) <= p_limit)
        as begins
    from (
      select u.id, u.position, u.correlation_id, u.state, u.running_ms, r.id as route, r.handler, r.version,
        r.priority, r.delay_ms, r.timeout_ms, r.deadline_ms,
        coalesce(u.state in ('completed', 'skipped'), false) as has_ended,
        case
          when u.state is not null then u.state = 'begun' and lives
          else takes
            and r.id = any(p_worker_routes)
            and r.paused_at is null
            and r.concurrency is null
            and r.rate_limit is null
            and r.delay_ms = 0
        end as fits
      from unnest(p_ids, p_positions, p_routes, p_correlations, p_states, p_running_ms)
        as u(id, position, route, correlation_id, state, running_ms)
      join "rillflow"."workflow_routes" as r on r.id = u.route
      where not exists (
        select
        from "rillflow"."workflow_executions" as x
        where x.id = u.id)) as g),
  opened as (
    select g.correlation_id, count(*) as n
    from given as g
    where not g.has_ended
    group by g.correlation_id),
  touched as (
    select u.id, u.is_wanted, u.events, u.first_position, u.last_position, u.type, coalesce(o.n, 0) as n
    from unnest(p_workflows, p_wanted, p_counts, p_firsts, p_lasts, p_types)
      as u(id, is_wanted, events, first_position, last_position, type)
    left join opened as o on o.correlation_id = u.id),
  grown as (
    update "rillflow"."workflows" as w
    set last_position = greatest(w.last_position, f.last_position),
      last_type = case when w.last_position < f.last_position then f.type else w.last_type end,
      open = w.open + f.n,
      updated_at = begun_at
    from touched as f
    where w.correlation_id = f.id
      and f.id = any(known)
    returning f.events, w.open, f.n > 0 and w.open = f.n as is_woken),
  added as (
    insert into "rillflow"."workflows" (
      correlation_id, first_position, last_position, last_type, open, started_at, updated_at)
    select f.id, f.first_position, f.last_position, f.type, f.n, begun_at, begun_at
    from touched as f
    where f.is_wanted
      and f.id <> all(coalesce(known, '{}'))
    returning open),
  executions as (
    insert into "rillflow"."workflow_executions" (
      id, position, route, correlation_id, rank, queued_at, run_at, expires_at, state, fence, worker, attempt,
      started_at, deadline_at)
    select g.id, g.position, g.route, g.correlation_id,
      (extract(epoch from begun_at) * 1000)::bigint + g.priority * 10000,
      case when g.state is null then begun_at else p_began_at end,
      case when g.delay_ms > 0 then "rillflow"."later"(p_at => begun_at, p_ms => g.delay_ms) end,
      case when g.deadline_ms is not null then "rillflow"."later"(p_at => begun_at, p_ms => g.deadline_ms) end,
      case when g.begins then 'running' when g.delay_ms > 0 then 'delayed' else 'ready' end,
      case when g.begins then p_worker_fence else 0 end,
      case when g.begins then p_worker end,
      case when g.begins then 1 else 0 end,
      case when g.begins then begun_at end,
      case when g.begins then "rillflow"."later"(p_at => begun_at, p_ms => g.timeout_ms::bigint + p_grace_ms) end
    from given as g
    where not g.has_ended
    order by g.position),
  recorded as (
    insert into "rillflow"."workflow_activity" (
      position, at, event_position, execution, version, attempt, queued_ms, running_ms, kind, handler,
      correlation_id, worker)
    select nextval('"rillflow"."workflow_activity_position"'), begun_at, t.*
    from (
      select g.position, g.id, g.version, 0, null::integer, null::integer, 'dispatched', g.handler, g.correlation_id,
        null::text
      from given as g
      order by g.position, g.route) as t
    union all
    select nextval('"rillflow"."workflow_activity_position"'), begun_at, t.*
    from (
      select g.position, g.id, g.version, 1, 0, null::integer, 'started', g.handler, g.correlation_id, p_worker
      from given as g
      where g.begins
        or g.has_ended
      order by g.priority, g.position, g.id) as t
    union all
    select nextval('"rillflow"."workflow_activity_position"'), begun_at, t.*
    from (
      select g.position, g.id, g.version, 1, 0, g.running_ms, g.state, g.handler, g.correlation_id, p_worker
      from given as g
      where g.has_ended
      order by g.position, g.route) as t)
  select
      (select count(*) from given),
      (select count(*) from given as g where not g.has_ended and not g.begins),
      (select count(*) from given as g where g.has_ended),
      (select array_agg(g.id order by g.priority, g.position, g.id) from given as g where g.begins),
      (select count(*) from added),
      coalesce((select sum(g.events) from grown as g), 0)
        + coalesce((
          select sum(f.events)
          from touched as f
          where f.is_wanted
            and f.id <> all(coalesce(known, '{}'))), 0),
      (select count(*) from grown as g where g.is_woken) + (select count(*) from added as a where a.open > 0),
      exists (select from grown as g where g.open = 0) or exists (select from added as a where a.open = 0)
    into queued, ready, ended, begun, made, counted, woken, is_idle;
  perform "rillflow"."workflow_count"(
    p_owner => 'dispatcher',
    p_names => array['active', 'completed', 'dispatched', 'events', 'workflows'],
    p_by => array[woken, ended, queued, counted, made]);
  update "rillflow"."consumers" as c
    set checkpoint = p_checkpoint,
      attempts = 0,
      retry_at = null,
      progressed_at = begun_at
    where c.name = p_consumer;
  if p_watched is not null and is_idle then
    select jsonb_agg(jsonb_build_array(
        w.correlation_id, w.last_type, w.started_at, w.updated_at, w.parent, w.reason, w.attributes))
      into settled
      from "rillflow"."workflows" as w
      where w.correlation_id = any(p_watched)
        and w.open = 0
        and w.state = 'active'
        and not exists (
          select
          from "rillflow"."events" as e
          where e.correlation_id = w.correlation_id
            and e.position > p_checkpoint
          limit 1)
        and not exists (
              select
              from "rillflow"."dead_letters" as d
              where d.correlation_id = w.correlation_id
                and d.state in ('open', 'retrying')
              limit 1);
  end if;
  is_paused := dispatcher.paused_at is not null;
  outcome := 'done';
end
$body$;

-- function workflow_claim

create or replace function "rillflow"."workflow_claim"(
  p_owner text,
  p_fence bigint,
  p_routes integer[],
  p_limit integer,
  p_ahead integer,
  p_grace_ms integer)
returns table (execution "rillflow"."workflow_executions", event "rillflow"."events", edited jsonb)
language plpgsql volatile
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set jit = off
as $body$
-- revision 8
declare
  moment timestamptz;
  open_routes integer[];
  max_counts integer[];
  limited "rillflow"."workflow_routes";
  running integer;
  tokens double precision;
  max_count integer;
  taken integer;
  claimed uuid[];
  held uuid[];
  drawn bigint[];
begin
  -- A worker without a row, or without routes, counts as dead and gets nothing: no other worker would ever take it
  -- over from it.
  perform
    from "rillflow"."runners" as r
    where r.id = p_owner
      and r.routes <> '{}'
    for key share;
  if not found then
    return;
  end if;
  select array_agg(r.id), array_agg(p_limit * 2)
    into open_routes, max_counts
    from "rillflow"."workflow_routes" as r
    where r.id = any(p_routes)
      and r.paused_at is null
      and r.concurrency is null
      and r.rate_limit is null;
  for limited in
    select *
    from "rillflow"."workflow_routes" as r
    where r.id = any(p_routes)
      and r.paused_at is null
      and (r.concurrency is not null or r.rate_limit is not null)
    order by r.id
    for update
  loop
    max_count := p_limit;
    if limited.concurrency is not null then
      select count(*) into running
        from "rillflow"."workflow_executions" as x
        where x.route = limited.id
          and x.worker is not null;
      max_count := least(max_count, limited.concurrency - running);
    end if;
    if limited.rate_limit is not null then
      moment := "rillflow"."clock"(limited.id);
      tokens := least(limited.rate_limit, coalesce(limited.rate_tokens, limited.rate_limit)
        + extract(epoch from moment - coalesce(limited.rate_at, moment)) * 1000
          * limited.rate_limit / limited.rate_per_ms);
      max_count := least(max_count, floor(tokens)::integer);
      update "rillflow"."workflow_routes" as r
        set rate_tokens = tokens,
          rate_at = moment
        where r.id = limited.id;
    end if;
    if max_count > 0 then
      open_routes := open_routes || limited.id;
      max_counts := max_counts || max_count;
    end if;
  end loop;
  if open_routes is null then
    return;
  end if;

  with candidates as materialized (
    select c.id, c.rank
    from unnest(open_routes, max_counts) as o(route, max_count)
    cross join lateral (
      select x.id, x.rank
      from "rillflow"."workflow_executions" as x
      where x.route = o.route
        and x.state = 'ready'
      order by x.rank, x.id
      limit o.max_count) as c
    order by c.rank, c.id
    limit p_limit * 2)
  select array_agg(l.id) into claimed
    from (
      select x.id
      from candidates as o
      join "rillflow"."workflow_executions" as x on x.id = o.id
      where x.state = 'ready'
      order by o.rank, o.id
      limit p_limit
      for update of x skip locked) as l;
  if claimed is null then
    return;
  end if;

  moment := "rillflow"."clock"(p_owner);
  perform set_config('synchronous_commit', 'off', true);
  perform "rillflow"."workflow_announce"();
  with begun as (
    update "rillflow"."workflow_executions" as x
    set state = 'running',
      attempt = x.attempt + 1,
      started_at = moment,
      deadline_at = "rillflow"."later"(p_at => moment, p_ms => greatest(0, r.timeout_ms - x.ran_ms)::bigint + p_grace_ms),
      fence = p_fence, worker = p_owner
    from "rillflow"."workflow_routes" as r
    where r.id = x.route
      and x.id = any(claimed)
    returning x.id, x.lane, x.position, x.attempt, x.correlation_id, x.rank, r.handler, r.version, r.priority),
  recorded as (
    insert into "rillflow"."workflow_activity" (
      position, at, event_position, execution, version, attempt, queued_ms, kind, handler, correlation_id, worker)
    select nextval('"rillflow"."workflow_activity_position"'), moment, b.position, b.id, b.version, b.attempt,
      "rillflow"."workflow_queued_ms"(
        p_at => moment,
        p_rank => b.rank,
        p_priority => b.priority), 'started', b.handler, b.correlation_id, p_owner
    from begun as b)
  select array_agg(b.id) into claimed from begun as b;

  if p_ahead > 0 then
    with follows as materialized (
      select f.id, f.lane, f.position, f.fits
      from "rillflow"."workflow_executions" as h
      join "rillflow"."workflow_lanes" as l on l.lane = h.lane and l.ordered and not l.parked
      join "rillflow"."workflow_routes" as r on r.id = h.route
        and r.concurrency is null
        and r.rate_limit is null
        and r.delay_ms = 0
      cross join lateral (
        select x.id, x.lane, x.position, x.state = 'blocked' and x.route = h.route as fits
        from "rillflow"."workflow_executions" as x
        where x.lane = h.lane
          and x.position > h.position
        order by x.position
        limit p_ahead) as f
      where h.id = any(claimed)
        and h.lane is not null),
    free as materialized (
      select x.id
      from "rillflow"."workflow_executions" as x
      where x.id in (select follows.id from follows where follows.fits)
        -- By the ids alone: a plan from before there was a backlog would read all that is blocked.
        and x.state || '' = 'blocked'
      for update skip locked)
    select array_agg(u.id) into held
      from (
        select follows.id,
          bool_and(free.id is not null) over (partition by follows.lane order by follows.position) as is_next
        from follows
        left join free on free.id = follows.id) as u
      where u.is_next;
    if held is not null then
      update "rillflow"."workflow_executions" as x
        set state = 'held',
          fence = p_fence,
          worker = p_owner
        where x.id = any(held);
    end if;
  end if;

  for limited in
    select *
    from "rillflow"."workflow_routes" as r
    where r.id = any(p_routes)
      and r.rate_limit is not null
    order by r.id
  loop
    select count(*) into taken
      from "rillflow"."workflow_executions" as x
      where x.id = any(claimed)
        and x.route = limited.id;
    if taken > 0 then
      update "rillflow"."workflow_routes" as r
        set rate_tokens = r.rate_tokens - taken
        where r.id = limited.id;
    end if;
  end loop;

  return query
    select x,
      case when sum(e.bytes) over so_far - e.bytes < 8388608 then e end,
      case when sum(e.bytes) over so_far - e.bytes < 8388608 then d.edited end
    from "rillflow"."workflow_executions" as x
    join "rillflow"."workflow_routes" as r on r.id = x.route
    left join "rillflow"."events" as e on e.position = x.position
    left join "rillflow"."dead_letters" as d
      on x.is_retry
      and d.consumer = 'handler:' || r.handler
      and d.event_id = e.event_id
      and d.state = 'retrying'
    where x.id = any(claimed || held)
    window so_far as (order by x.rank, x.position rows unbounded preceding)
    order by x.rank, x.position;
end
$body$;

-- function workflow_hold

create or replace function "rillflow"."workflow_hold"(
  p_correlations text[],
  p_lanes text[],
  p_ids uuid[],
  p_fences bigint[],
  out accepted uuid[])
language plpgsql volatile
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $body$
-- revision 1
begin
  perform
    from "rillflow"."workflows" as w
    where w.correlation_id = any(p_correlations)
    order by w.correlation_id
    for update;
  if p_lanes is not null then
    perform
      from "rillflow"."workflow_lanes" as l
      where l.lane = any(p_lanes)
      order by l.lane
      for update;
  end if;
  select array_agg(x.id) into accepted
    from (
      select x.id
      from unnest(p_ids, p_fences) as u(id, fence)
      join "rillflow"."workflow_executions" as x on x.id = u.id
      where x.fence = u.fence
        and x.state = 'running'
      for update of x) as x;
end
$body$;

-- function workflow_complete

create or replace function "rillflow"."workflow_complete"(
  p_owner text,
  p_correlations text[],
  p_lanes text[],
  p_ids uuid[],
  p_fences bigint[],
  p_kinds text[],
  p_recorded text[],
  p_outcomes text[],
  p_delays integer[],
  p_running_ms integer[],
  p_results jsonb,
  p_errors jsonb,
  p_next uuid[],
  p_grace_ms integer,
  p_clean boolean,
  out accepted uuid[],
  out begun uuid[])
language plpgsql volatile
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $body$
-- revision 4
declare
  moment timestamptz;
  gone uuid[];
  ended integer;
  settled integer;
  failures integer;
  drawn bigint[];
begin
  accepted := "rillflow"."workflow_hold"(
    p_correlations => p_correlations,
    p_lanes => p_lanes,
    p_ids => p_ids,
    p_fences => p_fences);
  if accepted is null then
    -- What is held behind an execution that is gone must not wait for it.
    if p_lanes is not null then
      perform "rillflow"."workflow_advance"(p_owner => p_owner, p_lanes => p_lanes, p_next => null, p_grace_ms => p_grace_ms);
    end if;
    return;
  end if;

  moment := "rillflow"."clock"(p_owner);
  perform "rillflow"."workflow_announce"();
  insert into "rillflow"."workflow_activity" (
    position, at, event_position, execution, version, attempt, queued_ms, running_ms, kind, outcome, handler,
    correlation_id, worker, result, error)
  select nextval('"rillflow"."workflow_activity_position"'), moment, x.position, x.id, r.version, x.attempt,
    "rillflow"."workflow_queued_ms"(
      p_at => x.started_at,
      p_rank => x.rank,
      p_priority => r.priority), u.running_ms, u.recorded, u.outcome, r.handler,
    x.correlation_id, p_owner, nullif(u.result, 'null'), nullif(u.error, 'null')
  from rows from (
    unnest(p_ids, p_recorded, p_outcomes, p_running_ms),
    jsonb_array_elements(p_results),
    jsonb_array_elements(p_errors)) with ordinality as u(id, recorded, outcome, running_ms, result, error, n)
  join "rillflow"."workflow_executions" as x on x.id = u.id
  join "rillflow"."workflow_routes" as r on r.id = x.route
  where u.id = any(accepted)
  order by u.n;

  -- Lanes first: executions that are deleted cannot be counted afterwards.
  if p_lanes is not null then
    update "rillflow"."workflow_lanes" as l
      set open = l.open - c.done,
        active = l.active - case when l.ordered then c.done else c.ended end
      from (
        select x.lane,
          count(*) filter (where u.kind = 'done') as done,
          count(*) filter (where u.kind in ('done', 'retry', 'suspend', 'park') or u.delay_ms > 0) as ended
        from unnest(p_ids, p_kinds, p_delays) as u(id, kind, delay_ms)
        join "rillflow"."workflow_executions" as x on x.id = u.id
        where u.id = any(accepted)
          and x.lane is not null
        group by x.lane) as c
      where l.lane = c.lane;
  end if;

  select array_agg(u.id) into gone
    from unnest(p_ids, p_kinds) as u(id, kind)
    where u.kind = 'done'
      and u.id = any(accepted);
  if gone is not null then
    if p_clean then
      -- The steps of an execution that failed for good stay, for a retry of its dead letter.
      delete from "rillflow"."workflow_steps" as s
        using unnest(p_ids, p_recorded) as u(id, recorded)
        where s.execution = u.id
          and u.id = any(gone)
          and u.recorded <> 'failed';
      delete from "rillflow"."workflow_waits" as w
        where w.execution = any(gone);
    end if;
    with deleted as (
      delete from "rillflow"."workflow_executions" as x
      where x.id = any(gone)
      returning x.correlation_id),
    counted as (
      select d.correlation_id, count(*) as n
      from deleted as d
      group by d.correlation_id),
    moved as (
      update "rillflow"."workflows" as w
      set open = w.open - c.n,
        updated_at = moment
      from counted as c
      where w.correlation_id = c.correlation_id
      returning w.open = 0 as is_settled)
    select (select count(*) from deleted), (select count(*) from moved where is_settled)
      into ended, settled;
    select count(*) into failures
      from unnest(p_ids, p_kinds, p_recorded) as u(id, kind, recorded)
      where u.kind = 'done'
        and u.recorded = 'failed'
        and u.id = any(accepted);
    perform "rillflow"."workflow_count"(
      p_owner => p_owner,
      p_names => array['active', 'completed', 'failed'],
      p_by => array[-settled, ended - failures, failures]);
  end if;
  if cardinality(accepted) > coalesce(cardinality(gone), 0) then
    update "rillflow"."workflow_executions" as x
      set state = case u.kind
          when 'retry' then 'delayed'
          when 'suspend' then 'suspended'
          when 'park' then 'parked'
          else case when u.delay_ms > 0 then 'delayed' else 'ready' end end,
        run_at = case
          when u.kind = 'suspend' then least(
            "rillflow"."later"(p_at => moment, p_ms => u.delay_ms), x.expires_at)
          when u.kind = 'retry' or u.delay_ms > 0
          then "rillflow"."later"(p_at => moment, p_ms => u.delay_ms) end,
        attempt = x.attempt - case when u.kind in ('suspend', 'release', 'park') then 1 else 0 end,
        crashes = x.crashes + case when u.kind = 'crash' then 1 else 0 end,
        -- Above zero, the next run of this attempt looks for the steps it has left.
        ran_ms = case u.kind
          when 'suspend' then x.ran_ms + greatest(1, u.running_ms)
          when 'release' then greatest(1, x.ran_ms)
          when 'park' then greatest(1, x.ran_ms)
          else 0 end,
        worker = null,
        started_at = null,
        deadline_at = null
      from unnest(p_ids, p_kinds, p_delays, p_running_ms) as u(id, kind, delay_ms, running_ms)
      where x.id = u.id
        and u.kind <> 'done'
        and x.id = any(accepted);
  end if;

  if p_lanes is not null then
    begun := "rillflow"."workflow_advance"(p_owner => p_owner, p_lanes => p_lanes, p_next => p_next, p_grace_ms => p_grace_ms);
  end if;
end
$body$;

-- function workflow_settled

create or replace function "rillflow"."workflow_settled"(p_watched text[], out settled jsonb)
language plpgsql volatile
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $body$
-- revision 1
declare
  reached bigint;
begin
  if p_watched is null then
    return;
  end if;
  select c.checkpoint into reached
    from "rillflow"."consumers" as c
    where c.name = 'workflows';
  select jsonb_agg(jsonb_build_array(
      w.correlation_id, w.last_type, w.started_at, w.updated_at, w.parent, w.reason, w.attributes))
    into settled
    from "rillflow"."workflows" as w
    where w.correlation_id = any(p_watched)
      and w.open = 0
      and w.state = 'active'
      and not exists (
        select
        from "rillflow"."events" as e
        where e.correlation_id = w.correlation_id
          and e.position > coalesce(reached, 0)
        limit 1)
      and not exists (
            select
            from "rillflow"."dead_letters" as d
            where d.correlation_id = w.correlation_id
              and d.state in ('open', 'retrying')
            limit 1);
end
$body$;

-- function workflow_advance

create or replace function "rillflow"."workflow_advance"(
  p_owner text,
  p_lanes text[],
  p_next uuid[],
  p_grace_ms integer,
  out begun uuid[])
language plpgsql volatile
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set jit = off
as $body$
-- revision 6
declare
  moment constant timestamptz := "rillflow"."clock"(p_owner);
  taken text[];
  drawn bigint[];
begin
  if p_next is not null then
    perform "rillflow"."workflow_announce"();
    with begun as (
      update "rillflow"."workflow_executions" as x
      set state = 'running',
        attempt = x.attempt + 1,
        started_at = moment,
        deadline_at = "rillflow"."later"(p_at => moment, p_ms => greatest(0, r.timeout_ms - x.ran_ms)::bigint + p_grace_ms),
        worker = p_owner
      from "rillflow"."workflow_routes" as r
      where r.id = x.route
        and x.id = any(p_next)
          and x.state = 'held'
          and x.worker = p_owner
          and r.paused_at is null
          and exists (
            select
            from "rillflow"."workflow_lanes" as l
            where l.lane = x.lane
              and l.active < l.width
              and not l.parked)
      returning x.id, x.lane, x.position, x.attempt, x.correlation_id, x.rank, r.handler, r.version, r.priority),
    recorded as (
      insert into "rillflow"."workflow_activity" (
        position, at, event_position, execution, version, attempt, queued_ms, kind, handler, correlation_id, worker)
      select nextval('"rillflow"."workflow_activity_position"'), moment, b.position, b.id, b.version, b.attempt,
        "rillflow"."workflow_queued_ms"(
          p_at => moment,
          p_rank => b.rank,
          p_priority => b.priority), 'started', b.handler, b.correlation_id, p_owner
      from begun as b)
    select array_agg(b.id), array_agg(b.lane) into begun, taken from begun as b;
    update "rillflow"."workflow_lanes" as l
      set active = l.active + 1
      where l.lane = any(taken);
  end if;
  -- What is held behind an execution that no longer runs, or is not to be started here, queues again.
  update "rillflow"."workflow_executions" as x
    set state = 'blocked',
      worker = null
    where x.lane = any(p_lanes)
      and x.state = 'held'
      and not exists (
        select
        from "rillflow"."workflow_executions" as h
        where h.lane = x.lane
          and h.state = 'running'
          and h.fence = x.fence
        -- Not joined, which could read what runs in all lanes.
        offset 0);
  -- By lane and id alone: with a plain comparison of the state, a plan made before there was a backlog would read all
  -- that is blocked.
  with free as (
    select l.lane, l.parked, l.width - l.active as places
    from "rillflow"."workflow_lanes" as l
    where l.lane = any(p_lanes)
      and l.width > l.active),
  next as (
    select n.id, r.priority, n.due_at, coalesce(n.due_at > moment, false) as is_early
    from free
    cross join lateral (
      select x.id, x.route, x.queued_at, x.is_retry
      from "rillflow"."workflow_executions" as x
      where x.lane = free.lane
        and x.state || '' = 'blocked'
        and (x.is_retry or not free.parked)
      order by x.position
      limit free.places) as b
    join "rillflow"."workflow_routes" as r on r.id = b.route
    cross join lateral (
      select b.id,
        case when not b.is_retry then "rillflow"."later"(p_at => b.queued_at, p_ms => r.delay_ms) end as due_at) as n),
  promoted as (
    -- One whose time has not come keeps its place in the lane until then.
    update "rillflow"."workflow_executions" as x
    set state = case when next.is_early then 'delayed' else 'ready' end,
      run_at = case when next.is_early then next.due_at end,
      rank = "rillflow"."workflow_rank"(p_at => moment, p_priority => next.priority)
    from next
    where x.id = next.id
      and x.state || '' = 'blocked'
    returning x.lane)
  update "rillflow"."workflow_lanes" as l
    set active = l.active + c.n
    from (
      select p.lane, count(*) as n
      from promoted as p
      group by p.lane) as c
    where l.lane = c.lane;
  delete from "rillflow"."workflow_lanes" as l
    where l.lane = any(p_lanes)
      and l.open = 0
      and not l.parked;
end
$body$;

-- function workflow_cancel

create or replace function "rillflow"."workflow_cancel"(
  p_owner text,
  p_correlation text,
  p_dispatcher text,
  p_state text,
  p_reason text,
  p_except uuid,
  out cancelled boolean)
language plpgsql volatile
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $body$
-- revision 2
declare
  workflow "rillflow"."workflows";
  newest bigint;
  dispatched bigint;
  lanes text[];
  removed uuid[];
  joins integer;
  new_fence bigint;
begin
  cancelled := false;
  select * into workflow
    from "rillflow"."workflows" as w
    where w.correlation_id = p_correlation
    for update;
  -- Read after the row is held: what the dispatcher has done for this workflow until now, it has committed.
  select c.checkpoint into dispatched
    from "rillflow"."consumers" as c
    where c.name = p_dispatcher;
  select e.position into newest
    from "rillflow"."events" as e
    where e.correlation_id = p_correlation
    order by e.position desc
    limit 1;
  if workflow.correlation_id is null then
    if coalesce(newest, 0) <= coalesce(dispatched, 0) then
      return;
    end if;
    perform "rillflow"."workflow_make"(p_owner => p_owner, p_correlation => p_correlation);
    select * into workflow
      from "rillflow"."workflows" as w
      where w.correlation_id = p_correlation
      for update;
    select c.checkpoint into dispatched
      from "rillflow"."consumers" as c
      where c.name = p_dispatcher;
  end if;
  if workflow.state <> 'active' then
    return;
  end if;
  if workflow.open = 0
    and coalesce(newest, 0) <= coalesce(dispatched, 0)
    and not exists (
      select
      from "rillflow"."dead_letters" as d
      where d.correlation_id = p_correlation
        and d.state in ('open', 'retrying'))
    and (p_state = 'cancelled' or not exists (
      select
      from "rillflow"."workflow_undos" as u
      where u.correlation_id = p_correlation)) then
    return;
  end if;

  cancelled := true;
  lanes := "rillflow"."workflow_hold_lanes"(p_correlation => p_correlation);
  perform
    from "rillflow"."workflow_executions" as x
    where x.correlation_id = p_correlation
    order by x.id
    for update;
  update "rillflow"."workflows" as w
    set state = p_state,
      reason = p_reason,
      is_spreading = exists (
        select
        from "rillflow"."workflows" as c
        where c.parent = p_correlation)
    where w.correlation_id = p_correlation;
  with closed as (
    update "rillflow"."workflow_joins" as j
    set state = 'cancelled',
      closed_at = "rillflow"."clock"(j.closed_at)
    where j.correlation_id = p_correlation
      and j.state = 'open'
    returning j.id)
  select count(*) into joins from closed;
  -- Cancelling it also decides about what its lanes were parked for.
  if p_except is null then
    update "rillflow"."workflow_lanes" as l
      set parked = false,
        parked_by = null
      where l.lane = any(lanes)
        and l.parked
        and exists (
          select
          from "rillflow"."dead_letters" as d
          where d.execution = l.parked_by
            and d.correlation_id = p_correlation);
  end if;
  -- A retry that was requested no longer happens.
  update "rillflow"."dead_letters" as d
    set retry_at = null
    where d.correlation_id = p_correlation
      and d.state = 'open'
      and d.retry_at is not null;
  if p_state = 'compensating' then
    new_fence := ("rillflow"."consumers_draw"(p_count => 1))[1];
    update "rillflow"."workflow_executions" as x
      set state = 'stopping',
        fence = new_fence
      where x.correlation_id = p_correlation
        and x.state = 'running'
        and x.id is distinct from p_except;
  end if;
  select array_agg(x.id) into removed
    from "rillflow"."workflow_executions" as x
    where x.correlation_id = p_correlation
      and x.state <> 'stopping'
      and x.id is distinct from p_except;
  perform "rillflow"."workflow_remove"(
    p_owner => p_owner,
    p_correlation => p_correlation,
    p_ids => removed,
    p_lanes => lanes,
    p_joins => joins);
end
$body$;

-- function workflow_stopped

create or replace function "rillflow"."workflow_stopped"(
  p_owner text,
  p_correlation text,
  p_ids uuid[],
  out removed integer)
language plpgsql volatile
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $body$
-- revision 1
declare
  lanes text[];
  gone uuid[];
begin
  perform
    from "rillflow"."workflows" as w
    where w.correlation_id = p_correlation
    for update;
  lanes := "rillflow"."workflow_hold_lanes"(p_correlation => p_correlation);
  select array_agg(s.id) into gone
    from (
      select x.id
      from "rillflow"."workflow_executions" as x
      where x.id = any(p_ids)
        and x.correlation_id = p_correlation
        and x.state = 'stopping'
      for update) as s;
  removed := coalesce(cardinality(gone), 0);
  if removed > 0 then
    perform "rillflow"."workflow_remove"(
      p_owner => p_owner,
      p_correlation => p_correlation,
      p_ids => gone,
      p_lanes => lanes,
      p_joins => 0);
  end if;
end
$body$;

-- function workflow_make

create or replace function "rillflow"."workflow_make"(p_owner text, p_correlation text) returns void
language plpgsql volatile
set jit = off
as $body$
-- revision 1
declare
  moment constant timestamptz := "rillflow"."clock"(p_owner);
  made bigint;
begin
  insert into "rillflow"."workflows" as w (
    correlation_id, first_position, last_position, last_type, parent, started_at, updated_at)
    -- Nothing of it is dispatched yet.
    select p_correlation, first.position, first.position - 1, last.type, first.headers->'workflow'->>'parent', moment,
      moment
    from (
      select e.position, e.headers
      from "rillflow"."events" as e
      where e.correlation_id = p_correlation
      order by e.position
      limit 1) as first,
    (
      select e.type
      from "rillflow"."events" as e
      where e.correlation_id = p_correlation
      order by e.position desc
      limit 1) as last
    on conflict (correlation_id) do nothing;
  get diagnostics made = row_count;
  perform "rillflow"."workflow_count"(p_owner => p_owner, p_names => array['workflows'], p_by => array[made]);
end
$body$;

-- function workflow_hold_lanes

create or replace function "rillflow"."workflow_hold_lanes"(p_correlation text, out lanes text[])
language plpgsql volatile
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $body$
-- revision 1
begin
  select array_agg(u.lane) into lanes
    from (
      select x.lane
      from "rillflow"."workflow_executions" as x
      where x.correlation_id = p_correlation
        and x.lane is not null
      union
      select l.lane
      from "rillflow"."dead_letters" as d
      join "rillflow"."workflow_lanes" as l on l.parked and l.parked_by = d.execution
      where d.correlation_id = p_correlation
        and d.state in ('open', 'retrying')) as u;
  perform
    from "rillflow"."workflow_lanes" as l
    where l.lane = any(lanes)
    order by l.lane
    for update;
end
$body$;

-- function workflow_remove

create or replace function "rillflow"."workflow_remove"(
  p_owner text,
  p_correlation text,
  p_ids uuid[],
  p_lanes text[],
  p_joins integer)
returns void
language plpgsql volatile
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $body$
-- revision 4
declare
  moment constant timestamptz := "rillflow"."clock"(p_owner);
  removed integer := 0;
  settled integer := 0;
  drawn bigint[];
begin
  if p_ids is not null then
    perform "rillflow"."workflow_announce"();
    insert into "rillflow"."workflow_activity" (
      position, at, event_position, execution, version, attempt, running_ms, kind, outcome, handler, correlation_id,
      worker)
    select nextval('"rillflow"."workflow_activity_position"'), moment, x.position, x.id, r.version, x.attempt,
      least(2147483647, extract(epoch from moment - x.started_at) * 1000)::integer,
      'cancelled', x.state, r.handler, x.correlation_id, x.worker
    from "rillflow"."workflow_executions" as x
    join "rillflow"."workflow_routes" as r on r.id = x.route
    where x.id = any(p_ids)
    order by x.position, x.id;
    -- In an ordered lane all but those that queue have their place, in others only those at work or about to be.
    update "rillflow"."workflow_lanes" as l
      set open = l.open - c.n,
        active = l.active - case when l.ordered then c.placed else c.busy end
      from (
        select x.lane, count(*) as n,
          count(*) filter (where x.state not in ('blocked', 'held')) as placed,
          count(*) filter (where x.state in ('ready', 'running', 'stopping')) as busy
        from "rillflow"."workflow_executions" as x
        where x.id = any(p_ids)
          and x.lane is not null
        group by x.lane) as c
      where l.lane = c.lane;
    delete from "rillflow"."workflow_steps" as s
      where s.execution = any(p_ids);
    delete from "rillflow"."workflow_waits" as w
      where w.execution = any(p_ids);
    update "rillflow"."dead_letters" as d
      set state = 'open',
        retry_at = null,
        history = jsonb_path_query_array(d.history || "rillflow"."state_entry"(moment, d.state, 'open', null), '$[last-19 to last]')
      where d.correlation_id = p_correlation
        and d.state = 'retrying'
        and d.execution = any(p_ids);
    delete from "rillflow"."workflow_executions" as x
      where x.id = any(p_ids);
    get diagnostics removed = row_count;
  end if;
  update "rillflow"."workflows" as w
    set open = w.open - removed - p_joins,
      updated_at = moment
    where w.correlation_id = p_correlation
    returning case when w.open = 0 and removed + p_joins > 0 then 1 else 0 end into settled;
  perform "rillflow"."workflow_count"(
    p_owner => p_owner,
    p_names => array['active', 'cancelled'],
    p_by => array[-settled, removed]::bigint[]);
  if p_lanes is null then
    return;
  end if;
  perform "rillflow"."workflow_advance"(p_owner => p_owner, p_lanes => p_lanes, p_next => null, p_grace_ms => 0);
end
$body$;

-- function publish

create or replace function "rillflow"."publish"(
  p_type text,
  p_data jsonb default '{}',
  p_stream text default null,
  p_correlation_id text default null,
  p_user_id text default null,
  p_headers jsonb default null,
  p_schema_version integer default 1)
returns text
language plpgsql volatile
set jit = off
as $body$
-- revision 1
declare
  random constant text := replace(gen_random_uuid()::text, '-', '');
  id uuid;
  correlation text;
  target text;
  found_outcome text;
begin
  if coalesce(p_type, '') = '' or octet_length(p_type) > 255 then
    raise exception 'The type of an event must be a text of 1 to 255 bytes.'
      using errcode = 'invalid_parameter_value';
  end if;
  if p_headers is not null and jsonb_typeof(p_headers) <> 'object' then
    raise exception 'The headers of an event must be a JSON object.'
      using errcode = 'invalid_parameter_value';
  end if;
  -- It begins with the time, as all ids do, so that the unique index grows at its end.
  id := (lpad(to_hex((extract(epoch from "rillflow"."clock"(p_type)) * 1000)::bigint), 12, '0')
    || '7' || substr(random, 1, 3) || '8' || substr(random, 4, 15))::uuid;
  correlation := coalesce(p_correlation_id, id::text);
  target := coalesce(p_stream, 'workflow-' || case
    when octet_length(correlation) <= 246 then correlation
    else encode(sha256(convert_to(correlation, 'UTF8')), 'hex') end);
  select a.outcome into found_outcome
    from "rillflow"."append_one"(
      p_stream => target,
      p_expected => 'any',
      p_version => null,
      p_allow_archived => false,
      p_ids => array[id],
      p_types => array[p_type],
      p_schema_versions => array[p_schema_version],
      p_data => jsonb_build_array(p_data),
      p_headers => jsonb_build_array(p_headers),
      p_correlations => array[correlation],
      p_causations => null,
      p_users => array[p_user_id]) as a;
  if found_outcome <> 'appended' then
    raise exception '%', case found_outcome
        when 'archived' then format('Stream "%s" is archived. Restore it first, or name another.', target)
        when 'tombstoned' then format('Stream "%s" was deleted, and its name cannot be used again.', target)
        when 'inline' then format('An inline projection wants events of type %s, so a program has to publish it.', p_type)
        else format('Stream "%s" refused the event: %s.', target, found_outcome) end
      using errcode = 'object_not_in_prerequisite_state';
  end if;
  -- A hint for readers on the default channel; others find the event when they look the next time.
  perform pg_notify('rillflow_events', n.nspname::text)
    from pg_class as c
    join pg_namespace as n on n.oid = c.relnamespace
    where c.oid = '"rillflow"."events"'::regclass;
  return correlation;
end
$body$;
