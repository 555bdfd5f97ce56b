/**
 * Small functions for the middle of an update: what they do is stable for PostgreSQL, because it depends on a setting of
 * the session in some case that does not occur here, and a database over several servers refuses it there. Declared
 * IMMUTABLE they are sent to the server that has the row. In plpgsql, because an expression in SQL would take the place
 * of its call and be refused again.
 */
import { declaredImmutable, type SqlFunction } from './plpgsql.ts'

/** So many milliseconds after a time, or before it. Null if one of them is null. */
export const later: SqlFunction = declaredImmutable({ revision: 1 })`
  create function ~later(p_at timestamptz, p_ms double precision)
  returns timestamptz
  begin
    return p_at + make_interval(secs => p_ms / 1000);
  end`

/** To the millisecond, as precise as a Date. */
export const toMs: SqlFunction = declaredImmutable({ revision: 1 })`
  create function ~to_ms(p_at timestamptz)
  returns timestamptz
  begin
    return date_trunc('milliseconds', p_at);
  end`

/** An object with one key, whose value is a time. */
export const stamp: SqlFunction = declaredImmutable({ revision: 1 })`
  create function ~stamp(p_key text, p_at timestamptz)
  returns jsonb
  begin
    return jsonb_build_object(p_key, p_at);
  end`

/** An entry in the history of a state. */
export const stateEntry: SqlFunction = declaredImmutable({ revision: 1 })`
  create function ~state_entry(p_at timestamptz, p_from text, p_to text, p_note text)
  returns jsonb
  begin
    return jsonb_strip_nulls(jsonb_build_object('at', p_at, 'from', p_from, 'to', p_to, 'note', p_note));
  end`

/**
 * The timeline of the server that has the row: another one when a standby has taken over. Over a column, as the clock is, so
 * that it is never kept in a plan.
 */
export const timeline: SqlFunction = declaredImmutable({ revision: 1 })`
  create function ~timeline(p_column anyelement)
  returns text
  begin
    return left(pg_walfile_name(pg_current_wal_lsn()), 8);
  end`

export const immutableFunctions: readonly SqlFunction[] = [later, toMs, stamp, stateEntry, timeline]
