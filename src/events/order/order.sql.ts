/**
 * Drawing and settling: readers skip no row of the log, nor of any other table that is read in the order of its numbers.
 * Each has two bodies, and a schema has those for its numbers (`schema/numbers.ts`).
 *
 * Announced numbers:
 *
 *     append   announce: take a shared advisory lock that carries a lower bound ──► draw ──► insert ──► commit
 *     reader   settle: 1. head of the sequence   2. least bound announced   ──► 3. read up to the lesser of the two
 *
 * PostgreSQL releases the lock after the commit has become visible. So a row at or below both head and bound is
 * visible to any snapshot taken afterwards, or will never exist.
 *
 * Counters:
 *
 *     append   draw: add to the counter's row, which locks it ──► insert ──► commit: rows and counter at once
 *     reader   settle: the counter as it is committed ──► read up to it
 *
 * The row is locked until the commit, so a number is drawn only after all lower ones are visible, or have been given
 * back. Appends to one log queue for the row: it is drawn from last, after all locks that others may hold.
 *
 * The order of the reads is the whole proof, so these functions are VOLATILE plpgsql, where every statement has its own
 * snapshot (as read committed gives it). One SQL statement, a STABLE function or a repeatable-read transaction would
 * read the locks and the rows of one moment, and lose rows.
 */
import { Fragment, fragment } from '../../database/sql.ts'
import { byNumbers, expression, pieceByNumbers, plpgsql, type SqlFunction } from '../../schema/plpgsql.ts'

/**
 * The low 32 bits of a number, with a sign: an advisory lock's key is two such numbers, the oid of the sequence, so that
 * schemas never collide, and the low half of the bound. `settle` finds the high half again, since bounds are close to
 * the head.
 */
export const signed32: SqlFunction = expression({ revision: 1, volatility: 'immutable' })`
  create function ~signed32(value bigint)
  returns integer
  select ((value & 4294967295) - case when value & 2147483648 <> 0 then 4294967296 else 0 end)::integer`

/**
 * The functions of an ordered log.
 *
 * `announce` takes one lock per transaction: thousands of announcements in one transaction would fill the server's
 * lock table. It remembers its announcement in a transaction-local setting, because a rollback to a savepoint undoes
 * setting and lock together. With counters it does nothing.
 *
 * `draw` gives so many numbers, ascending. Of those that a caller leaves no row has them.
 *
 * `settle` also returns how a caller can know that the log has been rewound. The timeline changes when another server
 * takes over. Sessions do not outlive a crash, after which positions that were drawn, but not on disk yet, are drawn
 * again: only a session known from before proves that there was none. (The postmaster's time of start does not prove
 * it: it stays when one backend is killed and all others are started again.) With counters all of it is read in one
 * statement on the counter, so that the server that has the row answers, whichever was asked.
 */
export function orderedLog(names: { announce: Fragment; draw: Fragment; settle: Fragment; source: Fragment }): {
  announce: SqlFunction
  draw: SqlFunction
  settle: SqlFunction
} {
  const { source } = names
  // [order-1]
  const announce = plpgsql({ revision: 2 })`
    create function ${names.announce}()
    returns void
    declare
      sequence_oid constant bigint := '${source}'::regclass::oid::bigint;
      announced constant text := 'rillflow.announced_' || sequence_oid;
      bound bigint;
    begin
      if coalesce(current_setting(announced, true), '') <> '' then
        return;
      end if;
      select case when is_called then last_value else last_value - 1 end
        into bound
        from ${source};
      perform pg_advisory_xact_lock_shared(
        ~signed32(sequence_oid),
        ~signed32(bound));
      perform set_config(announced, bound::text, true);
    end`
  const announceNothing = plpgsql({ revision: 2 })`
    create function ${names.announce}()
    returns void
    begin
    end`
  // [order-3]
  const settle = plpgsql({ revision: 2 })`
    create function ${names.settle}(out head bigint, out settled bigint, out timeline text, out session text)
    declare
      sequence_oid constant bigint := '${source}'::regclass::oid::bigint;
      bound bigint;
    begin
      if pg_is_in_recovery() then
        raise exception 'settle() needs the primary' using errcode = 'RF001';
      end if;
      if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'settle() needs read committed' using errcode = 'RF002';
      end if;
      timeline := left(pg_walfile_name(pg_current_wal_lsn()), 8);
      session := pg_backend_pid() || coalesce(
        (select '@' || extract(epoch from backend_start) from pg_stat_get_activity(pg_backend_pid())), '');
      select case when is_called then last_value else last_value - 1 end
        into head
        from ${source};
      select min(head + ~signed32(locks.objid::bigint - head))
        into bound
        from pg_locks as locks
        where locks.locktype = 'advisory'
          and locks.database = (select oid from pg_database where datname = current_database())
          and locks.classid::bigint = sequence_oid
          and locks.objsubid = 2
          and locks.mode = 'ShareLock';
      settled := least(head, bound);
    end`
  // [counter-2]
  const settleCounter = plpgsql({ revision: 2 })`
    create function ${names.settle}(out head bigint, out settled bigint, out timeline text, out session text)
    begin
      if pg_is_in_recovery() then
        raise exception 'settle() needs the primary' using errcode = 'RF001';
      end if;
      if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'settle() needs read committed' using errcode = 'RF002';
      end if;
      select c.value, c.value, left(pg_walfile_name(pg_current_wal_lsn()), 8), pg_backend_pid() || coalesce(
          (select '@' || extract(epoch from backend_start) from pg_stat_get_activity(pg_backend_pid())), '')
        into head, settled, timeline, session
        from ~counters as c
        where c.name = ${nameOf(source)};
    end`
  return {
    announce: byNumbers({ announced: announce, counter: announceNothing }),
    draw: drawing({ draw: names.draw, source, first: fragment`perform ${names.announce}();` }),
    settle: byNumbers({ announced: settle, counter: settleCounter }),
  }
}

