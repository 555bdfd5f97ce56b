/**
 * `append_batch`: many appends in one call, each with its own outcome (see `fragments.sql.ts`). An append has one part
 * per stream; it is stored as a whole or not at all.
 *
 *     keys ──► lock streams ──► ids ──► inline ──► versions ──► advance streams ──► draw, insert
 *     └──────────────── checkAppends, which `append_check` uses, too ─────────┘
 *
 * - p_streams: each stream once, sorted by bytes, the order in which every transaction locks them.
 * - p_part_…: by part, its append and its stream (both numbered from 1), its expected version, and its number of
 *   events. Parts of one append stand together.
 * - p_allow_archived, p_check_ids, p_keys, p_digests: by append. The last three are null if no append needs them.
 * - p_is_simple: part n is append n to stream n, without keys and ids to check: decided as a set instead of one by one.
 * - p_waits: wait for streams that other transactions hold (an append sent alone), or report them as busy (a batch, which
 *   must not be held up by one stream; creating one may wait for a moment, then 55P03 makes the caller split the batch).
 * - p_event_parts, p_event_numbers: by event, its part and its number in it, both from 1.
 *
 * `versions` are those of the streams before the append, by part; `positions` are those of all stored events, in order;
 * `failed_parts` is, by append, the part that was refused.
 */
import { type Fragment, fragment } from '../../database/sql.ts'
import { byIndexOnly, plpgsql, type SqlFunction } from '../../schema/plpgsql.ts'
import {
  beforeInsert,
  eventArguments,
  holdInline,
  insertEvents,
  isExpected,
  markOf,
  mayCreate,
  ofOneRow,
  sayWhen,
  wantedInline,
  withOneRow,
} from './fragments.sql.ts'

export const batchArguments: Fragment = fragment`
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
  p_event_parts integer[]`

/** Variables of `checkAppends`. It also sets `base`: by part, the version before its first event, null if refused. */
export const batchVariables: Fragment = fragment`
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
  made bigint;`

const lockedStreams = (lock: Fragment): Fragment => fragment`
  select array_agg(t.version), array_agg(t.mark), array_agg(t.version is not null)
    into current, marks, known
    from unnest(p_streams) as u(stream)
    left join lateral (
      select s.version, ${markOf} as mark
      from ~streams as s
      where s.stream = u.stream
      ${lock}) as t on true;`

/** Streams that an append may create, with version 0: their row is what the append waits for and locks. */
export const createStreams: Fragment = fragment`
  insert into ~streams (stream, version, created_at)
    select u.stream, 0, ~clock(u.i)
    from ${withOneRow(fragment`unnest(p_streams) with ordinality as u(stream, i)`)}
    where ${ofOneRow(fragment`
      exists (
        select
        from unnest(p_part_streams, p_part_expected, p_part_versions) as x(i, expected, version)
        where x.i = u.i
          and ${mayCreate(fragment`x.expected`, fragment`x.version`)})`)}
    order by u.i
    on conflict do nothing;`

// [append-1]
const checkKeys: Fragment = fragment`
  -- Inserting a key waits for the transaction that is just using it; one that is then there was used before.
  if p_keys is not null then
    with inserted as (
      insert into ~idempotency_keys (key, digest, event_ids, created_at)
      select k.key, k.digest, array(
          select e.id
          from unnest(p_event_parts, p_ids) as e(part, id)
          where p_part_appends[e.part] = k.append), ~clock(k.append)
      from ${withOneRow(fragment`unnest(p_keys, p_digests) with ordinality as k(key, digest, append)`)}
      where ${ofOneRow(fragment`k.key is not null`)}
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
      join ~idempotency_keys as stored on stored.key = k.key
    loop
      -- The same events under the same key: this very append, sent before. Their ids say whether it was stored.
      if not (r.is_own and r.is_same) then
        outcomes[r.append] := case when r.is_same then 'repeated' else 'mismatched' end;
      end if;
    end loop;
  end if;`

// [append-2]
const lockStreams: Fragment = fragment`
  if p_waits then
    loop
      ${createStreams}
      ${lockedStreams(fragment`for update`)}
      exit when not exists (
        select
        from unnest(p_part_streams, p_part_expected, p_part_versions) as x(i, expected, version)
        where not known[x.i]
          and ${mayCreate(fragment`x.expected`, fragment`x.version`)});
      -- An append that had made the stream was refused and removed it again: try again.
    end loop;
  else
    ${lockedStreams(fragment`for update skip locked`)}
  end if;
  -- A stream that is still unknown does not exist yet (version 0), or another transaction holds it (stays null).
  if false = any(known) then
    select array_agg(case
        when u.version is null and not exists (
          select
          from ~streams as s
          where s.stream = u.stream) then 0
        else u.version end)
      into current
      from unnest(p_streams, current) as u(stream, version);
  end if;`

// [append-3]
const checkIds: Fragment = fragment`
  if p_check_ids is not null then
    for r in
      select
        p_part_appends[e.part] as append,
        count(stored.event_id) as present,
        count(*) as wanted,
        bool_and(stored.event_id is null or (
          stored.stream = p_streams[p_part_streams[e.part]] and stored.type = e.type and stored.data = e.data)) as is_same
      from rows from (unnest(p_event_parts, p_ids, p_types), jsonb_array_elements(p_data)) as e(part, id, type, data)
      left join ~events as stored on stored.event_id = e.id
      where p_check_ids[p_part_appends[e.part]]
      group by 1
    loop
      if outcomes[r.append] = 'appended' and r.present > 0 then
        outcomes[r.append] := case when r.is_same and r.present = r.wanted then 'stored' else 'taken' end;
      end if;
    end loop;
  end if;`

