/**
 * Sessions: several saves in one statement, each with its own outcome, and what a save under a key came to.
 *
 *     save_check ──► documents, a writing CTE for each collection ──► save_store
 *     streams locked,                                                 a document refused: RF003, and all is undone;
 *     versions checked                                                else announce, draw positions, insert
 */
import type { Migration } from '../migration.ts'
import { saveCheck } from './0006-inline-batch.ts'
import { barrierOf } from './0006-inline-phases.ts'

export const sessions: Migration = {
  id: 8,
  name: 'sessions',
  breaking: false,
  statements: quote => {
    const { name, literal } = quote
    return [
      // [collection, id, version] of each document.
      `alter table ${name('idempotency_keys')} add column documents jsonb`,
      saveCheck(quote),
      // One save to one stream, the shortest way, as append_one does it. It waits a moment for who holds the stream, then
      // 55P03 tells the caller to go another way.
      `create function ${name('save_one_check')}(
  p_stream text,
  p_expected bigint,
  p_count integer,
  p_types text[],
  out outcome integer,
  out at_version bigint)
language plpgsql volatile
as ${literal(`
declare
  found_stream ${name('streams')};
begin
${barrierOf(quote)}
  if exists (
      select
      from ${name('inline_projections')} as i
      where i.types is null
        or i.types && p_types) then
    outcome := 9;
    return;
  end if;
  perform set_config('lock_timeout', '50ms', true);
  outcome := 0;
  loop
    update ${name('streams')} as s
      set version = s.version + p_count
      where s.stream = p_stream
        and (s.version = p_expected or p_expected = -1 or (p_expected = -2 and s.version > 0))
        and s.tombstoned_at is null
        and s.archived_at is null
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
`)}`,
      // p_refused: the saves whose documents are not what they should be; null if there are none.
      `create function ${name('save_store')}(
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
as ${literal(`
begin
  if p_refused is not null then
    raise exception 'documents were refused' using errcode = 'RF003', detail = p_refused;
  end if;
  if num_nonnulls(variadic p_base) > 0 then
    perform ${name('announce')}();
    with inserted as (
      insert into ${name('events')} (
        position, stream, version, event_id, type, schema_version, data, headers,
        correlation_id, causation_id, user_id, created_at)
      select
        nextval(${literal(name('events_position'))}), p_part_streams[e.p], p_base[e.p] + e.n, e.id, e.t,
        coalesce(e.v, 1), e.d, nullif(e.h, 'null'), coalesce(e.co, e.id::text), e.ca, e.u, clock_timestamp()
      from rows from (
        unnest(p_event_part, p_event_number, p_ids, p_types, p_schema_versions, p_correlations, p_causations, p_users),
        jsonb_array_elements(p_data),
        jsonb_array_elements(p_headers)) as e(p, n, id, t, v, co, ca, u, d, h)
      where p_base[e.p] is not null
      returning position)
    select array_agg(position) into positions from inserted;
  end if;
end
`)}`,
    ]
  },
}
