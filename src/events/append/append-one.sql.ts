/**
 * `append_one`: one append to one stream, in one call. It is the shortest way to the log and the one that most appends
 * take; several appends at once, several streams and idempotency keys go through `append_batch`.
 *
 * Outcomes: appended · conflict · archived · tombstoned · inline (see `fragments.sql.ts`). `version` and `last_position`
 * are those of the last event; of a refused append, `version` is the one that the stream is at. A stream that another
 * transaction holds is waited for. Events of one call have consecutive versions and ascending positions.
 *
 * What can fail: an event id that is stored already raises 23505, in a transaction stricter than read committed a
 * change since it began raises 40001, and a lost connection leaves the outcome open. `group-commit.ts` decides what
 * happens then.
 */
import { fragment } from '../../database/sql.ts'
import { plpgsql, type SqlFunction } from '../../schema/plpgsql.ts'
import { advanceStream, beforeInsert, eventArguments, insertEvents, refuseInline, sayWhen } from './fragments.sql.ts'

export const appendOne: SqlFunction = plpgsql({ revision: 5 })`
  create function ~append_one(
    p_stream text,
    p_expected text,
    p_version bigint,
    p_allow_archived boolean,
    ${eventArguments},
    out outcome text,
    out version bigint,
    out last_position bigint)
  declare
    p_count constant integer := cardinality(p_ids);
    moment timestamptz;
    drawn bigint[];
    found_stream ~streams;
  begin
    ${refuseInline}
    ${advanceStream({ allowArchived: fragment`p_allow_archived` })}
    moment := ~clock(p_stream);
    ${sayWhen}
    ${beforeInsert}
    with inserted as (
      ${insertEvents({ stream: fragment`p_stream`, version: fragment`version - p_count + e.number` })})
    select max(position) into last_position from inserted;
    outcome := 'appended';
  end`