/** The outcome of an append by the state of one stream; `e` has the expected version. */
function outcomeOf(of: {
  isBusy: Fragment
  mark: Fragment
  allowArchived: Fragment
  version: Fragment
  expected: Fragment
  exact: Fragment
}): Fragment {
  return fragment`
    case
      when ${of.isBusy} then 'busy'
      when ${of.mark} = 'tombstoned' or (${of.mark} = 'archived' and not ${of.allowArchived}) then ${of.mark}
      when not ${isExpected(of.version, of.expected, of.exact)} then 'conflict'
      else 'appended'
    end`
}

/** Each stream has one append, so all can be decided in one statement. */
const decideAsSet: Fragment = fragment`
  select array_agg(u.outcome), array_agg(case when u.outcome = 'appended' then u.version end)
    into outcomes, base
    from (
      select x.version, ${outcomeOf({
        isBusy: fragment`x.version is null`,
        mark: fragment`x.mark`,
        allowArchived: fragment`x.allow_archived`,
        version: fragment`x.version`,
        expected: fragment`x.expected`,
        exact: fragment`x.exact`,
      })} as outcome
      from unnest(current, marks, p_part_expected, p_part_versions, p_allow_archived)
        as x(version, mark, expected, exact, allow_archived)) as u;
  select array_agg(coalesce(u.base + u.count, u.version))
    into current
    from unnest(current, base, p_part_counts) as u(version, base, count);`

/** Append by append, since one may follow another on the same stream. [append-4] */
const decideOneByOne: Fragment = fragment`
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
        outcomes[append] := ${outcomeOf({
          isBusy: fragment`current[s] is null or passed_over[s]`,
          mark: fragment`marks[s]`,
          allowArchived: fragment`p_allow_archived[append]`,
          version: fragment`current[s]`,
          expected: fragment`p_part_expected[next_part]`,
          exact: fragment`p_part_versions[next_part]`,
        })};
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
  end loop;`

const advanceStreams: Fragment = fragment`
  if 'appended' = any(outcomes) then
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
      insert into ~streams (stream, version, created_at)
        select u.stream, u.version, ~clock(u.i)
        from ${withOneRow(fragment`unnest(p_streams, known, current) with ordinality as u(stream, known, version, i)`)}
        where ${ofOneRow(fragment`not u.known`)}
          and u.version > 0
        order by u.i
        on conflict do nothing;
      get diagnostics made = row_count;
      if made < wanted then
        raise exception 'a stream was created by another append' using errcode = '55P03';
      end if;
    end if;
  end if;`

/** Removes the rows of refused appends: the keys they brought, and streams made for them while waiting. [append-5] */
const removeTraces: Fragment = fragment`
  if 'appended' <> any(outcomes) then
    if p_keys is not null then
      delete from ~idempotency_keys as k
        using unnest(p_keys, outcomes) as u(key, outcome)
        where k.key = u.key
          and k.key = any(new_keys)
          and u.outcome not in ('appended', 'repeated', 'mismatched', 'stored');
    end if;
    if p_waits then
      delete from ~streams as t
        using unnest(p_streams) as u(stream)
        where t.stream = u.stream
          and t.version = 0;
    end if;
  end if;`

/** Sets `inline_appends`: those that an inline projection wants. */
export const findInline: Fragment = fragment`
  if ${wantedInline} then
    select array_agg(distinct p_part_appends[e.part])
      into inline_appends
      from unnest(p_event_parts, p_types) as e(part, type)
      where exists (
        select
        from ~inline_projections as i
        where i.types is null
          or e.type = any(i.types));
  end if;`

/**
 * All that an append does before it announces. Sets `outcomes`, `failed_parts`, `versions` and `base`. Appends that
 * `lookForInline` puts into `inline_appends` are not stored: their outcome is 'inline'.
 */
export const checkAppends = (lookForInline: Fragment): Fragment => fragment`
  -- Before the short lock_timeout: a batch waits for a switch of projections as a whole instead of being split.
  ${holdInline}
  ${lookForInline}
  if not p_waits then
    perform set_config('lock_timeout', '50ms', true);
  end if;
  outcomes := array_fill('appended'::text, array[appends]);
  ${checkKeys}
  ${lockStreams}
  ${checkIds}
  if inline_appends is not null then
    select array_agg(
        case when u.outcome = 'appended' and u.append = any(inline_appends) then 'inline' else u.outcome end
        order by u.append)
      into outcomes
      from unnest(outcomes) with ordinality as u(outcome, append);
  end if;
  versions := current;
  if p_is_simple and inline_appends is null then
    ${decideAsSet}
  else
    ${decideOneByOne}
  end if;
  ${advanceStreams}
  ${removeTraces}`

export const appendBatch: SqlFunction = plpgsql({ revision: 6, settings: byIndexOnly })`
  create function ~append_batch(
    ${batchArguments},
    p_event_numbers integer[],
    ${eventArguments},
    out outcomes text[],
    out failed_parts integer[],
    out versions bigint[],
    out positions bigint[])
  declare
    ${batchVariables}
    base bigint[];
    drawn bigint[];
  begin
    ${checkAppends(findInline)}
    if 'appended' = any(outcomes) then
      moment := ~clock(p_streams);
      ${sayWhen}
      ${beforeInsert}
      with inserted as (
        ${insertEvents({
          stream: fragment`p_streams[p_part_streams[p_event_parts[e.number]]]`,
          version: fragment`base[p_event_parts[e.number]] + p_event_numbers[e.number]`,
        })})
      select array_agg(position) into positions from inserted;
    end if;
  end`
