/**
 * `append_batch`: many appends in one call, each with its own outcome (see `append_one`). An append has one part per
 * stream; it is stored as a whole or not at all.
 *
 * - p_streams: each stream once, sorted by bytes, the order in which every transaction locks them.
 * - p_simple: part n is append n to stream n, without keys and ids to check: decided as a set instead of one by one.
 * - p_wait: wait for streams that other transactions hold (an append sent alone), or report them as busy (a batch, which
 *   must not be held up by one stream; creating one may wait for a moment, then 55P03 makes the caller split the batch).
 */
import { byIndexOnly, plpgsql, type SqlFunction } from '../../schema/plpgsql.ts'

/** Many appends, each with its own outcome. */
export const appendBatch: SqlFunction = plpgsql({ revision: 1, settings: byIndexOnly })`
  create function ~append_batch(
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
    if current_setting('transaction_isolation') <> 'read committed' then
      perform
        from ~inline_projections
        limit 0;
      perform
        from ~inline_changes
        where id = 1
        for share;
    end if;
    if exists (
        select
        from ~inline_projections as i
        where i.types is null
          or i.types && p_types) then
      select array_agg(distinct p_part_append[e.p])
        into met
        from unnest(p_event_part, p_types) as e(p, t)
        where exists (
          select
          from ~inline_projections as i
          where i.types is null
            or e.t = any(i.types));
    end if;
    if not p_wait then
      perform set_config('lock_timeout', '50ms', true);
    end if;

    outcomes := array_fill(0, array[appends]);
    -- Keys. Inserting one waits for whoever is just using it; what is then there was used before.
    if p_keys is not null then
      with inserted as (
        insert into ~idempotency_keys (key, digest, event_ids)
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
        join ~idempotency_keys as stored on stored.key = k.key
      loop
        -- The same events under the same key: this very append, sent before. Their ids tell what became of it.
        if not (r.own and r.same) then
          outcomes[r.a] := case when r.same then 5 else 6 end;
        end if;
      end loop;
    end if;

    -- Streams. In a batch those that exist are locked unless somebody else has them.
    if p_wait then
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
      select array_agg(t.version), array_agg(t.mark), array_agg(t.version is not null)
        into current, marks, known
        from unnest(p_streams) as u(stream)
        left join lateral (
          select s.version, case when s.tombstoned_at is not null then 3 when s.archived_at is not null then 2 else 0 end as mark
          from ~streams as s
          where s.stream = u.stream
          for update) as t on true;
    else
      select array_agg(t.version), array_agg(t.mark), array_agg(t.version is not null)
        into current, marks, known
        from unnest(p_streams) as u(stream)
        left join lateral (
          select s.version, case when s.tombstoned_at is not null then 3 when s.archived_at is not null then 2 else 0 end as mark
          from ~streams as s
          where s.stream = u.stream
          for update skip locked) as t on true;
    end if;
    -- What is still unknown does not exist yet (version 0), or is held by somebody (stays null).
    if false = any(known) then
      select array_agg(case
          when u.version is null and not exists (
            select
            from ~streams as s
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
        left join ~events as stored on stored.event_id = e.id
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
      update ~streams as t
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
        insert into ~streams (stream, version)
          select u.stream, u.version
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
      perform ~announce();
      with inserted as (
        insert into ~events (
          position, stream, version, event_id, type, schema_version, data, headers,
          correlation_id, causation_id, user_id, created_at)
        select
          nextval('~events_position'), p_streams[p_part_stream[e.p]], base[e.p] + e.n, e.id, e.t,
          coalesce(e.v, 1), e.d, nullif(e.h, 'null'), coalesce(e.co, e.id::text), e.ca, e.u, ~clock(e.id)
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
        delete from ~idempotency_keys as k
          using unnest(p_keys, outcomes) as u(key, outcome)
          where k.key = u.key
            and k.key = any(new_keys)
            and u.outcome in (1, 2, 3, 4, 8, 9);
      end if;
      if p_wait then
        delete from ~streams as t
          using unnest(p_streams) as u(stream)
          where t.stream = u.stream
            and t.version = 0;
      end if;
    end if;
  end`
