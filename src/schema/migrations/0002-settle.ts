/**
 * Announcing and settling: how nothing is ever skipped.
 *
 * Before it draws a position an append announces a lower bound of what it will draw, as a shared advisory lock that
 * carries the bound in its key and that PostgreSQL releases after the commit has become visible. `settle` reads the
 * head of the sequence, then the least announced bound. An event at or below both is visible to any snapshot taken
 * afterwards, or will never exist.
 *
 * The order of the reads is the whole proof, so both are VOLATILE plpgsql, where every statement has its own snapshot
 * (as read committed gives it). One SQL statement, a STABLE function or a repeatable-read transaction would read the
 * locks and the events of one moment, and lose events.
 */
import type { Migration } from '../migration.ts'

export const settle: Migration = {
  id: 2,
  name: 'settle',
  breaking: true,
  statements: ({ name, literal }) => [
    // An advisory lock's key is two signed 32-bit numbers: the sequence's oid, so that schemas never collide, and the
    // low half of the bound. `settle` finds the high half again, since bounds are close to the head.
    `create function ${name('signed32')}(value bigint) returns integer
language sql immutable parallel safe
return ((value & 4294967295) - case when value & 2147483648 <> 0 then 4294967296 else 0 end)::integer`,
    // Once per transaction: thousands of announcements in one transaction would fill the server's lock table. The memory
    // of it is a transaction-local setting, because a rollback to a savepoint undoes setting and lock together.
    `create function ${name('announce')}() returns void
language plpgsql volatile
as ${literal(`
declare
  sequence_oid constant bigint := ${literal(name('events_position'))}::regclass::oid::bigint;
  announced constant text := 'rillflow.announced_' || sequence_oid;
  bound bigint;
begin
  if coalesce(current_setting(announced, true), '') <> '' then
    return;
  end if;
  select case when is_called then last_value else last_value - 1 end
    into bound
    from ${name('events_position')};
  perform pg_advisory_xact_lock_shared(
    ${name('signed32')}(sequence_oid),
    ${name('signed32')}(bound));
  perform set_config(announced, bound::text, true);
end
`)}`,
    // The timeline changes when another server takes over. Sessions do not outlive a crash, after which positions that
    // were drawn, but not on disk yet, are drawn again: only a session known from before proves that there was none. (The
    // postmaster's time of start does not tell: it stays when one backend is killed and all others are started anew.)
    `create function ${name('settle')}(out head bigint, out settled bigint, out timeline text, out session text)
language plpgsql volatile
as ${literal(`
declare
  sequence_oid constant bigint := ${literal(name('events_position'))}::regclass::oid::bigint;
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
    from ${name('events_position')};
  select min(head + ${name('signed32')}(locks.objid::bigint - head))
    into bound
    from pg_locks as locks
    where locks.locktype = 'advisory'
      and locks.database = (select oid from pg_database where datname = current_database())
      and locks.classid::bigint = sequence_oid
      and locks.objsubid = 2
      and locks.mode = 'ShareLock';
  settled := least(head, bound);
end
`)}`,
  ],
}
