/**
 * An append that inline projections want, in two calls of one transaction: all checks, then all writes. Between them the
 * projections run, with the streams locked, their versions known, and no position drawn.
 */
import { type Fragment, fragment } from '../../database/sql.ts'
import { byIndexOnly, plpgsql, type SqlFunction } from '../../schema/plpgsql.ts'
import { createStreams } from '../append/append-batch.sql.ts'
import { eventArguments, holdInline, insertEvents, isExpected, markOf, mayCreate } from '../append/fragments.sql.ts'

/** Takes the key, or ends the call if it was used before. Waits for another append that is just using it. */
const takeKey: Fragment = fragment`
  while p_key is not null loop
    insert into ~idempotency_keys (key, digest, event_ids, created_at)
      values (p_key, p_digest, p_ids, moment)
      on conflict do nothing;
    is_new_key := found;
    exit when is_new_key;
    select * into stored_key
      from ~idempotency_keys
      where key = p_key;
    if found then
      -- The same events under the same key: this very append, sent before. Their ids say whether it was stored.
      if stored_key.digest <> p_digest then
        outcome := 'mismatched';
        return;
      elsif not p_ids <@ stored_key.event_ids then
        outcome := 'repeated';
        return;
      end if;
      exit;
    end if;
    -- The append that had it was refused and took it away again: try again.
  end loop;`

const lockStreams: Fragment = fragment`
  loop
    ${createStreams}
    select array_agg(coalesce(t.version, 0)), array_agg(t.mark), bool_or(t.version is null and exists (
        select
        from unnest(p_part_streams, p_part_expected, p_part_versions) as x(i, expected, version)
        where x.i = u.i
          and ${mayCreate(fragment`x.expected`, fragment`x.version`)}))
      into current, marks, is_missing
      from unnest(p_streams) with ordinality as u(stream, i)
      left join lateral (
        select s.version, ${markOf} as mark
        from ~streams as s
        where s.stream = u.stream
        for update) as t on true;
    exit when not is_missing;
    -- Made by an append that was refused and took it away again: try again.
  end loop;`

/**
 * One append, waiting for its key and its streams. Arguments and outcomes as in `append_batch`. Of one that is accepted
 * `versions` is what its streams were at, by part; they are advanced already.
 */
export const appendCheck: SqlFunction = plpgsql({ revision: 1, settings: byIndexOnly })`
  create function ~append_check(
    p_streams text[],
    p_part_streams integer[],
    p_part_expected text[],
    p_part_versions bigint[],
    p_part_counts integer[],
    p_allow_archived boolean,
    p_check_ids boolean,
    p_key text,
    p_digest text,
    p_event_parts integer[],
    p_ids uuid[],
    p_types text[],
    p_data jsonb,
    out outcome text,
    out failed_part integer,
    out versions bigint[],
    out created_at timestamptz,
    out inline_names text[],
    out inline_versions integer[])
  declare
    moment constant timestamptz := ~clock(p_key);
    stored_key ~idempotency_keys;
    is_new_key boolean := false;
    current bigint[];
    marks text[];
    is_missing boolean;
    present bigint;
    is_same boolean;
    s integer;
  begin
    ${holdInline}
    select array_agg(i.name order by i.name), array_agg(i.version order by i.name)
      into inline_names, inline_versions
      from ~inline_projections as i
      where i.types is null
        or i.types && p_types;
    outcome := 'appended';
    failed_part := 0;
    ${takeKey}
    ${lockStreams}
    if p_check_ids then
      select count(stored.event_id), bool_and(stored.event_id is null or (
          stored.stream = p_streams[p_part_streams[e.part]] and stored.type = e.type and stored.data = e.data))
        into present, is_same
        from rows from (unnest(p_event_parts, p_ids, p_types), jsonb_array_elements(p_data)) as e(part, id, type, data)
        left join ~events as stored on stored.event_id = e.id;
      if present > 0 then
        outcome := case when is_same and present = cardinality(p_ids) then 'stored' else 'taken' end;
      end if;
    end if;

    for part in 1 .. cardinality(p_part_streams) loop
      s := p_part_streams[part];
      versions[part] := current[s];
      if outcome = 'appended' then
        outcome := case
          when marks[s] = 'tombstoned' or (marks[s] = 'archived' and not p_allow_archived) then marks[s]
          when not ${isExpected(fragment`current[s]`, fragment`p_part_expected[part]`, fragment`p_part_versions[part]`)}
            then 'conflict'
          else 'appended'
        end;
        if outcome <> 'appended' then
          failed_part := part;
        end if;
      end if;
    end loop;

    if outcome = 'appended' then
      update ~streams as t
        set version = t.version + x.count
        from unnest(p_part_streams, p_part_counts) as x(i, count)
        where t.stream = p_streams[x.i];
      -- To the millisecond, so that the projections see the very time that is stored.
      created_at := date_trunc('milliseconds', ~clock(p_streams));
      return;
    end if;
    if is_new_key and outcome <> 'stored' then
      delete from ~idempotency_keys
        where key = p_key;
    end if;
    delete from ~streams as t
      using unnest(p_streams) as u(stream)
      where t.stream = u.stream
        and t.version = 0;
  end`

/** What was checked, later in the same transaction: announce, draw positions, insert. By part, as in `save_store`. */
export const appendStore: SqlFunction = plpgsql({ revision: 1 })`
  create function ~append_store(
    p_streams text[],
    p_base bigint[],
    p_created_at timestamptz,
    p_event_parts integer[],
    p_event_numbers integer[],
    ${eventArguments},
    out positions bigint[])
  declare
    moment constant timestamptz := p_created_at;
  begin
    perform ~announce();
    with inserted as (
      ${insertEvents({
        stream: fragment`p_streams[p_event_parts[e.number]]`,
        version: fragment`p_base[p_event_parts[e.number]] + p_event_numbers[e.number]`,
      })})
    select array_agg(position) into positions from inserted;
  end`