/**
 * A function that draws numbers of a source, ascending. A batch of appends waits only shortly for streams, but for the
 * counter as long as it takes: no code of users runs while it is locked.
 */
export function drawing({ draw, source, first }: { draw: Fragment; source: Fragment; first?: Fragment }): SqlFunction {
  const fromSequence = plpgsql({ revision: 1 })`
    create function ${draw}(p_count integer, out drawn bigint[])
    begin
      ${first ?? fragment`-- No reader depends on the order of these numbers.`}
      if p_count = 1 then
        drawn := array[nextval('${source}')];
        return;
      end if;
      drawn := array(select nextval('${source}') from generate_series(1, p_count));
    end`
  // [counter-1]
  const fromCounter = plpgsql({ revision: 1 })`
    create function ${draw}(p_count integer, out drawn bigint[])
    declare
      last bigint;
    begin
      if current_setting('lock_timeout') = '50ms' then
        perform set_config('lock_timeout', '10s', true);
      end if;
      update ~counters as c
        set value = c.value + p_count
        where c.name = ${nameOf(source)}
        returning c.value into last;
      if not found then
        raise exception 'the counter is missing' using errcode = 'RF004';
      end if;
      drawn := array(select generate_series(last - p_count + 1, last));
    end`
  return byNumbers({ announced: fromSequence, counter: fromCounter })
}

export interface DrawnRows {
  before(count: Fragment): Fragment
  each(row: Fragment): Fragment
}

/**
 * How a function draws for the rows that a statement inserts: it calls `before` ahead of the statement, and has `each`
 * in it, with the number of the row from 1. A sequence gives the numbers there, row by row, which costs least; from a
 * counter they come in one draw, into the variable `drawn`.
 */
export function drawingRows(names: { announce: Fragment; draw: Fragment; source: Fragment }): DrawnRows {
  return {
    before: count =>
      pieceByNumbers({
        announced: fragment`perform ${names.announce}();`,
        counter: fragment`drawn := ${names.draw}(p_count => ${count});`,
      }),
    each: row =>
      pieceByNumbers({
        announced: fragment`nextval('${names.source}')`,
        counter: fragment`drawn[${row}]`,
      }),
  }
}

/** The name of a source as the text in its row: `~events_position` is `'events_position'`. */
function nameOf(source: Fragment): Fragment {
  return new Fragment([`'${source.strings[0]!.slice(1)}'`], [])
}

const names = {
  announce: fragment`~announce`,
  draw: fragment`~draw`,
  settle: fragment`~settle`,
  source: fragment`~events_position`,
}
const ofEvents = orderedLog(names)
export const announce: SqlFunction = ofEvents.announce
export const draw: SqlFunction = ofEvents.draw
export const settle: SqlFunction = ofEvents.settle
export const positions: DrawnRows = drawingRows(names)
