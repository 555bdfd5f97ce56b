/**
 * The time, as every statement of the store reads it: `~clock(column)`, over any column of the row that is written.
 *
 * Why over a column, and why IMMUTABLE, which it is not: a database over several servers refuses VOLATILE and STABLE
 * functions in the middle of an update. Declared IMMUTABLE it is sent to the server that has the row and runs there, so
 * one clock decides about a tenant. Over a column it is never computed ahead of time, not in a prepared plan either;
 * nor over a variable, where a function of ours assigns it. Over a constant or a parameter of a statement it would be
 * computed once and kept, so that is forbidden, and a test searches for it.
 *
 * A test store moves time by a setting that it gives to the clock of its own schema alone (`moveClock`).
 */
import type { Executor } from '../database/database.ts'
import { Identifier, identifier, literal } from '../database/sql.ts'
import { declaredImmutable, type SqlFunction } from './plpgsql.ts'

/** Without settings of its own: it is called for each row, and setting one takes longer than reading the time. */
export const clock: SqlFunction = declaredImmutable({ revision: 2 })`
  create function ~clock(p_column anyelement)
  returns timestamptz
  declare
    v_moved text := current_setting('rillflow.clock', true);
  begin
    if v_moved is null or v_moved = '' then
      return clock_timestamp();
    end if;
    -- A sign: so many milliseconds ahead of the server's time, or behind it. Else a time that stands still.
    if left(v_moved, 1) in ('+', '-') then
      return clock_timestamp() + make_interval(secs => v_moved::float8 / 1000);
    end if;
    return v_moved::timestamptz;
  end`

/**
 * The time as a table of one row, `moment`, for statements that need it once or write it twice: `select moment.at from
 * ${moment(names.clock)}`. It is read once per execution; `offset 0` keeps the planner from reading it once per use.
 */
export function moment(clock: Identifier): Identifier {
  return new Identifier(`(select ${clock}(one.n) as at from generate_series(1, 1) as one(n) offset 0) as moment`)
}

/** A number: milliseconds ahead of the server's time, and going on from there. A date: the clock stands still at it. */
export type MovedTo = number | Date

/** Moves the clock of this schema, for all connections; undefined puts it right. */
export async function moveClock(executor: Executor, schema: string, to: MovedTo | undefined): Promise<void> {
  const change = to === undefined ? 'reset rillflow.clock' : `set rillflow.clock = ${literal(settingOf(to))}`
  const text = `alter function ${identifier(schema, 'clock')}(anyelement) ${change}`
  await executor.run({ label: 'schema.move_clock', text, values: [] })
}

function settingOf(to: MovedTo): string {
  if (typeof to === 'number') return `${to < 0 ? '' : '+'}${to}`
  return to.toISOString()
}
