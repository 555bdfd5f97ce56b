/**
 * Announcing and settling: readers skip no row of the log, nor of any other table that is read in the order of a
 * sequence.
 *
 *     append   announce: take a shared advisory lock that carries a lower bound ──► draw ──► insert ──► commit
 *     reader   settle: 1. head of the sequence   2. least bound announced   ──► 3. read up to the lesser of the two
 *
 * PostgreSQL releases the lock after the commit has become visible. So a row at or below both head and bound is
 * visible to any snapshot taken afterwards, or will never exist.
 *
 * The order of the reads is the whole proof, so both functions are VOLATILE plpgsql, where every statement has its own
 * snapshot (as read committed gives it). One SQL statement, a STABLE function or a repeatable-read transaction would
 * read the locks and the rows of one moment, and lose rows.
 */
import { type Fragment, fragment } from '../../database/sql.ts'
import { expression, plpgsql, type SqlFunction } from '../../schema/plpgsql.ts'

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
 * The two functions of an ordered log.
 *
 * `announce` takes one lock per transaction: thousands of announcements in one transaction would fill the server's
 * lock table. It remembers its announcement in a transaction-local setting, because a rollback to a savepoint undoes
 * setting and lock together.
 *
 * `settle` also returns how a caller can know that the log has been rewound. The timeline changes when another server
 * takes over. Sessions do not outlive a crash, after which positions that were drawn, but not on disk yet, are drawn
 * again: only a session known from before proves that there was none. (The postmaster's time of start does not prove
 * it: it stays when one backend is killed and all others are started again.)
 */
export function orderedLog(names: { announce: Fragment; settle: Fragment; sequence: Fragment }): {
  announce: SqlFunction
  settle: SqlFunction
} {
  const { sequence } = names
  // [order-1]
  const announce = plpgsql({ revision: 1 })`
    create function ${names.announce}()
    returns void
    declare
      sequence_oid constant bigint := '${sequence}'::regclass::oid::bigint;
      announced constant text := 'rillflow.announced_' || sequence_oid;
      bound bigint;
    begin
      if coalesce(current_setting(announced, true), '') <> '' then
        return;
      end if;
      select case when is_called then last_value else last_value - 1 end
        into bound
        from ${sequence};
      perform pg_advisory_xact_lock_shared(
        ~signed32(sequence_oid),
        ~signed32(bound));
      perform set_config(announced, bound::text, true);
    end`
  // [order-3]
  const settle = plpgsql({ revision: 1 })`
    create function ${names.settle}(out head bigint, out settled bigint, out timeline text, out session text)
    declare
      sequence_oid constant bigint := '${sequence}'::regclass::oid::bigint;
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
        from ${sequence};
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
  return { announce, settle }
}

const ofEvents = orderedLog({
  announce: fragment`~announce`,
  settle: fragment`~settle`,
  sequence: fragment`~events_position`,
})
export const announce: SqlFunction = ofEvents.announce
export const settle: SqlFunction = ofEvents.settle
