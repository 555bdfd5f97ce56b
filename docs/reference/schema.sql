-- All that a new store in schema "rillflow" is made of; generated from src/schema/migrations.

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

-- migration 1 (events)

create sequence "rillflow"."events_position"
  as bigint
  increment by 1
  minvalue 1
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
  event_ids uuid[] not null
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

insert into "rillflow"."migrations" (id, name, checksum, breaking)
values (1, 'events', '06d7496425887c4c8d3dd70ba89fe03498321475482be47dee42ddf191d0f11a', true);

-- migration 2 (settle)

create function "rillflow"."signed32"(value bigint) returns integer
language sql immutable parallel safe
return ((value & 4294967295) - case when value & 2147483648 <> 0 then 4294967296 else 0 end)::integer;

create function "rillflow"."announce"() returns void
language plpgsql volatile
as '
declare
  sequence_oid constant bigint := ''"rillflow"."events_position"''::regclass::oid::bigint;
  announced constant text := ''rillflow.announced_'' || sequence_oid;
  bound bigint;
begin
  if coalesce(current_setting(announced, true), '''') <> '''' then
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
';

create function "rillflow"."settle"(out head bigint, out settled bigint, out timeline text, out session text)
language plpgsql volatile
as '
declare
  sequence_oid constant bigint := ''"rillflow"."events_position"''::regclass::oid::bigint;
  bound bigint;
begin
  if pg_is_in_recovery() then
    raise exception ''settle() needs the primary'' using errcode = ''RF001'';
  end if;
  if current_setting(''transaction_isolation'') <> ''read committed'' then
    raise exception ''settle() needs read committed'' using errcode = ''RF002'';
  end if;
  timeline := left(pg_walfile_name(pg_current_wal_lsn()), 8);
  session := pg_backend_pid() || coalesce(
    (select ''@'' || extract(epoch from backend_start) from pg_stat_get_activity(pg_backend_pid())), '''');
  select case when is_called then last_value else last_value - 1 end
    into head
    from "rillflow"."events_position";
  select min(head + "rillflow"."signed32"(locks.objid::bigint - head))
    into bound
    from pg_locks as locks
    where locks.locktype = ''advisory''
      and locks.database = (select oid from pg_database where datname = current_database())
      and locks.classid::bigint = sequence_oid
      and locks.objsubid = 2
      and locks.mode = ''ShareLock'';
  settled := least(head, bound);
end
';

insert into "rillflow"."migrations" (id, name, checksum, breaking)
values (2, 'settle', 'ddcbfa0f9585829fa4d4e0a30c25bb55e8b9d4a6641851df7c6bf4e618bd3703', true);

-- migration 3 (append)

create function "rillflow"."append_one"(
  p_stream text,
  p_expected bigint,
  p_allow_archived boolean,
  p_ids uuid[],
  p_types text[],
  p_schema_versions integer[],
  p_data jsonb,
  p_headers jsonb,
  p_correlations text[],
  p_causations text[],
  p_users text[],
  out outcome integer,
  out at_version bigint,
  out at_position bigint)
language plpgsql volatile
as '
declare
  p_count constant integer := cardinality(p_ids);
  found_stream "rillflow"."streams";
begin
  outcome := 0;
  loop
    update "rillflow"."streams" as s
      set version = s.version + p_count
      where s.stream = p_stream
        and (s.version = p_expected or p_expected = -1 or (p_expected = -2 and s.version > 0))
        and s.tombstoned_at is null
        and (s.archived_at is null or p_allow_archived)
      returning s.version into at_version;
    exit when found;
    if p_expected in (-1, 0) then
      insert into "rillflow"."streams" (stream, version)
        values (p_stream, p_count)
        on conflict do nothing
        returning version into at_version;
      exit when found;
    end if;
    select * into found_stream
      from "rillflow"."streams" as s
      where s.stream = p_stream
      for update;
    at_version := coalesce(found_stream.version, 0);
    if found_stream.tombstoned_at is not null then
      outcome := 3;
      return;
    elsif found_stream.archived_at is not null and not p_allow_archived then
      outcome := 2;
      return;
    elsif (p_expected >= 0 and at_version <> p_expected) or (p_expected = -2 and at_version = 0) then
      outcome := 1;
      return;
    end if;
    -- It changed between the statements so that it fits now: once more.
  end loop;
  perform "rillflow"."announce"();
  with inserted as (
    insert into "rillflow"."events" (
      position, stream, version, event_id, type, schema_version, data, headers,
      correlation_id, causation_id, user_id, created_at)
    select
      nextval(''"rillflow"."events_position"''), p_stream, at_version - p_count + e.n, e.id, e.t,
      coalesce(e.v, 1), e.d, nullif(e.h, ''null''), coalesce(e.co, e.id::text), e.ca, e.u, clock_timestamp()
    from rows from (
      unnest(p_ids, p_types, p_schema_versions, p_correlations, p_causations, p_users),
      jsonb_array_elements(p_data),
      jsonb_array_elements(p_headers)) with ordinality as e(id, t, v, co, ca, u, d, h, n)
    returning position)
  select max(position) into at_position from inserted;
end
';

create function "rillflow"."append_batch"(
  p_streams text[],
  p_part_append integer[],
  p_part_stream integer[],
  p_part_expected bigint[],
  p_part_count integer[],
  p_allow_archived boolean[],
  p_check_ids boolean[],
  p_keys text[],
  p_digests text[],
  p_simple boolean,
  p_wait boolean,
  p_event_part integer[],
  p_event_number integer[],
  p_ids uuid[],
  p_types text[],
  p_schema_versions integer[],
  p_data jsonb,
  p_headers jsonb,
  p_correlations text[],
  p_causations text[],
  p_users text[],
  out outcomes integer[],
  out failed_parts integer[],
  out versions bigint[],
  out positions bigint[])
language plpgsql volatile
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as '
declare
  appends constant integer := cardinality(p_allow_archived);
  parts constant integer := cardinality(p_part_append);
  -- By stream: the version it is at (null: somebody else holds it), whether its row was there, 2 archived, 3 tombstoned.
  current bigint[];
  known boolean[];
  marks integer[];
  -- By part: the version before its first event, null if it is refused.
  base bigint[];
  passed_over boolean[];
  new_keys text[];
  r record;
  p integer;
  q integer;
  s integer;
  wanted bigint;
  made bigint;
begin
  if not p_wait then
    perform set_config(''lock_timeout'', ''50ms'', true);
  end if;

  outcomes := array_fill(0, array[appends]);
  -- Keys. Inserting one waits for whoever is just using it; what is then there was used before.
  if p_keys is not null then
    with inserted as (
      insert into "rillflow"."idempotency_keys" (key, digest, event_ids)
      select k.key, k.digest, array(
          select e.id
          from unnest(p_event_part, p_ids) as e(p, id)
          where p_part_append[e.p] = k.a)
      from unnest(p_keys, p_digests) with ordinality as k(key, digest, a)
      where k.key is not null
      order by k.key collate "C"
      on conflict do nothing
      returning key)
    select array_agg(key) into new_keys from inserted;
    for r in
      select k.a, stored.digest = k.digest as same, not exists (
          select
          from unnest(p_event_part, p_ids) as e(p, id)
          where p_part_append[e.p] = k.a
            and e.id <> all(stored.event_ids)) as own
      from unnest(p_keys, p_digests) with ordinality as k(key, digest, a)
      join "rillflow"."idempotency_keys" as stored on stored.key = k.key
    loop
      -- The same events under the same key: this very append, sent before. Their ids tell what became of it.
      if not (r.own and r.same) then
        outcomes[r.a] := case when r.same then 5 else 6 end;
      end if;
    end loop;
  end if;

  -- Streams. In a batch those that exist are locked unless somebody else has them.
  if p_wait then
    insert into "rillflow"."streams" (stream, version)
      select u.stream, 0
      from unnest(p_streams) with ordinality as u(stream, i)
      where exists (
        select
        from unnest(p_part_stream, p_part_expected) as x(i, expected)
        where x.i = u.i
          and x.expected in (-1, 0))
      order by u.i
      on conflict do nothing;
    select array_agg(t.version), array_agg(t.mark), array_agg(t.version is not null)
      into current, marks, known
      from unnest(p_streams) as u(stream)
      left join lateral (
        select s.version, case when s.tombstoned_at is not null then 3 when s.archived_at is not null then 2 else 0 end as mark
        from "rillflow"."streams" as s
        where s.stream = u.stream
        for update) as t on true;
  else
    select array_agg(t.version), array_agg(t.mark), array_agg(t.version is not null)
      into current, marks, known
      from unnest(p_streams) as u(stream)
      left join lateral (
        select s.version, case when s.tombstoned_at is not null then 3 when s.archived_at is not null then 2 else 0 end as mark
        from "rillflow"."streams" as s
        where s.stream = u.stream
        for update skip locked) as t on true;
  end if;
  -- What is still unknown does not exist yet (version 0), or is held by somebody (stays null).
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

  -- Ids, where the events may have been stored before.
  if p_check_ids is not null then
    for r in
      select
        p_part_append[e.p] as a,
        count(stored.event_id) as present,
        count(*) as wanted,
        bool_and(stored.event_id is null or (
          stored.stream = p_streams[p_part_stream[e.p]] and stored.type = e.t and stored.data = e.d)) as same
      from rows from (unnest(p_event_part, p_ids, p_types), jsonb_array_elements(p_data)) as e(p, id, t, d)
      left join "rillflow"."events" as stored on stored.event_id = e.id
      where p_check_ids[p_part_append[e.p]]
      group by 1
    loop
      if outcomes[r.a] = 0 and r.present > 0 then
        outcomes[r.a] := case when r.same and r.present = r.wanted then 7 else 8 end;
      end if;
    end loop;
  end if;

  -- Versions.
  versions := current;
  if p_simple then
    select array_agg(u.outcome), array_agg(case when u.outcome = 0 then u.version end)
      into outcomes, base
      from (
        select x.version, case
          when x.version is null then 4
          when x.mark = 3 or (x.mark = 2 and not x.allow) then x.mark
          when (x.expected >= 0 and x.version <> x.expected) or (x.expected = -2 and x.version = 0) then 1
          else 0 end as outcome
        from unnest(current, marks, p_part_expected, p_allow_archived) as x(version, mark, expected, allow)) as u;
    select array_agg(coalesce(u.base + u.count, u.version))
      into current
      from unnest(current, base, p_part_count) as u(version, base, count);
  else
    -- Append by append, since one may follow another on the same stream.
    failed_parts := array_fill(0, array[appends]);
    versions := array_fill(null::bigint, array[parts]);
    base := array_fill(null::bigint, array[parts]);
    passed_over := array_fill(false, array[cardinality(p_streams)]);
    p := 1;
    for a in 1 .. appends loop
      q := p;
      while q <= parts and p_part_append[q] = a loop
        s := p_part_stream[q];
        versions[q] := current[s];
        if outcomes[a] = 0 then
          outcomes[a] := case
            when current[s] is null or passed_over[s] then 4
            when marks[s] = 3 or (marks[s] = 2 and not p_allow_archived[a]) then marks[s]
            when (p_part_expected[q] >= 0 and current[s] <> p_part_expected[q])
              or (p_part_expected[q] = -2 and current[s] = 0) then 1
            else 0 end;
          if outcomes[a] <> 0 then
            failed_parts[a] := q;
          end if;
        end if;
        q := q + 1;
      end loop;
      if outcomes[a] = 0 then
        for i in p .. q - 1 loop
          s := p_part_stream[i];
          base[i] := current[s];
          versions[i] := current[s];
          current[s] := current[s] + p_part_count[i];
        end loop;
      elsif outcomes[a] = 4 then
        -- What comes after it on one of its streams must not overtake it.
        for i in p .. q - 1 loop
          passed_over[p_part_stream[i]] := true;
        end loop;
      end if;
      p := q;
    end loop;
  end if;

  if 0 = any(outcomes) then
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
      insert into "rillflow"."streams" (stream, version)
        select u.stream, u.version
        from unnest(p_streams, known, current) with ordinality as u(stream, known, version, i)
        where not u.known
          and u.version > 0
        order by u.i
        on conflict do nothing;
      get diagnostics made = row_count;
      if made < wanted then
        raise exception ''a stream was created by another append'' using errcode = ''55P03'';
      end if;
    end if;
    perform "rillflow"."announce"();
    with inserted as (
      insert into "rillflow"."events" (
        position, stream, version, event_id, type, schema_version, data, headers,
        correlation_id, causation_id, user_id, created_at)
      select
        nextval(''"rillflow"."events_position"''), p_streams[p_part_stream[e.p]], base[e.p] + e.n, e.id, e.t,
        coalesce(e.v, 1), e.d, nullif(e.h, ''null''), coalesce(e.co, e.id::text), e.ca, e.u, clock_timestamp()
      from rows from (
        unnest(
          p_event_part, p_event_number, p_ids, p_types, p_schema_versions, p_correlations, p_causations, p_users),
        jsonb_array_elements(p_data),
        jsonb_array_elements(p_headers)) as e(p, n, id, t, v, co, ca, u, d, h)
      where base[e.p] is not null
      returning position)
    select array_agg(position) into positions from inserted;
  end if;

  -- What a refused append has left behind: the key it brought, and streams made for it while waiting.
  if 0 <> any(outcomes) then
    if p_keys is not null then
      delete from "rillflow"."idempotency_keys" as k
        using unnest(p_keys, outcomes) as u(key, outcome)
        where k.key = u.key
          and k.key = any(new_keys)
          and u.outcome in (1, 2, 3, 4, 8);
    end if;
    if p_wait then
      delete from "rillflow"."streams" as t
        using unnest(p_streams) as u(stream)
        where t.stream = u.stream
          and t.version = 0;
    end if;
  end if;
end
';

insert into "rillflow"."migrations" (id, name, checksum, breaking)
values (3, 'append', 'afd2860fd71c511e395da0cd2e72db21ee07e783aa8e8b147a4b226670bfd988', true);

-- migration 4 (consumers)

create sequence "rillflow"."consumers_fence"
  as bigint
  increment by 1
  minvalue 1
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
  attempts integer not null default 0,
  name text collate "C" primary key,
  kind text not null,
  state text not null default 'active',
  owner text,
  definition jsonb not null default '{}',
  last_error jsonb
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

create table "rillflow"."daemons" (
  heartbeat_at timestamptz not null,
  started_at timestamptz not null default now(),
  lease_ms integer not null,
  owner text collate "C" primary key,
  role text not null,
  node text collate "C",
  consumers text[] not null
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

create unique index daemons_node on "rillflow"."daemons" (node) where node is not null;

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
  primary key (consumer, event_id)
);

create index dead_letters_position on "rillflow"."dead_letters" (consumer, position);

create index dead_letters_requested on "rillflow"."dead_letters" (consumer, retry_at) where retry_at is not null;

insert into "rillflow"."migrations" (id, name, checksum, breaking)
values (4, 'consumers', '4555c2912744559dbc7987dfeaf325499a1f2f5b34001e01864f7b6afacb5515', false);

-- migration 5 (subscriptions)

create table "rillflow"."deliveries" (
  position bigint not null,
  acked_at timestamptz,
  retry_at timestamptz,
  deliveries integer not null,
  consumer text collate "C" not null,
  last_error jsonb,
  primary key (consumer, position)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

insert into "rillflow"."migrations" (id, name, checksum, breaking)
values (5, 'subscriptions', 'cc2074c7429b7e6c4ddf39163573743f3713c1bcb72dd52fe461bcc72640dd5b', false);

-- migration 6 (inline)

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

create or replace function "rillflow"."append_one"(
  p_stream text,
  p_expected bigint,
  p_allow_archived boolean,
  p_ids uuid[],
  p_types text[],
  p_schema_versions integer[],
  p_data jsonb,
  p_headers jsonb,
  p_correlations text[],
  p_causations text[],
  p_users text[],
  out outcome integer,
  out at_version bigint,
  out at_position bigint)
language plpgsql volatile
as '
declare
  p_count constant integer := cardinality(p_ids);
  found_stream "rillflow"."streams";
begin
  if current_setting(''transaction_isolation'') <> ''read committed'' then
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
    outcome := 9;
    return;
  end if;
  outcome := 0;
  loop
    update "rillflow"."streams" as s
      set version = s.version + p_count
      where s.stream = p_stream
        and (s.version = p_expected or p_expected = -1 or (p_expected = -2 and s.version > 0))
        and s.tombstoned_at is null
        and (s.archived_at is null or p_allow_archived)
      returning s.version into at_version;
    exit when found;
    if p_expected in (-1, 0) then
      insert into "rillflow"."streams" (stream, version)
        values (p_stream, p_count)
        on conflict do nothing
        returning version into at_version;
      exit when found;
    end if;
    select * into found_stream
      from "rillflow"."streams" as s
      where s.stream = p_stream
      for update;
    at_version := coalesce(found_stream.version, 0);
    if found_stream.tombstoned_at is not null then
      outcome := 3;
      return;
    elsif found_stream.archived_at is not null and not p_allow_archived then
      outcome := 2;
      return;
    elsif (p_expected >= 0 and at_version <> p_expected) or (p_expected = -2 and at_version = 0) then
      outcome := 1;
      return;
    end if;
    -- It changed between the statements so that it fits now: once more.
  end loop;
  perform "rillflow"."announce"();
  with inserted as (
    insert into "rillflow"."events" (
      position, stream, version, event_id, type, schema_version, data, headers,
      correlation_id, causation_id, user_id, created_at)
    select
      nextval(''"rillflow"."events_position"''), p_stream, at_version - p_count + e.n, e.id, e.t,
      coalesce(e.v, 1), e.d, nullif(e.h, ''null''), coalesce(e.co, e.id::text), e.ca, e.u, clock_timestamp()
    from rows from (
      unnest(p_ids, p_types, p_schema_versions, p_correlations, p_causations, p_users),
      jsonb_array_elements(p_data),
      jsonb_array_elements(p_headers)) with ordinality as e(id, t, v, co, ca, u, d, h, n)
    returning position)
  select max(position) into at_position from inserted;
end
';

create or replace function "rillflow"."append_batch"(
  p_streams text[],
  p_part_append integer[],
  p_part_stream integer[],
  p_part_expected bigint[],
  p_part_count integer[],
  p_allow_archived boolean[],
  p_check_ids boolean[],
  p_keys text[],
  p_digests text[],
  p_simple boolean,
  p_wait boolean,
  p_event_part integer[],
  p_event_number integer[],
  p_ids uuid[],
  p_types text[],
  p_schema_versions integer[],
  p_data jsonb,
  p_headers jsonb,
  p_correlations text[],
  p_causations text[],
  p_users text[],
  out outcomes integer[],
  out failed_parts integer[],
  out versions bigint[],
  out positions bigint[])
language plpgsql volatile
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as '
declare
  appends constant integer := cardinality(p_allow_archived);
  parts constant integer := cardinality(p_part_append);
  -- By stream: the version it is at (null: somebody else holds it), whether its row was there, 2 archived, 3 tombstoned.
  current bigint[];
  known boolean[];
  marks integer[];
  -- By part: the version before its first event, null if it is refused.
  base bigint[];
  passed_over boolean[];
  new_keys text[];
  -- The appends that an inline projection wants an event of.
  met integer[];
  r record;
  p integer;
  q integer;
  s integer;
  wanted bigint;
  made bigint;
begin
  -- Before the short lock_timeout: a batch waits at the barrier as a whole instead of being split.
  if current_setting(''transaction_isolation'') <> ''read committed'' then
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
    select array_agg(distinct p_part_append[e.p])
      into met
      from unnest(p_event_part, p_types) as e(p, t)
      where exists (
        select
        from "rillflow"."inline_projections" as i
        where i.types is null
          or e.t = any(i.types));
  end if;
  if not p_wait then
    perform set_config(''lock_timeout'', ''50ms'', true);
  end if;

  outcomes := array_fill(0, array[appends]);
  -- Keys. Inserting one waits for whoever is just using it; what is then there was used before.
  if p_keys is not null then
    with inserted as (
      insert into "rillflow"."idempotency_keys" (key, digest, event_ids)
      select k.key, k.digest, array(
          select e.id
          from unnest(p_event_part, p_ids) as e(p, id)
          where p_part_append[e.p] = k.a)
      from unnest(p_keys, p_digests) with ordinality as k(key, digest, a)
      where k.key is not null
      order by k.key collate "C"
      on conflict do nothing
      returning key)
    select array_agg(key) into new_keys from inserted;
    for r in
      select k.a, stored.digest = k.digest as same, not exists (
          select
          from unnest(p_event_part, p_ids) as e(p, id)
          where p_part_append[e.p] = k.a
            and e.id <> all(stored.event_ids)) as own
      from unnest(p_keys, p_digests) with ordinality as k(key, digest, a)
      join "rillflow"."idempotency_keys" as stored on stored.key = k.key
    loop
      -- The same events under the same key: this very append, sent before. Their ids tell what became of it.
      if not (r.own and r.same) then
        outcomes[r.a] := case when r.same then 5 else 6 end;
      end if;
    end loop;
  end if;

  -- Streams. In a batch those that exist are locked unless somebody else has them.
  if p_wait then
    insert into "rillflow"."streams" (stream, version)
      select u.stream, 0
      from unnest(p_streams) with ordinality as u(stream, i)
      where exists (
        select
        from unnest(p_part_stream, p_part_expected) as x(i, expected)
        where x.i = u.i
          and x.expected in (-1, 0))
      order by u.i
      on conflict do nothing;
    select array_agg(t.version), array_agg(t.mark), array_agg(t.version is not null)
      into current, marks, known
      from unnest(p_streams) as u(stream)
      left join lateral (
        select s.version, case when s.tombstoned_at is not null then 3 when s.archived_at is not null then 2 else 0 end as mark
        from "rillflow"."streams" as s
        where s.stream = u.stream
        for update) as t on true;
  else
    select array_agg(t.version), array_agg(t.mark), array_agg(t.version is not null)
      into current, marks, known
      from unnest(p_streams) as u(stream)
      left join lateral (
        select s.version, case when s.tombstoned_at is not null then 3 when s.archived_at is not null then 2 else 0 end as mark
        from "rillflow"."streams" as s
        where s.stream = u.stream
        for update skip locked) as t on true;
  end if;
  -- What is still unknown does not exist yet (version 0), or is held by somebody (stays null).
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

  -- Ids, where the events may have been stored before.
  if p_check_ids is not null then
    for r in
      select
        p_part_append[e.p] as a,
        count(stored.event_id) as present,
        count(*) as wanted,
        bool_and(stored.event_id is null or (
          stored.stream = p_streams[p_part_stream[e.p]] and stored.type = e.t and stored.data = e.d)) as same
      from rows from (unnest(p_event_part, p_ids, p_types), jsonb_array_elements(p_data)) as e(p, id, t, d)
      left join "rillflow"."events" as stored on stored.event_id = e.id
      where p_check_ids[p_part_append[e.p]]
      group by 1
    loop
      if outcomes[r.a] = 0 and r.present > 0 then
        outcomes[r.a] := case when r.same and r.present = r.wanted then 7 else 8 end;
      end if;
    end loop;
  end if;

  if met is not null then
    select array_agg(case when u.outcome = 0 and u.a = any(met) then 9 else u.outcome end order by u.a)
      into outcomes
      from unnest(outcomes) with ordinality as u(outcome, a);
  end if;

  -- Versions.
  versions := current;
  if p_simple and met is null then
    select array_agg(u.outcome), array_agg(case when u.outcome = 0 then u.version end)
      into outcomes, base
      from (
        select x.version, case
          when x.version is null then 4
          when x.mark = 3 or (x.mark = 2 and not x.allow) then x.mark
          when (x.expected >= 0 and x.version <> x.expected) or (x.expected = -2 and x.version = 0) then 1
          else 0 end as outcome
        from unnest(current, marks, p_part_expected, p_allow_archived) as x(version, mark, expected, allow)) as u;
    select array_agg(coalesce(u.base + u.count, u.version))
      into current
      from unnest(current, base, p_part_count) as u(version, base, count);
  else
    -- Append by append, since one may follow another on the same stream.
    failed_parts := array_fill(0, array[appends]);
    versions := array_fill(null::bigint, array[parts]);
    base := array_fill(null::bigint, array[parts]);
    passed_over := array_fill(false, array[cardinality(p_streams)]);
    p := 1;
    for a in 1 .. appends loop
      q := p;
      while q <= parts and p_part_append[q] = a loop
        s := p_part_stream[q];
        versions[q] := current[s];
        if outcomes[a] = 0 then
          outcomes[a] := case
            when current[s] is null or passed_over[s] then 4
            when marks[s] = 3 or (marks[s] = 2 and not p_allow_archived[a]) then marks[s]
            when (p_part_expected[q] >= 0 and current[s] <> p_part_expected[q])
              or (p_part_expected[q] = -2 and current[s] = 0) then 1
            else 0 end;
          if outcomes[a] <> 0 then
            failed_parts[a] := q;
          end if;
        end if;
        q := q + 1;
      end loop;
      if outcomes[a] = 0 then
        for i in p .. q - 1 loop
          s := p_part_stream[i];
          base[i] := current[s];
          versions[i] := current[s];
          current[s] := current[s] + p_part_count[i];
        end loop;
      elsif outcomes[a] in (4, 9) then
        -- What comes after it on one of its streams must not overtake it.
        for i in p .. q - 1 loop
          passed_over[p_part_stream[i]] := true;
        end loop;
      end if;
      p := q;
    end loop;
  end if;

  if 0 = any(outcomes) then
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
      insert into "rillflow"."streams" (stream, version)
        select u.stream, u.version
        from unnest(p_streams, known, current) with ordinality as u(stream, known, version, i)
        where not u.known
          and u.version > 0
        order by u.i
        on conflict do nothing;
      get diagnostics made = row_count;
      if made < wanted then
        raise exception ''a stream was created by another append'' using errcode = ''55P03'';
      end if;
    end if;
    perform "rillflow"."announce"();
    with inserted as (
      insert into "rillflow"."events" (
        position, stream, version, event_id, type, schema_version, data, headers,
        correlation_id, causation_id, user_id, created_at)
      select
        nextval(''"rillflow"."events_position"''), p_streams[p_part_stream[e.p]], base[e.p] + e.n, e.id, e.t,
        coalesce(e.v, 1), e.d, nullif(e.h, ''null''), coalesce(e.co, e.id::text), e.ca, e.u, clock_timestamp()
      from rows from (
        unnest(
          p_event_part, p_event_number, p_ids, p_types, p_schema_versions, p_correlations, p_causations, p_users),
        jsonb_array_elements(p_data),
        jsonb_array_elements(p_headers)) as e(p, n, id, t, v, co, ca, u, d, h)
      where base[e.p] is not null
      returning position)
    select array_agg(position) into positions from inserted;
  end if;

  -- What a refused append has left behind: the key it brought, and streams made for it while waiting.
  if 0 <> any(outcomes) then
    if p_keys is not null then
      delete from "rillflow"."idempotency_keys" as k
        using unnest(p_keys, outcomes) as u(key, outcome)
        where k.key = u.key
          and k.key = any(new_keys)
          and u.outcome in (1, 2, 3, 4, 8, 9);
    end if;
    if p_wait then
      delete from "rillflow"."streams" as t
        using unnest(p_streams) as u(stream)
        where t.stream = u.stream
          and t.version = 0;
    end if;
  end if;
end
';

create function "rillflow"."append_check"(
  p_streams text[],
  p_part_stream integer[],
  p_part_expected bigint[],
  p_part_count integer[],
  p_allow_archived boolean,
  p_check_ids boolean,
  p_key text,
  p_digest text,
  p_event_part integer[],
  p_ids uuid[],
  p_types text[],
  p_data jsonb,
  out outcome integer,
  out failed_part integer,
  out versions bigint[],
  out created_at timestamptz,
  out inline_names text[],
  out inline_versions integer[])
language plpgsql volatile
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as '
declare
  stored_key "rillflow"."idempotency_keys";
  is_new_key boolean := false;
  current bigint[];
  marks integer[];
  is_missing boolean;
  present bigint;
  is_same boolean;
  s integer;
begin
  if current_setting(''transaction_isolation'') <> ''read committed'' then
    perform
      from "rillflow"."inline_projections"
      limit 0;
    perform
      from "rillflow"."inline_changes"
      where id = 1
      for share;
  end if;
  select array_agg(i.name order by i.name), array_agg(i.version order by i.name)
    into inline_names, inline_versions
    from "rillflow"."inline_projections" as i
    where i.types is null
      or i.types && p_types;
  outcome := 0;
  failed_part := 0;

  while p_key is not null loop
    insert into "rillflow"."idempotency_keys" (key, digest, event_ids)
      values (p_key, p_digest, p_ids)
      on conflict do nothing;
    is_new_key := found;
    exit when is_new_key;
    select * into stored_key
      from "rillflow"."idempotency_keys"
      where key = p_key;
    if found then
      -- The same events under the same key: this very append, sent before. Their ids tell what became of it.
      if stored_key.digest <> p_digest then
        outcome := 6;
        return;
      elsif not p_ids <@ stored_key.event_ids then
        outcome := 5;
        return;
      end if;
      exit;
    end if;
    -- Whoever had it was refused and took it away again: once more.
  end loop;

  loop
    insert into "rillflow"."streams" (stream, version)
      select u.stream, 0
      from unnest(p_streams) with ordinality as u(stream, i)
      where exists (
        select
        from unnest(p_part_stream, p_part_expected) as x(i, expected)
        where x.i = u.i
          and x.expected in (-1, 0))
      order by u.i
      on conflict do nothing;
    select array_agg(coalesce(t.version, 0)), array_agg(coalesce(t.mark, 0)), bool_or(t.version is null and exists (
        select
        from unnest(p_part_stream, p_part_expected) as x(i, expected)
        where x.i = u.i
          and x.expected in (-1, 0)))
      into current, marks, is_missing
      from unnest(p_streams) with ordinality as u(stream, i)
      left join lateral (
        select s.version, case when s.tombstoned_at is not null then 3 when s.archived_at is not null then 2 else 0 end as mark
        from "rillflow"."streams" as s
        where s.stream = u.stream
        for update) as t on true;
    exit when not is_missing;
    -- Made by somebody who was refused and took it away again: once more.
  end loop;

  if p_check_ids then
    select count(stored.event_id), bool_and(stored.event_id is null or (
        stored.stream = p_streams[p_part_stream[e.p]] and stored.type = e.t and stored.data = e.d))
      into present, is_same
      from rows from (unnest(p_event_part, p_ids, p_types), jsonb_array_elements(p_data)) as e(p, id, t, d)
      left join "rillflow"."events" as stored on stored.event_id = e.id;
    if present > 0 then
      outcome := case when is_same and present = cardinality(p_ids) then 7 else 8 end;
    end if;
  end if;

  for p in 1 .. cardinality(p_part_stream) loop
    s := p_part_stream[p];
    versions[p] := current[s];
    if outcome = 0 then
      outcome := case
        when marks[s] = 3 or (marks[s] = 2 and not p_allow_archived) then marks[s]
        when (p_part_expected[p] >= 0 and current[s] <> p_part_expected[p])
          or (p_part_expected[p] = -2 and current[s] = 0) then 1
        else 0 end;
      if outcome <> 0 then
        failed_part := p;
      end if;
    end if;
  end loop;

  if outcome = 0 then
    update "rillflow"."streams" as t
      set version = t.version + x.count
      from unnest(p_part_stream, p_part_count) as x(i, count)
      where t.stream = p_streams[x.i];
    -- To the millisecond, so that the projections see the very time that is stored.
    created_at := date_trunc(''milliseconds'', clock_timestamp());
    return;
  end if;
  if is_new_key and outcome <> 7 then
    delete from "rillflow"."idempotency_keys"
      where key = p_key;
  end if;
  delete from "rillflow"."streams" as t
    using unnest(p_streams) as u(stream)
    where t.stream = u.stream
      and t.version = 0;
end
';

create function "rillflow"."append_store"(
  p_part_streams text[],
  p_part_versions bigint[],
  p_created_at timestamptz,
  p_event_part integer[],
  p_event_number integer[],
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
as '
begin
  perform "rillflow"."announce"();
  with inserted as (
    insert into "rillflow"."events" (
      position, stream, version, event_id, type, schema_version, data, headers,
      correlation_id, causation_id, user_id, created_at)
    select
      nextval(''"rillflow"."events_position"''), p_part_streams[e.p], p_part_versions[e.p] + e.n, e.id, e.t,
      coalesce(e.v, 1), e.d, nullif(e.h, ''null''), coalesce(e.co, e.id::text), e.ca, e.u, p_created_at
    from rows from (
      unnest(p_event_part, p_event_number, p_ids, p_types, p_schema_versions, p_correlations, p_causations, p_users),
      jsonb_array_elements(p_data),
      jsonb_array_elements(p_headers)) as e(p, n, id, t, v, co, ca, u, d, h)
    returning position)
  select array_agg(position) into positions from inserted;
end
';

insert into "rillflow"."migrations" (id, name, checksum, breaking)
values (6, 'inline', '0a07890ab969d024d96506a8dbc27820dbf4bfa05f06e0c53389da0426c412e6', true);

-- migration 7 (snapshots)

create table "rillflow"."snapshots" (
  version bigint not null,
  created_at timestamptz not null default now(),
  event_id uuid not null,
  state_version integer not null,
  stream text collate "C" not null,
  body json not null,
  primary key (stream, state_version)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

insert into "rillflow"."migrations" (id, name, checksum, breaking)
values (7, 'snapshots', '927a86926a1b55673d9df0f2158ed36595c2aa99ca80a819926f143877b35132', false);

-- migration 8 (sessions)

alter table "rillflow"."idempotency_keys" add column documents jsonb;

create or replace function "rillflow"."save_check"(
  p_streams text[],
  p_part_append integer[],
  p_part_stream integer[],
  p_part_expected bigint[],
  p_part_count integer[],
  p_allow_archived boolean[],
  p_check_ids boolean[],
  p_keys text[],
  p_digests text[],
  p_simple boolean,
  p_wait boolean,
  p_event_part integer[],
  p_event_number integer[],
  p_ids uuid[],
  p_types text[],
  p_schema_versions integer[],
  p_data jsonb,
  p_headers jsonb,
  p_correlations text[],
  p_causations text[],
  p_users text[],
  out outcomes integer[],
  out failed_parts integer[],
  out versions bigint[],
  out base bigint[])
language plpgsql volatile
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as '
declare
  appends constant integer := cardinality(p_allow_archived);
  parts constant integer := cardinality(p_part_append);
  -- By stream: the version it is at (null: somebody else holds it), whether its row was there, 2 archived, 3 tombstoned.
  current bigint[];
  known boolean[];
  marks integer[];
  -- By part: the version before its first event, null if it is refused.
  passed_over boolean[];
  new_keys text[];
  -- The appends that an inline projection wants an event of.
  met integer[];
  r record;
  p integer;
  q integer;
  s integer;
  wanted bigint;
  made bigint;
begin
  -- Before the short lock_timeout: a batch waits at the barrier as a whole instead of being split.
  if current_setting(''transaction_isolation'') <> ''read committed'' then
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
    select array_agg(distinct p_part_append[e.p])
      into met
      from unnest(p_event_part, p_types) as e(p, t)
      where exists (
        select
        from "rillflow"."inline_projections" as i
        where i.types is null
          or e.t = any(i.types));
  end if;
  if not p_wait then
    perform set_config(''lock_timeout'', ''50ms'', true);
  end if;

  outcomes := array_fill(0, array[appends]);
  -- Keys. Inserting one waits for whoever is just using it; what is then there was used before.
  if p_keys is not null then
    with inserted as (
      insert into "rillflow"."idempotency_keys" (key, digest, event_ids)
      select k.key, k.digest, array(
          select e.id
          from unnest(p_event_part, p_ids) as e(p, id)
          where p_part_append[e.p] = k.a)
      from unnest(p_keys, p_digests) with ordinality as k(key, digest, a)
      where k.key is not null
      order by k.key collate "C"
      on conflict do nothing
      returning key)
    select array_agg(key) into new_keys from inserted;
    for r in
      select k.a, stored.digest = k.digest as same, not exists (
          select
          from unnest(p_event_part, p_ids) as e(p, id)
          where p_part_append[e.p] = k.a
            and e.id <> all(stored.event_ids)) as own
      from unnest(p_keys, p_digests) with ordinality as k(key, digest, a)
      join "rillflow"."idempotency_keys" as stored on stored.key = k.key
    loop
      -- The same events under the same key: this very append, sent before. Their ids tell what became of it.
      if not (r.own and r.same) then
        outcomes[r.a] := case when r.same then 5 else 6 end;
      end if;
    end loop;
  end if;

  -- Streams. In a batch those that exist are locked unless somebody else has them.
  if p_wait then
    insert into "rillflow"."streams" (stream, version)
      select u.stream, 0
      from unnest(p_streams) with ordinality as u(stream, i)
      where exists (
        select
        from unnest(p_part_stream, p_part_expected) as x(i, expected)
        where x.i = u.i
          and x.expected in (-1, 0))
      order by u.i
      on conflict do nothing;
    select array_agg(t.version), array_agg(t.mark), array_agg(t.version is not null)
      into current, marks, known
      from unnest(p_streams) as u(stream)
      left join lateral (
        select s.version, case when s.tombstoned_at is not null then 3 when s.archived_at is not null then 2 else 0 end as mark
        from "rillflow"."streams" as s
        where s.stream = u.stream
        for update) as t on true;
  else
    select array_agg(t.version), array_agg(t.mark), array_agg(t.version is not null)
      into current, marks, known
      from unnest(p_streams) as u(stream)
      left join lateral (
        select s.version, case when s.tombstoned_at is not null then 3 when s.archived_at is not null then 2 else 0 end as mark
        from "rillflow"."streams" as s
        where s.stream = u.stream
        for update skip locked) as t on true;
  end if;
  -- What is still unknown does not exist yet (version 0), or is held by somebody (stays null).
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

  -- Ids, where the events may have been stored before.
  if p_check_ids is not null then
    for r in
      select
        p_part_append[e.p] as a,
        count(stored.event_id) as present,
        count(*) as wanted,
        bool_and(stored.event_id is null or (
          stored.stream = p_streams[p_part_stream[e.p]] and stored.type = e.t and stored.data = e.d)) as same
      from rows from (unnest(p_event_part, p_ids, p_types), jsonb_array_elements(p_data)) as e(p, id, t, d)
      left join "rillflow"."events" as stored on stored.event_id = e.id
      where p_check_ids[p_part_append[e.p]]
      group by 1
    loop
      if outcomes[r.a] = 0 and r.present > 0 then
        outcomes[r.a] := case when r.same and r.present = r.wanted then 7 else 8 end;
      end if;
    end loop;
  end if;

  if met is not null then
    select array_agg(case when u.outcome = 0 and u.a = any(met) then 9 else u.outcome end order by u.a)
      into outcomes
      from unnest(outcomes) with ordinality as u(outcome, a);
  end if;

  -- Versions.
  versions := current;
  if p_simple and met is null then
    select array_agg(u.outcome), array_agg(case when u.outcome = 0 then u.version end)
      into outcomes, base
      from (
        select x.version, case
          when x.version is null then 4
          when x.mark = 3 or (x.mark = 2 and not x.allow) then x.mark
          when (x.expected >= 0 and x.version <> x.expected) or (x.expected = -2 and x.version = 0) then 1
          else 0 end as outcome
        from unnest(current, marks, p_part_expected, p_allow_archived) as x(version, mark, expected, allow)) as u;
    select array_agg(coalesce(u.base + u.count, u.version))
      into current
      from unnest(current, base, p_part_count) as u(version, base, count);
  else
    -- Append by append, since one may follow another on the same stream.
    failed_parts := array_fill(0, array[appends]);
    versions := array_fill(null::bigint, array[parts]);
    base := array_fill(null::bigint, array[parts]);
    passed_over := array_fill(false, array[cardinality(p_streams)]);
    p := 1;
    for a in 1 .. appends loop
      q := p;
      while q <= parts and p_part_append[q] = a loop
        s := p_part_stream[q];
        versions[q] := current[s];
        if outcomes[a] = 0 then
          outcomes[a] := case
            when current[s] is null or passed_over[s] then 4
            when marks[s] = 3 or (marks[s] = 2 and not p_allow_archived[a]) then marks[s]
            when (p_part_expected[q] >= 0 and current[s] <> p_part_expected[q])
              or (p_part_expected[q] = -2 and current[s] = 0) then 1
            else 0 end;
          if outcomes[a] <> 0 then
            failed_parts[a] := q;
          end if;
        end if;
        q := q + 1;
      end loop;
      if outcomes[a] = 0 then
        for i in p .. q - 1 loop
          s := p_part_stream[i];
          base[i] := current[s];
          versions[i] := current[s];
          current[s] := current[s] + p_part_count[i];
        end loop;
      elsif outcomes[a] in (4, 9) then
        -- What comes after it on one of its streams must not overtake it.
        for i in p .. q - 1 loop
          passed_over[p_part_stream[i]] := true;
        end loop;
      end if;
      p := q;
    end loop;
  end if;

  if 0 = any(outcomes) then
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
      insert into "rillflow"."streams" (stream, version)
        select u.stream, u.version
        from unnest(p_streams, known, current) with ordinality as u(stream, known, version, i)
        where not u.known
          and u.version > 0
        order by u.i
        on conflict do nothing;
      get diagnostics made = row_count;
      if made < wanted then
        raise exception ''a stream was created by another append'' using errcode = ''55P03'';
      end if;
    end if;
  end if;

  -- What a refused append has left behind: the key it brought, and streams made for it while waiting.
  if 0 <> any(outcomes) then
    if p_keys is not null then
      delete from "rillflow"."idempotency_keys" as k
        using unnest(p_keys, outcomes) as u(key, outcome)
        where k.key = u.key
          and k.key = any(new_keys)
          and u.outcome in (1, 2, 3, 4, 8, 9);
    end if;
    if p_wait then
      delete from "rillflow"."streams" as t
        using unnest(p_streams) as u(stream)
        where t.stream = u.stream
          and t.version = 0;
    end if;
  end if;
end
';

create function "rillflow"."save_one_check"(
  p_stream text,
  p_expected bigint,
  p_count integer,
  p_types text[],
  out outcome integer,
  out at_version bigint)
language plpgsql volatile
as '
declare
  found_stream "rillflow"."streams";
begin
  if current_setting(''transaction_isolation'') <> ''read committed'' then
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
    outcome := 9;
    return;
  end if;
  perform set_config(''lock_timeout'', ''50ms'', true);
  outcome := 0;
  loop
    update "rillflow"."streams" as s
      set version = s.version + p_count
      where s.stream = p_stream
        and (s.version = p_expected or p_expected = -1 or (p_expected = -2 and s.version > 0))
        and s.tombstoned_at is null
        and s.archived_at is null
      returning s.version into at_version;
    exit when found;
    if p_expected in (-1, 0) then
      insert into "rillflow"."streams" (stream, version)
        values (p_stream, p_count)
        on conflict do nothing
        returning version into at_version;
      exit when found;
    end if;
    select * into found_stream
      from "rillflow"."streams" as s
      where s.stream = p_stream
      for update;
    at_version := coalesce(found_stream.version, 0);
    if found_stream.tombstoned_at is not null then
      outcome := 3;
      return;
    elsif found_stream.archived_at is not null then
      outcome := 2;
      return;
    elsif (p_expected >= 0 and at_version <> p_expected) or (p_expected = -2 and at_version = 0) then
      outcome := 1;
      return;
    end if;
    -- It changed between the statements so that it fits now: once more.
  end loop;
end
';

create function "rillflow"."save_store"(
  p_refused text,
  p_part_streams text[],
  p_base bigint[],
  p_event_part integer[],
  p_event_number integer[],
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
as '
begin
  if p_refused is not null then
    raise exception ''documents were refused'' using errcode = ''RF003'', detail = p_refused;
  end if;
  if num_nonnulls(variadic p_base) > 0 then
    perform "rillflow"."announce"();
    with inserted as (
      insert into "rillflow"."events" (
        position, stream, version, event_id, type, schema_version, data, headers,
        correlation_id, causation_id, user_id, created_at)
      select
        nextval(''"rillflow"."events_position"''), p_part_streams[e.p], p_base[e.p] + e.n, e.id, e.t,
        coalesce(e.v, 1), e.d, nullif(e.h, ''null''), coalesce(e.co, e.id::text), e.ca, e.u, clock_timestamp()
      from rows from (
        unnest(p_event_part, p_event_number, p_ids, p_types, p_schema_versions, p_correlations, p_causations, p_users),
        jsonb_array_elements(p_data),
        jsonb_array_elements(p_headers)) as e(p, n, id, t, v, co, ca, u, d, h)
      where p_base[e.p] is not null
      returning position)
    select array_agg(position) into positions from inserted;
  end if;
end
';

insert into "rillflow"."migrations" (id, name, checksum, breaking)
values (8, 'sessions', 'ba5c61ebeae283b9f252df791c0e456e14d995e451f9b60e767be012cc5ba37f', false);
