/**
 * An append that inline projections want, in two calls of one transaction: all checks, then all writes. Between them
 * the projections run, with the streams locked, their versions known, and no position drawn.
 */
import { byIndexOnly, plpgsql, type SqlFunction } from '../../schema/plpgsql.ts'

/**
 * One append, waiting for its key and its streams. Outcomes, order and the form of streams and parts as in
 * `append_batch`. Of one that is accepted `versions` is what its streams were at, by part; they are advanced already.
 */
export const appendCheck: SqlFunction = plpgsql({ revision: 1, settings: byIndexOnly })`
  create function ~append_check(
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
  declare
    stored_key ~idempotency_keys;
    is_new_key boolean := false;
    current bigint[];
    marks integer[];
    is_missing boolean;
    present bigint;
    is_same boolean;
    s integer;
  begin
    if current_setting('transaction_isolation') <> 'read committed' then
      perform
        from ~inline_projections
        limit 0;
      perform
        from ~inline_changes
        where id = 1
        for share;
    end if;
    select array_agg(i.name order by i.name), array_agg(i.version order by i.name)
      into inline_names, inline_versions
      from ~inline_projections as i
      where i.types is null
        or i.types && p_types;
    outcome := 0;
    failed_part := 0;

    while p_key is not null loop
      insert into ~idempotency_keys (key, digest, event_ids)
        values (p_key, p_digest, p_ids)
        on conflict do nothing;
      is_new_key := found;
      exit when is_new_key;
      select * into stored_key
        from ~idempotency_keys
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
      insert into ~streams (stream, version)
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
          from ~streams as s
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
        left join ~events as stored on stored.event_id = e.id;
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
      update ~streams as t
        set version = t.version + x.count
        from unnest(p_part_stream, p_part_count) as x(i, count)
        where t.stream = p_streams[x.i];
      -- To the millisecond, so that the projections see the very time that is stored.
      created_at := date_trunc('milliseconds', ~clock(p_ids));
      return;
    end if;
    if is_new_key and outcome <> 7 then
      delete from ~idempotency_keys
        where key = p_key;
    end if;
    delete from ~streams as t
      using unnest(p_streams) as u(stream)
      where t.stream = u.stream
        and t.version = 0;
  end`

/** What was checked, later in the same transaction: announce, draw positions, insert. */
export const appendStore: SqlFunction = plpgsql({ revision: 1 })`
  create function ~append_store(
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
  begin
    perform ~announce();
    with inserted as (
      insert into ~events (
        position, stream, version, event_id, type, schema_version, data, headers,
        correlation_id, causation_id, user_id, created_at)
      select
        nextval('~events_position'), p_part_streams[e.p], p_part_versions[e.p] + e.n, e.id, e.t,
        coalesce(e.v, 1), e.d, nullif(e.h, 'null'), coalesce(e.co, e.id::text), e.ca, e.u, p_created_at
      from rows from (
        unnest(p_event_part, p_event_number, p_ids, p_types, p_schema_versions, p_correlations, p_causations, p_users),
        jsonb_array_elements(p_data),
        jsonb_array_elements(p_headers)) as e(p, n, id, t, v, co, ca, u, d, h)
      returning position)
    select array_agg(position) into positions from inserted;
  end`
