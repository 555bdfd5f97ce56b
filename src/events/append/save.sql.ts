/**
 * Saves of sessions: several in one statement, each with its own outcome, and the events among them.
 *
 *     save_check ──► documents, a writing CTE for each collection ──► save_store
 *     streams locked,                                                 a document refused: RF003, and all is undone;
 *     versions checked                                                else announce, draw positions, insert
 *
 * `save_one_check` takes the place of `save_check` for one save to one stream. Arguments and outcomes as in
 * `append_batch` and `append_one`.
 */
import { fragment } from '../../database/sql.ts'
import { byIndexOnly, plpgsql, type SqlFunction } from '../../schema/plpgsql.ts'
import { batchArguments, batchVariables, checkAppends } from './append-batch.sql.ts'
import { advanceStream, eventArguments, insertEvents, refuseInline } from './fragments.sql.ts'

/**
 * As `append_batch`, but for its end: nothing is announced or drawn. `base` is, by part, the version before its first
 * event, null if it is refused; the events are inserted by `save_store`, later in the same statement.
 */
export const saveCheck: SqlFunction = plpgsql({ revision: 1, settings: byIndexOnly })`
  create function ~save_check(
    ${batchArguments},
    ${eventArguments},
    out outcomes text[],
    out failed_parts integer[],
    out versions bigint[],
    out base bigint[])
  declare
    ${batchVariables}
  begin
    ${checkAppends}
  end`

/**
 * One save to one stream, as `append_one` does it. It waits a moment for a stream that is held elsewhere, then 55P03
 * makes the caller go another way.
 */
export const saveOneCheck: SqlFunction = plpgsql({ revision: 1 })`
  create function ~save_one_check(
    p_stream text,
    p_expected text,
    p_version bigint,
    p_count integer,
    p_types text[],
    out outcome text,
    out version bigint)
  declare
    moment timestamptz;
    found_stream ~streams;
  begin
    ${refuseInline}
    perform set_config('lock_timeout', '50ms', true);
    ${advanceStream({ allowArchived: fragment`false` })}
    outcome := 'appended';
  end`

/**
 * - p_refused: the saves whose documents are not as expected; null if there are none.
 * - p_streams, p_base: by part, its stream and the version before its first event, null if it is refused.
 */
export const saveStore: SqlFunction = plpgsql({ revision: 1 })`
  create function ~save_store(
    p_refused text,
    p_streams text[],
    p_base bigint[],
    p_event_parts integer[],
    p_event_numbers integer[],
    ${eventArguments},
    out positions bigint[])
  declare
    moment timestamptz;
  begin
    if p_refused is not null then
      raise exception 'documents were refused' using errcode = 'RF003', detail = p_refused;
    end if;
    if num_nonnulls(variadic p_base) > 0 then
      moment := ~clock(p_streams);
      perform ~announce();
      with inserted as (
        ${insertEvents({
          stream: fragment`p_streams[p_event_parts[e.number]]`,
          version: fragment`p_base[p_event_parts[e.number]] + p_event_numbers[e.number]`,
        })})
      select array_agg(position) into positions from inserted;
    end if;
  end`
