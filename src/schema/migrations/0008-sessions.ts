/**
 * Sessions: several saves in one statement, each with its own outcome, and what a save under a key came to.
 *
 *     save_check ──► documents, a writing CTE for each collection ──► save_store
 *     streams locked,                                                 a document refused: RF002, and all is undone;
 *     versions checked                                                else announce, draw positions, insert
 */
import type { Migration } from '../migration.ts'
import { saveCheck } from './0006-inline-batch.ts'

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
    raise exception 'documents were refused' using errcode = 'RF002', detail = p_refused;
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
