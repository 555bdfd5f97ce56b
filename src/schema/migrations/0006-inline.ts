/**
 * Inline projections: read models that change in the transaction of the append.
 *
 * `inline_projections` says which are active, in which version, and for which types as they are stored (null: all).
 * Reading it takes a lock (ACCESS SHARE) that lasts until the transaction ends, and that is the barrier: whoever changes
 * the table locks it exclusively, and so waits for all appends that have looked, while the next ones wait to look.
 * A transaction stricter than read committed looks with its old eyes; so it also locks the one row of `inline_changes`,
 * which every change updates, and fails with 40001 if there was one since it began.
 *
 * Both functions look first. Outcome 9 says that an append meets an inline projection: nothing of it was stored, and it
 * is sent again by `append_check` and `append_store`, between which the projections run: with the streams locked, their
 * versions known, and no position drawn. All else is as it was. An append that meets none pays only the look.
 */
import type { Migration } from '../migration.ts'
import { appendBatch } from './0006-inline-batch.ts'
import { appendPhases, barrierOf } from './0006-inline-phases.ts'

export const inline: Migration = {
  id: 6,
  name: 'inline',
  breaking: true,
  statements: quote => {
    const { name, literal } = quote
    const barrier = barrierOf(quote)
    return [
      `create table ${name('inline_projections')} (
  activated_at timestamptz not null default now(),
  version integer not null,
  name text collate "C" primary key,
  types text[]
)`,
      `create table ${name('inline_changes')} (
  changes bigint not null,
  id integer primary key
)`,
      `insert into ${name('inline_changes')} (id, changes) values (1, 0)`,
      // One append to one stream, the shortest way: an existing stream is locked, checked and moved on by a single update.
      `create or replace function ${name('append_one')}(
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
as ${literal(`
declare
  p_count constant integer := cardinality(p_ids);
  found_stream ${name('streams')};
begin
${barrier}
  if exists (
      select
      from ${name('inline_projections')} as i
      where i.types is null
        or i.types && p_types) then
    outcome := 9;
    return;
  end if;
  outcome := 0;
  loop
    update ${name('streams')} as s
      set version = s.version + p_count
      where s.stream = p_stream
        and (s.version = p_expected or p_expected = -1 or (p_expected = -2 and s.version > 0))
        and s.tombstoned_at is null
        and (s.archived_at is null or p_allow_archived)
      returning s.version into at_version;
    exit when found;
    if p_expected in (-1, 0) then
      insert into ${name('streams')} (stream, version)
        values (p_stream, p_count)
        on conflict do nothing
        returning version into at_version;
      exit when found;
    end if;
    select * into found_stream
      from ${name('streams')} as s
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
  perform ${name('announce')}();
  with inserted as (
    insert into ${name('events')} (
      position, stream, version, event_id, type, schema_version, data, headers,
      correlation_id, causation_id, user_id, created_at)
    select
      nextval(${literal(name('events_position'))}), p_stream, at_version - p_count + e.n, e.id, e.t,
      coalesce(e.v, 1), e.d, nullif(e.h, 'null'), coalesce(e.co, e.id::text), e.ca, e.u, clock_timestamp()
    from rows from (
      unnest(p_ids, p_types, p_schema_versions, p_correlations, p_causations, p_users),
      jsonb_array_elements(p_data),
      jsonb_array_elements(p_headers)) with ordinality as e(id, t, v, co, ca, u, d, h, n)
    returning position)
  select max(position) into at_position from inserted;
end
`)}`,
      appendBatch(quote),
      ...appendPhases(quote),
    ]
  },
}
