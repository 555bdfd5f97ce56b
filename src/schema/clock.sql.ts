/**
 * The time, as every statement of the store reads it: `~clock(column)`, over any column of the row that is written.
 *
 * Why over a column, and why IMMUTABLE, which it is not: a database over several servers refuses VOLATILE and STABLE
 * functions in the middle of an update. Declared IMMUTABLE it is sent to the server that has the row and runs there, so
 * one clock decides about a tenant. Over a column it is never computed ahead of time, not in a prepared plan either;
 * nor over a variable, where a function of ours assigns it. Over a constant or a parameter of a statement it would be
 * computed once and kept, so that is forbidden, and a test searches for it.
 *
 * A test store moves time by a setting of its database, in milliseconds.
 */
import { Identifier } from '../database/sql.ts'
import { declaredImmutable, type SqlFunction } from './plpgsql.ts'

/** Without settings of its own: it is called for each row, and setting one takes longer than reading the time. */
export const clock: SqlFunction = declaredImmutable({ revision: 1 })`
  create function ~clock(p_column anyelement)
  returns timestamptz
  begin
    return clock_timestamp()
      + make_interval(secs => coalesce(nullif(current_setting('rillflow.clock_offset_ms', true), '')::float8, 0) / 1000);
  end`

/**
 * The time as a table of one row, `moment`, for statements that need it once or write it twice: `select moment.at from
 * ${moment(names.clock)}`. It is read once per execution; `offset 0` keeps the planner from reading it once per use.
 */
export function moment(clock: Identifier): Identifier {
  return new Identifier(`(select ${clock}(one.n) as at from generate_series(1, 1) as one(n) offset 0) as moment`)
}
